//! What people run in a cluster and use all the time, and what they see of it while the cluster is worked on.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, ensure};
use lab::{Presence, command::output};
use serde_json::{Value, json};

use crate::Stage;

/// The pods of the workload, as a selector of labels.
pub const WORKLOAD: (&str, &str) = ("app", "web");

/// Where every node offers the workload.
const PORT: u16 = 30080;

impl Stage {
    /// Applies objects to the raised cluster.
    ///
    /// # Errors
    ///
    /// There is no kubeconfig, or an object is refused.
    pub fn apply_to_raised(&self, objects: &Value) -> anyhow::Result<()> {
        let file = self.data().join("objects-of-the-cluster.json");
        fs::write(&file, objects.to_string()).context("failed to write the objects")?;
        let kubeconfig = self.kubeconfig()?;
        let mut kubectl = self.kubectl_by(&kubeconfig, &["apply", "--filename"]);
        output(kubectl.arg(&file)).map(drop)
    }

    /// Runs two replicas behind a Service in the raised cluster, and waits until both answer. One that ends answers until
    /// nobody is sent to it any more.
    ///
    /// # Errors
    ///
    /// They cannot be made, or do not answer within two minutes.
    pub fn run_workload(&self) -> anyhow::Result<()> {
        self.apply_to_raised(&workload())?;
        let available = [
            "wait",
            "--for=condition=Available",
            "deployment/web",
            "--timeout=120s",
        ];
        output(&mut self.kubectl_by(&self.kubeconfig()?, &available)).map(drop)
    }
}

fn workload() -> Value {
    // The first process of a container is not ended by a signal that it does not ask for.
    let serve = "trap 'exit 0' TERM; echo well > /tmp/index.html; httpd -f -p 8080 -h /tmp & wait";
    let (key, value) = WORKLOAD;
    let labels = json!({key: value});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "terminationGracePeriodSeconds": 30,
                        "containers": [{
                            "name": "web", "image": "registry.k8s.io/busybox:1", "imagePullPolicy": "IfNotPresent",
                            "command": ["sh", "-c", serve],
                            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "25"]}}},
                        }],
                    },
                },
            },
        },
        {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        },
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "type": "NodePort", "selector": labels,
                "ports": [{"port": 80, "targetPort": 8080, "nodePort": PORT}],
            },
        },
    ]})
}

/// What became of the requests of a [`Prober`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requests {
    /// How many were answered as they should be.
    pub answered: u64,
    /// How many were not.
    pub failed: u64,
    /// When, where and why the first ones failed, for people.
    pub failures: Vec<String>,
}

/// Asks for the workload at every host that lives in turn, one request after the other, and counts the answers. It ends with
/// the value, and with its process.
#[derive(Debug)]
pub struct Prober {
    child: Child,
    /// The prober ends when this does.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Prober {
    /// Starts to ask, and begins to count once the workload was seen at every host: a node is told of a Service a moment after its
    /// pods are ready.
    ///
    /// # Errors
    ///
    /// The process cannot be started, or a host does not offer the workload within a minute.
    pub fn start(stage: &Stage) -> anyhow::Result<Self> {
        let hosts = stage.lab.hosts().iter();
        let live = hosts.filter(|host| host.presence == Presence::Live);
        let addresses = live.map(|host| format!("http://{}:{PORT}/", host.address));
        let mut python = Command::new("python3");
        python.args(["-c", ASK]).args(addresses);
        let mut child = stage
            .lab
            .enter_network(&python)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("failed to start the prober")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the prober has no output")?;
        let mut prober = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        let mut said = String::new();
        prober.output.read_line(&mut said)?;
        ensure!(
            said == "counting\n",
            "a host does not offer the workload: {said}"
        );
        Ok(prober)
    }

    /// Stops to ask, and says what became of the requests.
    ///
    /// # Errors
    ///
    /// The process ended before.
    pub fn end(mut self) -> anyhow::Result<Requests> {
        drop(self.input.take());
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        let status = self.child.wait().context("failed to wait for the prober")?;
        ensure!(status.success(), "the prober ended with {status}");
        let said: Value = serde_json::from_str(&said).context("the prober printed no JSON")?;
        let count = |name: &str| said[name].as_u64().context("the prober counted nothing");
        let failures = said["failures"].as_array().into_iter().flatten();
        let failures = failures.filter_map(|failure| failure.as_str().map(str::to_owned));
        Ok(Requests {
            answered: count("answered")?,
            failed: count("failed")?,
            failures: failures.collect(),
        })
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        drop(self.input.take());
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until its input ends. `select` waits for that between two requests. Ctrl-C is for who started it.
const ASK: &str = r#"
import json, select, signal, sys, time, urllib.request
signal.signal(signal.SIGINT, signal.SIG_IGN)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def ask(address):
    with opener.open(address, timeout=3) as answer:
        assert answer.read().strip() == b"well"

limit = time.time() + 60
for address in sys.argv[1:]:
    while True:
        try:
            ask(address)
            break
        except Exception as error:
            if time.time() > limit:
                sys.exit(f"{address}: {error}")
            time.sleep(0.1)
print("counting", flush=True)

asked, answered, failures = 0, 0, []
began = time.time()
while not select.select([sys.stdin], [], [], 0.05)[0]:
    address = sys.argv[1 + asked % (len(sys.argv) - 1)]
    asked += 1
    try:
        ask(address)
        answered += 1
    except Exception as error:
        failures.append(f"{time.time() - began:.1f} s: {address}: {error}")
print(json.dumps({"answered": answered, "failed": len(failures), "failures": failures[:20]}))
"#;
