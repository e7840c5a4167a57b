//! Snapshots of etcd on a volume that the pods of runners mount.

use std::fs::File;

use e2e::wait_until;
use lab::{Node, progress::Terminal};
use serde_json::{Value, json};

use super::{super::apply, LIMIT, NAMESPACE, get, name, wish};

/// The directory of the node that is the volume.
const PATH: &str = "/var/lib/windlass-shelf";
const CLAIM: &str = "shelf";

/// A snapshot of the cluster that was raised is saved on a volume, whose claim comes after the wish for it.
pub(super) fn keeps_a_snapshot(node: &Node) {
    bring_etcdutl(node);
    let make = format!("install -d -o 65532 -g 65532 {PATH}");
    assert!(node.lab.ssh("host-1", &make).unwrap().status.success());
    let store = json!({"persistentVolumeClaim": {"claimName": CLAIM}});
    let wanted = json!({
        "metadata": {"annotations": {"kubespray.k8s.io/snapshot": "1"}},
        "spec": {"etcd": {"snapshots": {"store": store}}},
    });
    wish(node, &wanted);
    let kubectl = || node.kubectl(&[]);
    let of_run = |runs: Vec<Value>| runs.into_iter().find(|run| name(run) == "first-snapshot-2");
    wait_until("the runner to wait for its volume", LIMIT, || {
        let run = of_run(get(&mut kubectl(), NAMESPACE, "runs")).unwrap_or_default();
        let told = run["status"]["conditions"].to_string();
        Ok((told.contains("RunnerUnschedulable") && told.contains(CLAIM)).then_some(()))
    })
    .unwrap();
    apply(&mut kubectl(), node.lab.dir(), &volume());
    let run = wait_until("the snapshot to be saved", LIMIT, || {
        let run = of_run(get(&mut kubectl(), NAMESPACE, "runs")).unwrap();
        Ok(run["status"]["finishedAt"].is_string().then_some(run))
    })
    .unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    let kept = wait_until("the snapshot to be told of", LIMIT, || {
        let cluster = get(&mut kubectl(), NAMESPACE, "clusters").remove(0);
        let kept = cluster["status"]["snapshots"]["kept"].clone();
        Ok((!kept.is_null()).then_some(kept))
    })
    .unwrap();
    let name = kept[0]["name"].as_str().unwrap();
    let list = format!("ls {PATH}/{NAMESPACE}/first");
    let list = node.lab.ssh("host-1", &list).unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert_eq!(
        list.lines().collect::<Vec<_>>(),
        [format!("{name}.db"), format!("{name}.json")]
    );
}

/// To the host whose etcd is saved.
fn bring_etcdutl(node: &Node) {
    let programs = lab::snapshot_programs(&Terminal::default()).unwrap();
    let mut ssh = node.lab.ssh_command("host-2").unwrap();
    ssh.arg("cat > /usr/local/bin/etcdutl && chmod 755 /usr/local/bin/etcdutl");
    ssh.stdin(File::open(programs.join("etcdutl")).unwrap());
    assert!(ssh.status().unwrap().success());
}

fn volume() -> [Value; 2] {
    let modes = json!(["ReadWriteOnce"]);
    let class = "none";
    [
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": modes, "storageClassName": class,
                "hostPath": {"path": PATH}, "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": {
                "accessModes": modes, "storageClassName": class, "volumeName": CLAIM,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }),
    ]
}
