//! Objects of Cluster API by the same path: found by discovery, well when they are Available, rolled out by name of their templates.

use std::time::Duration;

use api::{
    inventory::{
        ClusterTemplate, FleetCluster, FleetClusterStatus, FleetHealth, Hierarchy, Rollout,
    },
    secrets::VaultSecret,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::world::{FLEET, World, status};

mod classes;
mod stuck;

pub const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

pub fn definition(group: &str, kind: &str) -> CustomResourceDefinition {
    // As a client makes it of the kind, which says a class's otherwise.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta2", kind));
    let plural = &resource.plural;
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

pub fn objects(world: &World, group: &str, kind: &str) -> Api<DynamicObject> {
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
async fn a_template_goes_when_nothing_was_made_from_it_and_nothing_would_be() {
    let mut kinds = vec![
        definition(CORE, "Cluster"),
        definition(CORE, "MachineSet"),
        definition(INFRASTRUCTURE, "DevMachineTemplate"),
        definition(INFRASTRUCTURE, "DevMachine"),
    ];
    kinds.extend(api::secrets::definitions());
    let world = World::with(kinds).await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    let parts = ["made", "named", "unused"];
    let documents = parts.map(|part| {
        json!({"naming": "Hashed", "object": {
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "DevMachineTemplate",
            "metadata": {"name": part}, "spec": {"size": "{{ size }}"},
        }})
    });
    let references = parts.map(|part| json!({"kind": "DevMachineTemplate", "name": part}));
    let mut documents = documents.to_vec();
    documents.push(json!({"object": {
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"},
        "spec": {"machines": references},
    }}));
    let template = json!({"backEnd": "Plain", "documents": documents});
    world.apply::<ClusterTemplate>("dev", template).await;
    let cluster = |size: &str, unused: usize| json!({"template": "dev", "values": {"size": size, "unused": unused}});
    world
        .apply::<FleetCluster>("shop", cluster("small", 0))
        .await;
    until(&world, "born", |status| status.applied.is_some()).await;
    let templates = objects(&world, INFRASTRUCTURE, "DevMachineTemplate");
    let all = async || -> Vec<String> {
        let all = templates.list(&ListParams::default()).await.unwrap();
        all.items.iter().map(ResourceExt::name_any).collect()
    };
    let old = all().await;
    let of = |part: &str| {
        let mut old = old.iter();
        old.find(|name| name.starts_with(part)).unwrap().clone()
    };
    // One has a machine, and another one a set that would make more.
    let machines = objects(&world, INFRASTRUCTURE, "DevMachine");
    let annotations = json!({
        "cluster.x-k8s.io/cloned-from-name": of("made"),
        "cluster.x-k8s.io/cloned-from-groupkind": format!("DevMachineTemplate.{INFRASTRUCTURE}"),
    });
    let machine = json!({
        "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "DevMachine",
        "metadata": {"name": "m", "annotations": annotations},
    });
    let sets = objects(&world, CORE, "MachineSet");
    let set = json!({
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "MachineSet", "metadata": {"name": "s"},
        "spec": {"template": {"spec": {"infrastructureRef": {"kind": "DevMachineTemplate", "name": of("named")}}}},
    });
    let parameters = PatchParams::apply("test").force();
    machines
        .patch("m", &parameters, &Patch::Apply(&machine))
        .await
        .unwrap();
    sets.patch("s", &parameters, &Patch::Apply(&set))
        .await
        .unwrap();
    let available = json!({"status": {"observedGeneration": 9, "conditions": [{"type": "Available", "status": "True"}]}});
    objects(&world, CORE, "Cluster")
        .patch_status("shop", &PatchParams::default(), &Patch::Merge(&available))
        .await
        .unwrap();
    world
        .apply::<FleetCluster>("shop", cluster("large", 0))
        .await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    until(&world, "rolled out", |status| {
        status.applied == status.rendered && status.pending.is_none() && !status.former.is_empty()
    })
    .await;

    // Nothing of it is watched, so an edit of the inventory has it looked at.
    let mut unused = 0;
    let mut gone = async |part: &str| {
        for _ in 0..100 {
            if !all().await.contains(&of(part)) {
                return;
            }
            unused += 1;
            world
                .apply::<FleetCluster>("shop", cluster("large", unused))
                .await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{part} stays");
    };
    gone("unused").await;
    let left = all().await;
    assert!(
        left.contains(&of("made")) && left.contains(&of("named")),
        "{left:?}"
    );
    machines
        .delete("m", &DeleteParams::default())
        .await
        .unwrap();
    gone("made").await;
    assert!(all().await.contains(&of("named")));
    sets.delete("s", &DeleteParams::default()).await.unwrap();
    gone("named").await;
    until(&world, "settled", |status| status.former.is_empty()).await;
    assert_eq!(all().await.len(), parts.len());
}

/// Waits for a status, while all VaultSecrets say that their Secrets are there.
async fn until(world: &World, what: &str, wanted: impl Fn(&FleetClusterStatus) -> bool) {
    let secrets = world.all::<VaultSecret>(FLEET);
    let clusters = world.all::<FleetCluster>(FLEET);
    for _ in 0..300 {
        for object in secrets.list(&ListParams::default()).await.unwrap() {
            let condition = |kind: &str, status: &str| {
                json!({
                    "type": kind, "status": status, "reason": "Test", "message": "the test says so",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": object.metadata.generation,
                })
            };
            let conditions = [condition("Ready", "True"), condition("Stale", "False")];
            let name = object.name_any();
            let made = json!({"status": {"secret": name, "conditions": conditions}});
            secrets
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(&made))
                .await
                .unwrap();
        }
        let cluster = clusters.get("shop").await.unwrap();
        if wanted(&status(&cluster)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}");
}

#[tokio::test]
async fn a_secret_in_vault_stays_as_long_as_a_template_that_names_it() {
    let mut kinds = vec![
        definition(CORE, "Cluster"),
        definition(INFRASTRUCTURE, "DevMachineTemplate"),
    ];
    kinds.extend(api::secrets::definitions());
    let world = World::with(kinds).await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    let mut template = template();
    template["vaultSecrets"] = json!({"vault": {
        "address": "https://vault.example.org:8200", "auth": {"kubernetes": {"role": "windlass"}},
    }});
    template["documents"][0]["object"]["spec"] = json!({"secretRef": "{{ machines }}"});
    template["documents"][1]["object"]["spec"]["secretRef"] = json!("{{ network }}");
    world.apply::<ClusterTemplate>("dev", template).await;
    let cluster = |machines: &str, network: &str, unused: usize| {
        let secret = |path: &str| json!({"vault": {"path": path, "key": "key"}});
        let values =
            json!({"machines": secret(machines), "network": secret(network), "unused": unused});
        json!({"template": "dev", "values": values})
    };
    let first = cluster("machines-1", "network-1", 0);
    world.apply::<FleetCluster>("shop", first).await;
    until(&world, "born", |status| status.applied.is_some()).await;
    // It has seen each change, and stays well.
    let available = json!({"status": {"observedGeneration": 9, "conditions": [{"type": "Available", "status": "True"}]}});
    objects(&world, CORE, "Cluster")
        .patch_status("shop", &PatchParams::default(), &Patch::Merge(&available))
        .await
        .unwrap();
    let second = |unused| cluster("machines-2", "network-2", unused);
    world.apply::<FleetCluster>("shop", second(0)).await;
    until(&world, "well, and edited", |status| {
        status.health == Some(FleetHealth::Well) && status.pending.is_some()
    })
    .await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    until(&world, "rolled out", |status| {
        status.applied == status.rendered && status.pending.is_none()
    })
    .await;

    let secrets = world.all::<VaultSecret>(FLEET);
    let has = async |path: &str| {
        let name = inventory::vault_secret_name("shop", "secret", path);
        secrets.get_opt(&name).await.unwrap().is_some()
    };
    // Nothing of it is watched, so an edit of the inventory has it looked at.
    for unused in 1..100 {
        if !has("network-1").await {
            break;
        }
        world.apply::<FleetCluster>("shop", second(unused)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (path, stays) in [
        ("network-1", false),
        ("network-2", true),
        ("machines-1", true),
        ("machines-2", true),
    ] {
        assert_eq!(has(path).await, stays, "{path}");
    }
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
