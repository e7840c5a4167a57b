//! Windlass in a real cluster: installed by its manifests, with the rights that they give and no others.
//!
//! The first stories need an API server alone; the last a node, and the images of `cargo xtask image` in the directory
//! that `WINDLASS_IMAGES` names (`cargo xtask test` makes them).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
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

/// The playbooks that the images bring along.
const BUNDLE: &str = "/opt/windlass/bundle";

/// A registry that asks everybody to log in, at the lab's gateway.
const REGISTRY: &str = "10.77.0.1:5000";

/// Who may pull from the registry.
const LOGIN: &str = "windlass:secret";

/// The runner's image in the registry.
const IMAGE: &str = "10.77.0.1:5000/windlass/runner:v1";

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
    let described = |key: &[u8]| {
        let mut objects = objects(NAMESPACE, &["10.77.0.12"], source.to_str().unwrap(), key);
        *spec_of(&mut objects, "/runner/imagePullSecrets") = json!([{"name": "registry"}]);
        objects
    };
    apply(&mut plane.kubectl(), plane.dir(), &described(b"no key"));
    // The Secret holds no key: the operator says so, and goes on as soon as it does.
    condition(&|| plane.kubectl(), NAMESPACE, "Stalled", "True");
    apply(
        &mut plane.kubectl(),
        plane.dir(),
        &described(&new_key(&plane)),
    );
    let job = wait_until("a Job for the run", LIMIT, || {
        Ok(get(&mut plane.kubectl(), NAMESPACE, "jobs").pop())
    })
    .unwrap();
    assert_eq!(
        job["spec"]["template"]["spec"]["imagePullSecrets"],
        json!([{"name": "registry"}])
    );
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
    apply(&mut plane.kubectl(), plane.dir(), &[late]);
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

    let key = new_key(&plane);
    let source = root().join("bundle");
    let namespace = "windlass-system";
    let objects = objects(namespace, &["10.77.0.12"], source.to_str().unwrap(), &key);
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

#[test]
fn a_node_that_stays_away_keeps_its_runner_until_it_is_deleted() {
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    install_kinds(&plane);
    let manifests = root().join("deploy/manifests/windlass.yaml");
    output(plane.kubectl().arg("apply").arg("-f").arg(manifests)).unwrap();
    let kubeconfig = account(&plane);
    let _operator = Operator::start(&plane, &kubeconfig, "operator", &[]);
    let source = root().join("bundle");
    let objects = objects(
        NAMESPACE,
        &["10.77.0.12"],
        source.to_str().unwrap(),
        &new_key(&plane),
    );
    apply(&mut plane.kubectl(), plane.dir(), &objects);

    // No kubelet will ever speak of the pod: as of a machine that went down with it.
    let pods = || get(&mut plane.kubectl(), NAMESPACE, "pods");
    let lost = wait_until("the runner's pod", LIMIT, || Ok(pods().pop())).unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}});
    apply(&mut plane.kubectl(), plane.dir(), &[node]);
    bind(&plane, &name(&lost), "lost");
    let running = json!({"status": {"phase": "Running"}}).to_string();
    let told = ["patch", "pod", &name(&lost), "--subresource=status"];
    let of = ["-n", NAMESPACE, "--type=merge", "-p", &running];
    output(plane.kubectl().args(told).args(of)).unwrap();

    // Kubernetes takes it away after five minutes by itself.
    let delete = ["-n", NAMESPACE, "delete", "pod", "--all", "--wait=false"];
    output(plane.kubectl().args(delete)).unwrap();
    let job = wait_until("the Job to know that its pod is to end", LIMIT, || {
        let job = get(&mut plane.kubectl(), NAMESPACE, "jobs").pop();
        Ok(job.filter(|job| job["status"]["terminating"] == 1))
    })
    .unwrap();
    // It may still work.
    assert_eq!(pods().len(), 1, "{job:#}");

    output(plane.kubectl().args(["delete", "node", "lost"])).unwrap();
    wait_until("the pod's successor", LIMIT, || {
        let other = |pod: &Value| pod["metadata"]["uid"] != lost["metadata"]["uid"];
        Ok(pods().iter().any(other).then_some(()))
    })
    .unwrap();
    let job = get(&mut plane.kubectl(), NAMESPACE, "jobs").pop().unwrap();
    assert!(job["status"]["failed"].is_null(), "{job:#}");
}

