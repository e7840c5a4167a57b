//! A move of clusters between two embedded APIs: whole, refused, taken back, and stopped at every write.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use api::{Cluster, ClusterNode, Run};
use axum::{Router, extract::Request, middleware::Next};
use controller::lease::{Candidate, Claim};
use http::Method;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams,
        PostParams,
    },
};
use kubespray::Layout;
use relocation::{
    Domain, Move, Outcome, Patience, Side, Summary,
    mark::{self, MOVED, MOVED_FROM, MOVING},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

mod access;
mod taken_back;

/// The namespace of a test that has the servers for itself.
const TEAM: &str = "team";

/// An embedded API for one test.
struct Server {
    api: kapi::Server,
}

impl Server {
    async fn start() -> Self {
        Self::serving(api::custom_resource_definitions()).await
    }

    async fn serving(
        crds: Vec<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>,
    ) -> Self {
        Self {
            api: kapi::Server::in_memory(&crds).await.unwrap(),
        }
    }

    fn client(&self) -> Client {
        Client::new(self.api.router(), "default")
    }

    async fn side(&self, namespace: &str) -> Side {
        Side::find(self.client(), namespace).await.unwrap()
    }
}

/// What moves, in the order of its creation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Secret,
    ConfigMap,
    Cluster,
    ClusterNode,
    Run,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Secret,
        Self::ConfigMap,
        Self::Cluster,
        Self::ClusterNode,
        Self::Run,
    ];

    fn resource(self) -> ApiResource {
        match self {
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Cluster => ApiResource::erase::<Cluster>(&()),
            Self::ClusterNode => ApiResource::erase::<ClusterNode>(&()),
            Self::Run => ApiResource::erase::<Run>(&()),
        }
    }

    /// Whether somebody acts on objects of the kind.
    const fn is_ours(self) -> bool {
        matches!(self, Self::Cluster | Self::ClusterNode | Self::Run)
    }
}

/// Everything of these kinds in a namespace.
async fn objects(client: &Client, namespace: &str) -> Vec<(Kind, DynamicObject)> {
    let mut objects = Vec::new();
    for kind in Kind::ALL {
        let api =
            Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind.resource());
        let listed = api.list(&ListParams::default()).await.unwrap().items;
        objects.extend(listed.into_iter().map(|object| (kind, object)));
    }
    objects
}

/// How a test moves.
struct Wish {
    /// How long runs may take to pause.
    timeout: Duration,
    /// The data directory of the API that the objects leave.
    data: Option<PathBuf>,
}

impl Wish {
    fn domains(&self) -> Vec<Domain> {
        vec![kubespray::moving::domain(
            self.data.clone().map(Layout::new),
        )]
    }

    const fn patience(&self) -> Patience {
        Patience {
            pause: self.timeout,
            settle: Duration::ZERO,
            let_go: Duration::ZERO,
        }
    }
}

const fn wish() -> Wish {
    Wish {
        timeout: Duration::from_secs(20),
        data: None,
    }
}

async fn plan(source: &Side, target: &Side, wish: &Wish) -> anyhow::Result<Summary> {
    let domains = wish.domains();
    let this = Move::prepare(source, target, &domains, wish.patience(), &|_| {}).await?;
    Ok(this.plan().await?)
}

async fn carry_over(source: &Side, target: &Side, wish: &Wish) -> anyhow::Result<Summary> {
    let domains = wish.domains();
    let this = Move::prepare(source, target, &domains, wish.patience(), &|_| {}).await?;
    Ok(this.carry_over().await?)
}

async fn take_back(source: &Side, target: Option<&Side>) -> anyhow::Result<Summary> {
    Ok(relocation::take_back(source, target, &wish().domains(), &|_| {}).await?)
}

async fn create<K>(client: &Client, namespace: &str, object: Value) -> K
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::<K>::namespaced(client.clone(), namespace)
        .create(&PostParams::default(), &object)
        .await
        .unwrap()
}

