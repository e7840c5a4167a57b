//! One component of a running cluster is brought to other settings, and nothing else with it: the container engine, etcd, the network
//! plugin. Only in a full run.

use e2e::{NAMESPACE, Stage, node, wait_until};
use serde_json::{Value, json};

use crate::{
    edges::Edges,
    first_cluster::{assert_each_step_succeeded_once, stage},
};

#[test]
fn one_component_is_upgraded_and_nothing_else() {
    let mut stage = stage(2, 0);
    stage.up().unwrap();
    stage.apply(&cluster(&stage)).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    stage.ready_nodes(2).unwrap();

    let variables =
        json!({"containerd_max_container_log_line_size": 8192, "etcd_snapshot_count": 50000});
    let wish = json!({"spec": {"nodes": {"all": {"deploy": {"extraVars": variables}}}}});
    stage.merge("cluster", "first", &wish).unwrap();

    // What would be done is shown, and nothing is touched.
    for (component, shown) in [
        ("etcd", "etcd/upgrade-1"),
        ("etcd", "changed: etcd_snapshot_count"),
        (
            "container-engine",
            "changed: containerd_max_container_log_line_size",
        ),
        ("network-plugin", "no variable of it has changed"),
    ] {
        stage
            .says(&["component", "upgrade", component], shown)
            .unwrap();
    }
    settings(&stage, "16384", "100000");

    // The runner dies while the member is at work.
    upgrade(&mut stage, "etcd", 2, Some("etcd/upgrade-"));
    settings(&stage, "16384", "50000");
    let told = stage.object("cluster", "first").unwrap();
    let told = told["status"].to_string();
    assert!(told.contains("changed variables"), "{told}");

    upgrade(
        &mut stage,
        "container-engine",
        3,
        Some("container-engine/2"),
    );
    settings(&stage, "8192", "50000");
    upgrade(&mut stage, "network-plugin", 4, None);

    // Nothing is left of it: nodes take pods, a snapshot is there, and there is nothing more to do.
    stage.ready_nodes(2).unwrap();
    let kubeconfig = stage.kubeconfig().unwrap();
    let nodes = stage
        .kubectl_by(&kubeconfig, &["get", "nodes", "-o", "json"])
        .output()
        .unwrap();
    let nodes: Value = serde_json::from_slice(&nodes.stdout).unwrap();
    for node in nodes["items"].as_array().unwrap() {
        assert_eq!(node["spec"]["unschedulable"], Value::Null, "{node:#}");
    }
    let saved = "ls /var/backups/etcd-*-windlass/snapshot.db";
    let saved = stage.lab.ssh(&stage.lab.hosts()[0].name, saved).unwrap();
    assert!(saved.status.success(), "{saved:?}");
    wait_until("the variables to be carried out", stage.patience(), || {
        let cluster = stage.object("cluster", "first")?;
        Ok((!cluster["status"].to_string().contains("changed variables")).then_some(()))
    })
    .unwrap();
}

/// Asks for a component, and follows the run to its end.
fn upgrade(stage: &mut Stage, component: &str, number: usize, disturbed: Option<&str>) {
    let name = format!("first-component-{number}");
    let edges = Edges::of(stage, &name);
    stage
        .says(&["component", "upgrade", component, "--yes"], &name)
        .unwrap();
    let run = edges.survive(stage, disturbed);
    assert_eq!(run["status"]["phase"], "Succeeded", "{name}: {run:#}");
    assert_each_step_succeeded_once(&run);
}

/// What the container engines and etcd run with.
fn settings(stage: &Stage, line_size: &str, snapshot_count: &str) {
    for host in stage.lab.hosts() {
        // The file, and that the engine was started after it was written.
        let engine = "grep -o 'max_container_log_line_size = .*' /etc/containerd/config.toml; \
                      find /etc/containerd/config.toml -newer /run/systemd/units/invocation:containerd.service";
        let said = stage.lab.ssh(&host.name, engine).unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(
            said.trim(),
            format!("max_container_log_line_size = {line_size}"),
            "{}",
            host.name
        );
    }
    let etcd = "tr '\\0' '\\n' < /proc/$(pgrep -x etcd)/environ | grep ETCD_SNAPSHOT_COUNT";
    let said = stage.lab.ssh(&stage.lab.hosts()[0].name, etcd).unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said.trim(), format!("ETCD_SNAPSHOT_COUNT={snapshot_count}"));
}

/// A control plane that takes pods too, and a worker.
fn cluster(stage: &Stage) -> Value {
    let mut spec = json!({
        "kubernetesVersion": "1.34.4",
        "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
        "operations": {"creation": {"startConditions": {"nodes": {"minimum": 2}}}},
    });
    stage.choose(&mut spec);
    let all = json!({"type": "master", "roles": ["control-plane", "etcd", "worker"]});
    let hosts = stage.lab.hosts();
    let [first, second] = [0, 1].map(|at| hosts[at].address.to_string());
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        stage.secret().unwrap(),
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec,
        },
        node("master-1", all, &first),
        node("worker-1", json!({"type": "worker"}), &second),
    ]})
}
