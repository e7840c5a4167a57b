//! A cluster that manages itself: raised by a Job of another cluster, Windlass is installed into it, its objects move in,
//! and its next operation is a Job of its own.
//!
//! The images of `cargo xtask image` are in the directory that `WINDLASS_IMAGES` names (`cargo xtask test` makes them).

use std::{path::PathBuf, time::Duration};

use e2e::{InCluster, NAMESPACE, Side, wait_until, windlass};
use lab::{command::output, progress::Terminal};
use serde_json::Value;

/// Each operation takes about a minute; a loaded machine may take much longer.
const LIMIT: Duration = Duration::from_mins(10);

#[test]
fn a_cluster_raised_by_a_job_manages_itself() {
    let images = std::env::var_os("WINDLASS_IMAGES").map(PathBuf::from);
    assert!(
        images.is_some(),
        "WINDLASS_IMAGES is not set: run `cargo xtask image --debug --out DIR` and name the directory"
    );
    let stage =
        InCluster::set(windlass().unwrap(), &images.unwrap(), &Terminal::default()).unwrap();
    stage.install(Side::First).unwrap();
    stage.apply(&stage.example().unwrap()).unwrap();
    let created = stage
        .finished(Side::First, "first-create-1", LIMIT)
        .unwrap();
    assert_eq!(created["status"]["phase"], "Succeeded", "{created:#}");
    stage.healthy(Side::First, LIMIT).unwrap();
    stage.fetch().unwrap();
    stage.ready_nodes().unwrap();

    stage.install(Side::Raised).unwrap();
    let said = stage.move_in().unwrap();
    assert!(said.contains("moved"), "{said}");
    for kind in ["clusters.kubespray.k8s.io", "clusternodes", "runs"] {
        let left = stage.objects(Side::First, kind).unwrap();
        assert!(left.is_empty(), "{left:#?}");
    }
    let before = boots(&stage);
    stage.healthy(Side::Raised, LIMIT).unwrap();
    let said = output(&mut stage.windlass(Side::Raised, &["converge"])).unwrap();
    assert!(said.contains("first-converge-2"), "{said}");
    lose_the_pod(&stage);
    let run = stage
        .finished(Side::Raised, "first-converge-2", LIMIT)
        .unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    let jobs = stage.objects(Side::Raised, "jobs").unwrap();
    assert_eq!(jobs.len(), 1, "{jobs:#?}");
    assert_eq!(jobs[0]["metadata"]["name"], "first-converge-2");
    // Nothing had changed, so nothing was restarted, not the runner's own node either: it was taken up once, after the loss.
    assert_eq!(count(&run, "RunStarted"), 2, "{run:#}");
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        assert_eq!(succeeded(&run, &step["id"]), 1, "{}: {run:#}", step["id"]);
    }
    assert_eq!(before, boots(&stage));
    let cluster = stage.healthy(Side::Raised, LIMIT).unwrap();
    assert_eq!(cluster["status"]["lastOperation"]["type"], "Converge");
    let history = stage.objects(Side::Raised, "runs").unwrap();
    assert_eq!(history.len(), 2, "the history moved along");
}

/// Deletes the runner's pod in the middle of the run.
fn lose_the_pod(stage: &InCluster) {
    wait_until("the run to prepare its hosts", LIMIT, || {
        let runs = stage.objects(Side::Raised, "runs")?;
        let step = runs.iter().filter_map(|run| run["status"]["step"].as_str());
        Ok(step
            .into_iter()
            .find(|step| ["prepare/hosts", "etcd/install"].contains(step))
            .map(drop))
    })
    .unwrap();
    let pod = ["-l", "app.kubernetes.io/component=runner"];
    let delete = [&["-n", NAMESPACE, "delete", "pod"], pod.as_slice()].concat();
    output(&mut stage.kubectl(Side::Raised, &delete)).unwrap();
}

fn succeeded(run: &Value, step: &Value) -> usize {
    let history = run["status"]["history"].as_array().unwrap();
    let of_step = |record: &&Value| record["event"] == "StepSucceeded" && record["step"] == *step;
    history.iter().filter(of_step).count()
}

fn count(run: &Value, event: &str) -> usize {
    let history = run["status"]["history"].as_array().unwrap();
    history
        .iter()
        .filter(|record| record["event"] == event)
        .count()
}

/// When the services that carry the cluster were started on each of its hosts.
fn boots(stage: &InCluster) -> Vec<String> {
    let ask = "systemctl show --property=ExecMainStartTimestamp kubelet containerd etcd";
    let of = |host: &&lab::Host| {
        let said = stage.node.lab.ssh(&host.name, ask).unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    stage.hosts(Side::Raised).iter().map(of).collect()
}