/// Places a pod on a node, as a scheduler does.
fn bind(plane: &ControlPlane, pod: &str, node: &str) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let file = plane.dir().join("binding.json");
    fs::write(&file, binding.to_string()).unwrap();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding");
    let create = ["create", "--raw", &path, "-f"];
    output(plane.kubectl().args(create).arg(&file)).unwrap();
}

/// A private key that no host knows.
fn new_key(plane: &ControlPlane) -> Vec<u8> {
    let key = plane.dir().join("id");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    output(keygen.arg(&key)).unwrap();
    fs::read(&key).unwrap()
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
fn a_cluster_is_raised_by_a_job_whatever_becomes_of_its_pods() {
    let images = images();
    let node = installed(&images);
    let runner = |image: &&PathBuf| image.to_string_lossy().contains("windlass-runner-");
    let _registry = serve(&node, images.iter().find(runner).unwrap());

    let known = known_hosts(&node);
    let key = fs::read(node.lab.key_path()).unwrap();
    let address = node.lab.host("host-2").unwrap().address.to_string();
    let mut story = objects(NAMESPACE, &[&address], BUNDLE, &key);
    *spec_of(&mut story, "/ssh/knownHosts") = json!(known.join("\n"));
    keep_on_a_volume(&node, &mut story);
    pull_with_a_secret(&mut story);
    let address = node.lab.host("host-3").unwrap().address.to_string();
    let mut bare = objects(BARE, &[&address], BUNDLE, &key);
    *spec_of(&mut bare, "/ssh/knownHostsSecretRef") = json!({"name": "hosts"});
    // As of a host that was made anew since.
    let (_, another) = known[1].split_once(' ').unwrap();
    bare.push(host_keys(&format!("{address} {another}")));
    for objects in [&bare, &story] {
        apply(&mut node.kubectl(&[]), node.lab.dir(), objects);
    }

    // The run fails for what the Secret says of its host, and goes on when somebody has mended that.
    fails_for_a_host_key(&node);
    let mended = [host_keys(&known[2])];
    apply(&mut node.kubectl(&[]), node.lab.dir(), &mended);
    retry(&node);

    // Both runs lose their pod in the middle of a step: somebody drains the node.
    let early = [
        "bootstrap/",
        "prepare/hosts",
        "etcd/",
        "kubelet/",
        "control-plane/",
    ];
    at_step(&node, BARE, &early);
    at_step(&node, NAMESPACE, &early);
    drain(&node);
    for (namespace, starts) in [(BARE, 3), (NAMESPACE, 2)] {
        taken_up(&node, namespace, starts);
        // An eviction is none of the few failures that a Job bears.
        let job = get(&mut node.kubectl(&[]), namespace, "jobs")
            .pop()
            .unwrap();
        assert!(job["status"]["failed"].is_null(), "{job:#}");
    }

    // Then one of them loses its Job, and both their operator.
    let late = [
        "etcd/",
        "kubelet/",
        "control-plane/",
        "nodes/",
        "apps/",
        "dns/",
    ];
    at_step(&node, NAMESPACE, &late);
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
    taken_up(&node, NAMESPACE, 3);

    // At last the whole cluster that Windlass runs in goes at once: pods, operators, the API and its database.
    at_step(&node, NAMESPACE, &late);
    node.cut_power().unwrap();

    for (namespace, starts) in [(NAMESPACE, 4), (BARE, 3)] {
        assert_run(&node, namespace, starts);
        assert_raised(&node, namespace);
    }
}

/// The images of the operator and of its runners.
fn images() -> Vec<PathBuf> {
    let directory = std::env::var_os("WINDLASS_IMAGES");
    assert!(
        directory.is_some(),
        "WINDLASS_IMAGES is not set: run `cargo xtask image --debug --out DIR` and name the directory"
    );
    let entries = fs::read_dir(directory.unwrap()).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let is_image = |file: &PathBuf| file.extension().is_some_and(|end| end == "tar");
    files.filter(is_image).collect()
}

/// A cluster of one node with Windlass by its manifests, and two hosts beside it.
fn installed(images: &[PathBuf]) -> Node {
    let options = LabOptions {
        hosts: 3,
        ..LabOptions::default()
    };
    let node = Node::start(options, &Terminal::default()).unwrap();
    for image in images {
        node.import(image).unwrap();
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
    node
}

/// A registry that asks everybody to log in.
struct Registry(Child);

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves an image in the lab's network, under the name [`IMAGE`] and to those who log in.
fn serve(node: &Node, image: &Path) -> Registry {
    let directory = node.lab.dir().join("mirror");
    let layout = directory.join("layout");
    fs::create_dir_all(&layout).unwrap();
    let mut unpack = Command::new("tar");
    output(unpack.arg("-xf").arg(image).arg("-C").arg(&layout)).unwrap();
    let index = fs::read(layout.join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let digest = digest.strip_prefix("sha256:").unwrap();
    let path = IMAGE.strip_prefix(REGISTRY).unwrap().replace(':', "/");
    let manifest = directory.join(format!("registry/manifests{path}"));
    fs::create_dir_all(manifest.parent().unwrap()).unwrap();
    fs::write(manifest, digest).unwrap();
    fs::rename(
        layout.join("blobs/sha256"),
        directory.join("registry/blobs"),
    )
    .unwrap();

    let mut mirror = Command::new(env!("CARGO_BIN_EXE_mirror"));
    mirror.arg(&directory).args([REGISTRY, LOGIN]);
    let mut mirror = node.lab.enter(&mirror);
    let mut registry = Registry(mirror.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(registry.0.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert!(said.starts_with("listening"), "{said}");
    // It has no certificate, which is no matter between hosts of one machine.
    let hosts = format!("/etc/containerd/certs.d/{REGISTRY}");
    let plain = format!("[host.\"http://{REGISTRY}\"]");
    let told = format!("mkdir -p {hosts} && echo '{plain}' > {hosts}/hosts.toml");
    assert!(node.lab.ssh("host-1", &told).unwrap().status.success());
    let anonymous = format!("ctr images pull --plain-http {IMAGE}");
    let refused = node.lab.ssh("host-1", &anonymous).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("401"), "{said}");
    registry
}

/// Makes the runners of a cluster of [`IMAGE`], and a Secret with the login.
fn pull_with_a_secret(objects: &mut Vec<Value>) {
    *spec_of(objects, "/runner/image") = json!(IMAGE);
    *spec_of(objects, "/runner/imagePullSecrets") = json!([{"name": "registry"}]);
    let logins = json!({"auths": {REGISTRY: {"auth": STANDARD.encode(LOGIN)}}});
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "registry", "namespace": NAMESPACE},
        "data": {".dockerconfigjson": STANDARD.encode(logins.to_string())},
    }));
}

