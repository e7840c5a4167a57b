//! With an API server and no node: what the operator does there, and the rights that it needs for it.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use e2e::{Replica, account, root, wait_until, windlass};
use lab::{
    ControlPlane, Extent, Kubernetes, command::output, control_plane::Part, progress::Terminal,
};
use serde_json::{Value, json};

use super::{LIMIT, NAMESPACE, apply, await_reason, condition, get, name, objects, spec_of};

mod bounds;
mod review;

#[test]
fn a_real_api_server_takes_the_kinds_and_the_operator_needs_no_more_than_its_rights() {
    let (mut plane, kubeconfig) = installed(Kubernetes::Newest, "windlass.yaml");
    let namespaced = root().join("deploy/manifests/windlass-namespaced.yaml");
    let checked = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
    ];
    output(plane.kubectl().args(checked).arg(namespaced)).unwrap();

    let ports = ["--runner-egress-ports=443,6443"];
    let first = Replica::start(&plane, &kubeconfig, "first", &ports).unwrap();
    first.await_standing("leading", LIMIT).unwrap();
    let second = Replica::start(&plane, &kubeconfig, "second", &ports).unwrap();
    second.await_standing("standing by", LIMIT).unwrap();

    let described = |key: &[u8]| {
        let mut objects = described(NAMESPACE, key);
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
    review::expect(&plane, "windlass", NAMESPACE, review::OPERATOR);
    let everywhere = [review::LEADER, review::OPERATOR].concat();
    review::expect(&plane, "windlass", "windlass-system", &everywhere);
    review::expect(&plane, "windlass-runner-first", NAMESPACE, review::RUNNER);
    review::expect(&plane, "windlass-runner-first", "windlass-system", &[]);
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
    let of_the_first = first.process.said();
    drop(first);
    second.await_standing("leading", LIMIT).unwrap();
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
    for said in [of_the_first, second.process.said()] {
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
    second.await_standing("leading", LIMIT).unwrap();
}

#[test]
fn an_operator_of_one_namespace_needs_rights_there_alone() {
    let oldest = Extent::of_this_run().kubernetes()[0];
    let (plane, kubeconfig) = installed(oldest, "windlass-namespaced.yaml");
    let scope = [
        "--watch-namespace=windlass-system",
        "--runner-egress-ports=443",
    ];
    let operator = Replica::start(&plane, &kubeconfig, "operator", &scope).unwrap();

    let namespace = "windlass-system";
    let objects = described(namespace, &new_key(&plane));
    apply(&mut plane.kubectl(), plane.dir(), &objects);
    let job = wait_until("a Job for the run", LIMIT, || {
        Ok(get(&mut plane.kubectl(), namespace, "jobs").pop())
    })
    .unwrap();
    let account = &job["spec"]["template"]["spec"]["serviceAccountName"];
    assert_eq!(account, "windlass-runner-first");
    review::expect(
        &plane,
        "windlass",
        namespace,
        &[review::LEADER, review::OPERATOR].concat(),
    );
    review::expect(&plane, "windlass-runner-first", namespace, review::RUNNER);
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
    let said = operator.process.said();
    assert!(!said.contains("orbidden"), "{said}");
}

#[test]
fn a_runner_that_kubernetes_refuses_is_told_of_and_is_in_nobodys_way() {
    let (plane, kubeconfig) = installed(Kubernetes::Newest, "windlass.yaml");
    bounds::widen(&plane, "hostNetwork", "true");
    let wider = ["--allow-host-network"];
    let operator = Replica::start(&plane, &kubeconfig, "operator", &wider).unwrap();
    let key = new_key(&plane);

    // The namespace takes no pod that is in its node's network.
    let mut story = described(NAMESPACE, &key);
    *spec_of(&mut story, "/runner/hostNetwork") = json!(true);
    apply(&mut plane.kubectl(), plane.dir(), &story);
    let why = "violates PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true)";
    await_reason(&|| plane.kubectl(), NAMESPACE, "RunnerNotCreated", why);
    for kind in ["clusters", "runs"] {
        let wide = ["-n", NAMESPACE, "get", kind, "-o", "wide"];
        let table = output(plane.kubectl().args(wide)).unwrap();
        assert!(table.contains(why), "{table}");
    }
    let refused = job(&plane);
    let events = get(&mut plane.kubectl(), NAMESPACE, "events");
    let told = events.iter().find(|event| {
        event["reason"] == "RunnerNotCreated" && event["involvedObject"]["kind"] == "Cluster"
    });
    assert_eq!(told.unwrap()["type"], "Warning");
    assert!(told.unwrap()["message"].as_str().unwrap().contains(why));

    // Who changes the spec has another Job without further ado.
    *spec_of(&mut story, "/runner/hostNetwork") = json!(false);
    apply(&mut plane.kubectl(), plane.dir(), &story);
    wait_until("a pod", LIMIT, || {
        Ok(get(&mut plane.kubectl(), NAMESPACE, "pods").pop())
    })
    .unwrap();
    assert_ne!(job(&plane)["metadata"]["uid"], refused["metadata"]["uid"]);
    let comes_anew = || {
        let words = "waits for its runner";
        await_reason(&|| plane.kubectl(), NAMESPACE, "Creating", words);
    };
    comes_anew();

    // The pod dies, and another one comes; then runners end for an error, each with its Job.
    let killed = die(&plane, "OOMKilled", 137, "");
    let why = format!("pod {killed} died and is replaced: container runner: OOMKilled");
    await_reason(&|| plane.kubectl(), NAMESPACE, "RunnerDied", &why);
    comes_anew();
    let log = "at work\nwindlass: failed to keep the journal\n";
    let [.., last] = [(); 3].map(|()| die(&plane, "Error", 1, log));
    let why = format!(
        "pod {last} died and is replaced: container runner: Error, exit code 1: failed to keep"
    );
    await_reason(&|| plane.kubectl(), NAMESPACE, "RunnerDied", &why);
    comes_anew();

    // The run ends when that is wanted, for a newer plan or for good.
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": "full"}, "spec": {"hard": {"pods": "0"}},
    });
    let mut full = described("full", &key);
    full.insert(1, quota);
    apply(&mut plane.kubectl(), plane.dir(), &full);
    await_reason(
        &|| plane.kubectl(),
        "full",
        "RunnerNotCreated",
        "exceeded quota: none",
    );
    *spec_of(&mut full, "/runner/maxForks") = json!(5);
    apply(&mut plane.kubectl(), plane.dir(), &full);
    let runs = || get(&mut plane.kubectl(), "full", "runs");
    wait_until("another run", LIMIT, || {
        Ok(
            matches!(&runs()[..], [_, second] if second["status"]["phase"].is_string())
                .then_some(()),
        )
    })
    .unwrap();
    let [first, second] = runs().try_into().unwrap();
    assert_eq!(first["status"]["phase"], "Superseded", "{first:#}");
    assert_eq!(second["status"]["phase"], "Pending", "{second:#}");
    await_reason(
        &|| plane.kubectl(),
        "full",
        "RunnerNotCreated",
        &name(&second),
    );
    let mut logs = Command::new(windlass().unwrap());
    logs.arg("--kubeconfig").arg(plane.kubeconfig());
    let answer = logs.args(["-n", "full", "logs"]).output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr);
    let waits = "waits for its runner: Kubernetes makes no pod";
    assert!(!answer.status.success() && said.contains(waits), "{said}");
    let delete = ["-n", "full", "delete", "cluster", "first", "--timeout=120s"];
    output(plane.kubectl().args(delete)).unwrap();
    let said = operator.process.said();
    assert!(!said.contains("orbidden: User"), "{said}");
}

