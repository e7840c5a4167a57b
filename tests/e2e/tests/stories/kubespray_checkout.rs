//! Real, unmodified kubespray through Windlass, for whoever has a checkout: see docs/kubespray.md. With one, the other
//! suites of this crate raise their clusters by it too; this one is the shortest.

use std::path::PathBuf;

use e2e::{Kubespray, NAMESPACE, Options, Stage, root, windlass};
use serde_json::json;

#[test]
#[ignore = "it needs a checkout of kubespray: WINDLASS_KUBESPRAY"]
fn kubespray_itself_raises_a_cluster_of_one_host() {
    let server = PathBuf::from(env!("CARGO_BIN_EXE_mirror"));
    let kubespray = Kubespray::from_environment(server).unwrap();
    let kubespray = kubespray.expect("WINDLASS_KUBESPRAY names a checkout");
    let options = Options {
        hosts: 1,
        dead: 0,
        windlass: windlass().unwrap(),
        directory: root(),
        playbooks: kubespray.checkout.clone(),
    };
    let progress = lab::progress::Terminal::default();
    let mut stage = Stage::set_for_kubespray(options, kubespray.clone(), &progress).unwrap();
    stage.up().unwrap();
    let mut spec = json!({
        "kubernetesVersion": "1.34.4",
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
    });
    kubespray.choose(&mut spec, stage.lab.gateway());
    let address = stage.lab.hosts()[0].address.to_string();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        stage.secret().unwrap(),
        {"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
         "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec},
        {"apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
         "metadata": {"name": "node-1", "namespace": NAMESPACE},
         "spec": {"type": "master", "roles": ["control-plane", "etcd", "worker"],
                  "inventory": {"ansible_host": address}}},
    ]});
    stage.apply(&objects).unwrap();

    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert!(stage.windlass(&["status"]).status().unwrap().success());
    stage.ready_nodes(1).unwrap();
    let said = stage.in_pod("hello", "echo a pod runs").unwrap();
    assert_eq!(said, "a pod runs");
    let events = stage.objects("events").unwrap();
    let told = events.iter().any(|event| event["reason"] == "Created");
    assert!(told, "{events:#?}");
}
