//! Roll-outs that are rolled back on the embedded API: what each cluster was before is kept as a FleetRevision, and so is what goes.

use api::{
    Cluster,
    inventory::{ClusterTemplate, Environment, FleetCluster, Rollout, RolloutPhase},
};
use serde_json::{Value, json};

use crate::world::{World, environment, inventory, is_ready, operate, status, template};

/// A fleet whose roll-out waits behind its canary, `a1`, for an approval of the edit, and the run.
async fn behind_its_canary(edit: impl AsyncFnOnce(&World)) -> (World, String) {
    let world = World::start().await;
    inventory(&world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    world.apply::<Rollout>("all", spec(&json!({}))).await;
    edit(&world).await;
    let waits = world
        .rollout("behind its canary", RolloutPhase::WaitingForApproval)
        .await;
    let run = waits.status.unwrap().run.unwrap().id;
    (world, run)
}

fn spec(control: &Value) -> Value {
    json!({"soak": "0s", "approval": "AfterCanary", "control": control})
}

async fn user(world: &World, name: &str) -> String {
    let cluster = world.all::<Cluster>(name).get(name).await.unwrap();
    let cluster = serde_json::to_value(cluster).unwrap();
    cluster["spec"]["ssh"]["user"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_goes_back_to_what_it_was_and_nothing_follows() {
    let (mut world, run) = behind_its_canary(async |world| {
        let mut edited = template();
        edited["documents"][1]["object"]["spec"]["ssh"]["user"] = json!("admin");
        world.apply::<ClusterTemplate>("kubespray", edited).await;
    })
    .await;
    assert_eq!(user(&world, "a1").await, "admin");
    let back = json!({"run": run, "state": "RolledBack"});
    world.apply::<Rollout>("all", spec(&back)).await;
    world
        .until::<Rollout>("all", "on the way back", |rollout| {
            let run = rollout.status.as_ref().and_then(|it| it.run.as_ref());
            run.is_some_and(|it| it.rolls_back.as_ref() == Some(&run_of(&back)))
        })
        .await;
    world.kill().await;
    world.operator = operate(&world.client);
    world.ended("back", RolloutPhase::Succeeded).await;
    let rests = world.rollout("at rest", RolloutPhase::Idle).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        assert_eq!(user(&world, name).await, "root", "{name}");
    }
    // It is kept from what was taken back until the inventory says something else, and history tells of both.
    let rests = rests.status.unwrap();
    assert_eq!(rests.skipped.len(), 5);
    let phases: Vec<_> = rests.history.iter().map(|run| run.phase).collect();
    assert_eq!(phases, [RolloutPhase::Succeeded, RolloutPhase::RolledBack]);
    let canary = world.until::<FleetCluster>("a1", "well", is_ready).await;
    assert!(status(&canary).pending.is_some());
}

fn run_of(control: &Value) -> String {
    control["run"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_of_kubernetes_does_not_go_down() {
    let (world, run) = behind_its_canary(async |world| {
        let edited = environment("1.34.4");
        world.apply::<Environment>("production", edited).await;
    })
    .await;
    let before = world.versions().await;
    let back = json!({"run": run, "state": "RolledBack"});
    world.apply::<Rollout>("all", spec(&back)).await;
    world
        .until::<Rollout>("all", "refused", |rollout| {
            let waits = rollout.status.as_ref().and_then(|it| it.waits.as_ref());
            waits.is_some_and(|waits| {
                waits.contains("FleetCluster a1: Kubernetes would go from 1.34.4 down to 1.34.3")
            })
        })
        .await;
    assert_eq!(world.versions().await, before);
    // Left out it stays what it is, and the run is over.
    let back = json!({"run": run, "state": "RolledBack", "skip": ["a1"]});
    world.apply::<Rollout>("all", spec(&back)).await;
    world.rollout("at rest", RolloutPhase::Idle).await;
    assert_eq!(world.versions().await, before);
}
