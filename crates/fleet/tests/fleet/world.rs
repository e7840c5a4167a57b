//! The controllers of fleets, the embedded API, and clusters that come up as the test wishes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{
    Cluster, ClusterNode,
    inventory::{FleetCluster, Rollout, RolloutPhase},
};
use controller::{Manager, Metrics, Shutdown, WatchesEnded, manager::Settings};
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kapi::fault::Faults;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::Layer;

pub const FLEET: &str = "fleet";

pub struct World {
    server: kapi::Server,
    pub client: Client,
    pub operator: JoinHandle<Result<(), WatchesEnded>>,
    kubespray: JoinHandle<()>,
    /// Who tells of edits that are tried.
    _advisor: Arc<dyn kapi::Advisor>,
    pub play: Arc<Play>,
}

/// How the clusters behave.
#[derive(Default)]
pub struct Play {
    /// Those that stay at work.
    pub held: Mutex<BTreeSet<String>>,
    /// Those that stall.
    pub ill: Mutex<BTreeSet<String>>,
    /// The most of each site that were at work at once, since it was emptied.
    pub most: Mutex<BTreeMap<String, usize>>,
}

impl World {
    pub async fn start() -> Self {
        Self::with(Vec::new()).await
    }

    /// With definitions of other people's kinds.
    pub async fn with(more: Vec<CustomResourceDefinition>) -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(api::inventory::definitions());
        kinds.extend(more);
        Self::of(kinds).await
    }

    /// Where somebody has widened the definition of Rollouts: one may be stored that this release cannot read.
    pub async fn with_wide_rollouts() -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(api::inventory::definitions());
        let rollouts = kinds
            .iter_mut()
            .find(|it| it.spec.names.kind == "Rollout")
            .unwrap();
        for version in &mut rollouts.spec.versions {
            let any = json!({"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }});
            version.schema = Some(serde_json::from_value(any).unwrap());
        }
        Self::of(kinds).await
    }

    async fn of(kinds: Vec<CustomResourceDefinition>) -> Self {
        let server = kapi::Server::in_memory(&kinds).await.unwrap();
        let client = Client::new(server.router(), "default");
        let advisor: Arc<dyn kapi::Advisor> = Arc::new(fleet::advice::Foretelling(client.clone()));
        server.advise(&advisor);
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": FLEET}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let play = Arc::new(Play::default());
        Self {
            server,
            operator: operate(&client),
            kubespray: tokio::spawn(kubespray(client.clone(), Arc::clone(&play))),
            client,
            _advisor: advisor,
            play,
        }
    }

    /// A client whose requests meet the faults of both, the first first.
    pub fn behind(&self, outer: &Faults, inner: &Faults) -> Client {
        let service = outer.layer(inner.layer(self.server.router()));
        Client::new(service, "default")
    }

    /// Ends the operator as a kill does: wherever it is.
    pub async fn kill(&mut self) {
        self.operator.abort();
        let ended = (&mut self.operator).await;
        assert!(ended.unwrap_err().is_cancelled());
    }

    pub fn all<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub async fn apply<K>(&self, name: &str, spec: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "spec": spec,
        });
        let parameters = PatchParams::apply("test").force();
        let api = self.all::<K>(FLEET);
        api.patch(name, &parameters, &Patch::Apply(&object))
            .await
            .unwrap();
    }

    pub async fn until<K>(&self, name: &str, what: &str, wanted: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let api = self.all::<K>(FLEET);
        let mut last = None;
        for _ in 0..300 {
            last = api.get_opt(name).await.unwrap();
            if let Some(object) = last.as_ref().filter(|object| wanted(object)) {
                return object.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "{name}, {what}: {}",
            serde_json::to_string_pretty(&last).unwrap()
        );
    }

    pub async fn rollout(&self, what: &str, phase: RolloutPhase) -> Rollout {
        let is = |rollout: &Rollout| {
            rollout.status.as_ref().and_then(|status| status.phase) == Some(phase)
        };
        self.until::<Rollout>("all", what, is).await
    }

    /// The roll-out once its run has ended like that. Its own phase says so for no longer than until it is looked at again.
    pub async fn ended(&self, what: &str, phase: RolloutPhase) -> Rollout {
        let is = |rollout: &Rollout| {
            let status = rollout.status.as_ref();
            let run = status.and_then(|status| status.run.as_ref());
            let last = status.and_then(|status| status.history.first());
            run.is_some_and(|run| run.ended.is_some())
                && last.is_some_and(|last| last.phase == phase)
        };
        self.until::<Rollout>("all", what, is).await
    }

    /// The version of Kubernetes that each cluster is to have.
    pub async fn versions(&self) -> BTreeMap<String, String> {
        let clusters = Api::<Cluster>::all(self.client.clone());
        let clusters = clusters.list(&ListParams::default()).await.unwrap();
        let clusters = clusters.items.into_iter();
        clusters
            .map(|cluster| {
                let spec = serde_json::to_value(&cluster.spec).unwrap();
                let version = spec["kubernetesVersion"].as_str().unwrap_or_default();
                (cluster.name_any(), version.to_owned())
            })
            .collect()
    }

    pub async fn versions_of_objects(&self) -> Vec<String> {
        let clusters = Api::<Cluster>::all(self.client.clone());
        let clusters = clusters.list(&ListParams::default()).await.unwrap();
        let nodes = Api::<ClusterNode>::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.unwrap();
        let clusters = clusters.items.iter().map(ResourceExt::resource_version);
        let nodes = nodes.items.iter().map(ResourceExt::resource_version);
        clusters.chain(nodes).flatten().collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.operator.abort();
        self.kubespray.abort();
    }
}

