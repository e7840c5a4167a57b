//! A Rollout that cannot be read: nobody knows what is its own, so what may be is held.

use api::inventory::{Environment, FleetCluster, FleetHealth, Rollout, RolloutPhase};
use kapi::fault::{Fault, Faults};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::json;

use crate::world::{FLEET, World, cluster, environment, inventory, is_ready, operate, status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_its_own_is_neither_born_nor_told_that_it_was_left_out() {
    let mut world = World::with_wide_rollouts().await;
    inventory(&world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    world
        .until::<Rollout>("all", "at rest", |rollout| {
            let status = rollout.status.as_ref();
            status.is_some_and(|status| status.sources.is_some())
        })
        .await;
    // The change of the canary is begun, and does not come to its end.
    let breaks = Faults::when(|request| {
        let is_write = request.method == "PATCH" && !request.uri.to_string().contains("dryRun");
        (is_write && request.uri.path().ends_with("/clusters/a1")).then_some(Fault::Internal)
    });
    world.kill().await;
    world.operator = operate(&world.behind(&Faults::when(|_| None), &breaks));
    world
        .apply::<Environment>("production", environment("1.34.4"))
        .await;
    world.rollout("begun", RolloutPhase::Running).await;
    let is_begun = |cluster: &FleetCluster| status(cluster).begun.is_some();
    world.until::<FleetCluster>("a1", "begun", is_begun).await;

    let rollouts = ApiResource::erase::<Rollout>(&());
    let rollouts = Api::<DynamicObject>::namespaced_with(world.client.clone(), FLEET, &rollouts);
    let put = async |parallel: serde_json::Value| {
        let patch = Patch::Merge(json!({"spec": {"parallel": parallel}}));
        let parameters = PatchParams::default();
        let patched = rollouts.patch("all", &parameters, &patch);
        patched.await.unwrap();
    };
    put(json!("many")).await;
    let held = world
        .until::<FleetCluster>("a1", "held", |cluster| {
            status(cluster).health == Some(FleetHealth::Failed)
        })
        .await;
    let message = status(&held).message.unwrap();
    assert!(
        message.contains("Rollout all, which may be what brings it on, cannot be read"),
        "{message}"
    );
    world.apply::<FleetCluster>("c2", cluster("c2")).await;
    let waits = world
        .until::<FleetCluster>("c2", "waits", |cluster| cluster.status.is_some())
        .await;
    let problems = status(&waits).problems;
    assert_eq!(problems[0].rule, "RolloutUnreadable");
    assert_eq!(problems[0].object, "Rollout all");
    assert!(!world.versions().await.contains_key("c2"));

    // Once it is mended, the newborn starts at what there was before the run, as it says.
    put(json!(1)).await;
    world.until::<FleetCluster>("c2", "born", is_ready).await;
    assert_eq!(world.versions().await["c2"], "1.34.3");
}
