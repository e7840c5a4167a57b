//! An operator in small: what it takes for its objects to move. Nothing outside this file knows of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{extract::Request, middleware::Next};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, CustomResource, CustomResourceExt as _, Resource, ResourceExt as _,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    core::{Expression, NamespaceResourceScope, Selector},
};
use relocation::{
    Config, Domain, Graph, Hooks, Item, Kind, Move, Outcome, Patience, Reference, Root, Selected,
    Side, Summary, mark, take_back,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Where the trees of one owner stand.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(
    group = "garden.example.com",
    version = "v1",
    kind = "Orchard",
    namespaced,
    status = "Stand"
)]
struct OrchardSpec {
    /// The ConfigMap with its map.
    map: String,
}

/// One tree.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(
    group = "garden.example.com",
    version = "v1",
    kind = "Tree",
    namespaced,
    status = "Stand"
)]
struct TreeSpec {
    /// What grows on it.
    fruit: String,
}

/// How an object of the garden stands.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Stand {
    /// What is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    work: Option<String>,
    /// How much was picked.
    picked: i32,
}

/// A kind that no API here serves.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(
    group = "water.example.com",
    version = "v1",
    kind = "Pond",
    namespaced,
    status = "Stand"
)]
struct PondSpec {}

/// The field managers of the gardener.
const ORCHARDS: &str = "orchards";
const TREES: &str = "trees";

/// The fruit of trees that are somebody else's.
const WILD: &str = "sloe";

const FINALIZER: &str = "garden.example.com/orchard";

/// What the operator of the garden brings.
fn garden() -> Domain {
    let orchard = Root {
        noun: "orchard",
        spared: "tree",
        lease: None,
        told_meanwhile: &[],
    };
    let deeds = Selector::from_iter([Expression::Equal("garden".to_owned(), "deed".to_owned())]);
    Domain {
        name: "garden",
        kinds: vec![
            Kind::acted_on::<Orchard>(ORCHARDS)
                .held_by(FINALIZER)
                .root(orchard),
            Kind::acted_on::<Tree>(TREES).only(|tree| tree.data["spec"]["fruit"] != WILD),
        ],
        field_managers: &[ORCHARDS, TREES],
        selected: vec![Selected {
            kind: Config::Secret,
            labels: deeds,
        }],
        hooks: Box::new(Gardener),
    }
}

struct Gardener;

impl Hooks for Gardener {
    fn references(&self, item: &Item) -> Vec<Reference> {
        let map = item.object.data["spec"]["map"].as_str();
        let reference = |name: &str| Reference {
            kind: Config::ConfigMap,
            name: name.to_owned(),
        };
        map.map(reference).into_iter().collect()
    }

    fn at_work(&self, here: &Graph, _root: &Item) -> Option<String> {
        let mut trees = here.parsed::<Tree>();
        trees.find_map(|tree| {
            let work = tree.status.as_ref()?.work.as_ref()?;
            Some(format!("Tree/{} ({work})", tree.name_any()))
        })
    }
}

/// An operator that has nothing in the namespace, and whose kinds are nowhere.
fn ponds() -> Domain {
    struct Nothing;
    impl Hooks for Nothing {}
    let pond = Root {
        noun: "pond",
        spared: "fish",
        lease: None,
        told_meanwhile: &[],
    };
    Domain {
        name: "water",
        kinds: vec![Kind::acted_on::<Pond>("ponds").root(pond)],
        field_managers: &[],
        selected: Vec::new(),
        hooks: Box::new(Nothing),
    }
}

fn domains() -> [Domain; 2] {
    [ponds(), garden()]
}

/// Two embedded APIs that serve the garden.
struct Sides {
    here: kapi::Server,
    there: kapi::Server,
}

impl Sides {
    async fn start() -> Self {
        let crds = [Orchard::crd(), Tree::crd()];
        Self {
            here: kapi::Server::in_memory(&crds).await.unwrap(),
            there: kapi::Server::in_memory(&crds).await.unwrap(),
        }
    }

