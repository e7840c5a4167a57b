//! The operator and a real API server that fails it: an expired watch, a storm of 429, and a leader that slept.
//!
//! No hosts and no nodes: Clusters wait for their start conditions, and what the operator writes of their ClusterNodes shows
//! that it works. Where a run is at work, the test is its runner.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use e2e::{Replica, Storm, account, root, wait_until};
use lab::{ControlPlane, Kubernetes, command::output, control_plane::Part, progress::Terminal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A loaded machine may take long; nothing here takes longer than a Lease.
const LIMIT: Duration = Duration::from_mins(3);

const NAMESPACE: &str = "story";

/// The namespace of a cluster with a run that is at work.
const AT_WORK: &str = "work";

/// A control plane with Windlass' kinds, rights and a Cluster, and the kubeconfig of the ServiceAccount.
fn prepared() -> (ControlPlane, PathBuf) {
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    let manifests = root().join("deploy/manifests");
    plane.define(&manifests.join("crds.yaml")).unwrap();
    apply_file(&plane, &manifests.join("windlass.yaml"));
    let kubeconfig = account(&plane).unwrap();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let cluster = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": "first", "namespace": NAMESPACE},
        "spec": {
            "kubespray": {"version": "2.30.0", "source": {"path": root().join("bundle")}},
            "kubernetesVersion": "1.34.4",
            "operations": {"creation": {"startConditions": {"nodes": {"minimum": 30}}}},
        },
    });
    apply(
        &plane,
        &json!({"apiVersion": "v1", "kind": "List", "items": [namespace, cluster]}),
    );
    (plane, kubeconfig)
}

fn apply(plane: &ControlPlane, object: &Value) {
    let file = plane.dir().join("objects.json");
    fs::write(&file, object.to_string()).unwrap();
    apply_file(plane, &file);
}

fn apply_file(plane: &ControlPlane, file: &Path) {
    output(plane.kubectl().args(["apply", "-f"]).arg(file)).unwrap();
}

fn node(plane: &ControlPlane, name: &str) {
    let address = format!("192.0.2.{}", name.len());
    apply(
        plane,
        &json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"type": "worker", "inventory": {"ansible_host": address}},
        }),
    );
}

/// Waits until the Cluster counts so many nodes: somebody has seen them, and could write.
fn counted(plane: &ControlPlane, nodes: u64) {
    wait_until("the Cluster to count its nodes", LIMIT, || {
        let text = output(
            plane
                .kubectl()
                .args(["-n", NAMESPACE, "get", "cluster", "first", "-o", "json"]),
        )?;
        let cluster: Value = serde_json::from_str(&text)?;
        Ok((cluster["status"]["nodes"]["total"] == nodes).then_some(()))
    })
    .unwrap();
}

fn objects(plane: &ControlPlane, namespace: &str, kind: &str) -> Vec<Value> {
    let get = ["-n", namespace, "get", kind, "-o", "json"];
    let text = output(plane.kubectl().args(get)).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Who the objects of a kind are, whatever they are called.
fn uids(plane: &ControlPlane, kind: &str) -> Vec<Value> {
    let objects = objects(plane, AT_WORK, kind);
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    objects.iter().map(uid).collect()
}

/// The reasons of the Events of the Cluster, in their order. A new leader may have to find the playbooks first, and then says
/// once more what it waits for: that is another edge.
fn told(plane: &ControlPlane) -> Vec<String> {
    let mut events = objects(plane, NAMESPACE, "events");
    events.retain(|event| event["involvedObject"]["kind"] == "Cluster");
    events.sort_by_key(|event| event["eventTime"].to_string());
    let reason = |event: &Value| event["reason"].as_str().unwrap_or_default().to_owned();
    events.iter().map(reason).collect()
}

/// Waits for the one Job of the run at work that is not this one.
fn job_other_than(plane: &ControlPlane, known: &[Value]) -> Vec<Value> {
    wait_until("a Job", LIMIT, || {
        let jobs = uids(plane, "jobs");
        Ok((!jobs.is_empty() && jobs != known).then_some(jobs))
    })
    .unwrap()
}

/// Starts the creation of a cluster of one host, and its run.
fn begin_work(plane: &ControlPlane) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": AT_WORK}});
    let node = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": "host-1", "namespace": AT_WORK},
        "spec": {"type": "master", "inventory": {"ansible_host": "192.0.2.1"}},
    });
    let cluster = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": "first", "namespace": AT_WORK},
        "spec": {
            "kubespray": {"version": "2.30.0", "source": {"path": root().join("bundle")}},
            "kubernetesVersion": "1.34.4",
        },
    });
    let items = [namespace, node, cluster];
    apply(
        plane,
        &json!({"apiVersion": "v1", "kind": "List", "items": items}),
    );
    job_other_than(plane, &[]);
    report(plane, "Running");
    await_state(plane, "Creating");
}