/// Gives the runners of a cluster a volume on the node.
fn keep_on_a_volume(node: &Node, objects: &mut Vec<Value>) {
    let path = "/var/lib/windlass-volume";
    let make = format!("install -d -o 65532 -g 65532 {path}");
    assert!(node.lab.ssh("host-1", &make).unwrap().status.success());
    let modes = json!(["ReadWriteOnce"]);
    *spec_of(objects, "/runner/volumeClaimTemplate") = json!({"spec": {
        "storageClassName": "none", "accessModes": modes,
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "story"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": modes, "storageClassName": "none",
            "hostPath": {"path": path},
        },
    }));
}

/// The Secret with the hosts' keys of the cluster without a volume.
fn host_keys(lines: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "hosts", "namespace": BARE},
        "data": {"known_hosts": STANDARD.encode(lines)},
    })
}

/// The lab's hosts as lines of a known_hosts file.
fn known_hosts(node: &Node) -> Vec<String> {
    let hosts = node.lab.hosts().iter();
    hosts
        .map(|host| host.known_hosts.clone().unwrap())
        .collect()
}

/// The run of the cluster without a volume fails, and says what to mend.
fn fails_for_a_host_key(node: &Node) {
    let failed = wait_until("the run to fail", LIMIT, || {
        let run = run(node, BARE);
        Ok((run["status"]["phase"] == "Failed").then_some(run))
    })
    .unwrap();
    let failure = &failed["status"]["failure"];
    assert_eq!(failure["code"], "HostKeyChanged", "{failed:#}");
    let remedy = failure["remedy"].as_str().unwrap();
    assert!(remedy.contains("Secret hosts"), "{remedy}");
    assert!(remedy.contains("retry the run"), "{remedy}");
}

