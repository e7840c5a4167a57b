//! A roll-out that people steer while it is under way: windows, pause and resume, a cluster that is skipped, an abort.

use api::inventory::{Environment, FleetCluster, MemberPhase, Rollout, RolloutPhase};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::world::{World, environment, inventory, is_ready};

const ALL: [&str; 5] = ["a1", "a2", "b1", "b2", "c1"];

fn run(rollout: &Rollout) -> api::inventory::RolloutRun {
    let status = rollout.status.clone().unwrap_or_default();
    status.run.unwrap_or_default()
}

fn is(rollout: &Rollout, name: &str, phase: MemberPhase) -> bool {
    let run = run(rollout);
    let mut members = run.clusters.iter();
    members.any(|member| member.name == name && member.phase == phase)
}

/// A policy, and how it is steered.
fn steered(control: &Value) -> Value {
    json!({"soak": "0s", "parallel": 3, "control": control})
}

async fn at(world: &World, version: &str) -> Vec<String> {
    let versions = world.versions().await.into_iter();
    let at = versions.filter(|(_, held)| held == version);
    at.map(|(name, _)| name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_hold_a_run_skip_a_cluster_and_end_it() {
    let world = World::start().await;
    inventory(&world).await;
    for name in ALL {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    let edit = |version: &str| environment(version);
    let all = async |control: &Value| {
        world.apply::<Rollout>("all", steered(control)).await;
    };

    // Its window opens in half a year: what is asked for waits, and nothing is begun.
    let now = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let month = (i32::from(now.month()) + 5) % 12 + 1;
    let window = json!({"schedule": format!("0 0 1 {month} *"), "duration": "1h"});
    let windows = json!({"soak": "0s", "parallel": 3, "windows": [window]});
    world.apply::<Rollout>("all", windows).await;
    world
        .apply::<Environment>("production", edit("1.34.4"))
        .await;
    world
        .rollout("waits for its window", RolloutPhase::WaitingForWindow)
        .await;
    assert_eq!(at(&world, "1.34.3").await, ALL);

    // At any time now, and the canary takes its time. Who holds the run then lets it come to its end, and nobody else begin.
    world.play.held.lock().unwrap().insert("a1".to_owned());
    all(&json!({})).await;
    let updating = |rollout: &Rollout| is(rollout, "a1", MemberPhase::Updating);
    world.until::<Rollout>("all", "begun", updating).await;
    all(&json!({"state": "Paused"})).await;
    world.rollout("paused", RolloutPhase::Paused).await;
    world.play.held.lock().unwrap().clear();
    let done = |rollout: &Rollout| is(rollout, "a1", MemberPhase::Done);
    let paused = world
        .until::<Rollout>("all", "its canary is done", done)
        .await;
    assert_eq!(paused.status.unwrap().phase, Some(RolloutPhase::Paused));
    assert_eq!(at(&world, "1.34.4").await, ["a1"]);

    // It goes on, and one fails: the others wait until somebody says that it does not count.
    world.play.ill.lock().unwrap().insert("b1".to_owned());
    all(&json!({})).await;
    let halted = world.rollout("halted", RolloutPhase::Halted).await;
    assert!(is(&halted, "b1", MemberPhase::Failed));
    let id = run(&halted).id;
    all(&json!({"run": id, "skip": ["b1"]})).await;
    // It is still not well, and another one of its site would be the second.
    let waits = |rollout: &Rollout| {
        let waits = rollout.status.clone().and_then(|status| status.waits);
        waits.is_some_and(|waits| waits.contains("b2 waits: site/b may have 1"))
    };
    world.until::<Rollout>("all", "b2 waits", waits).await;
    world.play.ill.lock().unwrap().clear();
    let ended = world.ended("ended", RolloutPhase::Succeeded).await;
    let history = ended.status.unwrap().history;
    assert_eq!((history[0].done, history[0].not_done), (4, 1));

    // An abort lets what is under way come to its end, and is for good.
    world.play.held.lock().unwrap().insert("a1".to_owned());
    world
        .apply::<Environment>("production", edit("1.34.5"))
        .await;
    let other = |rollout: &Rollout| run(rollout).id != id && updating(rollout);
    let begun = world.until::<Rollout>("all", "begun again", other).await;
    all(&json!({"state": "Aborted", "run": run(&begun).id})).await;
    world.play.held.lock().unwrap().clear();
    world.rollout("aborted", RolloutPhase::Aborted).await;
    world
        .until::<Rollout>("all", "its canary is done", done)
        .await;
    assert_eq!(at(&world, "1.34.5").await, ["a1"]);

    // The next edit is another run.
    world
        .apply::<Environment>("production", edit("1.34.6"))
        .await;
    world.ended("ended", RolloutPhase::Succeeded).await;
    assert_eq!(at(&world, "1.34.6").await, ALL);
}
