//! The reconcilers against the embedded API, as in `windlass up`, with a runner that does nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod adopt;
mod component;
mod converge;
mod faults;
mod foreign;
mod hooks;
mod immutable;
mod past;
mod planes;
mod recover;
mod refusals;
mod remove;
mod renew;
mod replace;
mod reset;
mod scale;
mod schedule;
mod settings;
mod snapshots;
mod toolbox;
mod upgrade;
mod windows;
mod world;

use std::time::Duration;

use api::{Cluster, ClusterNode, Run};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kubespray::{
    Layout,
    preview::{self, PreviewOutcome},
};
use serde_json::json;

use world::{NAMESPACE, World, condition, is};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_its_hosts_gets_a_run() {
    let world = World::start().await;
    world
        .cluster(
            "first",
            json!({"operations": {"creation": {"startConditions": {"nodes": {"minimum": 3}}}}}),
        )
        .await;
    let waiting = world
        .until("first", "waits", |c| {
            is(c, "Reconciling", "WaitingForHosts")
        })
        .await;
    let message = condition(&waiting, "Ready").unwrap().2.to_owned();
    assert!(message.contains("3 more hosts"), "{message}");

    world.three_nodes().await;
    let runs = world.run_until(1).await;
    assert_eq!(runs[0].name_any(), "first-create-1");
    let creating = world
        .until("first", "creates", |c| is(c, "Reconciling", "Creating"))
        .await;
    let status = creating.status.clone().unwrap();
    assert_eq!(
        status.inventory.unwrap().order["etcd"][0].as_str(),
        "master-1"
    );
    assert!(
        creating
            .finalizers()
            .contains(&"kubespray.k8s.io/cluster".to_owned())
    );
    assert_eq!(world.events("Creating").await.len(), 1);
}

