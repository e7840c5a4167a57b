//! What a FleetCluster may name and is not its own, and what it made and nobody wrote down.

use std::sync::atomic::{AtomicBool, Ordering};

use api::{
    Cluster, ClusterNode,
    inventory::{
        ClusterTemplate, FLEET_CLUSTER_ANNOTATION, FleetCluster, FleetProblem, Hierarchy,
        ROLLS_ANNOTATION,
    },
    secrets::{REFRESH_ANNOTATION, VaultSecret},
};
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kapi::fault::{Fault, Faults};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{FLEET, World, is_ready, operate, status};

const OTHERS: &str = "billing";

async fn begin<const N: usize>(world: &World, documents: [Value; N]) {
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    let documents = documents.map(|object| json!({"object": object}));
    let template = json!({"backEnd": "Plain", "documents": documents.to_vec()});
    world.apply::<ClusterTemplate>("plain", template).await;
    let others: Namespace = serde_json::from_value(json!({"metadata": {"name": OTHERS}})).unwrap();
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let parameters = PostParams::default();
    namespaces.create(&parameters, &others).await.unwrap();
}

/// What is said of a cluster of that template that cannot be born.
async fn refused(world: &World) -> FleetProblem {
    let spec = json!({"template": "plain"});
    world.apply::<FleetCluster>("shop", spec).await;
    // The operator may see it before what it is made of.
    let is_seen = |cluster: &FleetCluster| {
        let first = status(cluster).problems.into_iter().next();
        first.is_some_and(|problem| problem.rule != "MissingLevel")
    };
    let refused = world.until::<FleetCluster>("shop", "refused", is_seen);
    status(&refused.await).problems.remove(0)
}

fn of_kubespray(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

fn cluster(name: &str, version: &str) -> Value {
    let spec = json!({
        "kubernetesVersion": version, "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
    });
    of_kubespray("Cluster", FLEET, name, &spec)
}

fn node(namespace: &str, name: &str, address: &str) -> Value {
    let spec = json!({"type": "worker", "inventory": {"ansible_host": address}});
    of_kubespray("ClusterNode", namespace, name, &spec)
}

#[tokio::test]
async fn what_others_have_is_told_to_nobody_who_names_it() {
    let world = World::with(api::secrets::definitions()).await;
    let path = "infra/ssh";
    let name = inventory::vault_secret_name("shop", "secret", path);
    let secret = json!({
        "apiVersion": "secrets.windlass.dev/v1alpha1", "kind": "VaultSecret",
        "metadata": {"name": name, "namespace": OTHERS, "annotations": {(ROLLS_ANNOTATION): "key"}},
        "spec": {
            "vault": {"address": "https://vault.example.org:8200", "auth": {"kubernetes": {"role": "windlass"}}},
            "path": path, "keys": {"key": "key"},
        },
    });
    let documents = [
        secret.clone(),
        node(OTHERS, "n", "1.1.1.1"),
        cluster("shop", "1.34.3"),
    ];
    begin(&world, documents).await;

    let by_hand = PatchParams::apply("somebody").force();
    let nodes = world.all::<ClusterNode>(OTHERS);
    let theirs = node(OTHERS, "n", "10.9.9.9");
    let patch = Patch::Apply(&theirs);
    nodes.patch("n", &by_hand, &patch).await.unwrap();
    let secrets = world.all::<VaultSecret>(OTHERS);
    let patch = Patch::Apply(&secret);
    secrets.patch(&name, &by_hand, &patch).await.unwrap();
    let read = json!({"status": {"digests": {"key": "abcdefghijklmnop"}, "version": 3, "observedGeneration": 1}});
    let merge = Patch::Merge(read);
    let parameters = PatchParams::default();
    let patched = secrets.patch_status(&name, &parameters, &merge).await;
    patched.unwrap();

    // It has a Cluster that was handed over, so what would change of the others is asked for as well.
    let mut shop = cluster("shop", "1.33.1");
    shop["metadata"]["annotations"] = json!({(FLEET_CLUSTER_ANNOTATION): "fleet/shop"});
    let clusters = world.all::<Cluster>(FLEET);
    let patch = Patch::Apply(&shop);
    clusters.patch("shop", &by_hand, &patch).await.unwrap();
    let spec = json!({"template": "plain"});
    world.apply::<FleetCluster>("shop", spec).await;
    let shown = world
        .until::<FleetCluster>("shop", "handed over", |cluster| {
            status(cluster).pending.is_some()
        })
        .await;
    let status = status(&shown);
    assert_eq!(status.secrets, []);
    let changes = status.pending.unwrap().changes;
    assert!(
        changes.contains(&"ClusterNode/n comes".to_owned()),
        "{changes:?}"
    );
    assert!(!changes.join("\n").contains("10.9.9.9"), "{changes:?}");
    let secret = secrets.get(&name).await.unwrap();
    assert!(!secret.annotations().contains_key(REFRESH_ANNOTATION));
}

#[tokio::test]
async fn a_namespace_that_others_make_is_not_made_for_a_fleet() {
    let world = World::start().await;
    let place = "magnum-11112222333344445555666677778888";
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}});
    let documents = [made, node(place, "n", "1.1.1.1"), cluster("shop", "1.34.3")];
    begin(&world, documents).await;
    let problem = refused(&world).await;
    assert_eq!(problem.rule, "ForeignNamespace");
    let namespaces = Api::<Namespace>::all(world.client.clone());
    assert_eq!(namespaces.get_opt(place).await.unwrap(), None);
}