async fn status<K>(client: &Client, namespace: &str, name: &str, manager: &str, status: Value)
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let body = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "status": status,
    });
    Api::<K>::namespaced(client.clone(), namespace)
        .patch_status(
            name,
            &PatchParams::apply(manager).force(),
            &Patch::Apply(&body),
        )
        .await
        .unwrap();
}

async fn make_namespace(client: &Client, name: &str) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

/// A built cluster with two hosts whose order is not that of their names, a finished run and one that is paused half done.
async fn populate(client: &Client, namespace: &str) {
    make_namespace(client, namespace).await;
    create::<Secret>(
        client,
        namespace,
        json!({"metadata": {"name": "ssh"}, "stringData": {"ssh-privatekey": "key"}}),
    )
    .await;
    create::<Secret>(
        client,
        namespace,
        json!({"metadata": {"name": "other"}, "stringData": {"a": "b"}}),
    )
    .await;
    // As a person's apply, so that their fields are known to be theirs.
    let cluster = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": "first", "labels": {"team": "a"}},
        "spec": {"ssh": {"privateKeySecretRef": {"name": "ssh"}}, "deletionPolicy": "Reset"},
    });
    let clusters = Api::<Cluster>::namespaced(client.clone(), namespace);
    for user in ["root", "admin"] {
        let mut cluster = cluster.clone();
        cluster["spec"]["ssh"]["user"] = json!(user);
        clusters
            .patch("first", &PatchParams::apply("kim"), &Patch::Apply(&cluster))
            .await
            .unwrap();
    }
    let finalizer = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": "first", "finalizers": [kubespray::names::FINALIZER]},
    });
    let manager = PatchParams::apply(kubespray::names::CLUSTER_MANAGER);
    let cluster = clusters
        .patch("first", &manager, &Patch::Apply(&finalizer))
        .await
        .unwrap();
    assert_eq!(cluster.metadata.generation, Some(2));
    let owner = json!([cluster.controller_owner_ref(&()).unwrap()]);
    create::<Secret>(client, namespace,
        json!({"metadata": {"name": "first-kubeconfig", "ownerReferences": owner}, "stringData": {"value": "k"}}),
    )
    .await;
    for (name, kind) in [("z-master", "master"), ("a-worker", "worker")] {
        create::<ClusterNode>(client, namespace, json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": name},
            "spec": {"type": kind, "inventory": {"ansible_host": "192.0.2.1", "etcd_quota": 7}},
        }))
        .await;
        status::<ClusterNode>(
            client,
            namespace,
            name,
            kubespray::names::NODE_MANAGER,
            json!({
                "state": "Joined", "observedGeneration": 1, "node": {"health": "HEALTH_OK"},
            }),
        )
        .await;
    }
    for (name, phase) in [
        ("first-create-1", "Succeeded"),
        ("first-converge-2", "Paused"),
    ] {
        create::<Run>(client, namespace, json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": name, "ownerReferences": owner},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"}, "operation": "Create", "generation": 2,
                "plan": {"digest": "d", "steps": [], "inputs": {"ssh": {"key": {"name": "ssh"}}}},
            },
        }))
        .await;
        status::<Run>(client, namespace, name, runs::runner::FIELD_MANAGER, json!({
            "phase": phase, "progress": 40,
            "history": [
                {"sequence": 1, "time": "2026-11-01T10:00:00Z", "event": "RunStarted"},
                {"sequence": 2, "time": "2026-11-01T10:00:01Z", "event": "RunPaused", "detail": "a person asked"},
            ],
        }))
        .await;
    }
    status::<Cluster>(client, namespace, "first", kubespray::names::CLUSTER_MANAGER, json!({
        "state": "Created", "observedGeneration": 2, "kubeconfigSecret": "first-kubeconfig",
        "inventory": {"order": {"etcd": ["z-master"]}},
        "lastOperation": {"type": "Create", "state": "Paused", "run": "first-converge-2"},
        "conditions": [{
            "type": "Reachable", "status": "True", "reason": "Answered", "message": "", "observedGeneration": 2,
            "lastTransitionTime": "2026-11-01T10:00:00Z",
        }],
    }))
    .await;
}

