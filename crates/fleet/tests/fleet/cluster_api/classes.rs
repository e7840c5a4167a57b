//! Former ClusterClasses: each goes with its templates, once nothing needs them.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;

use super::*;

const PARTS: [&str; 3] = ["made", "named", "unused"];

/// A cluster with three classes, each of which refers to a template.
fn template() -> Value {
    let machines = PARTS.map(|part| {
        json!({"naming": "Hashed", "object": {
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "DevMachineTemplate",
            "metadata": {"name": part}, "spec": {"size": "{{ size }}"},
        }})
    });
    let classes = PARTS.map(|part| {
        json!({"naming": "Hashed", "object": {
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "ClusterClass", "metadata": {"name": part},
            "spec": {"infrastructure": {"templateRef": {"kind": "DevMachineTemplate", "name": part}}},
        }})
    });
    let references = PARTS.map(|part| json!({"kind": "ClusterClass", "name": part}));
    let cluster = json!({"object": {
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"},
        "spec": {"topology": {"classes": references}},
    }});
    let documents: Vec<_> = machines
        .into_iter()
        .chain(classes)
        .chain([cluster])
        .collect();
    json!({"backEnd": "Plain", "documents": documents})
}

fn shop(size: &str, unused: usize) -> Value {
    json!({"template": "dev", "values": {"size": size, "unused": unused}})
}

/// The classes and templates that there are.
async fn all(world: &World) -> Vec<String> {
    let mut all = Vec::new();
    for (group, kind) in [
        (CORE, "ClusterClass"),
        (INFRASTRUCTURE, "DevMachineTemplate"),
    ] {
        let there = objects(world, group, kind);
        let there = there.list(&ListParams::default()).await.unwrap();
        let names = there.items.iter();
        all.extend(names.map(|object| format!("{kind}/{}", object.name_any())));
    }
    all
}

/// Waits until none of some objects is there. Nothing of them is watched, so an edit of the inventory has them looked at.
async fn gone(world: &World, unused: &mut usize, names: &[&String]) {
    for _ in 0..100 {
        let there = all(world).await;
        if !names.iter().any(|name| there.contains(name)) {
            return;
        }
        *unused += 1;
        world
            .apply::<FleetCluster>("shop", shop("large", *unused))
            .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("some of {names:?} stay");
}

#[tokio::test]
async fn a_class_goes_when_no_cluster_names_it_and_none_of_its_templates_is_needed() {
    let mut kinds = vec![
        definition(CORE, "Cluster"),
        definition(CORE, "ClusterClass"),
        definition(CORE, "MachineSet"),
        definition(INFRASTRUCTURE, "DevMachineTemplate"),
        definition(INFRASTRUCTURE, "DevMachine"),
    ];
    kinds.extend(api::secrets::definitions());
    let world = World::with(kinds).await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    world.apply::<ClusterTemplate>("dev", template()).await;
    world.apply::<FleetCluster>("shop", shop("small", 0)).await;
    until(&world, "born", |status| status.applied.is_some()).await;
    let old = all(&world).await;
    let of = |part: &str| -> Vec<&String> {
        let part = format!("/{part}-");
        old.iter().filter(|name| name.contains(&part)).collect()
    };
    let name = |kind: &str, part: &str| {
        let of = of(part);
        let mut names = of.iter().filter_map(|name| name.split_once('/'));
        names.find(|(held, _)| *held == kind).unwrap().1.to_owned()
    };

    // The template of one has a machine, and a Cluster elsewhere names another one.
    let machine: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "DevMachine",
        "metadata": {"name": "m", "annotations": {
            "cluster.x-k8s.io/cloned-from-name": name("DevMachineTemplate", "made"),
        }},
    }))
    .unwrap();
    let machines = objects(&world, INFRASTRUCTURE, "DevMachine");
    let parameters = PostParams::default();
    machines.create(&parameters, &machine).await.unwrap();
    let elsewhere: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "elsewhere"}})).unwrap();
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces.create(&parameters, &elsewhere).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(CORE, "v1beta2", "Cluster"));
    let others =
        Api::<DynamicObject>::namespaced_with(world.client.clone(), "elsewhere", &resource);
    let other: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "other"},
        "spec": {"topology": {"classRef": {"name": name("ClusterClass", "named"), "namespace": FLEET}}},
    }))
    .unwrap();
    others.create(&parameters, &other).await.unwrap();
    let available = json!({"status": {"observedGeneration": 9, "conditions": [
        {"type": "Available", "status": "True"},
        {"type": "TopologyReconciled", "status": "True", "observedGeneration": 9},
    ]}});
    objects(&world, CORE, "Cluster")
        .patch_status("shop", &PatchParams::default(), &Patch::Merge(&available))
        .await
        .unwrap();
    world.apply::<FleetCluster>("shop", shop("large", 0)).await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    until(&world, "rolled out", |status| {
        status.applied == status.rendered && status.pending.is_none() && !status.former.is_empty()
    })
    .await;

    let mut unused = 0;
    gone(&world, &mut unused, &of("unused")).await;
    let left = all(&world).await;
    let mut needed = of("made").into_iter().chain(of("named"));
    assert!(needed.all(|name| left.contains(name)), "{left:?}");
    machines
        .delete("m", &DeleteParams::default())
        .await
        .unwrap();
    gone(&world, &mut unused, &of("made")).await;
    let left = all(&world).await;
    assert!(
        of("named").into_iter().all(|name| left.contains(name)),
        "{left:?}"
    );
    others
        .delete("other", &DeleteParams::default())
        .await
        .unwrap();
    gone(&world, &mut unused, &of("named")).await;
    until(&world, "settled", |status| status.former.is_empty()).await;
    assert_eq!(all(&world).await.len(), 2 * PARTS.len());
}

