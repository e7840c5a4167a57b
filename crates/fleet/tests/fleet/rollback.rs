//! Roll-outs that are rolled back on the embedded API: what each cluster was before is kept as a FleetRevision, and so is what goes.

use api::{
    Cluster,
    inventory::{
        ClusterTemplate, Environment, FleetCluster, FleetRevision, MemberPhase, Rollout,
        RolloutPhase,
    },
};
use fleet::plan::back::{Back, NoWay, Which};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::world::{FLEET, World, environment, inventory, is_ready, operate, status, template};

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

/// A fleet that a run has brought to its end, and the run.
async fn after_a_run(edit: impl AsyncFnOnce(&World)) -> (World, String) {
    let world = World::start().await;
    inventory(&world).await;
    for name in ALL {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    world.apply::<Rollout>("all", quick(&json!({}))).await;
    edit(&world).await;
    let over = world.ended("through", RolloutPhase::Succeeded).await;
    (world, over.status.unwrap().run.unwrap().id)
}

fn quick(control: &Value) -> Value {
    json!({"soak": "0s", "parallel": 2, "control": control})
}

/// What it is to take back what `which` says, with what cannot go back.
async fn foreseen(world: &World, which: Which<'_>, skip: &[&str]) -> Result<Back, NoWay> {
    let rollout = world.all::<Rollout>(FLEET).get("all").await.unwrap();
    let skip = skip.iter().map(|name| (*name).to_owned()).collect();
    fleet::plan::back::back(&world.client, &rollout, which, &skip).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ended_is_taken_back_and_a_killed_operator_goes_on_with_it() {
    let (mut world, run) = after_a_run(async |world| {
        let mut edited = template();
        edited["documents"][1]["object"]["spec"]["ssh"]["user"] = json!("admin");
        world.apply::<ClusterTemplate>("kubespray", edited).await;
    })
    .await;
    let back = foreseen(&world, Which::Last, &[]).await.unwrap();
    assert_eq!((&back.run, back.is_under_way), (&run, false));
    assert!(back.refused.is_empty());
    let changes: Vec<_> = back
        .plan
        .changes
        .iter()
        .map(|it| &*it.cluster.name)
        .collect();
    assert_eq!(changes, ALL);
    let change = serde_json::to_value(&back.plan.changes[0]).unwrap();
    let leaf = &change["objects"][0]["leaves"][0];
    assert_eq!(
        (&leaf["before"], &leaf["after"]),
        (&json!("admin"), &json!("root"))
    );
    world.play.most.lock().unwrap().clear();
    world.play.held.lock().unwrap().insert("b1".to_owned());
    let control = json!({"run": run, "state": "RolledBack"});
    world.apply::<Rollout>("all", quick(&control)).await;
    // In its middle: the canary is through, and another cluster is at work.
    world
        .until::<Rollout>("all", "in the middle", |rollout| {
            let run = rollout.status.as_ref().and_then(|it| it.run.as_ref());
            run.is_some_and(|it| {
                let is = |name: &str, phase| {
                    let mut members = it.clusters.iter();
                    members.any(|member| member.name == name && member.phase == phase)
                };
                it.rolls_back.as_ref() == Some(&run_of(&control))
                    && is("a1", MemberPhase::Done)
                    && is("b1", MemberPhase::Updating)
            })
        })
        .await;
    world.kill().await;
    world.play.held.lock().unwrap().clear();
    world.operator = operate(&world.client);
    world
        .until::<Rollout>("all", "taken back", |rollout| {
            let history = rollout.status.as_ref().map(|it| &it.history);
            history.and_then(|it| it.first()).is_some_and(|last| {
                last.rolls_back.as_ref() == Some(&run_of(&control))
                    && last.phase == RolloutPhase::Succeeded
            })
        })
        .await;
    world.rollout("at rest", RolloutPhase::Idle).await;
    for name in ALL {
        assert_eq!(user(&world, name).await, "root", "{name}");
    }
    // Never two of a site, as in any run.
    let most = world.play.most.lock().unwrap().clone();
    assert!(most.values().all(|most| *most <= 1), "{most:?}");
    let Err(NoWay::Refused(why)) = foreseen(&world, Which::Run(&run), &[]).await else {
        panic!("it was taken back")
    };
    assert!(
        why.contains(&format!("run {run} was taken back by run")),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_does_not_go_down_by_a_version_and_is_not_guessed_where_it_is_lost() {
    let (world, run) = after_a_run(async |world| {
        let edited = environment("1.34.4");
        world.apply::<Environment>("production", edited).await;
    })
    .await;
    let before = world.versions().await;
    let back = foreseen(&world, Which::Last, &[]).await.unwrap();
    assert_eq!(back.refused.len(), ALL.len());
    let why = "Kubernetes would go from 1.34.4 down to 1.34.3";
    assert!(back.refused["c1"].contains(why), "{:?}", back.refused);
    let skipped = foreseen(&world, Which::Last, &["a1", "a2"]).await.unwrap();
    assert_eq!(skipped.refused.len(), 3);
    let Err(NoWay::Refused(told)) = foreseen(&world, Which::Last, &["a9"]).await else {
        panic!("there is no a9")
    };
    assert!(
        told.contains("those that were begun: a1, a2, b1, b2, c1"),
        "{told}"
    );
    let control = json!({"run": run, "state": "RolledBack"});
    world.apply::<Rollout>("all", quick(&control)).await;
    let waits = |rollout: &Rollout, words: &str| {
        let waits = rollout.status.as_ref().and_then(|it| it.waits.as_ref());
        waits.is_some_and(|waits| waits.contains(words))
    };
    let told = format!("FleetCluster a1: {why}");
    world
        .until::<Rollout>("all", "refused", |rollout| waits(rollout, &told))
        .await;
    assert_eq!(world.versions().await, before);
    // Of what is lost nothing is guessed.
    let revisions = world.all::<FleetRevision>(FLEET);
    let a2 = world.all::<FleetCluster>(FLEET).get("a2").await.unwrap();
    let applied = status(&a2).applied.unwrap();
    for record in revisions.list(&ListParams::default()).await.unwrap() {
        if record.spec.cluster == "a2" && record.spec.revision != applied {
            let name = record.metadata.name.unwrap();
            let deleted = revisions.delete(&name, &DeleteParams::default()).await;
            deleted.unwrap();
        }
    }
    let skip = ["a1", "b1", "b2", "c1"];
    let lost = foreseen(&world, Which::Run(&run), &skip).await.unwrap();
    assert!(
        lost.refused["a2"].contains("is not there"),
        "{:?}",
        lost.refused
    );
}

const ALL: [&str; 5] = ["a1", "a2", "b1", "b2", "c1"];
