//! A control plane becomes three, and three become one again though one of them is dead.

use std::collections::BTreeSet;

use e2e::{NAMESPACE, Stage, node, wait_until};
use serde_json::{Value, json};

use crate::{
    edges::Edges,
    first_cluster::{assert_each_step_succeeded_once, stage},
    snapshots::Kept,
};

/// Where the plays leave the kubeconfig until it is stored.
const KUBECONFIG: &str = "clusters/first-cluster/first/artifacts/admin.conf";

#[test]
fn control_planes_join_and_leave_one_by_one() {
    let mut stage = stage(3, 0);
    stage.up().unwrap();
    let edges = Edges::of(&stage, "first-create-1");
    stage.apply(&of_one_host(&stage)).unwrap();
    // The volume of a runner's pod is lost, after the play that left the kubeconfig in it.
    edges.lose(&mut stage, "apps/install", KUBECONFIG);
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    let stored = stage.object("secret", "first-kubeconfig").unwrap();
    let by = stored["metadata"]["annotations"]["windlass.dev/stored-by"].as_str();
    let uid = run["metadata"]["uid"].as_str().unwrap();
    assert_eq!(by, Some(format!("{uid}/kubeconfig/store").as_str()));
    assert!(!stage.data().join(KUBECONFIG).exists());
    stage.ready_nodes(1).unwrap();
    assert_members(&stage, &["10.77.0.11"]);

    tmp_is_emptied(&stage);
    stage.bring_etcdutl(&stage.lab.hosts()[0].name).unwrap();
    let kept = Kept::in_a_directory(&stage, None);
    two_join(&mut stage, &kept);
    assert_members(&stage, &["10.77.0.11", "10.77.0.12", "10.77.0.13"]);
    stage.ready_nodes(3).unwrap();

    tmp_is_emptied(&stage);
    a_dead_one_and_another_leave(&mut stage);
    assert_members(&stage, &["10.77.0.11"]);
    stage.ready_nodes(1).unwrap();
}

/// What was downloaded is gone from the hosts, as after some days or a reboot: roles install from there in every play.
fn tmp_is_emptied(stage: &Stage) {
    for host in stage.lab.hosts() {
        let emptied = stage.lab.ssh(&host.name, "rm -rf /tmp/releases").unwrap();
        assert!(emptied.status.success(), "{emptied:?}");
    }
}

