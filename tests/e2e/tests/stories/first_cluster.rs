//! The first cluster, end to end: real hosts, real Ansible, real Kubernetes. By the bundle, or by real kubespray where
//! `WINDLASS_KUBESPRAY` names a checkout: see docs/kubespray.md.

use std::time::Duration;

use e2e::{Kubespray, Options, Stage, root, wait_until, windlass};
use serde_json::{Value, json};

#[test]
fn a_cluster_is_raised_though_everything_is_killed_in_the_middle() {
    let mut stage = stage(3, 0);
    stage.up().unwrap();
    stage
        .apply_example(&root().join("examples/first-cluster"))
        .unwrap();

    // A person pauses it between two tasks, and lets it go on.
    wait_until("a play to be at work", stage.patience(), || running(&stage)).unwrap();
    stage.says(&["pause"], "pauses").unwrap();
    wait_until("the run to pause", stage.patience(), || {
        Ok((stage.run()?["status"]["phase"] == "Paused").then_some(()))
    })
    .unwrap();
    stage.says(&["resume"], "goes on").unwrap();

    // `windlass up` dies while a play is at work: the runner goes on, and is found again.
    wait_until("a play to be at work", stage.patience(), || running(&stage)).unwrap();
    stage.down().unwrap();
    stage.up().unwrap();

    // The runner dies while a later play is at work: another one takes the run up.
    let (step, runner) = wait_until("the etcd play to be at work", stage.patience(), || {
        Ok(running(&stage)?
            .filter(|(step, _)| step.starts_with("etcd/") || step.starts_with("kubelet/")))
    })
    .unwrap();
    stage.kill_inside(runner).unwrap();
    wait_until("another runner to take over", stage.patience(), || {
        let run = stage.run()?;
        Ok((run["status"]["runner"]["pid"]
            .as_i64()
            .is_some_and(|pid| pid != runner))
        .then_some(()))
    })
    .unwrap();

    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(
        run["status"]["phase"], "Succeeded",
        "after a kill in {step}: {run:#}"
    );
    assert_each_step_succeeded_once(&run);
    stage.ready_nodes(3).unwrap();
    stage
        .says(&["converge", "--dry-run"], "etcd/install")
        .unwrap();
    stage
        .says(&["logs", "--step", "etcd/install"], "TASK [etcd : ")
        .unwrap();
    stage
        .says(&["logs", "--host", "worker-1"], "changed")
        .unwrap();
    let objects = stage.objects("events").unwrap();
    assert!(
        objects.iter().any(|event| event["reason"] == "Created"),
        "{objects:#?}"
    );
    assert_reset_leaves_nothing(&stage);
}

#[test]
fn a_dead_worker_is_named_and_left_out() {
    let mut stage = stage(2, 1);
    stage.up().unwrap();
    stage
        .apply_example(&root().join("examples/first-cluster"))
        .unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_eq!(
        run["status"]["excluded"][0]["target"], "worker-2",
        "{run:#}"
    );
    let events = stage.objects("events").unwrap();
    let warned = events.iter().any(|event| {
        event["type"] == "Warning"
            && event["message"]
                .as_str()
                .unwrap_or_default()
                .contains("1 of 3 nodes does not answer: worker-2")
    });
    assert!(warned, "{events:#?}");
    stage.ready_nodes(2).unwrap();
    let node = stage.object("clusternodes", "worker-2").unwrap();
    assert_eq!(node["status"]["state"], "Excluded", "{node:#}");
}

fn stage(hosts: u8, dead: u8) -> Stage {
    let options = Options {
        hosts,
        dead,
        windlass: windlass().unwrap(),
        directory: root(),
        playbooks: root().join("bundle"),
    };
    let kubespray = Kubespray::from_environment(env!("CARGO_BIN_EXE_mirror").into()).unwrap();
    Stage::set_with(options, kubespray, &lab::progress::Terminal::default()).unwrap()
}

/// The play that is at work, and the process of its runner.
fn running(stage: &Stage) -> anyhow::Result<Option<(String, i64)>> {
    let run = stage.run()?;
    let steps = run["status"]["steps"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let at_work = steps
        .iter()
        .find(|step| step["phase"] == "Running" && step["progress"]["done"].as_u64() > Some(0));
    Ok(at_work.and_then(|step| {
        Some((
            step["id"].as_str()?.to_owned(),
            run["status"]["runner"]["pid"].as_i64()?,
        ))
    }))
}

fn assert_each_step_succeeded_once(run: &Value) {
    let history = run["status"]["history"].as_array().unwrap();
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        let done = history
            .iter()
            .filter(|r| r["step"] == step["id"] && r["event"] == "StepSucceeded")
            .count();
        assert_eq!(done, 1, "step {} in {history:#?}", step["id"]);
    }
}

/// With `deletionPolicy: Reset`, deleting the Cluster removes Kubernetes from the hosts.
fn assert_reset_leaves_nothing(stage: &Stage) {
    let wish = json!({"spec": {"deletionPolicy": "Reset"}});
    stage.merge("cluster", "first", &wish).unwrap();
    stage.delete("cluster", "first").unwrap();
    stage
        .until_gone("cluster", "first", Duration::from_mins(10))
        .unwrap();
    for host in stage.lab.hosts() {
        let left = stage
            .lab
            .ssh(
                &host.name,
                "ls /etc/kubernetes/admin.conf /var/lib/etcd/member; pgrep -x kubelet",
            )
            .unwrap();
        assert!(
            left.stdout.is_empty(),
            "{}: {}",
            host.name,
            String::from_utf8_lossy(&left.stdout)
        );
    }
}
