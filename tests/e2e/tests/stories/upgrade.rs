//! A cluster is upgraded by a minor version while somebody uses what runs in it: real hosts, real Kubernetes of both versions.

use std::{
    io::Read,
    process::{Child, ChildStdin, Stdio},
};

use e2e::{NAMESPACE, Options, Stage, root, wait_until, windlass};
use lab::programs::Kubernetes;
use serde_json::{Value, json};

/// Where a host offers the workload.
const PORT: u16 = 30080;

#[test]
fn a_minor_upgrade_goes_node_by_node_and_fails_no_request() {
    let from = Kubernetes::Oldest.version().unwrap();
    let to = Kubernetes::Newest.version().unwrap();
    let mut stage = stage();
    stage.up().unwrap();
    stage.apply(&cluster(&stage, &from, &to)).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    versions(&stage, &from);
    deploy(&stage);

    // What would be done is shown, and nothing is touched.
    let mut wished = cluster(&stage, &to, &to)["items"][2].clone();
    wished["spec"]["operations"]["upgrade"] = upgrade();
    let file = stage.data().join("wished.json");
    std::fs::write(&file, wished.to_string()).unwrap();
    let plan = ["plan", "--live", "-f", file.to_str().unwrap()];
    let moves = format!("Kubernetes {from} to {to}");
    stage.says(&plan, &moves).unwrap();
    stage.says(&plan, "workers/upgrade/1").unwrap();

    // A budget that no pod may go by: that is said before the first host is touched.
    let kubeconfig = stage.kubeconfig().unwrap();
    budget(&stage, 2);
    let wish = json!({"spec": {"kubernetesVersion": to, "operations": {"upgrade": upgrade()}}});
    stage.merge("cluster", "first", &wish).unwrap();
    let run = wait_until("the budget to forbid it", stage.patience(), || {
        let run = stage.run()?;
        let failed = run["spec"]["operation"] == "Upgrade" && run["status"]["phase"] == "Failed";
        Ok(failed.then_some(run))
    })
    .unwrap();
    assert_eq!(run["status"]["failure"]["code"], "BudgetForbids", "{run:#}");
    versions(&stage, &from);
    budget(&stage, 1);

    // From here on somebody asks for it all the time, and the runner dies in the middle.
    let prober = Prober::start(&stage);
    stage.says(&["retry"], "first-upgrade-2").unwrap();
    let runner = wait_until("a node to be upgraded", stage.patience(), || {
        let run = stage.run()?;
        let steps = run["status"]["steps"].as_array().into_iter().flatten();
        let mut at_work = steps.filter(|step| {
            let id = step["id"].as_str().unwrap_or_default();
            id.starts_with("workers/upgrade/") && step["progress"]["done"].as_u64() > Some(3)
        });
        let at_work = at_work.any(|step| step["phase"] == "Running");
        Ok(run["status"]["runner"]["pid"].as_i64().filter(|_| at_work))
    })
    .unwrap();
    stage.kill_inside(runner).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    let counted = prober.end();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_ne!(run["status"]["runner"]["pid"], runner, "{run:#}");
    assert_each_step_succeeded_once(&run);
    versions(&stage, &to);
    assert_eq!(counted["failed"], 0, "{counted:#}");
    assert!(counted["answered"].as_u64() > Some(100), "{counted:#}");
    println!("requests during the upgrade: {counted}");

    let saved = "ls /var/backups/etcd-*-windlass/snapshot.db";
    let saved = stage.lab.ssh(&stage.lab.hosts()[0].name, saved).unwrap();
    assert!(saved.status.success(), "{saved:?}");

    // Nothing is left of it: nodes take pods, the status tells the version, and there is nothing more to do.
    let mut nodes = stage.kubectl_by(&kubeconfig, &["get", "nodes", "-o", "json"]);
    let nodes = nodes.output().unwrap();
    let nodes: Value = serde_json::from_slice(&nodes.stdout).unwrap();
    for node in nodes["items"].as_array().unwrap() {
        assert_eq!(node["spec"]["unschedulable"], Value::Null, "{node:#}");
    }
    wait_until("the status to tell it", stage.patience(), || {
        let status = &stage.object("cluster", "first")?["status"];
        let told = status["kubernetesVersion"] == to && status["state"] == "Created";
        Ok(told.then_some(()))
    })
    .unwrap();
    stage
        .says(&["plan", "--live"], "nothing: the cluster is built")
        .unwrap();
}

fn stage() -> Stage {
    let options = Options {
        hosts: 2,
        dead: 0,
        windlass: windlass().unwrap(),
        directory: root(),
        playbooks: root().join("bundle"),
    };
    Stage::set_with_older(options, &lab::progress::Terminal::default()).unwrap()
}

