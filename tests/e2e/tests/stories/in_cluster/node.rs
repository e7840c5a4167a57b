//! With a node: runs are Jobs, and the machine under them is lost.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use e2e::{SYSTEM, Storm, root, wait_until, windlass};
use lab::{LabOptions, Node, command::output, progress::Terminal};
use serde_json::{Value, json};

use super::{LIMIT, NAMESPACE, apply, await_reason, condition, get, name, objects, spec_of};

mod canary;
mod engine;
mod hooks;
mod radar;
mod shelf;

/// The namespace of a cluster whose runner has none: what a pod knew goes with it.
const BARE: &str = "bare";
/// The playbooks that the images bring along.
const BUNDLE: &str = "/opt/windlass/bundle";

/// A registry that asks everybody to log in, at the lab's gateway.
const REGISTRY: &str = "10.77.0.1:5000";

/// What keeps pods from the node that do not tolerate it.
const TAINT: &str = "dedicated=elsewhere:NoSchedule";

/// Who may pull from the registry.
const LOGIN: &str = "windlass:secret";

/// The runner's image in the registry.
const IMAGE: &str = "10.77.0.1:5000/windlass/runner:v1";
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
    canary::hide(&mut story);
    hooks::stand(&mut story);
    let address = node.lab.host("host-3").unwrap().address.to_string();
    let mut bare = objects(BARE, &[&address], BUNDLE, &key);
    *spec_of(&mut bare, "/ssh/knownHostsSecretRef") = json!({"name": "hosts"});
    place(&mut bare);
    *spec_of(&mut bare, "/runner/image") = json!(IMAGE);
    // As of a host that was made anew since.
    let (_, another) = known[1].split_once(' ').unwrap();
    bare.push(host_keys(&format!("{address} {another}")));
    let taint =
        |taint: &str| output(&mut node.kubectl(&["taint", "node", "host-1", taint])).unwrap();
    taint(TAINT);
    for objects in [&bare, &story] {
        apply(&mut node.kubectl(&[]), node.lab.dir(), objects);
    }

    // Neither runner comes: one is not let in by the node, the other one may not pull its image. Both are told of.
    let kubectl = || node.kubectl(&[]);
    let taints = "had untolerated taint";
    await_reason(&kubectl, NAMESPACE, "RunnerUnschedulable", taints);
    await_reason(&kubectl, BARE, "RunnerNotStarted", IMAGE);
    spec_of(&mut bare, "/runner")
        .as_object_mut()
        .unwrap()
        .remove("image");
    apply(&mut kubectl(), node.lab.dir(), &bare);

    // The run fails for what the Secret says of its host, and goes on when somebody has mended that.
    fails_for_a_host_key(&node);
    assert_placed(&node);
    taint(&format!("{TAINT}-"));
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

    // The API refuses both runners and their operator whatever they ask, then it crashes with its database.
    refuse(&node);
    let before = [BARE, NAMESPACE].map(|namespace| run(&node, namespace));
    assert!(before.iter().all(|run| run["status"]["phase"] == "Running"));
    node.crash_api().unwrap();

    // Then one of them loses its Job, and both their operator. Its pod is deleted too: the garbage collector, which would do
    // that, starts anew some 20 s after the crash, and the run could end before.
    let late = [
        "etcd/",
        "kubelet/",
        "control-plane/",
        "nodes/",
        "apps/",
        "dns/",
    ];
    at_step(&node, NAMESPACE, &late);
    output(&mut node.kubectl(&["-n", NAMESPACE, "delete", "job,pod", "--all"])).unwrap();
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
    hooks::have_run(&node);
    canary::assert_in_its_secret_alone(&node);
    shelf::keeps_a_snapshot(&node);
    radar::sees_an_edit(&node);
    engine::come_to_their_end(&node, images[0].parent().unwrap());
}

/// Has the runners of a cluster work in their node's network, on no other node, and on it although it is tainted.
fn place(objects: &mut [Value]) {
    // Neither of the stricter Pod Security Standards lets a pod into its node's network.
    let namespace = objects
        .iter_mut()
        .find(|object| object["kind"] == "Namespace");
    namespace.unwrap()["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] =
        json!("privileged");
    let hostname = "kubernetes.io/hostname";
    let here = json!({"key": hostname, "operator": "In", "values": ["host-1"]});
    let terms = json!([{"matchExpressions": [here]}]);
    *spec_of(objects, "/runner/hostNetwork") = json!(true);
    *spec_of(objects, "/runner/placement") = json!({
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }},
    });
}

