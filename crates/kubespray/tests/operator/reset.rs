//! A reset that somebody cancelled: it begins anew when a person asks for it, and not by itself.

use api::{Cluster, Run};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use kubespray::{
    Layout,
    preview::{self, PreviewOutcome},
    request::START_AGAIN,
};
use serde_json::json;

use crate::world::{World, condition, is};

impl World {
    async fn start_again(&self, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {START_AGAIN: value}}}));
        let clusters = self.all::<Cluster>();
        clusters
            .patch("first", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Has a run of a reset cancelled, and waits until that is told.
    async fn cancelled(&self, runs: &[Run], name: &str) -> Cluster {
        let run = runs.iter().find(|run| run.name_any() == name).unwrap();
        let ended = json!({"phase": "Cancelled", "message": "cancelled by jane"});
        self.run_status(run, ended).await;
        let is_told = |cluster: &Cluster| {
            let message = condition(cluster, "Ready").map_or("", |ready| ready.2);
            is(cluster, "Stalled", "RunCancelled") && message.contains(name)
        };
        self.until("first", "tells of the end", is_told).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_reset_begins_anew_when_it_is_asked_for_and_not_before() {
    let world = World::start().await;
    world.three_nodes().await;
    let asking = json!({"reset": {"approval": "Manual"}});
    let wish = json!({"deletionPolicy": "Reset", "operations": asking});
    world.cluster("first", wish).await;
    let run = world.run_until(1).await.remove(0);
    let played =
        json!({"phase": "Failed", "steps": [{"id": "bootstrap/hosts", "phase": "Failed"}]});
    world.run_status(&run, played).await;
    world
        .until("first", "failed", |c| is(c, "Stalled", "RunFailed"))
        .await;
    world.delete::<Cluster>("first").await;
    let runs = world.run_until(2).await;
    let told = world.cancelled(&runs, "first-reset-2").await;
    let message = condition(&told, "Ready").unwrap().2;
    for way in [
        "windlass -n demo reset first",
        START_AGAIN,
        "spec.deletionPolicy: Retain",
    ] {
        assert!(message.contains(way), "{message}");
    }
    assert!(!message.contains("change the spec"), "{message}");

    // No edit begins it.
    let edited = json!({"deletionPolicy": "Reset", "operations": asking, "ssh": {"user": "admin"}});
    world.cluster("first", edited).await;
    let is_seen = |cluster: &Cluster| {
        let seen = cluster.status.as_ref().and_then(|s| s.observed_generation);
        seen == cluster.metadata.generation && is(cluster, "Stalled", "RunCancelled")
    };
    let cluster = world.until("first", "sees the edit", is_seen).await;
    assert_eq!(world.run_until(2).await.len(), 2);

    // What the command shows, and writes then.
    let data = tempfile::tempdir().unwrap();
    let shown = preview::reset(&world.client, &cluster, &Layout::new(data.path())).await;
    let PreviewOutcome::Plan(plan) = shown.unwrap().outcome else {
        panic!("no host would be reset");
    };
    assert!(plan.request.is_some());

    world.start_again("1").await;
    let runs = world.run_until(3).await;
    let anew = runs.iter().find(|run| run.name_any() == "first-reset-3");
    let plan = &anew.unwrap().spec.plan;
    assert_eq!(plan.request.as_deref(), Some("1"));
    assert!(plan.steps.iter().any(|step| step.id == "reset/hosts"));
    // Each value begins one, however long it is.
    world.cancelled(&runs, "first-reset-3").await;
    assert_eq!(world.run_until(3).await.len(), 3);
    world.start_again(&"1".repeat(300)).await;
    let runs = world.run_until(4).await;
    world.cancelled(&runs, "first-reset-4").await;
    assert_eq!(world.run_until(4).await.len(), 4);

    world.start_again("2").await;
    let runs = world.run_until(5).await;
    let last = runs.iter().find(|run| run.name_any() == "first-reset-5");
    world
        .run_status(last.unwrap(), json!({"phase": "Succeeded"}))
        .await;
    world.until_gone("first").await;
}
