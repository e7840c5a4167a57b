//! A cloud's services in a real cluster of one node: real Helm, a real MariaDB, real services, and the real `openstack` command.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use lab::{CloudImages, LabOptions, Node, Progress, command::output};
use serde_json::{Value, json};

use crate::{Operator, condition, is_true, operator, wait_until};

/// Images lie on the node already; a loaded machine takes its time all the same.
const LIMIT: Duration = Duration::from_mins(8);
/// Where Windlass counts its passes, in the network of the cluster, which nothing else is in.
const METRICS: &str = "127.0.0.1:9199";
/// What asks for tokens while something else happens.
const TOKENS: &str = include_str!("tokens.py");

/// A cluster with Windlass beside it. All of it ends with the value.
pub struct Services {
    /// The cluster.
    pub node: Node,
    /// Helm.
    pub helm: PathBuf,
    windlass: PathBuf,
    operator: Option<Operator>,
}

impl Services {
    /// The namespace of the cloud.
    pub const NAMESPACE: &str = "cloud";
    /// The cloud.
    pub const CLOUD: &str = "one";

    /// Starts the cluster, gives it the images and the kinds, and starts Windlass.
    ///
    /// # Errors
    ///
    /// One of them cannot be had, or does not start.
    pub fn set(windlass: PathBuf, progress: &dyn Progress) -> Result<Self> {
        let helm = lab::helm(progress)?;
        let images = CloudImages::ensure(progress)?;
        let options = LabOptions {
            hosts: 1,
            ..LabOptions::default()
        };
        let node = Node::start(options, progress)?;
        for image in images.files() {
            node.import(&image)?;
        }
        let mut services = Self {
            node,
            helm,
            windlass,
            operator: None,
        };
        operator::define(&services.node, &services.windlass, "--openstack")?;
        services.kubectl(&["create", "namespace", Self::NAMESPACE])?;
        services.operate()?;
        Ok(services)
    }

