//! A fleet that nobody edits, and an operator that has just come up: it looks at everything, and writes nothing.

use std::collections::BTreeMap;

use api::{
    Cluster, ClusterNode,
    inventory::{FleetCluster, FleetRevision, Rollout, RolloutPhase},
};
use controller::Metrics;
use k8s_openapi::api::{core::v1::Namespace, events::v1::Event};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde_json::json;

use crate::world::{World, inventory, is_ready, operate_counted};

/// Every object of a kind, with its version.
async fn of<K>(world: &World, into: &mut BTreeMap<String, String>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let all = Api::<K>::all(world.client.clone());
    for object in all.list(&ListParams::default()).await.unwrap() {
        let namespace = object.namespace().unwrap_or_default();
        let name = format!("{} {namespace}/{}", K::kind(&()), object.name_any());
        into.insert(name, object.resource_version().unwrap());
    }
}

async fn versions(world: &World) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    of::<FleetCluster>(world, &mut all).await;
    of::<FleetRevision>(world, &mut all).await;
    of::<Rollout>(world, &mut all).await;
    of::<Cluster>(world, &mut all).await;
    of::<ClusterNode>(world, &mut all).await;
    of::<Namespace>(world, &mut all).await;
    of::<Event>(world, &mut all).await;
    all
}

/// How many passes there were over objects of a kind, all of which succeeded.
fn passes(metrics: &Metrics, kind: &str) -> usize {
    let text = metrics.render();
    assert!(!text.contains("outcome=\"error\""), "{text}");
    let series = format!("windlass_reconcile_total{{kind=\"{kind}\",outcome=\"success\"}} ");
    let mut counts = text.lines().filter_map(|line| line.strip_prefix(&series));
    counts.next().map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_where_nothing_is_edited() {
    let mut world = World::start().await;
    inventory(&world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    world.rollout("at rest", RolloutPhase::Idle).await;
    world.kill().await;

    // What the operator before was about to write, the next one does: the one behind it has nothing left.
    let settling = Metrics::default();
    world.operator = operate_counted(&world.client, settling.clone());
    wait_for(&settling).await;
    world.kill().await;
    let before = versions(&world).await;
    let metrics = Metrics::default();
    world.operator = operate_counted(&world.client, metrics.clone());
    wait_for(&metrics).await;
    assert_eq!(versions(&world).await, before);
}

/// Until each object has been looked at.
async fn wait_for(metrics: &Metrics) {
    let is_through = || passes(metrics, "FleetCluster") >= 5 && passes(metrics, "Rollout") >= 1;
    for _ in 0..600 {
        if is_through() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{}", metrics.render());
}
