//! Providers that ask to wait, and controllers that have not stopped.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use pivot::{Move, Patience};
use serde_json::{Value, json};

use crate::{
    assert_moved, assert_untouched,
    sides::{Sides, patience},
    snapshot::snapshot,
    world::api,
};

async fn patch(sides: &Sides, group: &str, kind: &str, name: &str, patch: Value) {
    let api = api(&sides.here(), group, kind, Some("team"));
    let parameters = PatchParams::default();
    if patch.get("status").is_some() {
        api.patch_status(name, &parameters, &Patch::Merge(patch))
            .await
            .unwrap();
    } else {
        api.patch(name, &parameters, &Patch::Merge(patch))
            .await
            .unwrap();
    }
}

async fn block(sides: &Sides, value: Value) {
    let block =
        json!({"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/block-move": value}}});
    patch(
        sides,
        "infrastructure.cluster.x-k8s.io",
        "DevCluster",
        "c",
        block,
    )
    .await;
}

#[tokio::test]
async fn a_provider_that_asks_to_wait_is_waited_for() {
    let (sides, before) = crate::sides().await;
    block(&sides, json!("")).await;
    let (source, target) = (sides.side_here().await, sides.side_there().await);
    let patience = Patience {
        settle: Duration::from_mins(1),
        ..patience()
    };
    let this = Move::prepare(&source, &target, patience, &|_| {})
        .await
        .unwrap();
    let unblock = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let cluster = api(&sides.here(), "cluster.x-k8s.io", "Cluster", Some("team"))
                .get("c")
                .await
                .unwrap();
            // What a provider does once the Cluster is paused.
            if cluster.data["spec"]["paused"] == true {
                return block(&sides, Value::Null).await;
            }
        }
    };
    let (moved, ()) = tokio::join!(this.carry_over(), unblock);
    moved.unwrap();
    assert_moved(&sides, &before, "after a wait").await;
}

#[tokio::test]
async fn who_waits_too_long_lets_everything_go_on() {
    let (sides, _) = crate::sides().await;
    block(&sides, json!("")).await;
    let before = snapshot(&sides.here()).await;
    let pivot::Error::Undone { left, source } = sides.carry_over().await.unwrap_err() else {
        panic!("it had to be taken back");
    };
    let why = source.to_string();
    assert!(left.contains("nothing is paused here"), "{left}");
    assert!(
        why.contains("DevCluster/c has annotation clusterctl.cluster.x-k8s.io/block-move")
            && why.contains("--timeout"),
        "{why}"
    );
    assert_untouched(&sides, &before, "after a timeout").await;
}

#[tokio::test]
async fn a_controller_that_says_whether_it_has_stopped_is_waited_for() {
    let (sides, _) = crate::sides().await;
    let says =
        |status: &str| json!({"status": {"conditions": [{"type": "Paused", "status": status}]}});
    patch(
        &sides,
        "cluster.x-k8s.io",
        "MachineSet",
        "c-md-1",
        says("False"),
    )
    .await;
    let before = snapshot(&sides.here()).await;
    let pivot::Error::Undone { source, .. } = sides.carry_over().await.unwrap_err() else {
        panic!("it had to be taken back");
    };
    let why = source.to_string();
    // The ClusterResourceSet says False as well, but nothing pauses it.
    assert!(
        why.contains("MachineSet/c-md-1 status.conditions[Paused] is not True yet")
            && !why.contains("ClusterResourceSet"),
        "{why}"
    );
    assert_untouched(&sides, &before, "after a timeout").await;
    patch(
        &sides,
        "cluster.x-k8s.io",
        "MachineSet",
        "c-md-1",
        says("True"),
    )
    .await;
    let before = snapshot(&sides.here()).await;
    sides.carry_over().await.unwrap();
    assert_moved(&sides, &before, "with all stopped").await;
}