/// What a person would see of a side: names, owners, specs and statuses, nothing that an API makes up.
async fn picture(client: &Client, namespace: &str) -> BTreeMap<String, Value> {
    let mut picture = BTreeMap::new();
    let mut names = BTreeMap::new();
    let found = objects(client, namespace).await;
    for (_, object) in &found {
        names.insert(object.uid().unwrap(), object.name_any());
    }
    for (kind, object) in found {
        let owners: Vec<_> = object
            .owner_references()
            .iter()
            .map(|owner| {
                names
                    .get(&owner.uid)
                    .cloned()
                    .unwrap_or_else(|| "gone".to_owned())
            })
            .collect();
        let own = |name: &&String| {
            name.contains("windlass.dev/move")
                || name.contains("windlass.dev/created")
                || name.contains("generations")
        };
        let annotations: Vec<_> = object
            .annotations()
            .keys()
            .filter(|name| !own(name))
            .collect();
        let mut data = object.data.clone();
        generations(&mut data);
        picture.insert(
            format!("{kind:?}/{}", object.name_any()),
            json!({"owners": owners, "labels": object.labels(), "annotations": annotations, "data": data}),
        );
    }
    picture
}

fn generations(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("observedGeneration");
            fields.values_mut().for_each(generations);
        }
        Value::Array(values) => values.iter_mut().for_each(generations),
        _ => {}
    }
}

async fn run(here: &Server, there: &Server) -> anyhow::Result<Summary> {
    let (source, target) = (here.side(TEAM).await, there.side(TEAM).await);
    carry_over(&source, &target, &wish()).await
}