/// Both are declared at once, and join one after the other. Runners die while the first is added to etcd, and the operator after it.
fn two_join(stage: &mut Stage, kept: &Kept) {
    let hosts = stage.lab.hosts();
    let masters = [2, 3].map(|number| {
        let name = format!("master-{number}");
        let address = hosts[number - 1].address.to_string();
        node(&name, json!({"type": "master"}), &address)
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": masters});
    let file = stage.data().join("masters.json");
    std::fs::write(&file, list.to_string()).unwrap();
    let plan = ["plan", "--live", "-f", file.to_str().unwrap()];
    stage
        .says(&plan, "until master-3 joins etcd has 2 members")
        .unwrap();
    stage.apply(&list).unwrap();
    let mut saves = Vec::new();
    for (number, disturbed) in [(2, Some("etcd/install")), (3, None)] {
        let name = format!("first-scale-{number}");
        let run = Edges::of(stage, &name).survive(stage, disturbed);
        assert_eq!(run["status"]["phase"], "Succeeded", "{name}: {run:#}");
        assert_each_step_succeeded_once(&run);
        saves.push(saved_first(&run));
    }
    for name in ["master-2", "master-3"] {
        state_is(stage, name, "Joined");
    }
    // None of the snapshots that were taken before etcd was touched is let go of.
    let name = kept.lies(stage, 2);
    let said = saves.pop().unwrap();
    assert!(
        said.starts_with(&format!("snapshot {name} of master-1")),
        "{said}"
    );
}

/// What a run tells of the snapshot that it saved before it touched etcd.
fn saved_first(run: &Value) -> String {
    let history = run["status"]["history"].as_array().unwrap();
    let ended = |id: &str| {
        let mut records = history.iter();
        records
            .position(|record| record["event"] == "StepSucceeded" && record["step"] == id)
            .unwrap_or_else(|| panic!("no end of {id}: {run:#}"))
    };
    let save = ended("snapshot/save");
    assert!(save < ended("etcd/install"), "{run:#}");
    history[save]["detail"].as_str().unwrap().to_owned()
}

/// The third host loses its power. What would cost the quorum or leave an even number is not begun; two leave, the dead one first.
fn a_dead_one_and_another_leave(stage: &mut Stage) {
    let dead = stage.lab.hosts()[2].name.clone();
    stage.lab.kill_host(&dead).unwrap();
    let alone = ["node", "remove", "master-3", "--dry-run"];
    stage.says(&alone, "etcd would have 2 members").unwrap();
    let head = ["node", "remove", "master-1", "--dry-run"];
    stage.says(&head, "holds the authorities").unwrap();
    let both = ["node", "remove", "master-2", "master-3"];
    stage.says(&both, "is held until").unwrap();
    for (number, name) in [(4, "master-3"), (5, "master-2")] {
        let run = Edges::of(stage, &format!("first-remove-{number}")).survive(stage, None);
        assert_eq!(run["status"]["phase"], "Succeeded", "{name}: {run:#}");
        assert_each_step_succeeded_once(&run);
        stage
            .until_gone("clusternode", name, stage.patience())
            .unwrap();
    }
    let host = &stage.lab.hosts()[1].name;
    let left = "ls /etc/kubernetes/kubelet.conf /var/lib/etcd/member; pgrep -x 'kubelet|etcd'";
    let left = stage.lab.ssh(host, left).unwrap();
    assert!(left.stdout.is_empty(), "{left:?}");
}

fn state_is(stage: &Stage, name: &str, state: &str) {
    wait_until(&format!("{name} to be {state}"), stage.patience(), || {
        let node = stage.object("clusternodes", name)?;
        Ok((node["status"]["state"] == state).then_some(()))
    })
    .unwrap();
}

/// etcd has these members, all with a vote, and each of their API servers was started with all of them.
fn assert_members(stage: &Stage, addresses: &[&str]) {
    let expected: BTreeSet<String> = addresses.iter().map(ToString::to_string).collect();
    let first = &stage.lab.hosts()[0].name;
    let etcdctl = "cd /etc/ssl/etcd/ssl && etcdctl --endpoints=https://127.0.0.1:2379 --cacert=ca.pem \
                   --cert=admin-master-1.pem --key=admin-master-1-key.pem member list -w json";
    let list = stage.lab.ssh(first, etcdctl).unwrap();
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let mut members = BTreeSet::new();
    for member in list["members"].as_array().unwrap() {
        assert_ne!(member["isLearner"], true, "{list:#}");
        assert!(member["name"].is_string(), "{list:#}");
        members.insert(host_of(member["peerURLs"][0].as_str().unwrap()));
    }
    assert_eq!(members, expected);
    for host in stage.lab.hosts() {
        if !expected.contains(&host.address.to_string()) {
            continue;
        }
        let servers =
            "grep -o -e '--etcd-servers=.*' /etc/kubernetes/manifests/kube-apiserver.yaml";
        let servers = stage.lab.ssh(&host.name, servers).unwrap();
        let servers = String::from_utf8(servers.stdout).unwrap();
        let servers = servers.trim().trim_start_matches("--etcd-servers=");
        let servers: BTreeSet<_> = servers.split(',').map(host_of).collect();
        assert_eq!(servers, expected, "{}", host.name);
        let names = "grep lb-apiserver /etc/hosts | cut -d' ' -f1";
        let names = stage.lab.ssh(&host.name, names).unwrap();
        let names = String::from_utf8(names.stdout).unwrap();
        let names: BTreeSet<_> = names.lines().map(str::to_owned).collect();
        assert_eq!(names, expected, "{}", host.name);
    }
}

/// The host of a URL.
fn host_of(url: &str) -> String {
    let host = url.trim_start_matches("https://");
    host.split(':').next().unwrap_or_default().to_owned()
}

/// One host that is everything.
fn of_one_host(stage: &Stage) -> Value {
    let mut spec = json!({
        "kubernetesVersion": "1.34.4",
        "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
    });
    stage.choose(&mut spec);
    let roles = json!({"type": "master", "roles": ["control-plane", "etcd", "worker"]});
    let address = stage.lab.hosts()[0].address.to_string();
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        stage.secret().unwrap(),
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec,
        },
        node("master-1", roles, &address),
    ]})
}
