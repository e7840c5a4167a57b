//! Clusters that are born in the middle of a run on the embedded API.

use api::inventory::{Environment, FleetCluster, Rollout, RolloutPhase};
use serde_json::{Value, json};

use crate::world::{World, cluster, environment, inventory, is_ready, status};

fn spec(control: &Value) -> Value {
    json!({"soak": "0s", "parallel": 3, "approval": "AfterCanary", "control": control})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newborn_starts_at_what_was_before_until_the_run_is_approved() {
    let world = World::start().await;
    inventory(&world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    world.apply::<Rollout>("all", spec(&json!({}))).await;
    let sources = |rollout: &Rollout| rollout.status.clone()?.sources;
    let at_rest = world
        .until::<Rollout>("all", "at rest", |rollout| sources(rollout).is_some())
        .await;
    // An edit of which no cluster reads anything is one that the next may read.
    let mut inert = environment("1.34.3");
    inert["values"]["nobody"] = json!("reads this");
    world.apply::<Environment>("production", inert).await;
    world
        .until::<Rollout>("all", "at rest again", |rollout| {
            sources(rollout) != sources(&at_rest)
        })
        .await;
    world
        .apply::<Environment>("production", environment("1.34.4"))
        .await;
    let waits = world
        .rollout("behind its canary", RolloutPhase::WaitingForApproval)
        .await;
    let waits = waits.status.unwrap();
    let message = waits.births.unwrap().message;
    assert!(message.contains("what there was before run"), "{message}");

    world.apply::<FleetCluster>("c2", cluster("c2")).await;
    let newborn = world.until::<FleetCluster>("c2", "born", is_ready).await;
    assert_eq!(status(&newborn).born, Some(message));
    assert_eq!(world.versions().await["c2"], "1.34.3");
    assert_ne!(status(&newborn).applied, status(&newborn).rendered);
    world
        .until::<Rollout>("all", "told", |rollout| {
            let status = rollout.status.as_ref();
            let queued = status.and_then(|status| status.queued.as_ref());
            queued.is_some_and(|queued| queued.starts_with("c2 was born meanwhile"))
        })
        .await;

    // Once it is approved others start at what was tried, and the first one follows with a run of its own.
    let approved = json!({"run": waits.run.unwrap().id, "approved": ["rest"]});
    world.apply::<Rollout>("all", spec(&approved)).await;
    world
        .until::<Rollout>("all", "tried", |rollout| {
            let status = rollout.status.as_ref();
            let births = status.and_then(|status| status.births.as_ref());
            births.is_none_or(|births| births.message.contains("it has been tried"))
        })
        .await;
    world.apply::<FleetCluster>("b3", cluster("b3")).await;
    world.until::<FleetCluster>("b3", "born", is_ready).await;
    assert_eq!(world.versions().await["b3"], "1.34.4");
    world
        .until::<FleetCluster>("c2", "brought on", |cluster| {
            let status = status(cluster);
            is_ready(cluster) && status.applied == status.rendered && status.born.is_none()
        })
        .await;
}