/// What is left after a move: nothing here but what was not ours, everything there, nothing marked.
async fn assert_moved(
    before: &BTreeMap<String, Value>,
    here: &Server,
    there: &Server,
    namespace: &str,
) {
    let mut expected = before.clone();
    let other = expected.remove("Secret/other").unwrap();
    let left = picture(&here.client(), namespace).await;
    assert_eq!(left, BTreeMap::from([("Secret/other".to_owned(), other)]));
    assert_eq!(picture(&there.client(), namespace).await, expected);
    for (kind, object) in objects(&there.client(), namespace).await {
        let (name, annotations) = (object.name_any(), object.annotations());
        assert!(!annotations.contains_key(MOVING), "{kind:?}/{name}");
        assert!(!annotations.contains_key(MOVED), "{kind:?}/{name}");
        assert!(annotations.contains_key(MOVED_FROM), "{kind:?}/{name}");
    }
    let leases = Api::<Lease>::namespaced(here.client(), namespace);
    assert!(
        leases
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn everything_of_a_cluster_arrives_as_it_was_and_leaves_nothing_behind() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    let before = picture(&here.client(), TEAM).await;
    let summary = run(&here, &there).await.unwrap();
    assert_eq!(summary.outcome, Outcome::Moved);
    assert_eq!(
        summary.objects.first().map(String::as_str),
        Some("Secret/ssh")
    );
    assert_moved(&before, &here, &there, TEAM).await;

    let again = run(&here, &there).await.unwrap();
    assert_eq!(again.outcome, Outcome::MovedBefore);
}

/// Counts the writes of a move to both sides, stops it at one, and looks at both sides after each.
struct Watch {
    here: Client,
    there: Client,
    namespace: String,
    names: Vec<(Kind, String)>,
    writes: AtomicUsize,
    /// Before the API sees this write, which is as well after the one before it took effect.
    stop: Option<usize>,
    stopped: Notify,
    violations: Mutex<Vec<String>>,
}

impl Watch {
    fn around(self: &Arc<Self>, router: Router) -> Client {
        let watch = Arc::clone(self);
        let router = router.layer(axum::middleware::from_fn(
            move |request: Request, next: Next| {
                let watch = Arc::clone(&watch);
                async move {
                    let is_write = *request.method() != Method::GET
                        && !request.uri().path().contains("selfsubjectaccessreviews");
                    if !is_write {
                        return next.run(request).await;
                    }
                    let shown = format!("{} {}", request.method(), request.uri().path());
                    let number = watch.writes.fetch_add(1, Ordering::SeqCst) + 1;
                    if watch.stop == Some(number) {
                        watch.stopped.notify_one();
                        return std::future::pending().await;
                    }
                    let response = next.run(request).await;
                    watch.look(&format!("write {number}, {shown}")).await;
                    response
                }
            },
        ));
        Client::new(router, "default")
    }

    /// Nothing may be lost, and nothing may be at work on both sides.
    async fn look(&self, when: &str) {
        for (kind, name) in &self.names {
            let find = async |client: &Client| {
                let resource = kind.resource();
                Api::<DynamicObject>::namespaced_with(client.clone(), &self.namespace, &resource)
                    .get_opt(name)
                    .await
                    .unwrap()
            };
            let (here, there) = (find(&self.here).await, find(&self.there).await);
            let is_at_work = |object: &Option<DynamicObject>| {
                object
                    .as_ref()
                    .is_some_and(|object| !object.annotations().contains_key(MOVING))
            };
            let violated = |what: &str| {
                let text = format!("after {when}: {kind:?}/{name} {what}");
                self.violations.lock().unwrap().push(text);
            };
            if here.is_none() && there.is_none() {
                violated("is lost");
            }
            if kind.is_ours() && is_at_work(&here) && is_at_work(&there) {
                violated("is at work on both sides");
            }
            if *kind == Kind::Cluster
                && is_at_work(&there)
                && here.is_some_and(|here| !here.annotations().contains_key(MOVED))
            {
                violated("has taken over before the other side was marked for good");
            }
        }
    }
}

impl Watch {
    /// Watches what is in a namespace here.
    async fn over(
        here: &Server,
        there: &Server,
        namespace: &str,
        stop: Option<usize>,
    ) -> Arc<Self> {
        let found = objects(&here.client(), namespace).await.into_iter();
        let names = found.map(|(kind, object)| (kind, object.name_any()));
        Arc::new(Self {
            here: here.client(),
            there: there.client(),
            namespace: namespace.to_owned(),
            // Nobody's Secret stays.
            names: names.filter(|(_, name)| name != "other").collect(),
            writes: AtomicUsize::new(0),
            stop,
            stopped: Notify::new(),
            violations: Mutex::default(),
        })
    }

    async fn sides(self: &Arc<Self>, here: &Server, there: &Server) -> (Side, Side) {
        let source = Side::find(self.around(here.api.router()), &self.namespace).await;
        let target = Side::find(self.around(there.api.router()), &self.namespace).await;
        (source.unwrap(), target.unwrap())
    }

    /// What a command comes to, if it is not stopped: what the process was about to do is then never done.
    async fn unless_stopped<T>(&self, command: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            finished = command => Some(finished),
            () = self.stopped.notified() => None,
        }
    }

    fn assert_no_violation(&self) {
        let violations = self.violations.lock().unwrap();
        assert!(violations.is_empty(), "{:?}: {violations:#?}", self.stop);
    }
}