    fn here(&self) -> Client {
        Client::new(self.here.router(), "default")
    }

    fn there(&self) -> Client {
        Client::new(self.there.router(), "default")
    }

    /// Moves until it has ended, or just before a write.
    async fn carry_over(
        &self,
        namespace: &str,
        stop: &Arc<Stop>,
    ) -> Option<relocation::Result<Summary>> {
        let source = side(stop.before(self.here.router()), namespace).await;
        let target = side(stop.before(self.there.router()), namespace).await;
        tokio::select! {
            moved = carry_over(&source, &target) => Some(moved),
            () = stop.stopped.notified() => None,
        }
    }
}

async fn side(client: Client, namespace: &str) -> Side {
    Side::find(client, namespace).await.unwrap()
}

async fn carry_over(source: &Side, target: &Side) -> relocation::Result<Summary> {
    let patience = Patience {
        pause: Duration::ZERO,
        settle: Duration::ZERO,
        let_go: Duration::ZERO,
    };
    let domains = domains();
    let this = Move::prepare(source, target, &domains, patience, &|_| {}).await?;
    this.carry_over().await
}

/// Ends a command before a write, by its number.
#[derive(Default)]
struct Stop {
    at: usize,
    writes: AtomicUsize,
    stopped: Notify,
}

impl Stop {
    fn at(write: usize) -> Arc<Self> {
        Arc::new(Self {
            at: write,
            ..Self::default()
        })
    }

    fn before(self: &Arc<Self>, router: axum::Router) -> Client {
        let stop = Arc::clone(self);
        let watch = move |request: Request, next: Next| {
            let stop = Arc::clone(&stop);
            async move {
                let is_write = *request.method() != Method::GET
                    && !request.uri().path().contains("selfsubjectaccessreviews");
                if is_write && stop.writes.fetch_add(1, Ordering::SeqCst) + 1 == stop.at {
                    stop.stopped.notify_one();
                    return std::future::pending().await;
                }
                next.run(request).await
            }
        };
        Client::new(router.layer(axum::middleware::from_fn(watch)), "default")
    }
}

fn api<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), namespace)
}

async fn create<K>(client: &Client, namespace: &str, object: Value) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    api::<K>(client, namespace)
        .create(&PostParams::default(), &object)
        .await
        .unwrap()
}

async fn stands(client: &Client, namespace: &str, tree: &str, stand: &Stand) {
    let body = json!({
        "apiVersion": "garden.example.com/v1", "kind": "Tree", "metadata": {"name": tree}, "status": stand,
    });
    let manager = PatchParams::apply(TREES).force();
    api::<Tree>(client, namespace)
        .patch_status(tree, &manager, &Patch::Apply(&body))
        .await
        .unwrap();
}