#[tokio::test]
async fn a_cluster_whose_birth_nobody_wrote_down_stays_when_it_is_called_otherwise() {
    let mut world = World::start().await;
    let documents = [cluster("{{ called }}", "1.34.3")];
    begin(&world, documents).await;
    let called = |name: &str| json!({"template": "plain", "values": {"called": name}});
    world.apply::<FleetCluster>("shop", called("one")).await;
    let born = world.until::<FleetCluster>("shop", "born", is_ready).await;
    let applied = status(&born).applied;

    // As if the pass had died before it said so.
    world.kill().await;
    let lost = json!({
        "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetCluster", "metadata": {"name": "shop"},
        "status": {"begun": applied},
    });
    let clusters = world.all::<FleetCluster>(FLEET);
    let operator = PatchParams::apply("windlass-fleet-status").force();
    let lost = Patch::Apply(&lost);
    let patched = clusters.patch_status("shop", &operator, &lost);
    patched.await.unwrap();
    world.apply::<FleetCluster>("shop", called("two")).await;
    world.operator = operate(&world.client);
    let known = world
        .until::<FleetCluster>("shop", "known again", |cluster| {
            let status = status(cluster);
            status.applied == applied && status.pending.is_some()
        })
        .await;
    assert_eq!(status(&known).begun, None);
    let there = world.all::<Cluster>(FLEET);
    let there = there.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = there.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["one"]);
}

#[tokio::test]
async fn an_event_that_is_refused_keeps_no_record_back() {
    let mut world = World::start().await;
    world.kill().await;
    let of_events = |request: &http::request::Parts| {
        let is_event = request.uri.path().ends_with("/events");
        (is_event && request.method == Method::POST).then_some(Fault::Invalid)
    };
    let (events, none) = (Faults::when(of_events), Faults::when(|_| None));
    world.operator = operate(&world.behind(&events, &none));
    let documents = [cluster("shop", "1.34.3")];
    begin(&world, documents).await;
    let spec = json!({"template": "plain"});
    world.apply::<FleetCluster>("shop", spec).await;
    world.until::<FleetCluster>("shop", "born", is_ready).await;
    assert!(!events.met().is_empty());
}

/// Is done once, in the middle of the request that the operator makes first of those that are meant.
fn in_between<F>(
    is_meant: fn(&http::request::Parts) -> bool,
    done: impl Fn() -> F + Send + Sync + 'static,
) -> Faults
where
    F: Future<Output = ()>,
{
    let is_done = AtomicBool::new(false);
    Faults::when(move |request| {
        // Others of the same kind do not wait for it.
        if is_meant(request) && !is_done.swap(true, Ordering::SeqCst) {
            let work = || tokio::runtime::Handle::current().block_on(done());
            tokio::task::block_in_place(work);
        }
        None
    })
}

