//! What a fleet may not: write into namespaces that do not let it in, take over what is somebody else's, make objects of other kinds,
//! change a cluster by halves.

use api::{
    Cluster,
    inventory::{
        ClusterTemplate, FLEET_CLUSTER_ANNOTATION, FLEET_LABEL, FleetCluster, FleetHealth,
        Hierarchy, Rollout, RolloutPhase,
    },
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{FLEET, World, is_ready, status};

fn template(namespace: &str, more: &[Value]) -> Value {
    let mut documents = vec![
        json!({"object": {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "{{ cluster.name }}", "namespace": namespace},
            "spec": {
                "kubernetesVersion": "{{ version }}",
                "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
                "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
            },
        }}),
        json!({"object": {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": "{{ cluster.name }}-m", "namespace": namespace},
            "spec": {"type": "{{ type | default('master') }}", "inventory": {"ansible_host": "10.0.0.1"}},
        }}),
    ];
    documents.extend(more.iter().map(|object| json!({"object": object})));
    json!({"backEnd": "Kubespray", "documents": documents})
}

async fn begin(world: &World, template: Value) {
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    world.apply::<ClusterTemplate>("kubespray", template).await;
}

#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn cluster(values: Value) -> Value {
    json!({"template": "kubespray", "values": values})
}

/// Waits for a problem of that rule.
async fn refused(world: &World, name: &str, rule: &str) -> String {
    let has = |cluster: &FleetCluster| {
        status(cluster)
            .problems
            .first()
            .is_some_and(|problem| problem.rule == rule)
    };
    let refused = world.until::<FleetCluster>(name, rule, has).await;
    status(&refused).problems[0].remedy.clone()
}

#[tokio::test]
async fn a_fleet_reaches_no_further_than_it_is_let() {
    let world = World::start().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "root", "namespace": FLEET}});
    begin(&world, template(FLEET, &[secret])).await;
    world
        .apply::<FleetCluster>("shop", cluster(json!({"version": "1.34.3"})))
        .await;
    refused(&world, "shop", "NotApplied").await;
    assert!(
        world
            .all::<Secret>(FLEET)
            .get_opt("root")
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .all::<Cluster>(FLEET)
            .get_opt("shop")
            .await
            .unwrap()
            .is_none()
    );

    // A namespace that is there and says nothing of fleets.
    let theirs: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "theirs"}})).unwrap();
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces
        .create(&PostParams::default(), &theirs)
        .await
        .unwrap();
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}});
    world
        .apply::<ClusterTemplate>("kubespray", template("theirs", &[own]))
        .await;
    let remedy = refused(&world, "shop", "ForeignNamespace").await;
    assert!(
        remedy.contains("kubectl label namespace theirs inventory.windlass.dev/fleet=fleet"),
        "{remedy}"
    );
    assert!(
        world
            .all::<Cluster>("theirs")
            .get_opt("shop")
            .await
            .unwrap()
            .is_none()
    );
    let label = json!({"metadata": {"labels": {(FLEET_LABEL): FLEET}}});
    namespaces
        .patch("theirs", &PatchParams::default(), &Patch::Merge(&label))
        .await
        .unwrap();
    // Nothing tells of a label: any change of the cluster does.
    world
        .apply::<FleetCluster>("shop", cluster(json!({"version": "1.34.3", "more": 1})))
        .await;
    world
        .until::<FleetCluster>("shop", "let in", is_ready)
        .await;
}

#[tokio::test]
async fn nobody_adds_hosts_to_the_cluster_of_another() {
    let world = World::start().await;
    begin(&world, template(FLEET, &[])).await;
    let shop = cluster(json!({"version": "1.34.3"}));
    world.apply::<FleetCluster>("shop", shop.clone()).await;
    world.until::<FleetCluster>("shop", "born", is_ready).await;
    world.apply::<FleetCluster>("evil", shop).await;
    let remedy = refused(&world, "evil", "ForeignCluster").await;
    assert!(remedy.contains("a namespace of its own"), "{remedy}");
    let nodes = world.all::<api::ClusterNode>(FLEET);
    assert!(nodes.get_opt("evil-m").await.unwrap().is_none());
}

#[tokio::test]
async fn of_two_that_are_born_into_one_namespace_at_once_one_is() {
    let world = World::start().await;
    begin(&world, template(FLEET, &[])).await;
    let shop = cluster(json!({"version": "1.34.3"}));
    world.apply::<FleetCluster>("shop", shop.clone()).await;
    world.apply::<FleetCluster>("wiki", shop).await;
    let names = ["shop", "wiki"];
    let is_told =
        |cluster: &FleetCluster| is_ready(cluster) || !status(cluster).problems.is_empty();
    let mut born = Vec::new();
    for name in names {
        let cluster = world.until::<FleetCluster>(name, "told of", is_told).await;
        match status(&cluster).problems.first() {
            Some(problem) => assert_eq!(problem.rule, "ForeignCluster"),
            None => born.push(name),
        }
    }
    let [born] = born.as_slice() else {
        panic!("{born:?} are born")
    };
    let clusters = world.all::<Cluster>(FLEET);
    let there = clusters.list(&kube::api::ListParams::default()).await;
    let there: Vec<_> = there.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(there, [*born]);
}

