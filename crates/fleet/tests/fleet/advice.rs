//! An edit that is only tried, as by `kubectl apply --dry-run=server`, warns of what it would change.

use api::inventory::{Environment, FleetCluster, Rollout};
use http::header::WARNING;
use kube::{
    Resource,
    api::{Patch, PatchParams},
    client::Body,
    core::Request,
};
use serde_json::{Value, json};

use crate::world::{FLEET, World, environment, inventory, status};

/// Applies an object of a fleet, or tries to, and gives the warnings that a client is shown.
async fn warnings<K>(world: &World, name: &str, spec: Value, is_tried: bool) -> Vec<String>
where
    K: Resource<DynamicType = ()>,
{
    let object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "spec": spec,
    });
    let url = format!(
        "/apis/{}/namespaces/{FLEET}/{}",
        K::api_version(&()),
        K::plural(&())
    );
    let mut parameters = PatchParams::apply("test").force();
    parameters.dry_run = is_tried;
    let request = Request::new(url)
        .patch(name, &parameters, &Patch::Apply(&object))
        .unwrap();
    let answer = world.client.send(request.map(Body::from)).await.unwrap();
    let status = answer.status();
    let warnings: Vec<_> = answer.headers().get_all(WARNING).iter().cloned().collect();
    let body = answer.into_body().collect_bytes().await.unwrap();
    assert!(status.is_success(), "{body:?}");
    warnings
        .iter()
        .map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned())
        .collect()
}

#[tokio::test]
async fn an_edit_that_is_tried_warns_of_the_same_that_a_plan_tells() {
    let world = World::start().await;
    inventory(&world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world
            .until::<FleetCluster>(name, "born", |cluster| status(cluster).applied.is_some())
            .await;
    }
    let newer = environment("1.35.0");
    let tried = warnings::<Environment>(&world, "production", newer.clone(), true).await;
    assert_eq!(
        tried.first().unwrap(),
        "299 - \"5 clusters: at most 10 hosts updated in place\""
    );
    assert_eq!(
        tried[1],
        "299 - \"Cluster/a1/a1: at most 2 hosts updated in place: a1-m, a1-w (spec.kubernetesVersion)\""
    );
    let edit = json!({
        "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Environment",
        "metadata": {"name": "production", "namespace": FLEET}, "spec": newer,
    });
    let plan = fleet::plan::plan(&world.client, FLEET, vec![edit]).await;
    let summary = fleet::plan::summary(&plan.unwrap().changes);
    assert!(tried[0].contains(&summary), "{summary}");
    // It was tried, and nothing changes by it.
    let none = fleet::plan::plan(&world.client, FLEET, Vec::new()).await;
    assert!(none.unwrap().changes.is_empty());
    let same = warnings::<Environment>(&world, "production", environment("1.34.3"), true).await;
    assert_eq!(same, Vec::<String>::new());
    // Nor by its being handed over, of which no record tells what it is.
    let handed_over = json!({"status": {"applied": "adopted"}});
    world
        .all::<FleetCluster>(FLEET)
        .patch_status("a2", &PatchParams::default(), &Patch::Merge(&handed_over))
        .await
        .unwrap();
    let again = fleet::plan::plan(&world.client, FLEET, Vec::new()).await;
    assert_eq!(again.unwrap().changes, []);

    let removed = json!({"parents": {"site": "a"}, "values": {"nodes": {"a1-m": {"address": "10.0.0.1", "type": "master"}}}});
    assert_eq!(
        warnings::<FleetCluster>(&world, "a1", removed, true).await,
        [
            "299 - \"1 cluster: 1 host removed\"",
            "299 - \"ClusterNode/a1/a1-w: 1 host removed\""
        ]
    );
    let broken = json!({"template": "kubespray"});
    let broken = warnings::<Environment>(&world, "production", broken, true).await;
    assert!(broken[0].contains("is not rendered"), "{broken:?}");
    assert!(broken[1].contains("kubernetes"), "{broken:?}");

    // What is written needs no warning: it is told where it waits. A Rollout changes no cluster by what it says.
    let rollout = json!({"control": {"state": "Paused"}});
    assert_eq!(
        warnings::<Rollout>(&world, "all", rollout, true).await,
        Vec::<String>::new()
    );
    let written = warnings::<Environment>(&world, "production", newer, false).await;
    assert_eq!(written, Vec::<String>::new());
}
