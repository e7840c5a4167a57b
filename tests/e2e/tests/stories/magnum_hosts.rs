//! A cluster of the Magnum API on real hosts: asked for by OpenStack's command line, used by the kubeconfig that it fetches, and gone
//! by it. Only in a full run.

use std::time::Duration;

use e2e::Cloud;
use lab::{Kubernetes, command::output, progress::Terminal};
use serde_json::json;

use crate::first_cluster::stage;

/// How long Kubernetes may take to tell of a node.
const NOTICED: Duration = Duration::from_mins(3);

#[test]
fn a_user_of_openstack_has_a_cluster_of_real_hosts() {
    let stage = stage(3, 0);
    let cloud = Cloud::over(stage, &Terminal::default()).unwrap();
    let patience = cloud.stage.patience();
    let version = format!("v{}", Kubernetes::Newest.version().unwrap());
    let template = format!(
        "cluster template create metal --coe kubernetes --server-type bm --image debian --external-network none --labels kube_tag={version}"
    );
    coe(&cloud, &template);
    coe(
        &cloud,
        "cluster create first --cluster-template metal --node-count 1",
    );
    let made = cloud.until("first", "CREATE_COMPLETE", patience).unwrap();
    assert_eq!(made["coe_version"], version);

    // The certificate that the API signed is one of the cluster's own authority, and the cluster's is one of it too.
    let kubeconfig = cloud.config("first").unwrap();
    cloud.ready_nodes(&kubeconfig, 2, NOTICED).unwrap();
    let whoami = [
        "auth",
        "whoami",
        "--output=jsonpath={.status.userInfo.groups}",
    ];
    let groups = output(&mut cloud.stage.kubectl_by(&kubeconfig, &whoami)).unwrap();
    assert!(groups.contains("system:masters"), "{groups}");
    // What is secret of it stands in no journal and no log.
    let namespace = cloud.namespace("first").unwrap();
    let leaked = ["-r", "--files-with-matches", "PRIVATE KEY"];
    let mut grep = std::process::Command::new("grep");
    grep.args(leaked)
        .arg(cloud.stage.data().join("runs").join(&namespace));
    let found = cloud.stage.lab.enter(&grep).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");

    coe(&cloud, "cluster resize first 2");
    cloud.until("first", "UPDATE_COMPLETE", patience).unwrap();
    cloud.ready_nodes(&kubeconfig, 3, NOTICED).unwrap();
    assert_eq!(cloud.show("first").unwrap()["node_count"], json!(2));

    coe(&cloud, "cluster delete first");
    cloud.until_gone(patience).unwrap();
    for host in cloud.stage.lab.hosts() {
        let left = cloud
            .stage
            .lab
            .ssh(&host.name, "ls /etc/kubernetes")
            .unwrap();
        assert!(!left.status.success(), "{}: {left:?}", host.name);
    }
}

fn coe(cloud: &Cloud, words: &str) {
    let words: Vec<_> = words.split(' ').collect();
    output(&mut cloud.coe(&words)).unwrap();
}