#[tokio::test]
async fn a_cluster_goes_to_another_class_when_cluster_api_has_taken_it_up() {
    let kinds = ["Cluster", "ClusterClass"].map(|kind| definition(CORE, kind));
    let world = World::with(kinds.into()).await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    let class = json!({"naming": "Hashed", "object": {
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "ClusterClass", "metadata": {"name": "class"}, "spec": {"size": "{{ size }}"},
    }});
    let cluster = json!({"object": {
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"},
        "spec": {"topology": {"classRef": {"name": "class"}}},
    }});
    let template = json!({"backEnd": "Plain", "documents": [class, cluster]});
    world.apply::<ClusterTemplate>("dev", template).await;
    world.apply::<FleetCluster>("shop", shop("small", 0)).await;
    let born = world
        .until::<FleetCluster>("shop", "born", |cluster| status(cluster).applied.is_some())
        .await;
    let clusters = objects(&world, CORE, "Cluster");
    let parameters = PatchParams::default();
    let available = Patch::Merge(json!({"status": {"observedGeneration": 9, "conditions": [
        {"type": "Available", "status": "True"},
        {"type": "TopologyReconciled", "status": "True", "observedGeneration": 9},
    ]}}));
    let patched = clusters.patch_status("shop", &parameters, &available);
    patched.await.unwrap();
    let named = async || {
        let cluster = clusters.get("shop").await.unwrap();
        cluster.data["spec"]["topology"]["classRef"]["name"].clone()
    };
    let old = named().await;

    world.apply::<FleetCluster>("shop", shop("large", 0)).await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    let waits = world
        .until::<FleetCluster>("shop", "waits for its class", |cluster| {
            let message = status(cluster).message.unwrap_or_default();
            message.contains("to take it up")
        })
        .await;
    let (waits, born) = (status(&waits), status(&born));
    assert_eq!(waits.health, Some(FleetHealth::AtWork));
    assert_eq!(waits.applied, born.applied);
    // Nothing of the cluster is another yet, and what was made for it goes where it comes to something else.
    assert_eq!(
        (waits.begun, waits.former),
        (None, vec![waits.rendered.unwrap()])
    );
    assert_eq!(named().await, old);
    let classes = objects(&world, CORE, "ClusterClass");
    let all = classes.list(&ListParams::default()).await.unwrap().items;
    let new = all
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| old != **name);
    let new = new.unwrap();

    let seen = Patch::Merge(json!({"status": {"observedGeneration": 1}}));
    let patched = classes.patch_status(&new, &parameters, &seen);
    patched.await.unwrap();
    world
        .until::<FleetCluster>("shop", "rolled out", |cluster| {
            status(cluster).applied == status(cluster).rendered
        })
        .await;
    assert_eq!(named().await, new);
}
