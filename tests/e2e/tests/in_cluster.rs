//! Windlass in a real cluster: installed by its manifests, with the rights that they give and no others.
//!
//! The first story needs an API server alone; the second a node, and the images of `cargo xtask image` in the directory
//! that `WINDLASS_IMAGES` names (`cargo xtask test` makes them).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use e2e::{root, wait_until, windlass};
use lab::{
    ControlPlane, Kubernetes, LabOptions, Node, command::output, control_plane::Part,
    progress::Terminal,
};
use serde_json::{Value, json};

/// The namespace of a cluster whose runner has a volume that outlives its pods.
const NAMESPACE: &str = "story";

/// The namespace of a cluster whose runner has none: what a pod knew goes with it.
const BARE: &str = "bare";

/// Raising a cluster of one host takes about a minute; a loaded machine may take much longer.
const LIMIT: Duration = Duration::from_mins(10);

/// The Windlass of a control plane: a process with the rights of the ServiceAccount.
struct Operator {
    child: Child,
    log: PathBuf,
    port: u16,
}

impl Operator {
    fn start(plane: &ControlPlane, kubeconfig: &Path, name: &str, scope: &[&str]) -> Self {
        let data = plane.dir().join(name);
        let log = plane.dir().join(format!("{name}.log"));
        // Held until the process is about to start, so that two get different ones.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        let file = fs::File::create(&log).unwrap();
        let child = Command::new(windlass().unwrap())
            .arg("--data-dir")
            .arg(data)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args([
                "controller",
                "--runners=job",
                "--lease=windlass-system/windlass",
            ])
            .arg(format!("--listen=127.0.0.1:{port}"))
            .args(scope)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log, port }
    }

    /// What it answers to a GET, or nothing while it does not.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn stands(&self, standing: &str) -> bool {
        self.get("/readyz")
            .is_some_and(|answer| answer.ends_with(standing))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

