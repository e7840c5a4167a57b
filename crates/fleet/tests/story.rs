//! A fleet on the embedded API: born, edited, rolled out, halted by its canary, mended, and its operator killed on the way. The clusters
//! are kubespray `Cluster`s without hosts, whose conditions are written as their operator would.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{
    Cluster, ClusterNode,
    inventory::{FleetCluster, MemberPhase, Rollout, RolloutPhase},
};
use controller::{Manager, Metrics, Shutdown, WatchesEnded, manager::Settings};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const FLEET: &str = "fleet";

struct World {
    client: Client,
    operator: JoinHandle<Result<(), WatchesEnded>>,
    kubespray: JoinHandle<()>,
    play: Arc<Play>,
}

/// How the clusters behave.
#[derive(Default)]
struct Play {
    /// Those that stay at work.
    held: Mutex<BTreeSet<String>>,
    /// Those that stall.
    ill: Mutex<BTreeSet<String>>,
    /// The most of each site that were at work at once, since it was emptied.
    most: Mutex<BTreeMap<String, usize>>,
}

impl World {
    async fn start() -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(api::inventory::definitions());
        let server = kapi::Server::in_memory(&kinds).await.unwrap();
        let client = Client::new(server.router(), "default");
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": FLEET}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let play = Arc::new(Play::default());
        Self {
            operator: operate(&client),
            kubespray: tokio::spawn(kubespray(client.clone(), Arc::clone(&play))),
            client,
            play,
        }
    }

    /// Ends the operator as a kill does: wherever it is.
    async fn kill(&mut self) {
        self.operator.abort();
        let ended = (&mut self.operator).await;
        assert!(ended.unwrap_err().is_cancelled());
    }

    fn all<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn apply<K>(&self, name: &str, spec: Value)
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

    async fn until<K>(&self, name: &str, what: &str, wanted: impl Fn(&K) -> bool) -> K
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

    async fn rollout(&self, what: &str, phase: RolloutPhase) -> Rollout {
        let is = |rollout: &Rollout| {
            rollout.status.as_ref().and_then(|status| status.phase) == Some(phase)
        };
        self.until::<Rollout>("all", what, is).await
    }

    /// The version of Kubernetes that each cluster is to have.
    async fn versions(&self) -> BTreeMap<String, String> {
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

    async fn versions_of_objects(&self) -> Vec<String> {
        let clusters = Api::<Cluster>::all(self.client.clone());
        let clusters = clusters.list(&ListParams::default()).await.unwrap();
        let nodes = Api::<ClusterNode>::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.unwrap();
        let clusters = clusters
            .items
            .iter()
            .map(|object| object.resource_version());
        let nodes = nodes.items.iter().map(|object| object.resource_version());
        clusters.chain(nodes).flatten().collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.operator.abort();
        self.kubespray.abort();
    }
}

