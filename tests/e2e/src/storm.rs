//! A storm of 429 on a real API server: API Priority and Fairness refuses whatever some accounts ask.
//!
//! Their requests go to a priority level without seats. The server still serves one request of such a level at a time, so
//! that a client that asks one thing after another would never be refused. One that does not end therefore takes that place.

use std::{
    fs,
    io::Write as _,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use lab::command::output;
use serde_json::{Value, json};

use crate::wait_until;

/// The priority level, and the user whose request it serves.
const NAME: &str = "storm";

/// How long anything here may take on a loaded machine.
const LIMIT: Duration = Duration::from_mins(3);

/// A request that anybody may send, without the end of its body. The server waits a minute for the rest.
const ENDLESS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\n\
    Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{";

/// A storm over the requests of ServiceAccounts. It passes with [`Storm::pass`], and its processes end with the value.
pub struct Storm<'a> {
    kubectl: &'a dyn Fn() -> Command,
    proxy: Child,
    socket: PathBuf,
    served: Vec<UnixStream>,
}

impl<'a> Storm<'a> {
    /// Raises a storm over ServiceAccounts, given as namespace and name. `kubectl` is an administrator's; files are left in
    /// `directory`.
    ///
    /// # Errors
    ///
    /// The API does not take it.
    pub fn over(
        accounts: &[(&str, &str)],
        kubectl: &'a dyn Fn() -> Command,
        directory: &Path,
    ) -> Result<Self> {
        let mut items = vec![
            level(),
            schema(NAME, &json!({"kind": "User", "user": {"name": NAME}})),
        ];
        items.extend(accounts.iter().map(|(namespace, name)| {
            let account = json!({"namespace": namespace, "name": name});
            let subject = json!({"kind": "ServiceAccount", "serviceAccount": account});
            schema(&schema_name(namespace), &subject)
        }));
        let file = directory.join("storm.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fs::write(&file, list.to_string()).context("write the storm")?;
        output(kubectl().arg("apply").arg("-f").arg(&file))?;

        let socket = directory.join("storm.socket");
        let mut proxy = kubectl();
        proxy
            .args(["proxy", "--as", NAME, "--unix-socket"])
            .arg(&socket);
        let proxy = proxy.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut storm = Self {
            kubectl,
            proxy: proxy.context("start kubectl proxy")?,
            socket,
            served: Vec::new(),
        };
        storm.hold()?;
        Ok(storm)
    }

    /// Waits until the account of a namespace was refused so often.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn await_refusals(&mut self, namespace: &str, times: u32) -> Result<()> {
        let what = format!("{times} refusals to the account of {namespace}");
        wait_until(&what, LIMIT, || {
            self.hold()?;
            Ok((self.refusals(namespace)? >= f64::from(times)).then_some(()))
        })
    }

    /// How often the account of a namespace was refused.
    ///
    /// # Errors
    ///
    /// The server does not say.
    pub fn refusals(&self, namespace: &str) -> Result<f64> {
        let metric = "apiserver_flowcontrol_rejected_requests_total";
        self.metric(metric, &schema_name(namespace))
    }

    /// Ends the storm.
    ///
    /// # Errors
    ///
    /// The API does not end it.
    pub fn pass(self) -> Result<()> {
        let kinds = "flowschemas,prioritylevelconfigurations";
        let storm = format!("-l=app={NAME}");
        output((self.kubectl)().args(["delete", kinds, &storm])).map(drop)
    }

    /// Sees to it that a request that does not end is served: the server knows the level a moment after it is told of it, and
    /// gives a request up after a while.
    fn hold(&mut self) -> Result<()> {
        wait_until("the storm's own request to be served", LIMIT, || {
            if self.metric("apiserver_flowcontrol_current_executing_requests", NAME)? > 0.0 {
                return Ok(Some(()));
            }
            // There is no socket yet, or the proxy does not listen yet.
            if let Ok(mut stream) = UnixStream::connect(&self.socket) {
                stream
                    .write_all(ENDLESS.as_bytes())
                    .context("begin a request")?;
                self.served.push(stream);
            }
            Ok(None)
        })
    }

    fn metric(&self, name: &str, schema: &str) -> Result<f64> {
        let text = output((self.kubectl)().args(["get", "--raw", "/metrics"]))?;
        let schema = format!("flow_schema=\"{schema}\"");
        let lines = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&schema));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }
}

impl Drop for Storm<'_> {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

fn schema_name(namespace: &str) -> String {
    format!("{NAME}-{namespace}")
}

fn level() -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": NAME, "labels": {"app": NAME}},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    })
}

fn schema(name: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": name, "labels": {"app": NAME}},
        "spec": {
            "priorityLevelConfiguration": {"name": NAME}, "matchingPrecedence": 10,
            "rules": [{
                "subjects": [subject],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true,
                }],
            }],
        },
    })
}