/// An orchard of two trees, with its deed and its map, and a Secret and a ConfigMap of somebody else.
async fn plant(client: &Client, namespace: &str) {
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    let made = k8s_openapi::api::core::v1::Namespace {
        metadata: ObjectMeta {
            name: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        ..Default::default()
    };
    namespaces
        .create(&PostParams::default(), &made)
        .await
        .unwrap();
    for (name, label) in [("deed", "deed"), ("other", "none")] {
        let secret = json!({"metadata": {"name": name, "labels": {"garden": label}}, "stringData": {"a": "b"}});
        create::<Secret>(client, namespace, secret).await;
    }
    for name in ["map", "unmapped"] {
        let map = json!({"metadata": {"name": name}, "data": {"north": "up"}});
        create::<ConfigMap>(client, namespace, map).await;
    }
    let orchard: Orchard = create(
        client,
        namespace,
        json!({
            "apiVersion": "garden.example.com/v1", "kind": "Orchard",
            "metadata": {"name": "south", "finalizers": [FINALIZER]}, "spec": {"map": "map"},
        }),
    )
    .await;
    let owner = orchard.controller_owner_ref(&()).unwrap();
    for (name, picked) in [("apple", 7), ("oldest", 12)] {
        create::<Tree>(
            client,
            namespace,
            json!({
                "apiVersion": "garden.example.com/v1", "kind": "Tree",
                "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"fruit": "apple"},
            }),
        )
        .await;
        let stand = Stand { work: None, picked };
        stands(client, namespace, name, &stand).await;
    }
}

/// The names of the objects of a kind that are marked, and of those that are not.
async fn names<K>(client: &Client, namespace: &str) -> (Vec<String>, Vec<String>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let listed = api::<K>(client, namespace)
        .list(&ListParams::default())
        .await;
    let objects = listed.unwrap().items.into_iter();
    let (marked, free): (Vec<_>, Vec<_>) =
        objects.partition(|object| mark::of(object.meta()).is_some());
    let names = |objects: Vec<K>| objects.iter().map(K::name_any).collect();
    (names(marked), names(free))
}

/// All of the garden, at work, and beside it these Secrets and ConfigMaps.
async fn assert_garden(client: &Client, namespace: &str, secrets: &[&str], maps: &[&str]) {
    let (marked, orchards) = names::<Orchard>(client, namespace).await;
    assert_eq!((marked, orchards), (vec![], vec!["south".to_owned()]));
    let orchard = api::<Orchard>(client, namespace)
        .get("south")
        .await
        .unwrap();
    for (name, picked) in [("apple", 7), ("oldest", 12)] {
        let tree = api::<Tree>(client, namespace).get(name).await.unwrap();
        assert_eq!(mark::of(tree.meta()), None, "{name}");
        assert_eq!(tree.status.as_ref().unwrap().picked, picked);
        assert_eq!(
            Some(tree.owner_references()[0].uid.as_str()),
            orchard.meta().uid.as_deref()
        );
    }
    assert_eq!(names::<Secret>(client, namespace).await.1, secrets);
    assert_eq!(names::<ConfigMap>(client, namespace).await.1, maps);
}

/// None of the garden, and what is nobody's.
async fn assert_left(client: &Client, namespace: &str) {
    let none: (Vec<String>, Vec<String>) = Default::default();
    assert_eq!(names::<Orchard>(client, namespace).await, none);
    assert_eq!(names::<Tree>(client, namespace).await, none);
    assert_eq!(names::<Secret>(client, namespace).await.1, ["other"]);
    assert_eq!(names::<ConfigMap>(client, namespace).await.1, ["unmapped"]);
}

#[tokio::test]
async fn an_operator_that_registers_its_domain_has_its_objects_moved() {
    let sides = Sides::start().await;
    plant(&sides.here(), "team").await;
    let (source, target) = (
        side(sides.here(), "team").await,
        side(sides.there(), "team").await,
    );
    let moved = carry_over(&source, &target).await.unwrap();
    assert_eq!(moved.outcome, Outcome::Moved);
    assert_eq!(
        moved.objects,
        [
            "Secret/deed",
            "ConfigMap/map",
            "Orchard/south",
            "Tree/apple",
            "Tree/oldest",
        ]
    );
    assert_left(&sides.here(), "team").await;
    assert_garden(&sides.there(), "team", &["deed"], &["map"]).await;
    let again = carry_over(&source, &target).await.unwrap();
    assert_eq!(again.outcome, Outcome::MovedBefore);
    let error = take_back(&source, Some(&target), &domains(), &|_| {}).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("its copy there is the orchard now"),
        "{error}"
    );
}

