//! A cluster of Cluster API that never comes up: its operators do not give up, so it is at work for ever, and the next edit mends it.

use api::inventory::{
    ClusterTemplate, FleetCluster, FleetHealth, Hierarchy, Rollout, RolloutPhase,
};
use serde_json::json;

use super::{CORE, INFRASTRUCTURE, definition, objects, template};
use crate::world::{World, status};

#[tokio::test]
async fn what_never_comes_up_is_mended_by_the_next_edit() {
    let world = World::with(vec![
        definition(CORE, "Cluster"),
        definition(INFRASTRUCTURE, "DevMachineTemplate"),
    ])
    .await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    world.apply::<ClusterTemplate>("dev", template()).await;
    let cluster = |size: &str| json!({"template": "dev", "values": {"size": size}});
    world.apply::<FleetCluster>("shop", cluster("none")).await;
    let born = world
        .until::<FleetCluster>("shop", "born", |cluster| status(cluster).applied.is_some())
        .await;
    assert_eq!(status(&born).health, Some(FleetHealth::AtWork));

    // One that was never well: it is left alone for a while, then it is what an edit makes of it.
    let spec = json!({"soak": "0s", "deadline": "1s"});
    world.apply::<Rollout>("all", spec).await;
    world.apply::<FleetCluster>("shop", cluster("wrong")).await;
    let halted = world
        .rollout("it does not come up", RolloutPhase::Halted)
        .await;
    let waits = halted.status.unwrap().waits.unwrap();
    assert!(waits.contains("not well after 1s"), "{waits}");

    // One whose roll-out has failed.
    let wrong = world.until::<FleetCluster>("shop", "there", |_| true).await;
    let wrong = status(&wrong).applied;
    world.apply::<FleetCluster>("shop", cluster("right")).await;
    let mended = world
        .until::<FleetCluster>("shop", "mended", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered && status.applied != wrong
        })
        .await;
    assert_eq!(status(&mended).health, Some(FleetHealth::AtWork));
    let own = objects(&world, CORE, "Cluster").get("shop").await.unwrap();
    let named = own.data["spec"]["machines"]["name"].as_str().unwrap();
    let machines = objects(&world, INFRASTRUCTURE, "DevMachineTemplate")
        .get(named)
        .await
        .unwrap();
    assert_eq!(machines.data["spec"]["size"], "right");
}