#[tokio::test]
async fn a_cluster_that_is_there_is_taken_over_when_it_is_handed_over_and_changed_by_a_rollout() {
    let world = World::start().await;
    begin(&world, template(FLEET, &[])).await;
    for name in ["shop", "wiki"] {
        let object = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {
                "kubernetesVersion": "1.33.1", "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
                "nodes": {"all": {"deploy": {"extraVars": {"by_hand": 1}}}},
            },
        });
        let by_hand = PatchParams::apply("somebody");
        let clusters = world.all::<Cluster>(FLEET);
        clusters
            .patch(name, &by_hand, &Patch::Apply(&object))
            .await
            .unwrap();
        world
            .apply::<FleetCluster>(name, cluster(json!({"version": "1.34.3"})))
            .await;
    }
    let version = async |name: &str| {
        let cluster = world.all::<Cluster>(FLEET).get(name).await.unwrap();
        serde_json::to_value(cluster.spec).unwrap()["kubernetesVersion"].clone()
    };
    let remedy = refused(&world, "shop", "ForeignObject").await;
    assert!(
        remedy.contains(
            "annotate -n fleet cluster.kubespray.k8s.io shop inventory.windlass.dev/fleet-cluster=fleet/shop"
        ),
        "{remedy}"
    );
    let hand_over =
        json!({"metadata": {"annotations": {(FLEET_CLUSTER_ANNOTATION): "fleet/shop"}}});
    let clusters = world.all::<Cluster>(FLEET);
    clusters
        .patch("shop", &PatchParams::default(), &Patch::Merge(&hand_over))
        .await
        .unwrap();
    let shown = world
        .until::<FleetCluster>("shop", "handed over", |cluster| {
            status(cluster).pending.is_some()
        })
        .await;
    let changes = status(&shown).pending.unwrap().changes;
    for change in [
        "Cluster/shop spec.kubernetesVersion: \"1.33.1\" -> \"1.34.3\"",
        "ClusterNode/shop-m comes",
    ] {
        assert!(changes.contains(&change.to_owned()), "{changes:?}");
    }
    assert_eq!(version("shop").await, "1.33.1");
    // The other one is refused still: it stands for nothing that the roll-out could touch.
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    world
        .until::<FleetCluster>("shop", "rolled out", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered && status.health == Some(FleetHealth::Well)
        })
        .await;
    assert_eq!(
        (version("shop").await, version("wiki").await),
        (json!("1.34.3"), json!("1.33.1"))
    );
    // What somebody else has set, and the inventory does not speak of, stays.
    let shop = world.all::<Cluster>(FLEET).get("shop").await.unwrap();
    let shop = serde_json::to_value(shop.spec).unwrap();
    assert_eq!(
        shop["nodes"]["all"]["deploy"]["extraVars"]["by_hand"], 1,
        "{shop}"
    );
}

#[tokio::test]
async fn a_change_of_which_the_api_refuses_a_part_is_not_made_at_all() {
    let world = World::start().await;
    begin(&world, template(FLEET, &[])).await;
    world
        .apply::<FleetCluster>("shop", cluster(json!({"version": "1.34.3"})))
        .await;
    let born = world.until::<FleetCluster>("shop", "born", is_ready).await;
    // The type of a host never changes, which the definition of ClusterNodes says.
    world
        .apply::<FleetCluster>(
            "shop",
            cluster(json!({"version": "1.34.4", "type": "worker"})),
        )
        .await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    refused(&world, "shop", "Refused").await;
    let halted = world.rollout("halted", RolloutPhase::Halted).await;
    let waits = halted.status.unwrap().waits.unwrap();
    assert!(waits.contains("type of a host"), "{waits}");
    let cluster = world.all::<Cluster>(FLEET).get("shop").await.unwrap();
    assert_eq!(
        serde_json::to_value(cluster.spec).unwrap()["kubernetesVersion"],
        "1.34.3"
    );
    // Nothing was begun either: the next edit finds it as it was.
    let has_looked = |cluster: &FleetCluster| status(cluster).observed_generation == Some(2);
    let now = world
        .until::<FleetCluster>("shop", "looked at", has_looked)
        .await;
    let (now, born) = (status(&now), status(&born));
    assert_ne!(now.rendered, now.applied);
    assert_eq!((now.applied, now.begun), (born.applied, None));
}

#[tokio::test]
async fn a_grant_on_the_ground_of_an_older_version_is_refused() {
    let world = World::start().await;
    world.apply::<Rollout>("all", json!({"soak": "0s"})).await;
    let read = world
        .until::<Rollout>("all", "seen", |rollout| rollout.status.is_some())
        .await;
    world.apply::<Rollout>("all", json!({"soak": "1s"})).await;
    let version = read.resource_version().unwrap();
    let rollouts = world.all::<Rollout>(FLEET);
    let written =
        controller::apply::apply_status_at(&rollouts, "somebody", "all", &version, &read.status);
    let refused = written.await.unwrap_err();
    let controller::apply::Error::Api {
        source: kube::Error::Api(status),
        ..
    } = refused
    else {
        panic!("{refused}")
    };
    assert_eq!(status.code, 409);
}