/// Has the failed run of the cluster without a volume tried again: another Job takes it up.
fn retry(node: &Node) {
    let jobs = || get(&mut node.kubectl(&[]), BARE, "jobs");
    let failed = jobs().pop().unwrap();
    let mut command = Command::new(windlass().unwrap());
    command
        .arg("--data-dir")
        .arg(node.lab.dir().join("data"))
        .arg("--kubeconfig")
        .arg(node.kubeconfig())
        .args(["--namespace", BARE, "retry"]);
    let said = output(&mut node.lab.enter_network(&command)).unwrap();
    assert!(said.contains("is asked to try the step again"), "{said}");
    wait_until("another Job", LIMIT, || {
        let of_the_retry = |job: &Value| job["metadata"]["uid"] != failed["metadata"]["uid"];
        Ok(jobs().iter().any(of_the_retry).then_some(()))
    })
    .unwrap();
    taken_up(node, BARE, 2);
}

/// Evicts the runners as people do who make room, and lets the node be used again.
fn drain(node: &Node) {
    let drain = [
        "drain",
        "host-1",
        "--pod-selector=app.kubernetes.io/component=runner",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=180s",
    ];
    let said = output(&mut node.kubectl(&drain)).unwrap();
    let evicted = said.lines().filter(|line| line.ends_with(" evicted"));
    assert_eq!(evicted.count(), 2, "{said}");
    output(&mut node.kubectl(&["uncordon", "host-1"])).unwrap();
}

/// The newest run of a namespace; null where there is none, or the API does not answer.
fn run(node: &Node, namespace: &str) -> Value {
    let arguments = ["-n", namespace, "get", "runs", "-o", "json"];
    let text = output(&mut node.kubectl(&arguments)).unwrap_or_default();
    let mut list: Value = serde_json::from_str(&text).unwrap_or_default();
    let items = list["items"].as_array_mut();
    items.and_then(Vec::pop).unwrap_or_default()
}

/// How often the history of a run has an event, of this step or of none.
fn count(run: &Value, event: &str, step: &Value) -> usize {
    let history = run["status"]["history"].as_array();
    let same = |record: &&Value| record["event"] == event && record["step"] == *step;
    history.map_or(0, |history| history.iter().filter(same).count())
}

/// Waits until so many runners have taken the run up.
fn taken_up(node: &Node, namespace: &str, starts: usize) {
    let what = format!("runner {starts} to take up the run in {namespace}");
    wait_until(&what, LIMIT, || {
        let started = count(&run(node, namespace), "RunStarted", &Value::Null);
        Ok((started >= starts).then_some(()))
    })
    .unwrap();
}

/// The run succeeded, was taken up so often, and did no step twice.
fn assert_run(node: &Node, namespace: &str, starts: usize) {
    let run = wait_until("the run to end", LIMIT, || {
        let run = run(node, namespace);
        Ok(run["status"]["finishedAt"].is_string().then_some(run))
    })
    .unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert!(count(&run, "RunStarted", &Value::Null) >= starts, "{run:#}");
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        let id = &step["id"];
        assert_eq!(count(&run, "StepSucceeded", id), 1, "{id}: {run:#}");
    }
    condition(&|| node.kubectl(&[]), namespace, "Ready", "True");
    // Of the Job's pods kubectl shows one, which may have met its end before its first task.
    let pods = get(&mut node.kubectl(&[]), namespace, "pods");
    let done = |pod: &&Value| pod["status"]["phase"] == "Succeeded";
    let last = name(pods.iter().find(done).unwrap());
    let logs = output(&mut node.kubectl(&["-n", namespace, "logs", &last])).unwrap();
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
        let run = run(node, namespace);
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
fn objects(namespace: &str, hosts: &[&str], source: &str, key: &[u8]) -> Vec<Value> {
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": "ssh", "namespace": namespace},
            "data": {"ssh-privatekey": STANDARD.encode(key)},
        }),
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": namespace},
            "spec": {
                "kubespray": {"version": "2.30.0", "source": {"path": source}},
                "kubernetesVersion": "1.34.4",
                "runner": {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}},
                "ssh": {"privateKeySecretRef": {"name": "ssh"}},
            },
        }),
    ];
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
    items
}

/// A field of the spec of the Cluster among these objects, as a JSON pointer whose last name may be new.
fn spec_of<'a>(objects: &'a mut [Value], field: &str) -> &'a mut Value {
    let cluster = objects
        .iter_mut()
        .find(|object| object["kind"] == "Cluster");
    let (parent, name) = field.rsplit_once('/').unwrap();
    let spec = &mut cluster.unwrap()["spec"];
    &mut spec.pointer_mut(parent).unwrap()[name]
}

fn apply(kubectl: &mut Command, directory: &Path, objects: &[Value]) {
    let file = directory.join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(&file, list.to_string()).unwrap();
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