/// Writes how the run at work stands, as its runner does.
fn report(plane: &ControlPlane, phase: &str) {
    let run = objects(plane, AT_WORK, "runs").pop().unwrap();
    let status = json!({"status": {"phase": phase, "runner": {"id": "pod/story/1"}}}).to_string();
    let patch = ["patch", "run", "--subresource=status", "--type=merge"];
    let of = ["-n", AT_WORK, run["metadata"]["name"].as_str().unwrap()];
    output(plane.kubectl().args(patch).args(of).args(["-p", &status])).unwrap();
}

/// Waits until the cluster with the run at work is in a state.
fn await_state(plane: &ControlPlane, state: &str) {
    wait_until(&format!("the state {state}"), LIMIT, || {
        let cluster = objects(plane, AT_WORK, "clusters").pop();
        Ok(cluster.filter(|cluster| cluster["status"]["state"] == state))
    })
    .unwrap();
}

#[test]
fn an_expired_watch_is_begun_anew() {
    let (mut plane, kubeconfig) = prepared();
    let operator = Replica::start(&plane, &kubeconfig, "operator", &[]).unwrap();
    node(&plane, "a");
    counted(&plane, 1);

    // While it sleeps the world goes on and forgets what was: its revision is older than all that the server has.
    operator.process.signal(Signal::SIGSTOP).unwrap();
    node(&plane, "bb");
    node(&plane, "ccc");
    let newest = output(
        plane
            .kubectl()
            .args(["get", "clusternodes", "-A", "-o", "json"]),
    )
    .unwrap();
    let newest: Value = serde_json::from_str(&newest).unwrap();
    let revision = newest["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| {
            item["metadata"]["resourceVersion"]
                .as_str()?
                .parse::<u64>()
                .ok()
        });
    plane.kill(Part::ApiServer).unwrap();
    output(
        plane
            .etcdctl()
            .args(["compact", &revision.max().unwrap().to_string()]),
    )
    .unwrap();
    plane.revive(Part::ApiServer).unwrap();
    operator.process.signal(Signal::SIGCONT).unwrap();

    counted(&plane, 3);
    node(&plane, "dddd");
    counted(&plane, 4);
    operator.await_standing("leading", LIMIT).unwrap();
    // Otherwise the server still had what the operator asked for, and nothing was shown.
    let said = operator.process.said();
    assert!(said.contains("too old resource version"), "{said}");
}

#[test]
fn a_storm_of_refusals_passes() {
    let (plane, kubeconfig) = prepared();
    let operator = Replica::start(&plane, &kubeconfig, "operator", &[]).unwrap();
    node(&plane, "a");
    counted(&plane, 1);

    let kubectl = || plane.kubectl();
    let accounts = [("windlass-system", "windlass")];
    let mut storm = Storm::over(&accounts, &kubectl, plane.dir()).unwrap();
    // Each node is a reason to write.
    for name in ["bb", "ccc"] {
        node(&plane, name);
    }
    storm.await_refusals("windlass-system", 5).unwrap();
    assert!(operator.stands("leading"), "a Lease outlives a short storm");
    let refusals = storm.refusals("windlass-system").unwrap();
    storm.pass().unwrap();
    counted(&plane, 3);
    // It heeds Retry-After and backs off: a storm does not become one of its own.
    assert!(refusals < 100.0, "{refusals} refusals");
}

#[test]
fn a_leader_that_slept_past_its_lease_leads_no_more() {
    let (plane, kubeconfig) = prepared();
    let mut first = Replica::start(&plane, &kubeconfig, "first", &[]).unwrap();
    first.await_standing("leading", LIMIT).unwrap();
    let second = Replica::start(&plane, &kubeconfig, "second", &[]).unwrap();
    second.await_standing("standing by", LIMIT).unwrap();
    node(&plane, "a");
    counted(&plane, 1);
    begin_work(&plane);
    let (runs, jobs) = (uids(&plane, "runs"), uids(&plane, "jobs"));

    first.process.signal(Signal::SIGSTOP).unwrap();
    second.await_standing("leading", LIMIT).unwrap();
    // What the sleeper has not seen: on waking it must leave this to the other.
    node(&plane, "bb");
    counted(&plane, 2);
    output(
        plane
            .kubectl()
            .args(["-n", AT_WORK, "delete", "job", "--all"]),
    )
    .unwrap();
    let jobs = job_other_than(&plane, &jobs);
    first.process.signal(Signal::SIGCONT).unwrap();
    wait_until("the first to end or to stand by", LIMIT, || {
        let ended = first.process.has_ended()?;
        Ok((ended || first.stands("standing by")).then_some(()))
    })
    .unwrap();
    assert!(second.stands("leading"), "the second leads no more");
    node(&plane, "ccc");
    counted(&plane, 3);
    let told = told(&plane);
    let twice = told.windows(2).any(|pair| pair[0] == pair[1]);
    assert!(!twice, "an edge was told twice: {told:?}");
    // The run at work has had one runner at a time, and is followed to its end.
    assert_eq!(uids(&plane, "jobs"), jobs);
    report(&plane, "Succeeded");
    await_state(&plane, "Created");
    assert_eq!(uids(&plane, "runs"), runs);
    assert_eq!(uids(&plane, "jobs"), jobs);
    assert!(second.stands("leading"), "the second leads no more");
}
