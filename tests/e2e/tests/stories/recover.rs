//! Two of three control planes are lost, the first one among them, and the cluster is brought back from the third.

use e2e::{Stage, node, wait_until};
use lab::command::output;
use serde_json::json;

use crate::{
    edges::ended,
    first_cluster::{assert_each_step_succeeded_once, process, running, stage},
    snapshots::Kept,
    whole::{everything, members, of_hosts, remember, remembered},
};

#[test]
fn a_cluster_is_brought_back_from_the_one_control_plane_that_is_left() {
    let mut stage = stage(5, 0);
    stage.up().unwrap();
    stage.apply(&of_hosts(&stage, 3)).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    stage.ready_nodes(3).unwrap();
    remember(&stage, "data");

    a_quorum_is_left_alone(&stage);
    a_quorum_is_taken_back(&stage);

    let lost: Vec<String> = stage.lab.hosts()[..2]
        .iter()
        .map(|host| host.name.clone())
        .collect();
    for host in &lost {
        stage.lab.kill_host(host).unwrap();
    }
    it_is_confirmed_and_shown(&stage);
    from_the_one_that_is_left(&stage);
    assert_eq!(members(&stage, 3), ["10.77.0.13"]);
    assert_eq!(remembered(&stage), "kept");
    stage.ready_nodes(1).unwrap();
    for lost in ["master-1", "master-2"] {
        stage
            .until_gone("clusternode", lost, stage.patience())
            .unwrap();
    }

    two_new_ones_join(&stage);
    assert_eq!(
        members(&stage, 3),
        ["10.77.0.13", "10.77.0.14", "10.77.0.15"]
    );
    stage.ready_nodes(3).unwrap();
    assert_eq!(remembered(&stage), "kept");
}

/// While etcd has its quorum nothing is given up, whatever was asked for and confirmed.
fn a_quorum_is_left_alone(stage: &Stage) {
    let recover = [
        "recover",
        "--rejoin",
        "master-2,master-3",
        "--confirm",
        "first",
    ];
    stage.says(&recover, "first-recover-2").unwrap();
    let run = ended(stage, "first-recover-2");
    assert_eq!(run["status"]["phase"], "Failed", "{run:#}");
    assert_eq!(run["status"]["failure"]["code"], "QuorumIntact", "{run:#}");
    assert_eq!(
        members(stage, 3),
        ["10.77.0.11", "10.77.0.12", "10.77.0.13"]
    );
}

/// All members go back to a snapshot together, although the runner dies while none of them runs.
fn a_quorum_is_taken_back(stage: &Stage) {
    for host in &stage.lab.hosts()[..3] {
        stage.bring_etcdutl(&host.name).unwrap();
    }
    let kept = Kept::in_a_directory(stage, None);
    wait_until("the store to be known", stage.patience(), || {
        Ok(stage.says(&["snapshot"], "first-snapshot-3").ok())
    })
    .unwrap();
    let name = kept.taken(stage, "first-snapshot-3");
    remember(stage, "since");
    let back = [
        "recover",
        "--roll-back",
        "--from-snapshot",
        &name,
        "--confirm",
        "first",
    ];
    stage.says(&back, "first-recover-4").unwrap();
    let stopped = &stage.lab.hosts()[0].name;
    let runner = wait_until("etcd to be stopped", stage.patience(), || {
        let running = running(stage)?.filter(|(step, _)| step == "recover/found");
        let Some((_, runner)) = running else {
            return Ok(None);
        };
        let runs = stage.lab.ssh(stopped, "pgrep -x etcd")?;
        Ok((!runs.status.success()).then_some(runner))
    })
    .unwrap();
    stage.kill_inside(runner).unwrap();
    let run = ended(stage, "first-recover-4");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_ne!(process(&run), Some(runner), "{run:#}");
    assert_eq!(
        members(stage, 3),
        ["10.77.0.11", "10.77.0.12", "10.77.0.13"]
    );
    assert_eq!(remembered(stage), "kept");
    is_gone(stage, "since");
}