/// A control plane that takes pods too, and a worker. Their programs are those of the version that the playbooks install.
fn cluster(stage: &Stage, version: &str, newest: &str) -> Value {
    let files = format!("/opt/windlass{{{{ '' if kube_version == '{newest}' else '/older' }}}}");
    let spec = json!({
        "kubernetesVersion": version,
        "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
        "nodes": {"all": {"deploy": {"extraVars": {"windlass_files_dir": files}}}},
        "operations": {"creation": {"startConditions": {"nodes": {"minimum": 2}}}},
    });
    let kinds = [
        (
            "master-1",
            json!({"type": "master", "roles": ["control-plane", "etcd", "worker"]}),
        ),
        ("worker-1", json!({"type": "worker"})),
    ];
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        stage.secret().unwrap(),
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec,
        }),
    ];
    items.extend(
        kinds
            .into_iter()
            .zip(stage.lab.hosts())
            .map(|((name, spec), host)| {
                let mut spec = spec;
                spec["inventory"] = json!({"ansible_host": host.address.to_string()});
                json!({
                    "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
                    "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
                })
            }),
    );
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn upgrade() -> Value {
    json!({"gate": {"namespace": "default", "selector": {"app": "web"}}})
}

/// Two replicas behind a Service. One that ends answers until nobody is sent to it any more.
fn deploy(stage: &Stage) {
    // The first process of a container is not ended by a signal that it does not ask for.
    let serve = "trap 'exit 0' TERM; echo well > /tmp/index.html; httpd -f -p 8080 -h /tmp & wait";
    let replicas = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 10,
                        "containers": [{
                            "name": "web", "image": "registry.k8s.io/busybox:1", "imagePullPolicy": "IfNotPresent",
                            "command": ["sh", "-c", serve],
                            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
                        }],
                    },
                },
            },
        },
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "type": "NodePort", "selector": {"app": "web"},
                "ports": [{"port": 80, "targetPort": 8080, "nodePort": PORT}],
            },
        },
    ]});
    apply(stage, &replicas);
    let available = [
        "wait",
        "--for=condition=Available",
        "deployment/web",
        "--timeout=120s",
    ];
    kubectl(stage, &available);
}

/// How many of them must stay, as far as the cluster has taken note of it.
fn budget(stage: &Stage, least: u8) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}},
    });
    apply(stage, &budget);
    let noted = format!("--for=jsonpath={{.status.desiredHealthy}}={least}");
    kubectl(stage, &["wait", &noted, "pdb/web", "--timeout=60s"]);
    let counted = "--for=jsonpath={.status.expectedPods}=2";
    kubectl(stage, &["wait", counted, "pdb/web", "--timeout=60s"]);
}

fn apply(stage: &Stage, objects: &Value) {
    let file = stage.data().join("objects-of-the-cluster.json");
    std::fs::write(&file, objects.to_string()).unwrap();
    kubectl(stage, &["apply", "-f", file.to_str().unwrap()]);
}

fn kubectl(stage: &Stage, arguments: &[&str]) -> String {
    let kubeconfig = stage.kubeconfig().unwrap();
    let answer = stage.kubectl_by(&kubeconfig, arguments).output().unwrap();
    assert!(answer.status.success(), "{arguments:?}: {answer:?}");
    String::from_utf8(answer.stdout).unwrap()
}

/// Both nodes are Ready and run that version.
fn versions(stage: &Stage, version: &str) {
    let nodes = stage.ready_nodes(2).unwrap();
    for node in nodes {
        let reported = &node["status"]["nodeInfo"]["kubeletVersion"];
        assert_eq!(*reported, format!("v{version}"), "{node:#}");
    }
    let served: Value = serde_json::from_str(&kubectl(stage, &["version", "-o", "json"])).unwrap();
    let served = &served["serverVersion"]["gitVersion"];
    assert_eq!(*served, format!("v{version}"));
}

fn assert_each_step_succeeded_once(run: &Value) {
    let history = run["status"]["history"].as_array().unwrap();
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        let succeeded =
            |record: &&Value| record["step"] == step["id"] && record["event"] == "StepSucceeded";
        let done = history.iter().filter(succeeded).count();
        assert_eq!(done, 1, "step {} in {history:#?}", step["id"]);
    }
}

/// Asks for the workload at both hosts in turn, one request after the other, and counts the answers.
struct Prober {
    child: Child,
    input: ChildStdin,
}

impl Prober {
    fn start(stage: &Stage) -> Self {
        let addresses = stage.lab.hosts().iter();
        let addresses: Vec<_> = addresses
            .map(|host| format!("http://{}:{PORT}/", host.address))
            .collect();
        let mut python = std::process::Command::new("python3");
        python.args(["-c", ASK]).args(addresses);
        let mut child = stage
            .lab
            .enter_network(&python)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        Self { child, input }
    }

    fn end(mut self) -> Value {
        drop(self.input);
        let mut said = String::new();
        let mut output = self.child.stdout.take().unwrap();
        output.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&said).unwrap()
    }
}

/// Asks until its input ends. `select` waits for that between two requests.
const ASK: &str = r#"
import json, select, sys, time, urllib.request
asked, answered, failures = 0, 0, []
began = time.time()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
while not select.select([sys.stdin], [], [], 0.05)[0]:
    address = sys.argv[1 + asked % (len(sys.argv) - 1)]
    asked += 1
    try:
        with opener.open(address, timeout=3) as answer:
            assert answer.read().strip() == b"well"
        answered += 1
    except Exception as error:
        failures.append(f"{time.time() - began:.1f} s: {address}: {error}")
print(json.dumps({"answered": answered, "failed": len(failures), "failures": failures[:20]}))
"#;
