//! Real, unmodified kubespray through Windlass, for whoever has a checkout: see docs/kubespray.md. With one, the other
//! suites of this crate raise their clusters by it too; the first one is the shortest.

use std::{collections::BTreeMap, path::PathBuf};

use e2e::{Kubespray, NAMESPACE, Options, Stage, node, root, wait_until, windlass};
use serde_json::{Value, json};

use crate::{
    first_cluster::{assert_each_step_succeeded_once, process, stage},
    whole::of_hosts,
};

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

/// Power fails up to four times in each play, each time later in it.
#[test]
#[ignore = "it needs a checkout of kubespray: WINDLASS_KUBESPRAY"]
fn kubespray_itself_raises_a_cluster_though_each_play_dies_again_and_again() {
    let mut stage = stage(2, 0);
    stage.up().unwrap();
    // One member of etcd, for two are refused, and a host that joins it.
    let mut objects = of_hosts(&stage, 1);
    let address = stage.lab.hosts()[1].address.to_string();
    let worker = node("worker-1", json!({"type": "worker"}), &address);
    objects["items"].as_array_mut().unwrap().push(worker);
    stage.apply(&objects).unwrap();
    let mut deaths: BTreeMap<String, usize> = BTreeMap::new();
    let mut last = None;
    let run = wait_until("the run to end", 3 * stage.patience(), || {
        let run = stage.run()?;
        if ["Succeeded", "Failed", "Cancelled"]
            .map(Value::from)
            .contains(&run["status"]["phase"])
        {
            return Ok(Some(run));
        }
        let Some(runner) = process(&run).filter(|runner| last != Some(*runner)) else {
            return Ok(None);
        };
        for step in run["status"]["steps"].as_array().into_iter().flatten() {
            let Some(done) = step["progress"]["done"].as_u64() else {
                continue;
            };
            let id = step["id"].as_str().unwrap_or_default();
            let died = deaths.get(id).copied().unwrap_or_default();
            let point = DEATHS.get(died);
            if step["phase"] == "Running" && point.is_some_and(|point| done >= *point) {
                println!("{id} dies after {done} tasks");
                *deaths.entry(id.to_owned()).or_default() += 1;
                stage.kill_inside(runner)?;
                last = Some(runner);
                return Ok(None);
            }
        }
        Ok(None)
    })
    .unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{deaths:#?} {run:#}");
    assert_each_step_succeeded_once(&run);
    let most = deaths.values().max();
    assert_eq!(most, Some(&DEATHS.len()), "{deaths:#?}");
    println!("{deaths:#?}");
    stage.ready_nodes(2).unwrap();
}

/// After how many tasks of a play. How many there will be nobody knows before its end.
const DEATHS: [u64; 4] = [1, 20, 60, 120];