fn operate(client: &Client) -> JoinHandle<Result<(), WatchesEnded>> {
    let settings = Settings {
        namespace: None,
        concurrency: 4,
        metrics: Metrics::default(),
        shutdown: Shutdown::default(),
    };
    let mut manager = Manager::new(client.clone(), settings);
    fleet::operate(&mut manager);
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
            put_status::<Cluster>(&client, &name, &name, status).await;
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

fn environment(version: &str) -> Value {
    json!({"template": "kubespray", "values": {"kubernetes": {"version": version}}})
}

fn template() -> Value {
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

async fn inventory(world: &World) {
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

fn cluster(name: &str) -> Value {
    let site: String = name.chars().take(1).collect();
    json!({"parents": {"site": site}, "values": {"nodes": {
        (format!("{name}-m")): {"address": "10.0.0.1", "type": "master"},
        (format!("{name}-w")): {"address": "10.0.0.2"},
    }}})
}

const ALL: [&str; 5] = ["a1", "a2", "b1", "b2", "c1"];

fn member(rollout: &Rollout, name: &str) -> MemberPhase {
    let run = rollout
        .status
        .as_ref()
        .and_then(|status| status.run.as_ref());
    let members = run.into_iter().flat_map(|run| &run.clusters);
    members
        .filter(|member| member.name == name)
        .map(|member| member.phase)
        .next()
        .unwrap_or_default()
}

fn status(cluster: &FleetCluster) -> api::inventory::FleetClusterStatus {
    cluster.status.clone().unwrap_or_default()
}

fn is_ready(cluster: &FleetCluster) -> bool {
    controller::conditions::is_true(&status(cluster).conditions, "Ready")
}

fn all_at(version: &str) -> BTreeMap<String, String> {
    ALL.map(|name| (name.to_owned(), version.to_owned())).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_of_an_inventory_is_rolled_out_behind_a_canary() {
    let mut world = World::start().await;
    inventory(&world).await;
    for name in ALL {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    assert_eq!(world.versions().await, all_at("1.34.3"));

    // An edit is shown, and nothing follows.
    world
        .apply::<api::inventory::Environment>("production", environment("1.34.4"))
        .await;
    for name in ALL {
        let shown = world
            .until::<FleetCluster>(name, "shown", |cluster| status(cluster).pending.is_some())
            .await;
        let changes = status(&shown).pending.unwrap().changes;
        assert_eq!(
            changes,
            [format!(
                "Cluster/{name} spec.kubernetesVersion: \"1.34.3\" -> \"1.34.4\""
            )]
        );
        assert!(is_ready(&shown));
    }
    assert_eq!(world.versions().await, all_at("1.34.3"));

    // A roll-out begins with a canary, which takes its time; its operator dies meanwhile.
    world.play.held.lock().unwrap().insert("a1".to_owned());
    world
        .apply::<Rollout>("all", json!({"soak": "1s", "parallel": 3}))
        .await;
    world
        .until::<Rollout>("all", "begun", |rollout| {
            member(rollout, "a1") == MemberPhase::Updating
        })
        .await;
    world
        .until::<FleetCluster>("a1", "written", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered && status.pending.is_none()
        })
        .await;
    world.kill().await;
    world.operator = operate(&world.client);
    let mut canary = all_at("1.34.3");
    canary.insert("a1".to_owned(), "1.34.4".to_owned());
    assert_eq!(world.versions().await, canary);

    // The canary fails: nothing else is begun.
    world.play.ill.lock().unwrap().insert("a1".to_owned());
    world.play.held.lock().unwrap().clear();
    let halted = world.rollout("halted", RolloutPhase::Halted).await;
    let waits = halted.status.as_ref().unwrap().waits.clone().unwrap();
    assert!(
        waits.contains("the canary a1 failed") && waits.contains("the play says so"),
        "{waits}"
    );
    assert_eq!(world.versions().await, canary);

    // Another edit takes its place, and goes through: never two of a site at once.
    world.play.most.lock().unwrap().clear();
    let failed = status(&world.until::<FleetCluster>("a1", "failed", |_| true).await).applied;
    world
        .apply::<api::inventory::Environment>("production", environment("1.34.5"))
        .await;
    world
        .until::<FleetCluster>("a1", "begun anew", |cluster| {
            let status = status(cluster);
            status.applied == status.rendered && status.applied != failed
        })
        .await;
    world.play.ill.lock().unwrap().clear();
    // Killed once more, in the middle.
    world
        .until::<Rollout>("all", "past its canary", |rollout| {
            member(rollout, "a1") == MemberPhase::Done
        })
        .await;
    world.kill().await;
    world.operator = operate(&world.client);
    let done = world.rollout("ended", RolloutPhase::Succeeded).await;
    assert_eq!(world.versions().await, all_at("1.34.5"));
    let most = world.play.most.lock().unwrap().clone();
    assert!(most.values().all(|count| *count == 1), "{most:?}");
    let history: Vec<_> = done
        .status
        .unwrap()
        .history
        .iter()
        .map(|record| (record.phase, record.done))
        .collect();
    assert_eq!(
        history,
        [(RolloutPhase::Succeeded, 5), (RolloutPhase::Superseded, 0)]
    );

    // What renders to the same writes nothing.
    let before = world.versions_of_objects().await;
    let mut unused = environment("1.34.5");
    unused["values"]["unused"] = json!(true);
    world
        .apply::<api::inventory::Environment>("production", unused)
        .await;
    // What cannot be rendered writes nothing either, and says what to change.
    world
        .apply::<FleetCluster>("c1", json!({"parents": {"site": "nowhere"}}))
        .await;
    let broken = world
        .until::<FleetCluster>("c1", "refused", |cluster| {
            !status(cluster).problems.is_empty()
        })
        .await;
    let problem = status(&broken).problems[0].clone();
    assert_eq!(
        (
            problem.level.as_deref(),
            problem.object.as_str(),
            problem.path.as_deref(),
            problem.rule.as_str()
        ),
        (
            Some("cluster"),
            "FleetCluster/fleet/c1",
            Some("spec.parents.site"),
            "NotThere"
        )
    );
    assert!(problem.remedy.contains("a, b, c"), "{problem:?}");
    assert_eq!(world.versions_of_objects().await, before);

    // A host that leaves the values leaves the cluster, by the roll-out and not before.
    let mut smaller = cluster("c1");
    smaller["values"]["nodes"] = json!({"c1-m": {"address": "10.0.0.1", "type": "master"}});
    world.apply::<FleetCluster>("c1", smaller).await;
    world
        .until::<Rollout>("all", "began with c1 alone", |rollout| {
            let run = rollout
                .status
                .as_ref()
                .and_then(|status| status.run.as_ref());
            run.is_some_and(|run| run.clusters.len() == 1 && run.ended.is_some())
        })
        .await;
    assert!(
        world
            .all::<ClusterNode>("c1")
            .get_opt("c1-w")
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .all::<ClusterNode>("c1")
            .get_opt("c1-m")
            .await
            .unwrap()
            .is_some()
    );
}