fn it_is_confirmed_and_shown(stage: &Stage) {
    let lost = ["recover", "--give-up", "master-1,master-2"];
    let unconfirmed = stage.windlass(&lost).output().unwrap();
    let said = String::from_utf8_lossy(&unconfirmed.stderr).into_owned();
    assert!(!unconfirmed.status.success(), "{said}");
    for words in [
        "what these hosts have and no other: master-1",
        "--confirm first",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let plan = [&lost[..], &["--dry-run"]].concat();
    let words = "the first of etcd was master-1, and is master-3 from then on";
    stage.says(&plan, words).unwrap();
}

/// The runner dies while etcd is founded anew.
fn from_the_one_that_is_left(stage: &Stage) {
    let lost = [
        "recover",
        "--give-up",
        "master-1,master-2",
        "--confirm",
        "first",
    ];
    stage.says(&lost, "first-recover-5").unwrap();
    let runner = wait_until("etcd to be founded anew", stage.patience(), || {
        let running = running(stage)?.filter(|(step, _)| step == "recover/found");
        Ok(running.map(|(_, runner)| runner))
    })
    .unwrap();
    stage.kill_inside(runner).unwrap();
    let run = ended(stage, "first-recover-5");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_ne!(process(&run), Some(runner), "{run:#}");
    assert_each_step_succeeded_once(&run);
    // What the member had is kept.
    let host = &stage.lab.hosts()[2].name;
    let kept = stage
        .lab
        .ssh(
            host,
            "ls -d /var/backups/etcd-*-before-recover/member/snap/db",
        )
        .unwrap();
    assert!(kept.status.success(), "{kept:?}");
}

fn two_new_ones_join(stage: &Stage) {
    let hosts = stage.lab.hosts();
    let new = [4, 5].map(|number| {
        let address = hosts[number - 1].address.to_string();
        node(&format!("master-{number}"), everything(), &address)
    });
    stage
        .apply(&json!({"apiVersion": "v1", "kind": "List", "items": new}))
        .unwrap();
    for number in [6, 7] {
        let name = format!("first-scale-{number}");
        let run = ended(stage, &name);
        assert_eq!(run["status"]["phase"], "Succeeded", "{name}: {run:#}");
    }
}

#[test]
fn a_cluster_whose_data_is_broken_is_brought_back_from_a_snapshot_of_the_store() {
    let mut stage = stage(1, 0);
    stage.up().unwrap();
    stage.apply(&of_hosts(&stage, 1)).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    stage.ready_nodes(1).unwrap();
    let host = stage.lab.hosts()[0].name.clone();
    stage.bring_etcdutl(&host).unwrap();
    remember(&stage, "data");
    let kept = Kept::in_a_directory(&stage, None);
    wait_until("the store to be known", stage.patience(), || {
        Ok(stage.says(&["snapshot"], "first-snapshot-2").ok())
    })
    .unwrap();
    let name = kept.taken(&stage, "first-snapshot-2");
    remember(&stage, "since");
    let broken =
        "head -c 100000 /dev/urandom > /var/lib/etcd/member/snap/db; systemctl kill -s KILL etcd";
    let broken = stage.lab.ssh(&host, broken).unwrap();
    assert!(broken.status.success(), "{broken:?}");

    let recover = ["recover", "--from-snapshot", &name, "--confirm", "first"];
    stage.says(&recover, "first-recover-3").unwrap();
    let run = ended(&stage, "first-recover-3");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_eq!(remembered(&stage), "kept");
    stage.ready_nodes(1).unwrap();
    is_gone(&stage, "since");
    // Whoever watches goes on with what is there now.
    let said = stage.in_pod("hello", "echo a pod runs").unwrap();
    assert_eq!(said, "a pod runs");

    // One that works is not recovered, and taken back when that is what somebody wants.
    remember(&stage, "since");
    let back = [
        "recover",
        "--roll-back",
        "--from-snapshot",
        &name,
        "--confirm",
        "first",
    ];
    stage.says(&back, "first-recover-4").unwrap();
    let run = ended(&stage, "first-recover-4");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_eq!(remembered(&stage), "kept");
    is_gone(&stage, "since");
}

/// A ConfigMap that was written after a snapshot is not there.
fn is_gone(stage: &Stage, name: &str) {
    let kubeconfig = stage.kubeconfig().unwrap();
    let get = [
        "get",
        "configmap",
        name,
        "--ignore-not-found",
        "--output=name",
    ];
    let found = output(&mut stage.kubectl_by(&kubeconfig, &get)).unwrap();
    assert_eq!(found, "", "what came after the snapshot is gone");
}
