//! The first host of a cluster is replaced by a new one, and nothing names it any more.

use e2e::{Stage, node};
use lab::command::output;
use serde_json::{Value, json};

use crate::{
    edges::ended,
    first_cluster::{assert_each_step_succeeded_once, stage},
    whole::{everything, members, of_hosts, remember, remembered},
};

/// The first host that is replaced, and the address that nothing may name afterwards.
const OLD: (&str, &str) = ("master-1", "10.77.0.11");

#[test]
fn the_first_host_of_a_cluster_is_replaced() {
    let mut stage = stage(4, 0);
    stage.up().unwrap();
    stage.apply(&of_hosts(&stage, 3)).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    stage.ready_nodes(3).unwrap();
    remember(&stage, "data");

    it_is_refused_and_shown(&stage);
    stage.apply(&new_one(&stage)).unwrap();
    let replace = ["node", "replace", OLD.0, "--by", "master-4"];
    let unconfirmed = stage.windlass(&replace).output().unwrap();
    let said = String::from_utf8_lossy(&unconfirmed.stderr).into_owned();
    assert!(!unconfirmed.status.success(), "{said}");
    assert!(said.contains("--confirm master-1"), "{said}");
    let plan = String::from_utf8_lossy(&unconfirmed.stdout).into_owned();
    for words in [
        "their order master-1, master-2, master-3, master-4 becomes master-2, master-3, master-4, master-1",
        "master-1 leaves last",
    ] {
        assert!(plan.contains(words), "{plan}");
    }
    let confirmed = [&replace[..], &["--confirm", OLD.0]].concat();
    stage.says(&confirmed, "is held until").unwrap();
    for name in ["first-scale-2", "first-replace-3", "first-remove-4"] {
        let run = ended(&stage, name);
        assert_eq!(run["status"]["phase"], "Succeeded", "{name}: {run:#}");
        assert_each_step_succeeded_once(&run);
    }
    stage
        .until_gone("clusternode", OLD.0, stage.patience())
        .unwrap();

    assert_eq!(
        members(&stage, 2),
        ["10.77.0.12", "10.77.0.13", "10.77.0.14"]
    );
    let cluster = stage.object("clusters", "first").unwrap();
    let order = &cluster["status"]["inventory"]["order"];
    let expected = json!(["master-2", "master-3", "master-4"]);
    assert_eq!(order["etcd"], expected, "{order:#}");
    assert_eq!(order["kube_control_plane"], expected, "{order:#}");
    nothing_names_it(&stage, "grep lb-apiserver /etc/hosts");
    stage.ready_nodes(3).unwrap();
    assert_eq!(remembered(&stage), "kept");

    // The new first host can do what the old one did: the playbooks run over all of it.
    stage.says(&["converge"], "first-converge-5").unwrap();
    let run = ended(&stage, "first-converge-5");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_eq!(
        members(&stage, 2),
        ["10.77.0.12", "10.77.0.13", "10.77.0.14"]
    );
    nothing_names_it(&stage, "grep -w master-1 /etc/hosts");
    assert_eq!(remembered(&stage), "kept");
}

/// Without a host that can take its place nothing is done, and it is said which command replaces it.
fn it_is_refused_and_shown(stage: &Stage) {
    let remove = ["node", "remove", OLD.0, "--dry-run"];
    stage
        .says(
            &remove,
            "windlass -n first-cluster node replace master-1 --by NAME",
        )
        .unwrap();
    for (by, words) in [
        ("master-4", "there is no ClusterNode master-4"),
        ("master-1", "cannot take its own place"),
    ] {
        let replace = ["node", "replace", OLD.0, "--by", by, "--confirm", OLD.0];
        let refused = stage.windlass(&replace).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// No file of Kubernetes, no object of kubeadm, and no kubeconfig names the host that left; nor does what these words tell of the names
/// of hosts, all of which are written anew when the cluster converges.
fn nothing_names_it(stage: &Stage, names: &str) {
    let (_, address) = OLD;
    for host in &stage.lab.hosts()[1..] {
        let named = format!(
            "grep -rlF {address} /etc/kubernetes /var/lib/kubelet/config.yaml /etc/etcd.env /root/.kube; {names} | grep -F {address}; true"
        );
        let named = stage.lab.ssh(&host.name, &named).unwrap();
        let named = String::from_utf8(named.stdout).unwrap();
        assert_eq!(named, "", "{}", host.name);
    }
    let kubeconfig = stage.kubeconfig().unwrap();
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    assert!(!text.contains(address), "the kubeconfig names {address}");
    let maps = ["get", "configmaps", "-A", "--output=json"];
    let maps = output(&mut stage.kubectl_by(&kubeconfig, &maps)).unwrap();
    let maps: Value = serde_json::from_str(&maps).unwrap();
    for map in maps["items"].as_array().unwrap() {
        let name = &map["metadata"]["name"];
        assert!(
            !map["data"].to_string().contains(address),
            "{name}: {map:#}"
        );
    }
    let nodes = ["get", "nodes", "--output=name"];
    let nodes = output(&mut stage.kubectl_by(&kubeconfig, &nodes)).unwrap();
    assert!(!nodes.contains(OLD.0), "{nodes}");
}

fn new_one(stage: &Stage) -> Value {
    let address = stage.lab.hosts()[3].address.to_string();
    let new = node("master-4", everything(), &address);
    json!({"apiVersion": "v1", "kind": "List", "items": [new]})
}