#[test]
fn a_real_api_server_takes_the_kinds_and_the_operator_needs_no_more_than_its_rights() {
    let mut plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    install_kinds(&plane);
    let manifests = root().join("deploy/manifests/windlass.yaml");
    output(plane.kubectl().arg("apply").arg("-f").arg(manifests)).unwrap();
    let namespaced = root().join("deploy/manifests/windlass-namespaced.yaml");
    let checked = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
    ];
    output(plane.kubectl().args(checked).arg(namespaced)).unwrap();
    let kubeconfig = account(&plane);

    let first = Operator::start(&plane, &kubeconfig, "first", &[]);
    wait_until("the first operator to lead", LIMIT, || {
        Ok(first.stands("leading").then_some(()))
    })
    .unwrap();
    let second = Operator::start(&plane, &kubeconfig, "second", &[]);
    wait_until("the second operator to stand by", LIMIT, || {
        Ok(second.stands("standing by").then_some(()))
    })
    .unwrap();

    let source = root().join("bundle");
    let objects = objects(
        NAMESPACE,
        &["10.77.0.12"],
        source.to_str().unwrap(),
        b"no key",
        "",
        None,
    );
    apply(&mut plane.kubectl(), plane.dir(), &objects);
    // The Secret holds no key: the operator says so, and goes on as soon as it does.
    condition(&|| plane.kubectl(), NAMESPACE, "Stalled", "True");
    let key = plane.dir().join("id");
    output(
        Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key),
    )
    .unwrap();
    let objects = self::objects(
        NAMESPACE,
        &["10.77.0.12"],
        source.to_str().unwrap(),
        &fs::read(&key).unwrap(),
        "",
        None,
    );
    apply(&mut plane.kubectl(), plane.dir(), &objects);
    wait_until("a Job for the run", LIMIT, || {
        Ok(get(&mut plane.kubectl(), NAMESPACE, "jobs").pop())
    })
    .unwrap();
    let run = get(&mut plane.kubectl(), NAMESPACE, "runs").pop().unwrap();
    assert!(
        run["spec"]["plan"]["steps"].as_array().unwrap().len() > 5,
        "{run:#}"
    );
    condition(&|| plane.kubectl(), NAMESPACE, "Reconciling", "True");
    wait_until("the columns to show the state", LIMIT, || {
        let table = output(plane.kubectl().args(["-n", NAMESPACE, "get", "clusters"]))?;
        Ok((table.contains("STATE") && table.contains("Creating")).then_some(()))
    })
    .unwrap();
    wait_until("the Event of the start", LIMIT, || {
        let events = get(&mut plane.kubectl(), NAMESPACE, "events");
        let told = events.iter().any(|event| event["reason"] == "Creating");
        Ok(told.then_some(()))
    })
    .unwrap();

    // Rules of the kinds, kept by the real server.
    let change = json!({"spec": {"plan": {"digest": "other"}}}).to_string();
    refused(
        &plane,
        &[
            "patch",
            "run",
            &name(&run),
            "--type=merge",
            "--patch",
            &change,
        ],
        "make another Run",
    );
    let change = json!({"spec": {"type": "worker"}}).to_string();
    refused(
        &plane,
        &[
            "patch",
            "clusternode",
            "host-1",
            "--type=merge",
            "--patch",
            &change,
        ],
        "cannot change",
    );
    let change = json!({"spec": {"kubespray": {"source": {"image": "x"}}}}).to_string();
    refused(
        &plane,
        &[
            "patch",
            "cluster",
            "first",
            "--type=merge",
            "--patch",
            &change,
        ],
        "exactly one of git, path and image",
    );

    // A Job that somebody deletes is made again: the run is not at its end.
    let before = get(&mut plane.kubectl(), NAMESPACE, "jobs").pop().unwrap();
    output(
        plane
            .kubectl()
            .args(["-n", NAMESPACE, "delete", "job", &name(&before)]),
    )
    .unwrap();
    wait_until("another Job", LIMIT, || {
        let jobs = get(&mut plane.kubectl(), NAMESPACE, "jobs");
        Ok(jobs
            .into_iter()
            .find(|job| job["metadata"]["uid"] != before["metadata"]["uid"]))
    })
    .unwrap();

    // The leader dies without a word: the other one takes over when the Lease has expired.
    let of_the_first = first.log.clone();
    drop(first);
    wait_until("the second operator to lead", LIMIT, || {
        Ok(second.stands("leading").then_some(()))
    })
    .unwrap();
    wait_until("the metrics of the new leader", LIMIT, || {
        let metrics = second.get("/metrics").unwrap_or_default();
        let wanted = [
            "windlass_clusters{state=\"Creating\"} 1",
            "windlass_leader 1",
        ];
        Ok(wanted
            .iter()
            .all(|line| metrics.contains(line))
            .then_some(()))
    })
    .unwrap();

    // Before any crash: an API server that starts refuses everybody until it has read the roles.
    for log in [&of_the_first, &second.log] {
        let said = fs::read_to_string(log).unwrap();
        assert!(!said.contains("orbidden"), "{said}");
    }

    // API server and etcd crash: watches come back, and what is written then is seen.
    for part in [Part::ApiServer, Part::Etcd] {
        plane.kill(part).unwrap();
        plane.revive(part).unwrap();
    }
    let late = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": "late", "namespace": NAMESPACE},
        "spec": {"type": "worker", "inventory": {"ansible_host": "10.77.0.13"}},
    });
    apply(&mut plane.kubectl(), plane.dir(), &late);
    wait_until("the late host to be looked at", LIMIT, || {
        let nodes = get(&mut plane.kubectl(), NAMESPACE, "clusternodes");
        let late = nodes.iter().find(|node| name(node) == "late");
        Ok(late
            .is_some_and(|node| node["status"]["state"].is_string())
            .then_some(()))
    })
    .unwrap();
    wait_until("the leader to stay", LIMIT, || {
        Ok(second.stands("leading").then_some(()))
    })
    .unwrap();
}

#[test]
fn an_operator_of_one_namespace_needs_rights_there_alone() {
    let plane = ControlPlane::start(Kubernetes::Oldest, &Terminal::default()).unwrap();
    install_kinds(&plane);
    let manifests = root().join("deploy/manifests/windlass-namespaced.yaml");
    output(plane.kubectl().arg("apply").arg("-f").arg(manifests)).unwrap();
    let kubeconfig = account(&plane);
    let scope = ["--watch-namespace=windlass-system", "--runner-role="];
    let operator = Operator::start(&plane, &kubeconfig, "operator", &scope);

    let key = plane.dir().join("id");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    output(keygen.arg(&key)).unwrap();
    let key = fs::read(&key).unwrap();
    let source = root().join("bundle");
    let namespace = "windlass-system";
    let objects = objects(
        namespace,
        &["10.77.0.12"],
        source.to_str().unwrap(),
        &key,
        "",
        None,
    );
    apply(&mut plane.kubectl(), plane.dir(), &objects);
    let job = wait_until("a Job for the run", LIMIT, || {
        Ok(get(&mut plane.kubectl(), namespace, "jobs").pop())
    })
    .unwrap();
    let account = &job["spec"]["template"]["spec"]["serviceAccountName"];
    assert_eq!(account, "windlass-runner");
    condition(&|| plane.kubectl(), namespace, "Reconciling", "True");
    let elsewhere = [
        "auth",
        "can-i",
        "list",
        "clusters.kubespray.k8s.io",
        "--namespace=default",
    ];
    let mut kubectl = Command::new(plane.programs().join("kubectl"));
    let answer = kubectl
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(elsewhere)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "no");
    let said = fs::read_to_string(&operator.log).unwrap();
    assert!(!said.contains("orbidden"), "{said}");
}

