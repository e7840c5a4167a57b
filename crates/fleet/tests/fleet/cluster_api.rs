//! Objects of Cluster API by the same path: found by discovery, well when they are Available, rolled out by name of their templates.

use api::inventory::{ClusterTemplate, FleetCluster, FleetHealth, Hierarchy, Rollout};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::world::{FLEET, World, status};

const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

fn definition(group: &str, kind: &str) -> CustomResourceDefinition {
    let plural = format!("{}s", kind.to_lowercase());
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": if kind == "DevIdentity" { "Cluster" } else { "Namespaced" }, "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    }))
    .unwrap()
}

fn template() -> Value {
    json!({"backEnd": "Plain", "documents": [
        {"naming": "Hashed", "object": {
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "DevMachineTemplate",
            "metadata": {"name": "{{ cluster.name }}"}, "spec": {"size": "{{ size }}"},
        }},
        {"object": {
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"},
            "spec": {"machines": {"kind": "DevMachineTemplate", "name": "{{ cluster.name }}"}},
        }},
    ]})
}

fn objects(world: &World, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta2", kind));
    Api::namespaced_with(world.client.clone(), FLEET, &resource)
}

#[tokio::test]
async fn a_cluster_of_cluster_api_follows_and_keeps_its_templates() {
    let world = World::with(vec![
        definition(CORE, "Cluster"),
        definition(INFRASTRUCTURE, "DevMachineTemplate"),
    ])
    .await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    world.apply::<ClusterTemplate>("dev", template()).await;
    let cluster = |size: &str| json!({"template": "dev", "values": {"size": size}});
    world.apply::<FleetCluster>("shop", cluster("small")).await;
    let born = world
        .until::<FleetCluster>("shop", "born", |cluster| status(cluster).applied.is_some())
        .await;
    assert_eq!(status(&born).health, Some(FleetHealth::AtWork));
    let clusters = objects(&world, CORE, "Cluster");
    let templates = objects(&world, INFRASTRUCTURE, "DevMachineTemplate");
    let named = async || {
        let cluster = clusters.get("shop").await.unwrap();
        cluster.data["spec"]["machines"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let small = named().await;
    templates.get(&small).await.unwrap();
    // Its operator says that it is there; nothing of it is watched, so an edit of the inventory has it looked at.
    let available = json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}});
    clusters
        .patch_status("shop", &PatchParams::default(), &Patch::Merge(&available))
        .await
        .unwrap();
    world.apply::<FleetCluster>("shop", cluster("large")).await;
    world
        .until::<FleetCluster>("shop", "well, and edited", |cluster| {
            let status = status(cluster);
            status.health == Some(FleetHealth::Well) && status.pending.is_some()
        })
        .await;
    assert_eq!(named().await, small);
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    world
        .until::<FleetCluster>("shop", "rolled out", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered
        })
        .await;
    let large = named().await;
    assert_ne!(large, small);
    let all = templates.list(&ListParams::default()).await.unwrap();
    let all: Vec<_> = all.items.iter().map(ResourceExt::name_any).collect();
    assert!(all.contains(&small) && all.contains(&large), "{all:?}");
}

#[tokio::test]
async fn an_object_of_the_whole_api_is_refused_with_all_others() {
    let world = World::with(vec![
        definition(CORE, "Cluster"),
        definition(INFRASTRUCTURE, "DevIdentity"),
    ])
    .await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    let template = json!({"backEnd": "Plain", "documents": [
        {"object": {"apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "DevIdentity", "metadata": {"name": "root"}}},
        {"object": {"apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"}}},
    ]});
    world.apply::<ClusterTemplate>("dev", template).await;
    world
        .apply::<FleetCluster>("shop", json!({"template": "dev"}))
        .await;
    let refused = world
        .until::<FleetCluster>("shop", "refused", |cluster| {
            !status(cluster).problems.is_empty()
        })
        .await;
    let problem = status(&refused).problems[0].clone();
    assert_eq!(problem.rule, "NotApplied");
    assert!(problem.message.contains("of no namespace"), "{problem:?}");
    let there = objects(&world, CORE, "Cluster").get_opt("shop").await;
    assert!(there.unwrap().is_none());
}