#[test]
fn a_node_that_stays_away_keeps_its_runner_until_it_is_given_up() {
    let (plane, kubeconfig) = installed(Kubernetes::Newest, "windlass.yaml");
    let _operator = Replica::start(&plane, &kubeconfig, "operator", &[]).unwrap();
    let objects = described(NAMESPACE, &new_key(&plane));
    apply(&mut plane.kubectl(), plane.dir(), &objects);

    let out_of_service = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    for given_up in [
        ["delete", "node", "lost"].as_slice(),
        &["taint", "node", "lost", out_of_service],
    ] {
        let lost = lose_the_node(&plane);
        let remedy = "kubectl delete node lost";
        await_reason(&|| plane.kubectl(), NAMESPACE, "RunnerLost", remedy);
        output(plane.kubectl().args(given_up)).unwrap();
        wait_until("the pod's successor", LIMIT, || {
            let pods = get(&mut plane.kubectl(), NAMESPACE, "pods");
            Ok((!pods.is_empty() && !pods.iter().any(|pod| name(pod) == lost)).then_some(()))
        })
        .unwrap();
        assert!(job(&plane)["status"]["failed"].is_null(), "{given_up:?}");
    }
}

/// The one Job of the cluster.
fn job(plane: &ControlPlane) -> Value {
    get(&mut plane.kubectl(), NAMESPACE, "jobs").pop().unwrap()
}

