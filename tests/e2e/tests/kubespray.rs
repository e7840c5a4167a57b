//! Real, unmodified kubespray through Windlass, for whoever has a checkout: see docs/kubespray.md.

use std::{path::Path, path::PathBuf, time::Duration};

use e2e::{Kubespray, NAMESPACE, Options, Stage, wait_until};
use serde_json::json;

#[test]
fn kubespray_itself_raises_a_cluster_of_one_host() {
    let server = PathBuf::from(env!("CARGO_BIN_EXE_mirror"));
    let Some(kubespray) = Kubespray::from_environment(server).unwrap() else {
        eprintln!("NOT RUN: WINDLASS_KUBESPRAY names no kubespray checkout");
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let test = std::env::current_exe().unwrap();
    let options = Options {
        hosts: 1,
        dead: 0,
        windlass: test.ancestors().nth(2).unwrap().join("windlass"),
        directory: root.to_owned(),
        playbooks: kubespray.checkout.clone(),
    };
    let mut spec = json!({
        "kubernetesVersion": "1.34.4",
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
    });
    kubespray.choose(&mut spec);
    let progress = lab::progress::Terminal::default();
    let mut stage = Stage::set_for_kubespray(options, kubespray, &progress).unwrap();
    stage.up().unwrap();
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
    let run = wait_until("the run to end", Duration::from_mins(20), || {
        let run = stage.objects("runs")?.pop().unwrap_or_default();
        let phase = run["status"]["phase"].as_str().unwrap_or_default();
        Ok(matches!(phase, "Succeeded" | "Failed" | "Cancelled").then(|| run.clone()))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", stage.log_tail()));
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
}
