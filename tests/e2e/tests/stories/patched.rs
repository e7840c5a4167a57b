//! A cluster of three control planes is upgraded by a patch release and gets new certificates, while somebody asks its API all the time.

use e2e::{Prober, Stage, Versions};
use lab::Kubernetes;
use serde_json::json;

use crate::{
    edges::ended,
    first_cluster::{assert_each_step_succeeded_once, kubespray, options},
    whole::of_hosts,
};

#[test]
fn three_control_planes_are_patched_and_renewed_and_no_request_to_the_api_fails() {
    let progress = lab::progress::Terminal::default();
    let stage = Stage::set_with_older(options(3, 0), Kubernetes::Patch, kubespray(), &progress);
    let mut stage = stage.unwrap();
    let Versions {
        oldest: from,
        newest: to,
    } = stage.versions().unwrap().clone();
    stage.up().unwrap();
    stage.apply(&of_hosts(&stage, 3)).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    every_node_runs(&stage, &from);

    let addresses = stage.lab.hosts().iter();
    let addresses: Vec<_> = addresses.map(|host| host.address.to_string()).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let prober = Prober::of_api(&stage, &addresses).unwrap();
    let wish = json!({"spec": {"kubernetesVersion": to}});
    stage.merge("cluster", "first", &wish).unwrap();
    let run = ended(&stage, "first-upgrade-2");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_each_step_succeeded_once(&run);
    every_node_runs(&stage, &to);
    let counted = prober.end().unwrap();
    assert_eq!(counted.failed, 0, "{counted:#?}");
    assert!(counted.answered > 100, "{counted:#?}");
    println!("requests to the API during the upgrade {from} to {to}: {counted:?}");

    let prober = Prober::of_api(&stage, &addresses).unwrap();
    stage.says(&["renew"], "first-renew-3").unwrap();
    let run = ended(&stage, "first-renew-3");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_each_step_succeeded_once(&run);
    let counted = prober.end().unwrap();
    assert_eq!(counted.failed, 0, "{counted:#?}");
    assert!(counted.answered > 20, "{counted:#?}");
    println!("requests to the API during the renewal: {counted:?}");
}

fn every_node_runs(stage: &Stage, version: &str) {
    for node in stage.ready_nodes(3).unwrap() {
        let reported = &node["status"]["nodeInfo"]["kubeletVersion"];
        assert_eq!(*reported, format!("v{version}"), "{node:#}");
    }
}
