//! Clusters of hosts each of which is everything: what they are made of, what they keep, and who is in their etcd.

use std::collections::BTreeSet;

use anyhow::Context;
use e2e::{NAMESPACE, Stage, node, wait_until};
use lab::command::output;
use serde_json::{Value, json};

/// A control plane, a member of etcd and a worker in one.
pub(crate) fn everything() -> Value {
    json!({"type": "master", "roles": ["control-plane", "etcd", "worker"]})
}

/// So many hosts, each of which is everything.
pub(crate) fn of_hosts(stage: &Stage, number: usize) -> Value {
    let mut spec = json!({
        "kubernetesVersion": "1.34.4",
        "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
    });
    stage.choose(&mut spec);
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        stage.secret().unwrap(),
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec,
        }),
    ];
    items.extend((1..=number).map(|number| {
        let address = stage.lab.hosts()[number - 1].address.to_string();
        node(&format!("master-{number}"), everything(), &address)
    }));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Writes something into the cluster.
pub(crate) fn remember(stage: &Stage, name: &str) {
    let kubeconfig = stage.kubeconfig().unwrap();
    let data = ["create", "configmap", name, "--from-literal=is=kept"];
    wait_until("the cluster to take data", stage.patience(), || {
        Ok(output(&mut stage.kubectl_by(&kubeconfig, &data)).ok())
    })
    .unwrap();
}

/// What was written into the cluster as `data`.
pub(crate) fn remembered(stage: &Stage) -> String {
    let kubeconfig = stage.kubeconfig().unwrap();
    let data = ["get", "configmap", "data", "--output=jsonpath={.data.is}"];
    wait_until("the cluster to tell its data", stage.patience(), || {
        Ok(output(&mut stage.kubectl_by(&kubeconfig, &data)).ok())
    })
    .unwrap()
}

/// The addresses of the members of etcd, as the host of that number tells them; all have a vote.
pub(crate) fn members(stage: &Stage, number: usize) -> Vec<String> {
    let host = &stage.lab.hosts()[number - 1].name;
    let etcdctl = format!(
        "cd /etc/ssl/etcd/ssl && etcdctl --endpoints=https://127.0.0.1:2379 --cacert=ca.pem \
         --cert=admin-master-{number}.pem --key=admin-master-{number}-key.pem member list -w json"
    );
    let told = stage.lab.ssh(host, &etcdctl).unwrap();
    let list: Value = serde_json::from_slice(&told.stdout)
        .with_context(|| format!("{told:?}"))
        .unwrap();
    let members = list["members"].as_array().unwrap().iter();
    let members: BTreeSet<String> = members
        .map(|member| {
            assert_ne!(member["isLearner"], true, "{list:#}");
            let url = member["peerURLs"][0].as_str().unwrap();
            let host = url.trim_start_matches("https://");
            host.split(':').next().unwrap_or_default().to_owned()
        })
        .collect();
    members.into_iter().collect()
}
