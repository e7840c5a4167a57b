//! A fleet on the embedded API: born, edited, rolled out, halted by its canary, mended, and its operator killed on the way. The clusters
//! are kubespray `Cluster`s without hosts, whose conditions are written as their operator would.

use std::collections::BTreeMap;

use api::{
    ClusterNode,
    inventory::{FleetCluster, MemberPhase, Rollout, RolloutPhase},
};
use serde_json::json;

use crate::world::{World, cluster, environment, inventory, is_ready, operate, status};

const ALL: [&str; 5] = ["a1", "a2", "b1", "b2", "c1"];

fn member(rollout: &Rollout, name: &str) -> MemberPhase {
    let run = rollout
        .status
        .as_ref()
        .and_then(|status| status.run.as_ref());
    let members = run.into_iter().flat_map(|run| &run.clusters);
    members
        .filter(|member| member.name == name)
        .map(|member| member.phase)
        .next()
        .unwrap_or_default()
}

fn all_at(version: &str) -> BTreeMap<String, String> {
    ALL.map(|name| (name.to_owned(), version.to_owned())).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_of_an_inventory_is_rolled_out_behind_a_canary() {
    let mut world = World::start().await;
    inventory(&world).await;
    for name in ALL {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    assert_eq!(world.versions().await, all_at("1.34.3"));

    // An edit is shown, and nothing follows.
    world
        .apply::<api::inventory::Environment>("production", environment("1.34.4"))
        .await;
    for name in ALL {
        let shown = world
            .until::<FleetCluster>(name, "shown", |cluster| status(cluster).pending.is_some())
            .await;
        let changes = status(&shown).pending.unwrap().changes;
        assert_eq!(
            changes,
            [format!(
                "Cluster/{name} spec.kubernetesVersion: \"1.34.3\" -> \"1.34.4\""
            )]
        );
        assert!(is_ready(&shown));
    }
    assert_eq!(world.versions().await, all_at("1.34.3"));

    // A roll-out begins with a canary, which takes its time; its operator dies meanwhile.
    world.play.held.lock().unwrap().insert("a1".to_owned());
    world
        .apply::<Rollout>("all", json!({"soak": "1s", "parallel": 3}))
        .await;
    world
        .until::<Rollout>("all", "begun", |rollout| {
            member(rollout, "a1") == MemberPhase::Updating
        })
        .await;
    world
        .until::<FleetCluster>("a1", "written", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered && status.pending.is_none()
        })
        .await;
    world.kill().await;
    world.operator = operate(&world.client);
    let mut canary = all_at("1.34.3");
    canary.insert("a1".to_owned(), "1.34.4".to_owned());
    assert_eq!(world.versions().await, canary);

    // The canary fails: nothing else is begun.
    world.play.ill.lock().unwrap().insert("a1".to_owned());
    world.play.held.lock().unwrap().clear();
    let halted = world.rollout("halted", RolloutPhase::Halted).await;
    let waits = halted.status.as_ref().unwrap().waits.clone().unwrap();
    assert!(
        waits.contains("the canary a1 failed") && waits.contains("the play says so"),
        "{waits}"
    );
    assert_eq!(world.versions().await, canary);

    // Another edit takes its place, and goes through: never two of a site at once.
    world.play.most.lock().unwrap().clear();
    let failed = status(&world.until::<FleetCluster>("a1", "failed", |_| true).await).applied;
    world
        .apply::<api::inventory::Environment>("production", environment("1.34.5"))
        .await;
    world
        .until::<FleetCluster>("a1", "begun anew", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered && status.applied != failed
        })
        .await;
    world.play.ill.lock().unwrap().clear();
    // Killed once more, in the middle.
    world
        .until::<Rollout>("all", "past its canary", |rollout| {
            member(rollout, "a1") == MemberPhase::Done
        })
        .await;
    world.kill().await;
    world.operator = operate(&world.client);
    let done = world.ended("ended", RolloutPhase::Succeeded).await;
    assert_eq!(world.versions().await, all_at("1.34.5"));
    let most = world.play.most.lock().unwrap().clone();
    assert!(most.values().all(|count| *count == 1), "{most:?}");
    let history: Vec<_> = done
        .status
        .unwrap()
        .history
        .iter()
        .map(|record| (record.phase, record.done))
        .collect();
    assert_eq!(
        history,
        [(RolloutPhase::Succeeded, 5), (RolloutPhase::Superseded, 0)]
    );

    // What renders to the same writes nothing.
    let before = world.versions_of_objects().await;
    let mut unused = environment("1.34.5");
    unused["values"]["unused"] = json!(true);
    world
        .apply::<api::inventory::Environment>("production", unused)
        .await;
    // What cannot be rendered writes nothing either, and says what to change.
    world
        .apply::<FleetCluster>("c1", json!({"parents": {"site": "nowhere"}}))
        .await;
    let broken = world
        .until::<FleetCluster>("c1", "refused", |cluster| {
            !status(cluster).problems.is_empty()
        })
        .await;
    let problem = status(&broken).problems[0].clone();
    assert_eq!(
        (
            problem.level.as_deref(),
            problem.object.as_str(),
            problem.path.as_deref(),
            problem.rule.as_str()
        ),
        (
            Some("cluster"),
            "FleetCluster/fleet/c1",
            Some("spec.parents.site"),
            "NotThere"
        )
    );
    assert!(problem.remedy.contains("a, b, c"), "{problem:?}");
    assert_eq!(world.versions_of_objects().await, before);

    // A host that leaves the values leaves the cluster, by the roll-out and not before.
    let mut smaller = cluster("c1");
    smaller["values"]["nodes"] = json!({"c1-m": {"address": "10.0.0.1", "type": "master"}});
    world.apply::<FleetCluster>("c1", smaller).await;
    world
        .until::<Rollout>("all", "began with c1 alone", |rollout| {
            let run = rollout
                .status
                .as_ref()
                .and_then(|status| status.run.as_ref());
            run.is_some_and(|run| run.clusters.len() == 1 && run.ended.is_some())
        })
        .await;
    assert!(
        world
            .all::<ClusterNode>("c1")
            .get_opt("c1-w")
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .all::<ClusterNode>("c1")
            .get_opt("c1-m")
            .await
            .unwrap()
            .is_some()
    );
}