/// Installs the kinds as the program prints them.
fn install_kinds(plane: &ControlPlane) {
    let crds = plane.dir().join("crds.yaml");
    fs::write(
        &crds,
        output(Command::new(windlass().unwrap()).arg("crds")).unwrap(),
    )
    .unwrap();
    output(
        plane
            .kubectl()
            .args(["apply", "--server-side", "-f"])
            .arg(&crds),
    )
    .unwrap();
    let established = [
        "wait",
        "--for=condition=Established",
        "crd",
        "--all",
        "--timeout=30s",
    ];
    output(plane.kubectl().args(established)).unwrap();
}

/// A kubeconfig of the operator's ServiceAccount.
fn account(plane: &ControlPlane) -> PathBuf {
    let create = ["-n", "windlass-system", "create", "token", "windlass"];
    let token = output(plane.kubectl().args(create)).unwrap();
    let text = fs::read_to_string(plane.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let file = plane.dir().join("account.kubeconfig");
    fs::write(&file, config.to_string()).unwrap();
    file
}

fn refused(plane: &ControlPlane, arguments: &[&str], words: &str) {
    let answer = plane
        .kubectl()
        .args(["-n", NAMESPACE])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(
        !answer.status.success() && said.contains(words),
        "{arguments:?}: {said}"
    );
}

#[test]
fn a_cluster_is_raised_by_a_job_though_pods_and_the_job_are_deleted() {
    let images = std::env::var_os("WINDLASS_IMAGES").map(PathBuf::from);
    assert!(
        images.is_some(),
        "WINDLASS_IMAGES is not set: run `cargo xtask image --debug --out DIR` and name the directory"
    );
    let options = LabOptions {
        hosts: 3,
        ..LabOptions::default()
    };
    let node = Node::start(options, &Terminal::default()).unwrap();
    for image in fs::read_dir(images.unwrap()).unwrap().flatten() {
        if image
            .path()
            .extension()
            .is_some_and(|extension| extension == "tar")
        {
            node.import(&image.path()).unwrap();
        }
    }
    for file in ["crds.yaml", "windlass.yaml"] {
        let file = root().join("deploy/manifests").join(file);
        let file = file.to_str().unwrap();
        output(&mut node.kubectl(&["apply", "--server-side", "-f", file])).unwrap();
    }
    let operators = [
        "-n",
        "windlass-system",
        "rollout",
        "status",
        "deployment/windlass",
        "--timeout=180s",
    ];
    output(&mut node.kubectl(&operators)).unwrap();

    let volume = "/var/lib/windlass-volume";
    let made = node
        .lab
        .ssh("host-1", &format!("install -d -o 65532 -g 65532 {volume}"))
        .unwrap();
    assert!(made.status.success());
    let key = fs::read(node.lab.key_path()).unwrap();
    let known = fs::read_to_string(node.lab.known_hosts()).unwrap();
    for (namespace, host, volume) in [(NAMESPACE, "host-2", Some(volume)), (BARE, "host-3", None)] {
        let address = node.lab.host(host).unwrap().address.to_string();
        let bundle = "/opt/windlass/bundle";
        let objects = objects(namespace, &[&address], bundle, &key, &known, volume);
        apply(&mut node.kubectl(&[]), node.lab.dir(), &objects);
    }

    // Both clusters lose their runner's pod in the middle of a step; one loses its Job in a later one; then the leader goes.
    for namespace in [NAMESPACE, BARE] {
        at_step(&node, namespace, &["prepare/hosts", "etcd/", "kubelet/"]);
        let runner = [
            "-n",
            namespace,
            "delete",
            "pod",
            "-l",
            "app.kubernetes.io/component=runner",
        ];
        output(&mut node.kubectl(&runner)).unwrap();
    }
    at_step(
        &node,
        NAMESPACE,
        &["etcd/", "kubelet/", "control-plane/", "nodes/"],
    );
    output(&mut node.kubectl(&["-n", NAMESPACE, "delete", "job", "--all"])).unwrap();
    let leaders = [
        "-n",
        "windlass-system",
        "delete",
        "pod",
        "--all",
        "--wait=false",
    ];
    output(&mut node.kubectl(&leaders)).unwrap();

    for (namespace, starts) in [(NAMESPACE, 3), (BARE, 2)] {
        assert_run(&node, namespace, starts);
        assert_raised(&node, namespace);
    }
}

/// The run succeeded, was taken up so often, and did no step twice.
fn assert_run(node: &Node, namespace: &str, starts: usize) {
    let run = wait_until("the run to end", LIMIT, || {
        let run = get(&mut node.kubectl(&[]), namespace, "runs").pop();
        Ok(run.filter(|run| run["status"]["finishedAt"].is_string()))
    })
    .unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    let history = run["status"]["history"].as_array().unwrap();
    let count = |event: &str, step: &Value| {
        let same = |record: &&Value| record["event"] == event && record["step"] == *step;
        history.iter().filter(same).count()
    };
    assert!(count("RunStarted", &Value::Null) >= starts, "{history:#?}");
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        assert_eq!(
            count("StepSucceeded", &step["id"]),
            1,
            "{}: {history:#?}",
            step["id"]
        );
    }
    condition(&|| node.kubectl(&[]), namespace, "Ready", "True");
    let job = format!("job/{}", name(&run));
    let logs = output(&mut node.kubectl(&["-n", namespace, "logs", &job])).unwrap();
    assert!(logs.contains("TASK ["), "{logs}");
}

