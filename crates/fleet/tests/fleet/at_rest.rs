//! A fleet that nobody edits, and an operator that has just come up: it looks at everything, and writes nothing.

use std::collections::BTreeMap;

use api::{
    Cluster, ClusterNode,
    inventory::{FleetCluster, FleetRevision, Rollout, RolloutPhase},
};
use controller::Metrics;
use k8s_openapi::api::{core::v1::Namespace, events::v1::Event};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{FLEET, World, inventory, is_ready, operate_counted, status};

const NAMES: [&str; 5] = ["a1", "a2", "b1", "b2", "c1"];

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
    for name in NAMES {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    world.rollout("at rest", RolloutPhase::Idle).await;
    let probe: Namespace = serde_json::from_value(json!({"metadata": {"name": "probe"}})).unwrap();
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let created = namespaces.create(&PostParams::default(), &probe).await;
    created.unwrap();
    world.kill().await;

    // What the operator before was about to write, the next one does: the one behind it has nothing left.
    let settling = Metrics::default();
    world.operator = operate_counted(&world.client, settling.clone());
    looked_at(&world, &settling, "settles").await;
    world.kill().await;
    let metrics = Metrics::default();
    world.operator = operate_counted(&world.client, metrics.clone());
    let before = looked_at(&world, &metrics, "rests").await;
    assert_eq!(versions(&world).await, before);
}

/// Has each object looked at by an annotation that nobody reads, and gives what there is before that is done.
async fn looked_at(world: &World, metrics: &Metrics, word: &str) -> BTreeMap<String, String> {
    // Before it has read everything a pass is none: one of another namespace shows when it has.
    let probe = json!({
        "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetCluster", "metadata": {"name": "probe"},
        "spec": {"parents": {"site": word}},
    });
    let probes = world.all::<FleetCluster>("probe");
    let apply = PatchParams::apply("test").force();
    let probe = probes.patch("probe", &apply, &Patch::Apply(&probe)).await;
    let wanted = probe.unwrap().metadata.generation;
    let is_told = |probe: &FleetCluster| status(probe).observed_generation == wanted;
    while !is_told(&probes.get("probe").await.unwrap()) {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let seen = [passes(metrics, "FleetCluster"), passes(metrics, "Rollout")];
    let annotated = Patch::Merge(json!({"metadata": {"annotations": {"example.com/word": word}}}));
    let parameters = PatchParams::default();
    for name in NAMES {
        let all = world.all::<FleetCluster>(FLEET);
        all.patch(name, &parameters, &annotated).await.unwrap();
    }
    let all = world.all::<Rollout>(FLEET);
    all.patch("all", &parameters, &annotated).await.unwrap();
    let before = versions(world).await;
    let is_through = || {
        passes(metrics, "FleetCluster") >= seen[0] + NAMES.len()
            && passes(metrics, "Rollout") > seen[1]
    };
    for _ in 0..600 {
        if is_through() {
            return before;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{}", metrics.render());
}