/// The runner that was placed by [`place`] is where it should be; the other one waits for a node without a taint.
fn assert_placed(node: &Node) {
    let pods = |namespace| get(&mut node.kubectl(&[]), namespace, "pods");
    let placed = pods(BARE).pop().unwrap();
    let status = &placed["status"];
    assert!(status["podIP"].is_string(), "{placed:#}");
    assert_eq!(status["podIP"], status["hostIP"], "{placed:#}");
    for pod in pods(NAMESPACE) {
        assert!(pod["spec"]["nodeName"].is_null(), "{pod:#}");
    }
}

/// The images of the operator and of its runners.
fn images() -> Vec<PathBuf> {
    let directory = std::env::var_os("WINDLASS_IMAGES");
    assert!(
        directory.is_some(),
        "WINDLASS_IMAGES is not set: run `cargo xtask image --debug --widgets --out DIR` and name the directory"
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
    // What the stories ask for beside what every Cluster may.
    let allowed = json!({"data": {
        "images": format!("{REGISTRY}/windlass"), "hostNetwork": "true", "tolerations": "dedicated",
        "storageClasses": "none",
    }});
    let allowed = allowed.to_string();
    let system = ["--namespace", SYSTEM];
    let widen = ["patch", "configmap", "windlass-bounds", "--patch", &allowed];
    output(&mut node.kubectl(&[&system[..], &widen].concat())).unwrap();
    let restart = ["rollout", "restart", "deployment/windlass"];
    output(&mut node.kubectl(&[&system[..], &restart].concat())).unwrap();
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

/// Has the API answer 429 to the runners and to their operator, until each of them has met that.
fn refuse(node: &Node) {
    let runner = "windlass-runner-first";
    let accounts = [(BARE, runner), (NAMESPACE, runner), (SYSTEM, "windlass")];
    let kubectl = || node.kubectl(&[]);
    let mut storm = Storm::over(&accounts, &kubectl, node.lab.dir()).unwrap();
    for (namespace, _) in accounts {
        storm.await_refusals(namespace, 3).unwrap();
    }
    storm.pass().unwrap();
}

/// The newest run of a namespace; null where there is none, or the API does not answer.
fn run(node: &Node, namespace: &str) -> Value {
    let arguments = ["-n", namespace, "get", "runs", "-o", "json"];
    let text = output(&mut node.kubectl(&arguments)).unwrap_or_default();
    let mut list: Value = serde_json::from_str(&text).unwrap_or_default();
    let items = list["items"].as_array_mut();
    items.and_then(Vec::pop).unwrap_or_default()
}

/// Merges this into the cluster whose runner has a volume.
fn wish(node: &Node, value: &Value) {
    let value = value.to_string();
    let patch = [
        "-n",
        NAMESPACE,
        "patch",
        "cluster",
        "first",
        "--type=merge",
        "--patch",
        &value,
    ];
    output(&mut node.kubectl(&patch)).unwrap();
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
        let run = run(node, namespace);
        let is_taken_up = count(&run, "RunStarted", &Value::Null) >= starts;
        let phase = run["status"]["phase"].as_str().unwrap_or_default();
        // The second runner takes up a run that had failed, by `retry`.
        let is_over = phase == "Succeeded" || phase == "Failed" && starts > 2;
        assert!(is_taken_up || !is_over, "no {what}, it is over: {run:#}");
        Ok(is_taken_up.then_some(()))
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
    let logs = said(node, namespace);
    assert!(logs.contains("TASK ["), "{logs}");
}

/// What the pod that ended the run of a namespace wrote.
fn said(node: &Node, namespace: &str) -> String {
    // Of the Job's pods kubectl shows one, which may have met its end before its first task. The kubelet tells of the end
    // after the run does.
    let last = wait_until("the pod that ended the run", LIMIT, || {
        let pods = get(&mut node.kubectl(&[]), namespace, "pods");
        let done = |pod: &&Value| pod["status"]["phase"] == "Succeeded";
        Ok(pods.iter().find(done).map(name))
    })
    .unwrap();
    output(&mut node.kubectl(&["-n", namespace, "logs", &last])).unwrap()
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