/// A new leader brings the playbooks again. What it waits for was told by the one before.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_over_does_not_tell_again_what_was_told() {
    let mut world = World::start().await;
    world.cluster("first", json!({})).await;
    let waits = |c: &Cluster| is(c, "Reconciling", "WaitingForHosts");
    world.until("first", "waits", waits).await;
    world.take_over().await;
    world.node("worker-1", "worker", "10.0.0.2").await;
    let counts = |c: &Cluster| {
        let nodes = c.status.as_ref().and_then(|status| status.nodes.as_ref());
        nodes.is_some_and(|nodes| nodes.total == 1)
    };
    world.until("first", "counts", counts).await;
    for reason in ["FetchingPlaybooks", "WaitingForHosts"] {
        let told = world.events(reason).await;
        assert_eq!(told.len(), 1, "{reason}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_failure_of_the_run_are_shown_on_the_cluster() {
    let world = World::start().await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let run = world.run_until(1).await.remove(0);
    world
        .run_status(&run, json!({"phase": "Running", "progress": 40, "step": "etcd/install", "message": "at work"}))
        .await;
    world
        .until("first", "progress", |c| {
            let operation = c.status.as_ref().and_then(|s| s.last_operation.as_ref());
            operation.is_some_and(|o| {
                o.progress == Some(40) && o.step.as_deref() == Some("etcd/install")
            })
        })
        .await;
    let failure = json!({"class": "External", "code": "TooManyUnreachable", "message": "2 of 3 hosts do not answer", "remedy": "bring them back", "targets": ["worker-1"]});
    world
        .run_status(
            &run,
            json!({"phase": "Failed", "step": "prepare/probe", "failure": failure}),
        )
        .await;
    let failed = world
        .until("first", "fails", |c| is(c, "Stalled", "RunFailed"))
        .await;
    assert_eq!(
        condition(&failed, "Ready").unwrap().2,
        "TooManyUnreachable: 2 of 3 hosts do not answer; bring them back, then: windlass -n demo retry first-create-1; or raise \
         spec.operations.creation.thresholds.unreachable, which begins another run; ways on: windlass -n demo retry first-create-1, another spec \
         (which starts a new run), or windlass -n demo reset first and anew"
    );
    assert_eq!(
        failed.status.unwrap().state,
        Some(api::cluster::ClusterState::Failed)
    );
    for _ in 0..200 {
        let node = world.all::<ClusterNode>().get("worker-1").await.unwrap();
        if node.status.and_then(|status| status.state) == Some(api::node::NodeState::Failed) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the host does not say that it failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_dies_again_and_again_is_told_of() {
    let world = World::start().await;
    let ill = world.data.path().join("ill");
    std::fs::write(&ill, "").unwrap();
    world.cluster("first", json!({})).await;
    world.three_nodes().await;
    let told = world
        .until("first", "tells of it", |c| {
            is(c, "Reconciling", "RunnerDied")
        })
        .await;
    let message = condition(&told, "Ready").unwrap().2.to_owned();
    let words = "its process died and is started again: exit status: 7: no memory";
    assert!(message.contains(words), "{message}");
    let run = world.run_until(1).await.remove(0);
    let (_, why) = runs::reconciler::report::obstacle(&run).unwrap();
    assert!(why.contains(words), "{why}");
    assert_eq!(world.events("RunnerDied").await.len(), 1);

    std::fs::remove_file(ill).unwrap();
    world
        .until("first", "goes on", |c| is(c, "Reconciling", "Creating"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_wish_supersedes_the_run() {
    let world = World::start().await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let run = world.run_until(1).await.remove(0);
    world.run_status(&run, json!({"phase": "Running"})).await;
    world
        .cluster("first", json!({"ssh": {"user": "admin"}}))
        .await;
    world
        .until("first", "supersedes", |c| {
            is(c, "Reconciling", "Superseding")
        })
        .await;
    let told = world.all::<Run>().get(&run.name_any()).await.unwrap();
    assert!(
        told.annotations()
            .contains_key("windlass.dev/superseded-by")
    );
    assert_eq!(
        world.run_until(1).await.len(),
        1,
        "the next run must wait for the end of the first"
    );
    world.run_status(&run, json!({"phase": "Superseded"})).await;
    let runs = world.run_until(2).await;
    assert!(runs.iter().any(|run| run.name_any() == "first-create-2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_stalls_with_its_text_and_recovers() {
    let world = World::start().await;
    world.node("a", "master", "10.0.0.1").await;
    world.node("b", "master", "10.0.0.2").await;
    world
        .cluster(
            "first",
            json!({"ssh": {"privateKeySecretRef": {"name": "ssh"}}}),
        )
        .await;
    let stalled = world
        .until("first", "stalls", |c| is(c, "Stalled", "InvalidSpec"))
        .await;
    let message = condition(&stalled, "Stalled").unwrap().2;
    assert!(message.contains("odd number"), "{message}");
    assert!(
        message.contains("kubectl -n demo create secret generic ssh"),
        "{message}"
    );
    assert_eq!(
        stalled.status.unwrap().observed_generation,
        stalled.metadata.generation
    );

    world.node("c", "master", "10.0.0.3").await;
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ssh"}, "stringData": {"ssh-privatekey": key}});
    world.apply::<Secret>("ssh", secret).await;
    world
        .cluster(
            "first",
            json!({"ssh": {"privateKeySecretRef": {"name": "ssh"}, "user": "root"}}),
        )
        .await;
    world.run_until(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_younger_of_two_clusters_is_refused() {
    let world = World::start().await;
    world.cluster("first", json!({})).await;
    world
        .until("first", "is seen", |c| c.status.is_some())
        .await;
    world.cluster("second", json!({})).await;
    let second = world
        .until("second", "stalls", |c| is(c, "Stalled", "InvalidSpec"))
        .await;
    let message = condition(&second, "Stalled").unwrap().2;
    assert!(message.contains("first was there first"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_retains_hosts_unless_told_otherwise() {
    let world = World::start().await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let run = world.run_until(1).await.remove(0);
    world.run_status(&run, json!({"phase": "Running"})).await;
    world
        .until("first", "creates", |c| is(c, "Reconciling", "Creating"))
        .await;
    // A cluster of the same name has a run of the same name: it must not find the old one's journal.
    let journal = world
        .data
        .path()
        .join("runs")
        .join(NAMESPACE)
        .join(run.name_any());
    std::fs::create_dir_all(&journal).unwrap();
    world.delete::<Cluster>("first").await;
    world
        .until("first", "ends its run", |c| {
            is(c, "Reconciling", "Deleting")
        })
        .await;
    let told = world.all::<Run>().get(&run.name_any()).await.unwrap();
    assert_eq!(
        told.spec.control.and_then(|c| c.state),
        Some(api::run::DesiredState::Cancelled)
    );
    world.run_status(&run, json!({"phase": "Cancelled"})).await;
    world.until_gone("first").await;
    assert!(!journal.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_with_reset_runs_reset_first() {
    let world = World::start().await;
    world.three_nodes().await;
    world
        .cluster("first", json!({"deletionPolicy": "Reset"}))
        .await;
    let run = world.run_until(1).await.remove(0);
    let played =
        json!({"phase": "Failed", "steps": [{"id": "bootstrap/hosts", "phase": "Failed"}]});
    world.run_status(&run, played).await;
    world
        .until("first", "failed", |c| is(c, "Stalled", "RunFailed"))
        .await;
    world.delete::<Cluster>("first").await;
    let runs = world.run_until(2).await;
    let reset = runs
        .iter()
        .find(|run| run.spec.operation == "Reset")
        .unwrap();
    let inputs = kubespray::inputs::Inputs::from_map(&reset.spec.plan.inputs).unwrap();
    assert_eq!(inputs.operation_variables["reset_confirmation"], "yes");
    world.run_status(reset, json!({"phase": "Succeeded"})).await;
    world.until_gone("first").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_shown_before_it_is_asked_for() {
    let world = World::start().await;
    let data = tempfile::tempdir().unwrap();
    let layout = Layout::new(data.path());
    world.node("worker-1", "worker", "10.0.0.2").await;
    world.cluster("first", json!({})).await;
    let waits = |c: &Cluster| is(c, "Reconciling", "WaitingForHosts");
    let cluster = world.until("first", "waits", waits).await;
    let shown = preview::reset(&world.client, &cluster, &layout).await;
    let PreviewOutcome::Nothing(why) = shown.unwrap().outcome else {
        panic!("a host would be reset that no run was to work on");
    };
    assert!(why.contains("none is reset"), "{why}");

    world.three_nodes().await;
    let run = world.run_until(1).await.remove(0);
    // Whatever becomes of the run that is at work.
    for phase in ["Running", "Failed"] {
        let steps = json!([{"id": "bootstrap/hosts", "phase": phase}]);
        world
            .run_status(&run, json!({"phase": phase, "steps": steps}))
            .await;
        let cluster = world.all::<Cluster>().get("first").await.unwrap();
        let shown = preview::reset(&world.client, &cluster, &layout).await;
        let PreviewOutcome::Plan(plan) = shown.unwrap().outcome else {
            panic!("no host would be reset: {phase}");
        };
        let reason = plan.reason.unwrap();
        assert!(reason.contains("deletionPolicy is Reset"), "{reason}");
        assert!(!reason.contains("resolv.conf"), "{reason}");
    }
    // What the playbooks have written into the hosts' resolver stays.
    let cluster = world.all::<Cluster>().get("first").await.unwrap();
    let mut written = serde_json::to_value(&cluster).unwrap();
    written["spec"]["nodes"]["all"]["deploy"]["extraVars"] =
        json!({"resolvconf_mode": "host_resolvconf", "upstream_dns_servers": ["192.0.2.53"]});
    let written: Cluster = serde_json::from_value(written).unwrap();
    let shown = preview::reset(&world.client, &written, &layout).await;
    let PreviewOutcome::Plan(plan) = shown.unwrap().outcome else {
        panic!("no host would be reset");
    };
    let reason = plan.reason.unwrap();
    assert!(
        reason.contains("/etc/resolv.conf of the hosts may still name the cluster's DNS first"),
        "{reason}"
    );
    // Nothing came of it.
    let cluster = world.all::<Cluster>().get("first").await.unwrap();
    assert!(cluster.metadata.deletion_timestamp.is_none());
    assert!(cluster.spec.deletion_policy.is_none());
    let every = kube::api::ListParams::default();
    let runs = world.all::<Run>().list(&every).await.unwrap().items;
    assert!(runs.iter().all(|run| run.spec.operation != "Reset"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_at_rest() {
    let world = World::start().await;
    world.node("worker-1", "worker", "10.0.0.2").await;
    world.cluster("first", json!({})).await;
    let waits = |c: &Cluster| is(c, "Reconciling", "WaitingForHosts") && !c.finalizers().is_empty();
    let before = world.until("first", "waits", waits).await;
    // A pass that changes nothing, and after it one that does: what lies between them would be seen.
    world.cluster("first", json!({})).await;
    world.node("worker-2", "worker", "10.0.0.3").await;
    let counts = |c: &Cluster, total| {
        let nodes = c.status.as_ref().and_then(|s| s.nodes.as_ref());
        nodes.is_some_and(|nodes| nodes.total == total)
    };
    let after = world.until("first", "counts", |c| counts(c, 2)).await;
    let writes = |cluster: &Cluster| {
        let status = cluster.status.clone().unwrap();
        status
            .conditions
            .iter()
            .map(|c| c.last_transition_time.0)
            .max()
    };
    assert!(counts(&before, 1));
    assert_eq!(writes(&before), writes(&after));
    let quiet = tokio::time::timeout(
        Duration::from_secs(2),
        Box::pin(kube::runtime::wait::await_condition(
            world.all::<Cluster>(),
            "first",
            move |now: Option<&Cluster>| {
                now.is_some_and(|now| now.resource_version() != after.resource_version())
            },
        )),
    )
    .await;
    assert!(quiet.is_err(), "the cluster was written at rest");
}