pub fn operate(client: &Client) -> JoinHandle<Result<(), WatchesEnded>> {
    operate_with(client, false, Metrics::default())
}

/// Whose passes are counted.
pub fn operate_counted(client: &Client, metrics: Metrics) -> JoinHandle<Result<(), WatchesEnded>> {
    operate_with(client, false, metrics)
}

/// Where VaultSecrets are watched.
pub fn operate_beside_vault(client: &Client) -> JoinHandle<Result<(), WatchesEnded>> {
    operate_with(client, true, Metrics::default())
}

fn operate_with(
    client: &Client,
    vault: bool,
    metrics: Metrics,
) -> JoinHandle<Result<(), WatchesEnded>> {
    let settings = Settings {
        namespace: None,
        concurrency: 4,
        metrics,
        shutdown: Shutdown::default(),
    };
    let mut manager = Manager::new(client.clone(), settings);
    let options = fleet::Options {
        settle_after: Duration::from_millis(100),
        vault,
    };
    fleet::operate(&mut manager, options);
    tokio::spawn(manager.run())
}

/// What kubespray's operator says of clusters that come up at once, or not.
async fn kubespray(client: Client, play: Arc<Play>) {
    let all = Api::<Cluster>::all(client.clone());
    loop {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let Ok(clusters) = all.list(&ListParams::default()).await else {
            continue;
        };
        let mut at_work = BTreeMap::<String, usize>::new();
        for cluster in &clusters.items {
            let name = cluster.name_any();
            let is_seen = cluster
                .status
                .as_ref()
                .and_then(|status| status.observed_generation)
                == cluster.metadata.generation;
            let is_held = play.held.lock().unwrap().contains(&name);
            let is_ill = play.ill.lock().unwrap().contains(&name);
            let was_ready = cluster
                .status
                .as_ref()
                .is_some_and(|status| controller::conditions::is_true(&status.conditions, "Ready"));
            if !is_seen || !was_ready {
                *at_work.entry(name.chars().take(1).collect()).or_default() += 1;
            }
            if is_held || is_seen && was_ready != is_ill {
                continue;
            }
            let condition = |kind: &str, status: &str| {
                json!({
                    "type": kind, "status": status, "reason": "Play", "message": "the play says so",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            };
            let conditions = if is_ill {
                vec![condition("Ready", "False"), condition("Stalled", "True")]
            } else {
                vec![condition("Ready", "True")]
            };
            let status = json!({"observedGeneration": cluster.metadata.generation, "conditions": conditions});
            put_status::<Cluster>(&client, &cluster.namespace().unwrap(), &name, status).await;
        }
        let nodes = Api::<ClusterNode>::all(client.clone());
        for node in nodes
            .list(&ListParams::default())
            .await
            .into_iter()
            .flatten()
        {
            if node.status.is_none() {
                let namespace = node.namespace().unwrap();
                put_status::<ClusterNode>(
                    &client,
                    &namespace,
                    &node.name_any(),
                    json!({"state": "Joined"}),
                )
                .await;
            }
        }
        let mut most = play.most.lock().unwrap();
        for (site, count) in at_work {
            let known = most.entry(site).or_default();
            *known = count.max(*known);
        }
    }
}

async fn put_status<K>(client: &Client, namespace: &str, name: &str, status: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let body = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "status": status,
    });
    let parameters = PatchParams::apply("play").force();
    let api = Api::<K>::namespaced(client.clone(), namespace);
    // It may be gone by now.
    let _ = api
        .patch_status(name, &parameters, &Patch::Apply(&body))
        .await;
}

pub fn environment(version: &str) -> Value {
    json!({"template": "kubespray", "values": {"kubernetes": {"version": version}}})
}

pub fn template() -> Value {
    json!({"backEnd": "Kubespray", "documents": [
        {"object": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{{ cluster.name }}"}}},
        {"object": {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "{{ cluster.name }}", "namespace": "{{ cluster.name }}"},
            "spec": {
                "kubernetesVersion": "{{ kubernetes.version }}",
                "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
                "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
            },
        }},
        {"forEach": {"values": "nodes", "as": "node"}, "object": {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": "{{ key }}", "namespace": "{{ cluster.name }}"},
            "spec": {"type": "{{ node.type | default('worker') }}", "inventory": {"ansible_host": "{{ node.address }}"}},
        }},
    ]})
}

pub async fn inventory(world: &World) {
    world
        .apply::<api::inventory::Hierarchy>(
            "default",
            json!({"levels": [
                {"name": "environment", "kind": "Environment"}, {"name": "site", "kind": "Site"},
            ]}),
        )
        .await;
    world
        .apply::<api::inventory::Environment>("production", environment("1.34.3"))
        .await;
    for site in ["a", "b", "c"] {
        world
            .apply::<api::inventory::Site>(site, json!({"parents": {"environment": "production"}}))
            .await;
    }
    world
        .apply::<api::inventory::ClusterTemplate>("kubespray", template())
        .await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.apply::<FleetCluster>(name, cluster(name)).await;
    }
}

pub fn cluster(name: &str) -> Value {
    let site: String = name.chars().take(1).collect();
    json!({"parents": {"site": site}, "values": {"nodes": {
        (format!("{name}-m")): {"address": "10.0.0.1", "type": "master"},
        (format!("{name}-w")): {"address": "10.0.0.2"},
    }}})
}

pub fn status(cluster: &FleetCluster) -> api::inventory::FleetClusterStatus {
    cluster.status.clone().unwrap_or_default()
}

pub fn is_ready(cluster: &FleetCluster) -> bool {
    controller::conditions::is_true(&status(cluster).conditions, "Ready")
}