    /// The object: Keystone, Placement and Glance of a release. The images of Keystone and Glance are of that release, too.
    pub fn cloud(release: &str, keystone: &Value) -> Value {
        let image = if release == "2026.1" {
            CloudImages::BEFORE
        } else {
            CloudImages::SERVICES
        };
        json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1",
            "kind": "OpenStack",
            "metadata": {"name": Self::CLOUD, "namespace": Self::NAMESPACE},
            "spec": {
                "release": release,
                "database": {"managed": {"image": CloudImages::MARIADB}},
                "services": [
                    {"name": "glance", "image": image},
                    {"name": "keystone", "image": image, "config": keystone},
                    {"name": "placement", "image": CloudImages::SERVICES},
                ],
            },
        })
    }

    /// Starts Windlass; the one before is killed.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn operate(&mut self) -> Result<()> {
        self.operator = None;
        let arguments = ["controller", "--runners=process", "--openstack"];
        let mut command = self.windlass(&arguments);
        command.arg(format!("--metrics={METRICS}"));
        command.arg("--helm").arg(&self.helm);
        let log = self.node.lab.dir().join("operator.log");
        self.operator = Some(Operator::start(&mut command, log)?);
        Ok(())
    }

    /// The number of the process that operates.
    pub fn operator(&self) -> Option<u32> {
        self.operator.as_ref().map(Operator::pid)
    }

    /// How many passes over objects of a kind have ended well since Windlass was started.
    ///
    /// # Errors
    ///
    /// Windlass does not answer.
    pub fn passes(&self, kind: &str) -> Result<u64> {
        let server = format!("--server=http://{METRICS}");
        let text = self.kubectl(&[&server, "get", "--raw", "/metrics"])?;
        let series = format!(r#"windlass_reconcile_total{{kind="{kind}",outcome="success"}} "#);
        let count = text.lines().find_map(|line| line.strip_prefix(&series));
        count.map_or(Ok(0), |count| Ok(count.parse()?))
    }

    /// `windlass` in the namespace of the cloud.
    pub fn windlass(&self, arguments: &[&str]) -> Command {
        let of = ["--namespace", Self::NAMESPACE];
        operator::beside(&self.node, &self.windlass, &[&of, arguments].concat())
    }

    /// Applies an object.
    ///
    /// # Errors
    ///
    /// The API refuses it.
    pub fn apply(&self, object: &Value) -> Result<String> {
        let file = self.node.lab.dir().join("object.json");
        fs::write(&file, object.to_string())?;
        self.kubectl(&["apply", "--filename", &file.display().to_string()])
    }

    /// `kubectl` in the namespace of the cloud.
    pub fn ask(&self, arguments: &[&str]) -> Command {
        let of = ["--namespace", Self::NAMESPACE];
        self.node.kubectl(&[of.as_slice(), arguments].concat())
    }

    /// What `kubectl` says in the namespace of the cloud.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        output(&mut self.ask(arguments))
    }

    /// An object. Null where it is not there.
    pub fn get(&self, kind: &str, name: &str) -> Value {
        let get = ["get", kind, name, "-o", "json", "--ignore-not-found"];
        let found = self.kubectl(&get).unwrap_or_default();
        serde_json::from_str(&found).unwrap_or_default()
    }

    /// An object, once that condition of it is true. One that stalls meanwhile does not get there.
    ///
    /// # Errors
    ///
    /// It stalls, or takes too long; the error shows how everything stands.
    pub fn until(&self, kind: &str, name: &str, condition: &str) -> Result<Value> {
        let found = wait_until(&format!("{kind} {name} to be {condition}"), LIMIT, || {
            let object = self.get(kind, name);
            let seen = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            if seen && condition != "Stalled" && is_true(&object, "Stalled") {
                bail!("it stalled: {}", Self::message(&object, "Stalled"));
            }
            Ok((seen && is_true(&object, condition)).then_some(object))
        });
        found.with_context(|| self.how_it_stands())
    }

    /// What the condition of an object says.
    pub fn message(object: &Value, kind: &str) -> String {
        let found = condition(object, kind);
        let message = found.and_then(|found| found["message"].as_str());
        message.unwrap_or_default().to_owned()
    }

    /// Waits until that many steps of a service's run are done.
    ///
    /// # Errors
    ///
    /// It takes too long.
    pub fn step_is_done(&self, service: &str, steps: u32) -> Result<()> {
        wait_until("a step of the service", LIMIT, || {
            let object = self.get("openstackservice", service);
            let told = object["status"]["steps"].as_str().unwrap_or_default();
            let done = told.split('/').next().and_then(|done| done.parse().ok());
            Ok(done.is_some_and(|done: u32| done >= steps).then_some(()))
        })
    }

    /// Has a step done by hand, and says what became of it.
    ///
    /// # Errors
    ///
    /// The step fails.
    pub fn do_step(&self, service: &str, step: &str) -> Result<Value> {
        let told = output(&mut self.windlass(&["openstack", "run", service, step]))?;
        self.run_ends(&told)
    }

    /// Waits until the run has ended well that `windlass openstack run` says that it began, and says what became of it.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn run_ends(&self, told: &str) -> Result<Value> {
        let run = told.split(' ').nth(1).context("no run is named")?;
        wait_until("the step by hand", LIMIT, || {
            let run = self.get("run", run);
            ensure!(run["status"]["phase"] != "Failed", "{}", run["status"]);
            Ok((run["status"]["phase"] == "Succeeded").then_some(run))
        })
    }

    /// Gives Glance an image, and says what it was and what Glance says that it keeps, both as SHA-512.
    ///
    /// # Errors
    ///
    /// Glance does not take it.
    pub fn upload(&self) -> Result<(String, String)> {
        let script = "head -c 1048576 /dev/urandom > /tmp/disk && sha512sum < /tmp/disk";
        let sum = self.kubectl(&["exec", CLIENT, "--", "sh", "-c", script])?;
        let sum = sum.split(' ').next().unwrap_or_default().to_owned();
        let create = ["image", "create", "--file=/tmp/disk", "--disk-format=raw"];
        self.openstack(&[&create[..], &["--container-format=bare", "disk"]].concat())?;
        let image = self.openstack(&["image", "show", "disk", "-f", "json"])?;
        let image: Value = serde_json::from_str(&image)?;
        ensure!(image["status"] == "active", "it is not active: {image}");
        let kept = image["properties"]["os_hash_value"].as_str();
        Ok((sum, kept.unwrap_or_default().to_owned()))
    }

    /// The real command as the administrator, in a pod of Placement, by the name of Keystone's Service.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn openstack(&self, arguments: &[&str]) -> Result<String> {
        let script = "export OS_PASSWORD=\"$(cat)\"; exec openstack \"$@\"";
        let mut command = self.ask(&["exec", "-i", CLIENT, "--", "env", "HOME=/tmp"]);
        command.args([
            "OS_AUTH_URL=http://one-keystone:5000/v3",
            "OS_USERNAME=admin",
        ]);
        command.args(["OS_PROJECT_NAME=admin", "OS_IDENTITY_API_VERSION=3"]);
        command.args([
            "OS_USER_DOMAIN_NAME=Default",
            "OS_PROJECT_DOMAIN_NAME=Default",
        ]);
        command.args(["sh", "-c", script, "sh"]).args(arguments);
        lab::command::output_from(self.password()?, &mut command)
    }

    /// Begins to have tokens issued and validated, one after the other, until the value is asked what became of them. It goes on in a
    /// pod, and needs no connection that may break.
    ///
    /// # Errors
    ///
    /// It cannot begin.
    pub fn tokens(&self) -> Result<Tokens<'_>> {
        // The password is in no argument.
        let script =
            "cat > /tmp/password; setsid python3 -c \"$0\" > /tmp/told 2>&1 < /tmp/password &";
        let mut command = self.ask(&["exec", "-i", CLIENT, "--", "sh", "-c", script, TOKENS]);
        lab::command::output_from(self.password()?, &mut command)?;
        Ok(Tokens(self))
    }

    /// What is in a Secret.
    ///
    /// # Errors
    ///
    /// It is not there, or has no such key.
    pub fn secret(&self, name: &str, key: &str) -> Result<String> {
        let secret = self.get("secret", name);
        let value = secret["data"][key].as_str();
        let value = value.with_context(|| format!("Secret {name} has no {key}"))?;
        Ok(String::from_utf8(STANDARD.decode(value)?)?)
    }

    fn password(&self) -> Result<File> {
        let file = self.node.lab.dir().join("password");
        fs::write(&file, self.secret("one-keystone-admin", "password")?)?;
        Ok(File::open(file)?)
    }

    fn how_it_stands(&self) -> String {
        let kinds = "openstacks,openstackservices,runs,pods,jobs";
        let steps =
            "jsonpath={range .items[*]}{.metadata.name}{\": \"}{.status.steps}{\"\\n\"}{end}";
        [["get", kinds, "-o", "wide"], ["get", "runs", "-o", steps]]
            .map(|get| self.kubectl(&get).unwrap_or_default())
            .join("\n")
    }
}

/// Tokens that are asked for until somebody wants to know what became of them.
pub struct Tokens<'a>(&'a Services);

impl Tokens<'_> {
    /// How many were issued and validated, and how many were not, with what the first failure said.
    ///
    /// # Errors
    ///
    /// Nothing is told of them.
    pub fn end(self) -> Result<(u64, u64, String)> {
        let run = |script| self.0.kubectl(&["exec", CLIENT, "--", "sh", "-c", script]);
        run("rm /tmp/password")?;
        let told: Value = wait_until("the tokens to end", LIMIT, || {
            let told = run("cat /tmp/told")?;
            ensure!(!told.contains("Traceback"), "{told}");
            Ok(serde_json::from_str(&told).ok())
        })?;
        let count = |name: &str| told[name].as_u64().context("no count");
        let first = told["first"].as_str().unwrap_or_default().to_owned();
        Ok((count("served")?, count("failed")?, first))
    }
}

/// A pod that has the command, and that stays where Keystone's come and go.
const CLIENT: &str = "deploy/one-placement-api";