/// The raised cluster answers by the kubeconfig that the run stored.
fn assert_raised(node: &Node, namespace: &str) {
    let secret = [
        "-n",
        namespace,
        "get",
        "secret",
        "first-kubeconfig",
        "-o",
        "jsonpath={.data.value}",
    ];
    let encoded = output(&mut node.kubectl(&secret)).unwrap();
    let file = node.lab.dir().join("raised.kubeconfig");
    fs::write(&file, STANDARD.decode(encoded.trim()).unwrap()).unwrap();
    let mut kubectl = Command::new(node.programs().join("kubectl"));
    kubectl.arg("--kubeconfig").arg(&file).args([
        "wait",
        "--for=condition=Ready",
        "node",
        "--all",
        "--timeout=120s",
    ]);
    let said = output(&mut node.lab.enter_network(&kubectl)).unwrap();
    assert!(said.contains("node/host-1 condition met"), "{said}");
}

/// Waits until the run is in a step that begins with one of these.
fn at_step(node: &Node, namespace: &str, steps: &[&str]) {
    wait_until(&format!("one of the steps {steps:?}"), LIMIT, || {
        let run = get(&mut node.kubectl(&[]), namespace, "runs")
            .pop()
            .unwrap_or_default();
        assert!(
            !run["status"]["finishedAt"].is_string(),
            "too late for {steps:?}: {run:#}"
        );
        let step = run["status"]["step"].as_str().unwrap_or_default();
        Ok(steps
            .iter()
            .any(|wanted| step.starts_with(wanted))
            .then_some(()))
    })
    .unwrap();
}

/// A cluster of these hosts, the first one its control plane, in a namespace that admits confined pods only.
fn objects(
    namespace: &str,
    hosts: &[&str],
    source: &str,
    key: &[u8],
    known_hosts: &str,
    volume: Option<&str>,
) -> Value {
    let mut spec = json!({
        "kubespray": {"version": "2.30.0", "source": {"path": source}},
        "kubernetesVersion": "1.34.4",
        "runner": {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}},
        "ssh": {"privateKeySecretRef": {"name": "ssh"}},
    });
    if !known_hosts.is_empty() {
        spec["ssh"]["knownHosts"] = json!(known_hosts);
    }
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": "ssh", "namespace": namespace},
            "data": {"ssh-privatekey": STANDARD.encode(key)},
        }),
    ];
    if let Some(path) = volume {
        let modes = json!(["ReadWriteOnce"]);
        spec["runner"]["volumeClaimTemplate"] = json!({"spec": {
            "storageClassName": "none", "accessModes": modes,
            "resources": {"requests": {"storage": "1Gi"}},
        }});
        items.push(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "story"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": modes, "storageClassName": "none",
                "hostPath": {"path": path},
            },
        }));
    }
    items.push(json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": "first", "namespace": namespace}, "spec": spec,
    }));
    for (number, host) in (1..).zip(hosts) {
        items.push(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": format!("host-{number}"), "namespace": namespace},
            "spec": {
                "type": if number == 1 { "master" } else { "worker" },
                "inventory": {"ansible_host": host},
            },
        }));
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn apply(kubectl: &mut Command, directory: &Path, objects: &Value) {
    let file = directory.join("objects.json");
    fs::write(&file, objects.to_string()).unwrap();
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=story",
        "-f",
    ];
    output(kubectl.args(arguments).arg(&file)).unwrap();
}

fn get(kubectl: &mut Command, namespace: &str, kind: &str) -> Vec<Value> {
    let text = output(kubectl.args(["-n", namespace, "get", kind, "-o", "json"])).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Waits for a condition of the cluster.
fn condition(kubectl: &dyn Fn() -> Command, namespace: &str, kind: &str, status: &str) {
    let condition = format!("--for=condition={kind}={status}");
    let wait = [
        "-n",
        namespace,
        "wait",
        &condition,
        "cluster/first",
        "--timeout=120s",
    ];
    output(kubectl().args(wait)).unwrap();
}
