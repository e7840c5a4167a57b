//! Former ClusterClasses: each goes with its templates, once nothing needs them.

use api::inventory::RolloutPhase;
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

/// A cluster that a roll-out brings to another class, which Cluster API has not taken up.
async fn rebased(size: &str) -> World {
    // As a webhook that holds variables against the class.
    let mut cluster = definition(CORE, "Cluster");
    let schema = cluster.spec.versions[0].schema.as_mut().unwrap();
    let schema = schema.open_api_v3_schema.as_mut().unwrap();
    let small = json!({"type": "object", "properties": {"topology": {"type": "object", "properties": {
        "classRef": {"type": "object", "properties": {"name": {"type": "string"}}},
        "variable": {"type": "string", "maxLength": 5},
    }}}});
    let properties = schema.properties.as_mut().unwrap();
    properties.insert("spec".to_owned(), serde_json::from_value(small).unwrap());
    let world = World::with(vec![cluster, definition(CORE, "ClusterClass")]).await;
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    let class = json!({"naming": "Hashed", "object": {
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "ClusterClass", "metadata": {"name": "class"}, "spec": {"size": "{{ size }}"},
    }});
    let cluster = json!({"object": {
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"},
        "spec": {"topology": {"classRef": {"name": "class"}, "variable": "{{ size }}"}},
    }});
    let template = json!({"backEnd": "Plain", "documents": [class, cluster]});
    world.apply::<ClusterTemplate>("dev", template).await;
    world.apply::<FleetCluster>("shop", shop("small", 0)).await;
    until_status(&world, "born", |status| status.applied.is_some()).await;
    let available = json!({"status": {"observedGeneration": 9, "conditions": [
        {"type": "Available", "status": "True"},
        {"type": "TopologyReconciled", "status": "True", "observedGeneration": 9},
    ]}});
    say(&world, "Cluster", "shop", available).await;
    world.apply::<FleetCluster>("shop", shop(size, 0)).await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    until_status(&world, "waits for its class", |status| {
        let message = status.message.as_deref().unwrap_or_default();
        message.contains("to take it up")
    })
    .await;
    world
}

async fn until_status(
    world: &World,
    what: &str,
    wanted: impl Fn(&FleetClusterStatus) -> bool,
) -> FleetClusterStatus {
    let wanted = |cluster: &FleetCluster| wanted(&status(cluster));
    status(&world.until("shop", what, wanted).await)
}

async fn say(world: &World, kind: &str, name: &str, status: Value) {
    let said = Patch::Merge(status);
    let all = objects(world, CORE, kind);
    all.patch_status(name, &PatchParams::default(), &said)
        .await
        .unwrap();
}

/// The class that the cluster is of.
async fn class(world: &World) -> String {
    let cluster = objects(world, CORE, "Cluster").get("shop").await.unwrap();
    let class = &cluster.data["spec"]["topology"]["classRef"]["name"];
    class.as_str().unwrap().to_owned()
}

async fn classes(world: &World) -> Vec<String> {
    let classes = objects(world, CORE, "ClusterClass");
    let classes = classes.list(&ListParams::default()).await.unwrap();
    classes.items.iter().map(ResourceExt::name_any).collect()
}

/// Has Cluster API take up all classes.
async fn take_up(world: &World) {
    for name in classes(world).await {
        let seen = json!({"status": {"observedGeneration": 1}});
        say(world, "ClusterClass", &name, seen).await;
    }
}

/// Waits until the class that the cluster is of is the only one. Nothing of it is watched, so an edit of the inventory has it looked at.
async fn until_alone(world: &World, size: &str) {
    for unused in 1..100 {
        if classes(world).await == [class(world).await] {
            return;
        }
        world
            .apply::<FleetCluster>("shop", shop(size, unused))
            .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?} stay", classes(world).await);
}

#[tokio::test]
async fn a_cluster_goes_to_another_class_when_cluster_api_has_taken_it_up() {
    let world = rebased("large").await;
    let old = class(&world).await;
    let waits = until_status(&world, "waits", |_| true).await;
    assert_eq!(waits.health, Some(FleetHealth::AtWork));
    assert_ne!(waits.applied, waits.rendered);
    // Nothing of the cluster is another yet, and what was made for it goes where it comes to something else.
    assert_eq!(
        (waits.begun, waits.former),
        (None, vec![waits.rendered.unwrap()])
    );
    take_up(&world).await;
    until_status(&world, "rolled out", |status| {
        status.applied == status.rendered
    })
    .await;
    assert_ne!(class(&world).await, old);
}

#[tokio::test]
async fn an_edit_while_a_class_is_awaited_leaves_nothing_of_it() {
    let world = rebased("large").await;
    let old = class(&world).await;
    assert_eq!(classes(&world).await.len(), 2);
    // Its time is up, and that halts the run: so it gives way to an edit.
    let rollout = json!({"soak": "0s", "deadline": "1s"});
    world.apply::<Rollout>("all", rollout).await;
    world.rollout("halted", RolloutPhase::Halted).await;
    world.apply::<FleetCluster>("shop", shop("small", 1)).await;
    until_status(&world, "as it was", |status| {
        status.applied == status.rendered && status.target.is_none()
    })
    .await;
    world.ended("ended", RolloutPhase::Superseded).await;
    until_alone(&world, "small").await;
    assert_eq!(class(&world).await, old);
}

#[tokio::test]
async fn a_run_that_is_aborted_while_a_class_is_awaited_brings_its_cluster_there() {
    let world = rebased("large").await;
    let old = class(&world).await;
    let run = world.rollout("under way", RolloutPhase::Running).await;
    let run = run.status.unwrap().run.unwrap().id;
    let aborted = json!({"soak": "0s", "control": {"state": "Aborted", "run": run}});
    world.apply::<Rollout>("all", aborted).await;
    take_up(&world).await;
    until_status(&world, "changed", |status| {
        status.applied == status.rendered && status.target.is_none()
    })
    .await;
    assert_ne!(class(&world).await, old);
}

#[tokio::test]
async fn a_cluster_that_is_refused_by_its_new_class_stays_of_the_old_one() {
    let world = rebased("much too large").await;
    let old = class(&world).await;
    take_up(&world).await;
    let refused = until_status(&world, "refused", |status| !status.problems.is_empty()).await;
    assert_eq!(refused.health, Some(FleetHealth::Refused));
    assert_eq!(refused.begun, None);
    let problem = &refused.problems[0];
    assert_eq!(problem.rule, "Refused");
    assert!(problem.message.contains("variable"), "{problem:?}");
    assert_eq!(class(&world).await, old);

    // What is right is brought on, and what was made for the other goes.
    world.apply::<FleetCluster>("shop", shop("large", 0)).await;
    until_status(&world, "waits for its class", |status| {
        status.problems.is_empty()
            && status
                .message
                .as_deref()
                .is_some_and(|message| message.contains("to take it up"))
    })
    .await;
    take_up(&world).await;
    until_status(&world, "changed", |status| {
        status.applied == status.rendered && status.target.is_none()
    })
    .await;
    until_alone(&world, "large").await;
    assert_ne!(class(&world).await, old);
}