#[tokio::test]
async fn objects_of_another_operator_stay_though_they_are_of_the_same_kind() {
    let sides = Sides::start().await;
    let here = sides.here();
    plant(&here, "team").await;
    let wild = json!({
        "apiVersion": "garden.example.com/v1", "kind": "Tree",
        "metadata": {"name": "wild"}, "spec": {"fruit": WILD},
    });
    let wild: Tree = create(&here, "team", wild).await;
    let owner = wild.controller_owner_ref(&()).unwrap();
    let thorns = json!({"metadata": {"name": "thorns", "ownerReferences": [owner]}});
    create::<Secret>(&here, "team", thorns).await;
    let (source, target) = (
        side(here.clone(), "team").await,
        side(sides.there(), "team").await,
    );
    let moved = carry_over(&source, &target).await.unwrap();
    assert_eq!(moved.outcome, Outcome::Moved);
    assert_garden(&sides.there(), "team", &["deed"], &["map"]).await;
    let nobodys = |names: &[&str]| (Vec::new(), names.iter().map(ToString::to_string).collect());
    let trees: (Vec<String>, Vec<String>) = nobodys(&["wild"]);
    assert_eq!(names::<Tree>(&here, "team").await, trees, "unmarked");
    assert_eq!(names::<Secret>(&here, "team").await.1, ["other", "thorns"]);
    assert_eq!(
        names::<Tree>(&sides.there(), "team").await.1,
        ["apple", "oldest"]
    );
}

#[tokio::test]
async fn a_move_that_was_stopped_at_any_write_is_ended_or_taken_back_by_a_command() {
    let sides = Sides::start().await;
    let (mut taken_back, mut ended) = (0, 0);
    for write in 1.. {
        let namespace = format!("team-{write}");
        plant(&sides.here(), &namespace).await;
        let first = sides.carry_over(&namespace, &Stop::at(write)).await;
        let (source, target) = (
            side(sides.here(), &namespace).await,
            side(sides.there(), &namespace).await,
        );
        if let Some(moved) = first {
            assert_eq!(moved.unwrap().outcome, Outcome::Moved);
            assert_left(&sides.here(), &namespace).await;
            break;
        }
        let (_, here) = names::<Orchard>(&sides.here(), &namespace).await;
        let (_, there) = names::<Orchard>(&sides.there(), &namespace).await;
        assert!(
            here.is_empty() || there.is_empty(),
            "{write}: on both sides"
        );
        match take_back(&source, Some(&target), &domains(), &|_| {}).await {
            Ok(_) => {
                let (secrets, maps) = (["deed", "other"], ["map", "unmapped"]);
                assert_garden(&sides.here(), &namespace, &secrets, &maps).await;
                let (marked, free) = names::<Orchard>(&sides.there(), &namespace).await;
                assert!(marked.is_empty() && free.is_empty(), "{write}");
                taken_back += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("the orchard now"), "{error}");
                carry_over(&source, &target).await.unwrap();
                assert_left(&sides.here(), &namespace).await;
                assert_garden(&sides.there(), &namespace, &["deed"], &["map"]).await;
                ended += 1;
            }
        }
    }
    assert!(taken_back > 10 && ended > 5, "{taken_back}, {ended}");
}

#[tokio::test]
async fn who_is_at_work_on_a_root_without_a_lease_is_waited_for_and_named() {
    let sides = Sides::start().await;
    plant(&sides.here(), "team").await;
    let picking = Stand {
        work: Some("picking".to_owned()),
        picked: 7,
    };
    stands(&sides.here(), "team", "apple", &picking).await;
    let (source, target) = (
        side(sides.here(), "team").await,
        side(sides.there(), "team").await,
    );
    let error = carry_over(&source, &target).await.unwrap_err().to_string();
    assert!(
        error.contains("Tree/apple (picking) has not paused") && error.contains("Orchard/south"),
        "{error}"
    );
    assert_eq!(
        names::<Tree>(&sides.there(), "team").await,
        Default::default()
    );
    let rested = Stand {
        work: None,
        picked: 7,
    };
    stands(&sides.here(), "team", "apple", &rested).await;
    carry_over(&source, &target).await.unwrap();
    assert_garden(&sides.there(), "team", &["deed"], &["map"]).await;
}