/// Has the runner's pod be on a node `lost`, of which no kubelet will ever speak, as of a machine that went down with it. It is
/// to end, and Kubernetes waits for that. Its name is returned.
fn lose_the_node(plane: &ControlPlane) -> String {
    let pods = || get(&mut plane.kubectl(), NAMESPACE, "pods");
    let pod = wait_until("the runner's pod", LIMIT, || Ok(pods().pop())).unwrap();
    let pod = name(&pod);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}});
    apply(&mut plane.kubectl(), plane.dir(), &[node]);
    bind(plane, &pod, "lost");
    tell(plane, &pod, &json!({"phase": "Running"}));
    await_job(plane, "active");

    // Kubernetes does it after five minutes by itself.
    let delete = ["-n", NAMESPACE, "delete", "pod", &pod, "--wait=false"];
    output(plane.kubectl().args(delete).arg("--grace-period=1")).unwrap();
    await_job(plane, "terminating");
    // It may still work.
    assert_eq!(pods().len(), 1, "{:#}", job(plane));
    pod
}

/// Has the runner's container end as a kubelet would tell of it, as soon as there is one that has not ended. Its pod's name is
/// returned.
fn die(plane: &ControlPlane, reason: &str, exit_code: u8, log: &str) -> String {
    let pod = wait_until("a pod that has not ended", LIMIT, || {
        let pods = get(&mut plane.kubectl(), NAMESPACE, "pods");
        let mut living = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Pending");
        Ok(living.next().map(name))
    });
    let pod = pod.unwrap();
    let end = json!({"reason": reason, "exitCode": exit_code, "message": log});
    let container = json!({
        "name": "runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": end},
    });
    let ended = json!({"phase": "Failed", "containerStatuses": [container]});
    tell(plane, &pod, &ended);
    pod
}

/// Tells of a pod what its kubelet would.
fn tell(plane: &ControlPlane, pod: &str, status: &Value) {
    let patch = json!({"status": status}).to_string();
    let told = ["patch", "pod", pod, "--subresource=status"];
    let of = ["-n", NAMESPACE, "--type=merge", "-p", &patch];
    output(plane.kubectl().args(told).args(of)).unwrap();
}

/// Waits until the Job counts its one pod as this.
fn await_job(plane: &ControlPlane, state: &str) {
    wait_until(&format!("the Job's pod to be {state}"), LIMIT, || {
        Ok((job(plane)["status"][state] == 1).then_some(()))
    })
    .unwrap();
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

/// An API server with the kinds, and the rights of these manifests; and the kubeconfig of the operator's account.
fn installed(kubernetes: Kubernetes, manifests: &str) -> (ControlPlane, PathBuf) {
    let plane = ControlPlane::start(kubernetes, &Terminal::default()).unwrap();
    install_kinds(&plane);
    let manifests = root().join("deploy/manifests").join(manifests);
    output(plane.kubectl().arg("apply").arg("-f").arg(manifests)).unwrap();
    let kubeconfig = account(&plane).unwrap();
    (plane, kubeconfig)
}

/// A cluster of one host that nobody reaches.
fn described(namespace: &str, key: &[u8]) -> Vec<Value> {
    let source = root().join("bundle");
    objects(namespace, &["10.77.0.12"], source.to_str().unwrap(), key)
}

/// Installs the kinds as the program prints them.
pub(super) fn install_kinds(plane: &ControlPlane) {
    let crds = plane.dir().join("crds.yaml");
    let text = output(Command::new(windlass().unwrap()).arg("crds")).unwrap();
    fs::write(&crds, text).unwrap();
    plane.define(&crds).unwrap();
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