fn is_real_write_of_n(request: &http::request::Parts) -> bool {
    let is_dry = request.uri.to_string().contains("dryRun");
    request.method != Method::GET && !is_dry && request.uri.path().ends_with("/clusternodes/n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_somebody_makes_while_a_cluster_is_born_is_theirs() {
    let mut world = World::start().await;
    world.kill().await;
    let theirs = node(FLEET, "n", "10.9.9.9");
    let nodes = world.all::<ClusterNode>(FLEET);
    let (making, made) = (nodes.clone(), theirs.clone());
    let meanwhile = in_between(is_real_write_of_n, move || {
        let (nodes, theirs) = (making.clone(), made.clone());
        async move {
            let theirs = serde_json::from_value(theirs).unwrap();
            nodes.create(&PostParams::default(), &theirs).await.unwrap();
        }
    });
    world.operator = operate(&world.behind(&Faults::when(|_| None), &meanwhile));
    let documents = [node(FLEET, "n", "1.1.1.1"), cluster("shop", "1.34.3")];
    begin(&world, documents).await;
    let problem = refused(&world).await;
    assert_eq!(problem.rule, "ForeignObject");
    assert_eq!(problem.object, "ClusterNode/fleet/n");
    let there = nodes.get("n").await.unwrap();
    assert!(!there.annotations().contains_key(FLEET_CLUSTER_ANNOTATION));
    let spec = serde_json::to_value(&there.spec).unwrap();
    assert_eq!(spec["inventory"], theirs["spec"]["inventory"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_made_again_is_held_against_a_cluster_that_is_born() {
    let mut world = World::start().await;
    let documents = [node(FLEET, "n", "1.1.1.1"), cluster("shop", "1.34.3")];
    begin(&world, documents).await;
    let spec = || json!({"template": "plain"});
    world.apply::<FleetCluster>("shop", spec()).await;
    world.until::<FleetCluster>("shop", "born", is_ready).await;
    world.kill().await;
    let clusters = world.all::<FleetCluster>(FLEET);
    let told = Api::clone(&clusters);
    let meanwhile = in_between(is_real_write_of_n, move || {
        let clusters = told.clone();
        async move {
            let evil = json!({
                "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetCluster", "metadata": {"name": "evil"},
                "spec": {"template": "plain"},
            });
            let (parameters, evil) = (PatchParams::apply("test"), Patch::Apply(&evil));
            let applied = clusters.patch("evil", &parameters, &evil);
            applied.await.unwrap();
            // The operator has other threads.
            loop {
                let evil = status(&clusters.get("evil").await.unwrap());
                if !evil.problems.is_empty() || evil.applied.is_some() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    });
    let nodes = world.all::<ClusterNode>(FLEET);
    let parameters = DeleteParams::default();
    nodes.delete("n", &parameters).await.unwrap();
    let there = world.all::<Cluster>(FLEET);
    there.delete("shop", &parameters).await.unwrap();
    world.operator = operate(&world.behind(&Faults::when(|_| None), &meanwhile));
    let evil = world
        .until::<FleetCluster>("evil", "refused", |cluster| {
            !status(cluster).problems.is_empty()
        })
        .await;
    let evil = status(&evil);
    assert_eq!(evil.applied, None);
    assert_eq!(evil.problems[0].rule, "ForeignCluster");
    let back = world.until::<FleetCluster>("shop", "back", is_ready).await;
    assert_eq!(status(&back).problems, []);
    // It may be Ready since before it was taken apart.
    let back = loop {
        if let Some(back) = nodes.get_opt("n").await.unwrap() {
            break back;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(back.annotations()[FLEET_CLUSTER_ANNOTATION], "fleet/shop");
}

#[tokio::test]
async fn what_somebody_writes_beside_a_cluster_keeps_nothing_from_being_mended() {
    let world = World::start().await;
    let documents = [node(FLEET, "n", "1.1.1.1"), cluster("shop", "1.34.3")];
    begin(&world, documents).await;
    let spec = || json!({"template": "plain"});
    world.apply::<FleetCluster>("shop", spec()).await;
    world.until::<FleetCluster>("shop", "born", is_ready).await;
    let mut theirs = node(FLEET, "theirs", "10.9.9.9");
    theirs["metadata"]["annotations"] = json!({FLEET_CLUSTER_ANNOTATION: "fleet/evil"});
    let nodes = world.all::<ClusterNode>(FLEET);
    let theirs = serde_json::from_value(theirs).unwrap();
    nodes.create(&PostParams::default(), &theirs).await.unwrap();
    let parameters = DeleteParams::default();
    nodes.delete("n", &parameters).await.unwrap();
    let is_whole =
        |cluster: &FleetCluster| is_ready(cluster) && status(cluster).problems.is_empty();
    loop {
        if nodes.get_opt("n").await.unwrap().is_some() {
            break;
        }
        let shop = world.all::<FleetCluster>(FLEET).get("shop").await.unwrap();
        assert_eq!(status(&shop).problems, []);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    world
        .until::<FleetCluster>("shop", "mended", is_whole)
        .await;
}
