//! Changes that are begun one after the other, none of which comes to its end: what they have made goes with the one that does.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use api::{
    ClusterNode,
    inventory::{FleetCluster, FleetHealth, FleetRevision, MemberPhase, Rollout},
};
use kapi::fault::{Fault, Faults};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::world::{FLEET, World, cluster, inventory, is_ready, operate, status};

/// The cluster a1 with one more host.
fn with(host: &str) -> Value {
    let mut cluster = cluster("a1");
    cluster["values"]["nodes"][host] = json!({"address": "10.0.0.9"});
    cluster
}

async fn all_born(world: &World) {
    inventory(world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
}

async fn hosts(world: &World) -> BTreeSet<String> {
    let nodes = Api::<ClusterNode>::namespaced(world.client.clone(), "a1");
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    nodes.items.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn what_several_unfinished_changes_have_made_goes_with_the_one_that_ends() {
    let mut world = World::start().await;
    all_born(&world).await;
    let born = hosts(&world).await;
    // The Cluster is written last: until then a change is not through.
    let is_broken = Arc::new(AtomicBool::new(true));
    let breaks = Arc::clone(&is_broken);
    let faults = Faults::when(move |request| {
        let is_write = request.method == "PATCH" && !request.uri.to_string().contains("dryRun");
        let is_own = request.uri.path().ends_with("/clusters/a1");
        (is_write && is_own && breaks.load(Ordering::SeqCst)).then_some(Fault::Internal)
    });
    world.kill().await;
    world.operator = operate(&world.behind(&Faults::when(|_| None), &faults));
    let policy = json!({"soak": "0s", "deadline": "1s"});
    world.apply::<Rollout>("all", policy).await;
    world
        .until::<Rollout>("all", "at rest", |rollout| rollout.status.is_some())
        .await;
    for (number, host) in ["second", "third"].into_iter().enumerate() {
        world.apply::<FleetCluster>("a1", with(host)).await;
        let is_begun = |cluster: &FleetCluster| status(cluster).abandoned.len() == number;
        world
            .until::<FleetCluster>("a1", host, |cluster| {
                status(cluster).begun.is_some() && is_begun(cluster)
            })
            .await;
        let why = |cluster: &FleetCluster| status(cluster).message.unwrap_or_default();
        let is_told = |cluster: &FleetCluster| why(cluster).contains("Cluster/a1/a1");
        world.until::<FleetCluster>("a1", "told", is_told).await;
        while !hosts(&world).await.contains(host) {
            tokio::task::yield_now().await;
        }
    }
    is_broken.store(false, Ordering::SeqCst);
    world.apply::<FleetCluster>("a1", with("fourth")).await;
    let ended = world
        .until::<FleetCluster>("a1", "through", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered && status.begun.is_none()
        })
        .await;
    assert_eq!(status(&ended).abandoned, [] as [String; 0]);
    let fourth = born.into_iter().chain(["fourth".to_owned()]).collect();
    assert_eq!(hosts(&world).await, fourth);
}

#[tokio::test]
async fn nothing_changes_where_nobody_knows_what_would_go() {
    let world = World::start().await;
    all_born(&world).await;
    let born = world.until::<FleetCluster>("a1", "born", is_ready).await;
    let applied = status(&born).applied.unwrap();
    let paused = json!({"soak": "0s", "control": {"state": "Paused"}});
    world.apply::<Rollout>("all", paused).await;
    world.apply::<FleetCluster>("a1", with("second")).await;
    let is_seen = |cluster: &FleetCluster| {
        let status = status(cluster);
        status.rendered.is_some() && status.rendered != status.applied
    };
    world.until::<FleetCluster>("a1", "edited", is_seen).await;
    let records = world.all::<FleetRevision>(FLEET);
    let all = records.list(&ListParams::default()).await.unwrap();
    let is_it =
        |record: &&FleetRevision| record.spec.cluster == "a1" && record.spec.revision == applied;
    let record = all.items.iter().find(is_it).unwrap().name_any();
    let parameters = DeleteParams::default();
    records.delete(&record, &parameters).await.unwrap();
    let before = hosts(&world).await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    let refused = world
        .until::<FleetCluster>("a1", "refused", |cluster| {
            let status = status(cluster);
            status
                .problems
                .first()
                .is_some_and(|problem| problem.rule == "RecordLost")
        })
        .await;
    assert_eq!(status(&refused).health, Some(FleetHealth::Refused));
    assert_eq!(hosts(&world).await, before);
    // As its remedy says.
    let name = "a1";
    let adopted = json!({"status": {"applied": "adopted", "begun": null, "abandoned": null}});
    let patch = kube::api::Patch::Merge(&adopted);
    let clusters = world.all::<FleetCluster>(FLEET);
    let parameters = kube::api::PatchParams::default();
    let is_through = |cluster: &FleetCluster| {
        let status = status(cluster);
        status.applied == status.rendered && status.begun.is_none()
    };
    // A pass that had begun before it writes what it knew: whoever does that by hand does it again then.
    let is_answered = |cluster: &FleetCluster| {
        is_through(cluster) || status(cluster).applied.as_ref() == Some(&applied)
    };
    for _ in 0..5 {
        let patched = clusters.patch_status(name, &parameters, &patch).await;
        patched.unwrap();
        let answered = world.until::<FleetCluster>(name, "through", is_answered);
        if is_through(&answered.await) {
            break;
        }
    }
    assert!(hosts(&world).await.contains("second"));
}

#[tokio::test]
async fn what_goes_with_a_change_goes_also_when_the_status_was_lost_before_it() {
    let mut world = World::start().await;
    all_born(&world).await;
    let none = Faults::when(|_| None);
    // The change that takes a host away is granted, and its cluster is not touched yet.
    let held = Faults::when(|request| {
        let is_write = request.method != "GET" && !request.uri.to_string().contains("dryRun");
        let is_own = request.uri.path().contains("/namespaces/a1/");
        (is_write && is_own).then_some(Fault::Internal)
    });
    world.kill().await;
    world.operator = operate(&world.behind(&none, &held));
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    world
        .until::<Rollout>("all", "at rest", |rollout| rollout.status.is_some())
        .await;
    let clusters = world.all::<FleetCluster>(FLEET);
    let patch = Patch::Merge(json!({"spec": {"values": {"nodes": {"a1-w": null}}}}));
    let parameters = PatchParams::default();
    let edited = clusters.patch("a1", &parameters, &patch);
    edited.await.unwrap();
    world
        .until::<Rollout>("all", "granted", |rollout| {
            let run = rollout
                .status
                .as_ref()
                .and_then(|status| status.run.as_ref());
            let mut members = run.into_iter().flat_map(|run| &run.clusters);
            members.any(|member| member.name == "a1" && member.phase == MemberPhase::Updating)
        })
        .await;
    world.kill().await;

    // As a backup without statuses, and then an operator that dies when it has written the Cluster and not yet deleted the host.
    let lost = json!({
        "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetCluster", "metadata": {"name": "a1"}, "status": {},
    });
    let patch = Patch::Apply(&lost);
    let operator = PatchParams::apply("windlass-fleet-status").force();
    let patched = clusters.patch_status("a1", &operator, &patch).await;
    assert_eq!(status(&patched.unwrap()).applied, None);
    let dying = Arc::new(Notify::new());
    let tell = Arc::clone(&dying);
    let is_dead = AtomicBool::new(false);
    let death = Faults::when(move |request| {
        if request.method == "DELETE" && request.uri.path().ends_with("/clusternodes/a1-w") {
            is_dead.store(true, Ordering::SeqCst);
            tell.notify_one();
        }
        let is_over = is_dead.load(Ordering::SeqCst) && request.method != "GET";
        is_over.then_some(Fault::Internal)
    });
    world.operator = operate(&world.behind(&none, &death));
    dying.notified().await;
    world.kill().await;
    assert!(hosts(&world).await.contains("a1-w"));

    world.operator = operate(&world.client);
    world
        .until::<FleetCluster>("a1", "through", |cluster| {
            let status = status(cluster);
            is_ready(cluster) && status.applied == status.rendered && status.begun.is_none()
        })
        .await;
    assert_eq!(hosts(&world).await, BTreeSet::from(["a1-m".to_owned()]));
}
