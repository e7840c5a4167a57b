//! What others do on a side while a move is at work.

use http::Method;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    assert_untouched,
    sides::{HERE, Of, TEAM, THERE},
    snapshot::{bare, snapshot},
    world::api,
};

const CORE: &str = "cluster.x-k8s.io";

/// Right before the first Machine is made there.
const AT_A_COPY: Of = Of(THERE, Method::POST, "/machines");

async fn patch(client: &kube::Client, kind: &str, name: &str, patch: Value) {
    let api = api(client, CORE, kind, Some(TEAM));
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// How a move ended that could not: what was left, and why.
fn undone(moved: pivot::Result<relocation::Summary>) -> (String, String) {
    match moved.unwrap_err() {
        pivot::Error::Undone { left, source } => (left, source.to_string()),
        other => unreachable!("it had to be taken back: {other}"),
    }
}

/// Whether a Cluster is paused, and was by a move.
async fn is_paused(client: &kube::Client) -> (bool, bool) {
    let cluster = api(client, CORE, "Cluster", Some(TEAM))
        .get("c")
        .await
        .unwrap();
    let is_own = kube::ResourceExt::annotations(&cluster).contains_key("windlass.dev/pivot-paused");
    (cluster.data["spec"]["paused"] == true, is_own)
}

#[tokio::test]
async fn a_cluster_that_somebody_lets_go_on_here_never_acts_there() {
    let (sides, _) = crate::small_sides().await;
    let moved = sides
        .carry_over_and(AT_A_COPY, async || {
            let go_on = json!({"spec": {"paused": false}});
            patch(&sides.here(), "Cluster", "c", go_on).await;
        })
        .await;
    let (left, why) = undone(moved);
    assert!(left.starts_with("taken back"), "{left}");
    assert!(
        why.contains("Cluster/c was let go on by somebody while it was moved"),
        "{why}"
    );
    assert_eq!(is_paused(&sides.here()).await, (false, false));
    assert!(bare(&snapshot(&sides.there()).await).is_empty());
}

#[tokio::test]
async fn an_abort_beside_a_running_move_leaves_everything_here_and_nothing_there() {
    let at_the_pause = Of(HERE, Method::PATCH, "/clusters/c");
    let at_the_last_copies = Of(THERE, Method::POST, "/clusterresourcesetbindings");
    for write in [at_the_pause, AT_A_COPY, at_the_last_copies] {
        let when = format!("aborted at {write:?}");
        let (sides, before) = crate::small_sides().await;
        let abort = async || drop(sides.take_back().await.unwrap());
        let moved = sides.carry_over_and(write, abort).await;
        let (left, _) = undone(moved);
        assert!(
            left.contains("another command ended the move"),
            "{when}: {left}"
        );
        assert_untouched(&sides, &before, &when).await;
    }
}
