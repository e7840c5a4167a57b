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

/// Asks one request after the other and counts the answers. It ends with the value, and with its process.
#[derive(Debug)]
pub struct Prober {
    child: Child,
    /// The prober ends when this does.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Prober {
    /// Asks for the workload at every host that lives in turn. It begins to count once the workload was seen at each: a node is told
    /// of a Service a moment after its pods are ready.
    ///
    /// # Errors
    ///
    /// The process cannot be started, or a host does not offer the workload within a minute.
    pub fn start(stage: &Stage) -> anyhow::Result<Self> {
        let hosts = stage.lab.hosts().iter();
        let live = hosts.filter(|host| host.presence == Presence::Live);
        let addresses = live.map(|host| format!("http://{}:{PORT}/", host.address));
        Self::asking(stage, WORKLOAD_ANSWERS, addresses)
    }

    /// Asks the API server of the raised cluster, as a client behind a load balancer does: a request goes to the next of these hosts
    /// where one does not answer, and fails where none does.
    ///
    /// # Errors
    ///
    /// There is no kubeconfig, the process cannot be started, or no server answers within a minute.
    pub fn of_api(stage: &Stage, hosts: &[&str]) -> anyhow::Result<Self> {
        let kubeconfig = stage.kubeconfig()?;
        let mut kubectl = stage.kubectl_by(&kubeconfig, &["config", "view", "--raw", "-o", "json"]);
        let config: Value = serde_json::from_str(&output(&mut kubectl)?)?;
        let file = stage.data().join("prober-of-api.json");
        fs::write(&file, config.to_string()).context("failed to write the kubeconfig")?;
        let file = file.to_str().context("the directory is not UTF-8")?;
        let arguments = [file, &hosts.join(",")].map(str::to_owned);
        Self::asking(stage, API_ANSWERS, arguments)
    }

    fn asking(
        stage: &Stage,
        how: &str,
        arguments: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<Self> {
        let mut python = Command::new("python3");
        python
            .args(["-c", &format!("{how}{COUNT}")])
            .args(arguments);
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
        ensure!(said == "counting\n", "not everybody answers: {said}");
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

/// What to ask, and how: for the workload at each address.
const WORKLOAD_ANSWERS: &str = r#"
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
targets = sys.argv[1:]

def ask(address):
    with opener.open(address, timeout=3) as answer:
        assert answer.read().strip() == b"well"
"#;

/// What to ask, and how: one API by its servers, as its client. Each request has a connection of its own, and begins at another server.
const API_ANSWERS: &str = r#"
import base64, http.client, json, ssl, sys, tempfile
config = json.load(open(sys.argv[1]))
servers = sys.argv[2].split(",")
targets = [sys.argv[2]]
user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
trusted = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
# Each server is asked at its own address, which is not the one that the kubeconfig names.
trusted.check_hostname = False
with tempfile.NamedTemporaryFile() as pair:
    for part in ("client-certificate-data", "client-key-data"):
        pair.write(base64.b64decode(user[part]) + b"\n")
    pair.flush()
    trusted.load_cert_chain(pair.name)
turn = 0

def ask(_):
    global turn
    turn += 1
    why = []
    for step in range(len(servers)):
        server = servers[(turn + step) % len(servers)]
        connection = http.client.HTTPSConnection(server, 6443, timeout=3, context=trusted)
        try:
            connection.request("GET", "/api/v1/namespaces/default")
            answer = connection.getresponse()
            body = answer.read()
            if answer.status == 200:
                return
            why.append(f"{server}: HTTP {answer.status}: {body[:200]!r}")
        except Exception as error:
            why.append(f"{server}: {error}")
        finally:
            connection.close()
    raise Exception("; ".join(why))
"#;

/// Asks until its input ends. `select` waits for that between two requests. Ctrl-C is for who started it.
const COUNT: &str = r#"
import json, select, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)

limit = time.time() + 60
for target in targets:
    while True:
        try:
            ask(target)
            break
        except Exception as error:
            if time.time() > limit:
                sys.exit(f"{target}: {error}")
            time.sleep(0.1)
print("counting", flush=True)

asked, answered, failures = 0, 0, []
began = time.time()
while not select.select([sys.stdin], [], [], 0.05)[0]:
    target = targets[asked % len(targets)]
    asked += 1
    try:
        ask(target)
        answered += 1
    except Exception as error:
        failures.append(f"{time.time() - began:.1f} s: {target}: {error}")
print(json.dumps({"answered": answered, "failed": len(failures), "failures": failures[:20]}))
"#;
