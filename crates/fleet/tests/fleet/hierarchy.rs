//! The order of levels is edited while a roll-out is under way.

use std::collections::BTreeMap;

use api::inventory::{Environment, FleetCluster, Hierarchy, Rollout, RolloutPhase};
use serde_json::{Value, json};

use crate::world::{World, environment, inventory, is_ready, status};

fn levels(levels: &[(&str, &str)]) -> Value {
    let levels = levels.iter();
    let levels: Vec<_> = levels
        .map(|(name, kind)| json!({"name": name, "kind": kind}))
        .collect();
    json!({"levels": levels})
}

fn versions(canary: &str, others: &str) -> BTreeMap<String, String> {
    let others = ["a2", "b1", "b2", "c1"].map(|name| (name.to_owned(), others.to_owned()));
    let all = others.into_iter();
    all.chain([("a1".to_owned(), canary.to_owned())]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_waits_while_the_levels_that_its_clusters_name_are_gone() {
    let world = World::start().await;
    inventory(&world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    world.rollout("at rest", RolloutPhase::Idle).await;
    world.play.held.lock().unwrap().insert("a1".to_owned());
    world
        .apply::<Environment>("production", environment("1.34.4"))
        .await;
    let is_begun = |cluster: &FleetCluster| {
        let status = status(cluster);
        status.applied == status.rendered && status.pending.is_none() && !is_ready(cluster)
    };
    world
        .until::<FleetCluster>("a1", "its change begun", is_begun)
        .await;

    // The sites are no level any more.
    world
        .apply::<Hierarchy>("default", levels(&[("environment", "Environment")]))
        .await;
    let has_problem = |cluster: &FleetCluster| !status(cluster).problems.is_empty();
    let told = world.until::<FleetCluster>("a2", "told", has_problem).await;
    let problem = status(&told).problems[0].clone();
    assert_eq!(
        (problem.object.as_str(), problem.path.as_deref()),
        ("FleetCluster/fleet/a2", Some("spec.parents.site")),
        "{problem:?}"
    );
    assert!(!problem.rule.is_empty() && !problem.remedy.is_empty());
    world.play.held.lock().unwrap().clear();
    let waits = |rollout: &Rollout| {
        let waits = rollout
            .status
            .as_ref()
            .and_then(|status| status.waits.clone());
        waits.unwrap_or_default()
    };
    let says_why = |rollout: &Rollout| {
        let waits = waits(rollout);
        waits.contains("cannot be rendered") && waits.contains("spec.parents.site")
    };
    world
        .until::<Rollout>("all", "waiting for the hierarchy", says_why)
        .await;
    assert_eq!(world.versions().await, versions("1.34.4", "1.34.3"));

    // They are again, and the run goes on with what it was.
    let both = [("environment", "Environment"), ("site", "Site")];
    world.apply::<Hierarchy>("default", levels(&both)).await;
    world.ended("ended", RolloutPhase::Succeeded).await;
    assert_eq!(world.versions().await, versions("1.34.4", "1.34.4"));
}