/// Moves with a stop, then again without; how many writes the first try made. The servers are shared, the namespace is not.
async fn stopped_at(here: &Server, there: &Server, stop: Option<usize>) -> usize {
    let namespace = match stop {
        Some(write) => format!("team-{write}"),
        None => TEAM.to_owned(),
    };
    populate(&here.client(), &namespace).await;
    let before = picture(&here.client(), &namespace).await;
    let first = Watch::over(here, there, &namespace, stop).await;
    let second = Watch::over(here, there, &namespace, None).await;
    let (source, target) = first.sides(here, there).await;
    let finished = first
        .unless_stopped(carry_over(&source, &target, &wish()))
        .await;
    assert_eq!(finished.is_none(), stop.is_some(), "{stop:?}: {finished:?}");
    let (source, target) = second.sides(here, there).await;
    let again = carry_over(&source, &target, &wish()).await;
    assert!(again.is_ok(), "{stop:?}: {again:?}");
    first.assert_no_violation();
    second.assert_no_violation();
    assert_moved(&before, here, there, &namespace).await;
    first.writes.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_was_stopped_at_any_write_is_ended_by_the_same_command() {
    let (here, there) = (Server::start().await, Server::start().await);
    let writes = stopped_at(&here, &there, None).await;
    assert!(writes > 30, "{writes}");
    for write in 1..=writes {
        stopped_at(&here, &there, Some(write)).await;
    }
}

/// What a refusal says; nothing may have been written for it.
async fn refused(here: &Server, there: &Server) -> String {
    let before = (
        picture(&here.client(), TEAM).await,
        picture(&there.client(), TEAM).await,
    );
    let error = run(here, there).await.unwrap_err();
    let after = (
        picture(&here.client(), TEAM).await,
        picture(&there.client(), TEAM).await,
    );
    assert_eq!(before, after);
    format!("{error:#}")
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_anything_is_written() {
    let (here, there) = (Server::start().await, Server::start().await);
    let empty = refused(&here, &there).await;
    assert!(empty.contains("there is no Cluster in it"), "{empty}");
    populate(&here.client(), TEAM).await;

    let same = refused(&here, &here).await;
    assert!(
        same.contains("--to-kubeconfig") && same.contains("same uid"),
        "{same}"
    );
    let bare = Server::serving(Vec::new()).await;
    let target = bare.side(TEAM).await;
    let kinds = carry_over(&here.side(TEAM).await, &target, &wish()).await;
    let kinds = format!("{:#}", kinds.unwrap_err());
    assert!(
        kinds.contains("windlass crds | kubectl apply --server-side -f -"),
        "{kinds}"
    );

    make_namespace(&there.client(), TEAM).await;
    let node = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": "a-worker"},
        "spec": {"type": "worker", "inventory": {"ansible_host": "192.0.2.9"}},
    });
    create::<ClusterNode>(&there.client(), TEAM, node).await;
    let other = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "second"}, "spec": {},
    });
    create::<Cluster>(&there.client(), TEAM, other).await;
    let occupied = refused(&here, &there).await;
    for part in [
        "ClusterNode/a-worker metadata.name",
        "a namespace holds one Cluster, and second is there",
        "--to-namespace",
    ] {
        assert!(occupied.contains(part), "{occupied}");
    }

    Api::<ClusterNode>::namespaced(here.client(), TEAM)
        .patch(
            "a-worker",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}})),
        )
        .await
        .unwrap();
    Api::<ClusterNode>::namespaced(here.client(), TEAM)
        .delete("a-worker", &DeleteParams::default())
        .await
        .unwrap();
    let leaving = refused(&here, &there).await;
    assert!(
        leaving.contains("ClusterNode/a-worker metadata.deletionTimestamp"),
        "{leaving}"
    );
}

#[tokio::test]
async fn a_dry_run_lists_the_objects_in_order_and_warns() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    let spec = json!({"spec": {"kubespray": {"source": {"path": "/home/kim/kubespray"}}}});
    Api::<Cluster>::namespaced(here.client(), TEAM)
        .patch("first", &PatchParams::default(), &Patch::Merge(&spec))
        .await
        .unwrap();
    let data = tempfile::tempdir().unwrap();
    let files = data.path().join("clusters").join(TEAM).join("first");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("known_hosts"), "192.0.2.1 ssh-ed25519 AAAA\n").unwrap();
    let mut wish = wish();
    wish.data = Some(data.path().to_owned());

    let (source, target) = (here.side(TEAM).await, there.side("elsewhere").await);
    let planned = plan(&source, &target, &wish).await.unwrap();
    let expected = [
        "Secret/ssh",
        "Cluster/first",
        "Secret/first-kubeconfig",
        "ClusterNode/a-worker",
        "ClusterNode/z-master",
        "Run/first-converge-2",
        "Run/first-create-1",
        "Secret/first-host-keys (made of the recorded keys of the hosts)",
    ];
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.get_mut(3..7).unwrap().sort();
        names
    };
    assert_eq!(sorted(&planned.objects), expected);
    assert!(
        planned.warnings[0].contains("spec.kubespray.source.path is \"/home/kim/kubespray\""),
        "{planned:?}"
    );
    assert!(picture(&there.client(), "elsewhere").await.is_empty());

    let summary = carry_over(&source, &target, &wish).await.unwrap();
    assert_eq!(summary.objects.len(), 8);
    let keys = Api::<Secret>::namespaced(there.client(), "elsewhere")
        .get("first-host-keys")
        .await
        .unwrap();
    assert_eq!(
        keys.data.unwrap()["known_hosts"].0,
        b"192.0.2.1 ssh-ed25519 AAAA\n"
    );
    let cluster = Api::<Cluster>::namespaced(there.client(), "elsewhere")
        .get("first")
        .await
        .unwrap();
    assert_eq!(
        keys.metadata.owner_references.unwrap()[0].uid,
        cluster.uid().unwrap()
    );
    assert!(mark::generation(&cluster.metadata) >= 3);
    // The person who wrote the spec still owns it: another apply takes fields away and conflicts with nobody.
    let spec = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first"},
        "spec": {"ssh": {"user": "kim"}},
    });
    let applied = Api::<Cluster>::namespaced(there.client(), "elsewhere")
        .patch("first", &PatchParams::apply("kim"), &Patch::Apply(&spec))
        .await
        .unwrap();
    let ssh = applied.spec.ssh.unwrap();
    assert_eq!(ssh.user.as_deref(), Some("kim"));
    assert_eq!(ssh.private_key_secret_ref, None);
}

#[tokio::test]
async fn recorded_keys_that_cannot_be_read_are_named_before_anything_is_written() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    let before = picture(&here.client(), TEAM).await;
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("clusters/team/first/known_hosts");
    std::fs::create_dir_all(&file).unwrap();
    let mut wish = wish();
    wish.data = Some(data.path().to_owned());
    let (source, target) = (here.side(TEAM).await, there.side(TEAM).await);
    let error = carry_over(&source, &target, &wish).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains(&file.display().to_string()), "{error}");
    assert_eq!(picture(&here.client(), TEAM).await, before);
    for (kind, object) in objects(&here.client(), TEAM).await {
        assert!(!object.annotations().contains_key(MOVING), "{kind:?}");
    }

    std::fs::remove_dir(&file).unwrap();
    carry_over(&source, &target, &wish).await.unwrap();
}

/// Who holds the Lease of a cluster that is worked on.
const RUNNER: &str = "pod/first-converge-2/1";

/// Takes the Lease of a runner that is at work.
async fn claimed(here: &Server) -> Candidate {
    let claim = Claim {
        name: kubespray::names::lease_name("first"),
        holder: RUNNER.to_owned(),
        generation: 2,
        owner: None,
    };
    let mut candidate = Candidate::new(here.client(), TEAM, claim, |_| false).first();
    candidate.attempt().await.unwrap();
    candidate
}

#[tokio::test]
async fn a_run_that_does_not_pause_is_named_and_a_later_try_goes_on() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    let running = json!({"phase": "Running", "step": "etcd/install"});
    status::<Run>(
        &here.client(),
        TEAM,
        "first-converge-2",
        runs::runner::FIELD_MANAGER,
        running,
    )
    .await;
    let mut runner = claimed(&here).await;
    let (source, target) = (here.side(TEAM).await, there.side(TEAM).await);
    let mut wish = wish();
    wish.timeout = Duration::ZERO;
    let error = carry_over(&source, &target, &wish).await;
    let error = format!("{:#}", error.unwrap_err());
    assert!(
        error.contains("Run/first-converge-2 (at etcd/install)") && error.contains("--timeout"),
        "{error}"
    );
    assert!(picture(&there.client(), TEAM).await.is_empty());

    runner.release().await.unwrap();
    assert_eq!(run(&here, &there).await.unwrap().outcome, Outcome::Moved);
    let leases = Api::<Lease>::namespaced(here.client(), TEAM);
    let name = kubespray::names::lease_name("first");
    let left = leases.get_opt(&name).await.unwrap();
    assert_eq!(left, None, "the Lease went with its cluster");
}
