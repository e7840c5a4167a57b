//! The inventories of namespaces, as their objects were seen last, rendered once for all that ask.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use api::inventory::{
    ClusterTemplate, Customer, Environment, FleetCluster, FleetClusterSpec, Hierarchy,
    InfraProvider, Site,
};
use controller::{Manager, stream::in_namespace, watch::Kind};
use futures::FutureExt;
use inventory::{Fleet, Memo, Object, Problem, Problems};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, core::DeserializeGuard, runtime::reflector::Store};
use serde_json::Value;

/// For how long an inventory must be at rest before a roll-out of it begins: objects that are applied together come one by one.
pub const AT_REST: Duration = Duration::from_secs(2);

/// The objects of inventories.
pub struct Inventories {
    hierarchies: Store<DeserializeGuard<Hierarchy>>,
    environments: Store<DeserializeGuard<Environment>>,
    customers: Store<DeserializeGuard<Customer>>,
    sites: Store<DeserializeGuard<Site>>,
    infra_providers: Store<DeserializeGuard<InfraProvider>>,
    templates: Store<DeserializeGuard<ClusterTemplate>>,
    clusters: Store<DeserializeGuard<FleetCluster>>,
    config_maps: Store<DeserializeGuard<ConfigMap>>,
    known: Mutex<HashMap<String, Arc<Inventory>>>,
}

/// The inventory of a namespace at a moment.
pub struct Inventory {
    versions: Vec<String>,
    specs: Specs,
    read: Result<Fleet, Problems>,
    namespace: String,
    rendered: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Outcome>>>>>,
    /// That of the inventory before too: an edit renders those clusters that it concerns.
    memo: Arc<Mutex<Memo<Arc<Outcome>>>>,
    since: Instant,
    /// What clusters inherit from, if it can be kept.
    sources: Option<Sources>,
}

/// The clusters, by version: what was not edited is the same in the next inventory, and so is not compared.
type Specs = HashMap<String, Arc<FleetClusterSpec>>;

/// What clusters inherit from: all objects of an inventory but the clusters.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The digest of the objects.
    pub revision: String,
    /// The objects, in an order of their own.
    pub objects: Vec<Value>,
}

/// What a cluster is rendered to, or why it is not.
pub type Outcome = Result<Revision, Problems>;

/// What a cluster is rendered to.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Its name.
    pub name: String,
    /// The objects, in the order of the template.
    pub objects: Vec<Value>,
    /// The objects that it inherits from: level, then name.
    pub levels: BTreeMap<String, String>,
}

impl Inventories {
    /// Of what the manager watches.
    pub fn new(manager: &mut Manager) -> Self {
        Self {
            hierarchies: manager.watch::<Hierarchy>().store(),
            environments: manager.watch::<Environment>().store(),
            customers: manager.watch::<Customer>().store(),
            sites: manager.watch::<Site>().store(),
            infra_providers: manager.watch::<InfraProvider>().store(),
            templates: manager.watch::<ClusterTemplate>().store(),
            clusters: manager.watch::<FleetCluster>().store(),
            config_maps: manager
                .watch_labelled::<ConfigMap>(api::inventory::LEVEL_LABEL)
                .store(),
            known: Mutex::default(),
        }
    }

    /// The inventory of a namespace. None: not all of it has been seen, and one object that is missing changes everything.
    pub fn of(&self, namespace: &str) -> Option<Arc<Inventory>> {
        let mut objects = Objects::default();
        objects.add(&self.hierarchies, namespace)?;
        objects.add(&self.environments, namespace)?;
        objects.add(&self.customers, namespace)?;
        objects.add(&self.sites, namespace)?;
        objects.add(&self.infra_providers, namespace)?;
        objects.add(&self.templates, namespace)?;
        objects.add(&self.config_maps, namespace)?;
        self.clusters.wait_until_ready().now_or_never()?.ok()?;
        let clusters = in_namespace(&self.clusters, namespace);
        let mut versions = objects.versions;
        versions.extend(clusters.iter().map(|cluster| version(cluster)));
        versions.extend(changed(&clusters));
        versions.sort();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inventory) = known.get(namespace)
            && inventory.versions == versions
        {
            return Some(Arc::clone(inventory));
        }
        let shared: Vec<_> = objects.values.into_iter().map(|value| value()).collect();
        let sources = Sources::of(&shared).kept();
        let before = known.get(namespace);
        let mut specs = Specs::new();
        // What is wrong with the others is told as of all objects.
        let unreadable = clusters.iter().filter(|cluster| cluster.0.is_err());
        let unreadable: Vec<_> = unreadable.map(|cluster| value(cluster)).collect();
        let mut read = Fleet::read(shared.into_iter().chain(unreadable), namespace);
        if let Ok(fleet) = &mut read {
            for cluster in &clusters {
                let Ok(readable) = &cluster.0 else { continue };
                let version = version(cluster);
                let spec = before.and_then(|before| before.specs.get(&version));
                let spec = spec.map_or_else(|| Arc::new(readable.spec.clone()), Arc::clone);
                let named = object(namespace, &readable.name_any());
                fleet.add_cluster(&named, Arc::clone(&spec), told_of(readable).collect());
                specs.insert(version, spec);
            }
        }
        let memo = before.map(|before| Arc::clone(&before.memo));
        let memo = memo.unwrap_or_default();
        if let Ok(fleet) = &read {
            let mut memo = memo.lock().unwrap_or_else(PoisonError::into_inner);
            memo.retain(fleet);
        }
        let inventory = Arc::new(Inventory {
            sources,
            read,
            memo,
            versions,
            specs,
            namespace: namespace.to_owned(),
            rendered: Mutex::default(),
            since: Instant::now(),
        });
        known.insert(namespace.to_owned(), Arc::clone(&inventory));
        Some(inventory)
    }
}

impl Inventory {
    /// What a cluster of it is rendered to.
    pub fn render(&self, cluster: &str) -> Arc<Outcome> {
        let place = {
            let mut rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
            let place = rendered.entry(cluster.to_owned()).or_default();
            Arc::clone(place)
        };
        // Whoever asks for another cluster does not wait for this one.
        Arc::clone(place.get_or_init(|| self.rendered(cluster)))
    }

    /// Renders clusters where that may take its time, so that all other passes go on meanwhile.
    pub async fn prepare(self: &Arc<Self>, mut clusters: Vec<String>) {
        {
            let rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
            let is_known =
                |cluster: &String| rendered.get(cluster).is_some_and(|it| it.get().is_some());
            clusters.retain(|cluster| !is_known(cluster));
        }
        if clusters.is_empty() {
            return;
        }
        let inventory = Arc::clone(self);
        let rendering = tokio::task::spawn_blocking(move || {
            for cluster in clusters {
                inventory.render(&cluster);
            }
        });
        if let Err(error) = rendering.await {
            tracing::error!(%error, "clusters were not rendered");
        }
    }

    /// For how much longer it must be left alone before it is at rest.
    pub fn unrest(&self) -> Duration {
        AT_REST.saturating_sub(self.since.elapsed())
    }

    /// What its clusters inherit from. None: it is too large to be kept.
    pub const fn sources(&self) -> Option<&Sources> {
        self.sources.as_ref()
    }

    /// What a cluster of it would be rendered to if it inherited from these. An object that they do not have counts as it is now: it may
    /// have come together with the cluster.
    ///
    /// # Errors
    ///
    /// It cannot be rendered from them.
    pub fn render_from(&self, sources: &[Value], cluster: &FleetCluster) -> Outcome {
        let known: BTreeSet<_> = sources.iter().map(identity).collect();
        let now = self.sources.iter().flat_map(|sources| &sources.objects);
        let new = now.filter(|object| !known.contains(&identity(object)));
        let own = value(&DeserializeGuard(Ok(cluster.clone())));
        let values = sources.iter().chain(new).cloned().chain([own]);
        let fleet = Fleet::read(values, &self.namespace)?;
        render(&fleet, &self.cluster(&cluster.name_any()))
    }

    fn rendered(&self, cluster: &str) -> Arc<Outcome> {
        let fleet = match &self.read {
            Ok(fleet) => fleet,
            Err(problems) => return Arc::new(Err(problems.clone())),
        };
        let cluster = self.cluster(cluster);
        let memo = || self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = memo().get(fleet, &cluster) {
            return outcome;
        }
        let outcome = Arc::new(render(fleet, &cluster));
        memo().put(fleet, &cluster, Arc::clone(&outcome));
        outcome
    }

    fn cluster(&self, name: &str) -> Object {
        object(&self.namespace, name)
    }
}

fn object(namespace: &str, name: &str) -> Object {
    Object {
        kind: "FleetCluster".into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

impl Sources {
    fn of(objects: &[Value]) -> Self {
        let mut objects: Vec<_> = objects.iter().map(plain).collect();
        objects.sort_by_cached_key(identity);
        Self {
            revision: inventory::revision(&objects),
            objects,
        }
    }

    fn kept(self) -> Option<Self> {
        let size = serde_json::to_vec(&self.objects).map_or(usize::MAX, |text| text.len());
        (size <= crate::names::LARGEST_RECORD).then_some(self)
    }
}

/// An object without what an API adds to it.
fn plain(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut plain = object.clone();
    plain["metadata"] = serde_json::json!({"name": metadata["name"]});
    for key in ["namespace", "labels"] {
        if !metadata[key].is_null() {
            plain["metadata"][key] = metadata[key].clone();
        }
    }
    if let Some(plain) = plain.as_object_mut() {
        plain.remove("status");
    }
    plain
}

/// Which object it is, in its namespace.
fn identity(object: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn render(fleet: &Fleet, cluster: &Object) -> Outcome {
    let rendered = fleet.render(cluster)?;
    let levels = rendered.resolved.levels.iter();
    let levels = levels.map(|source| (source.level.clone(), source.object.name.clone()));
    let objects = rendered.objects();
    Ok(Revision {
        name: inventory::revision(&objects),
        levels: levels.collect(),
        objects,
    })
}

/// Objects of a namespace, as values that are made when they are needed.
#[derive(Default)]
struct Objects {
    versions: Vec<String>,
    values: Vec<Box<dyn FnOnce() -> Value>>,
}

impl Objects {
    fn add<K: Kind + serde::Serialize>(
        &mut self,
        store: &Store<DeserializeGuard<K>>,
        namespace: &str,
    ) -> Option<()> {
        store.wait_until_ready().now_or_never()?.ok()?;
        for object in in_namespace(store, namespace) {
            let meta = kube::Resource::meta(&*object);
            let version = match meta.generation {
                Some(generation) => generation.to_string(),
                None => meta.resource_version.clone().unwrap_or_default(),
            };
            let uid = meta.uid.clone().unwrap_or_default();
            self.versions.push(format!("{uid} {version}"));
            self.values.push(Box::new(move || value(&object)));
        }
        Some(())
    }
}

/// Which content of an object it is.
fn version<K: Kind>(object: &DeserializeGuard<K>) -> String {
    let meta = kube::Resource::meta(object);
    // A ConfigMap has no generation.
    let version = match meta.generation {
        Some(generation) => generation.to_string(),
        None => meta.resource_version.clone().unwrap_or_default(),
    };
    format!("{} {version}", meta.uid.as_deref().unwrap_or_default())
}

/// What the status of each cluster says of secrets that have changed, which is no change of its generation.
fn changed(clusters: &[Arc<DeserializeGuard<FleetCluster>>]) -> Vec<String> {
    let clusters = clusters
        .iter()
        .filter_map(|cluster| cluster.0.as_ref().ok());
    let secrets = clusters.flat_map(|cluster| {
        let uid = cluster.uid().unwrap_or_default();
        told_of(cluster).map(move |(name, told)| format!("{uid} {name} {told}"))
    });
    secrets.collect()
}

/// The secrets that have changed by what a cluster's status says, and what templates tell of each.
fn told_of(cluster: &FleetCluster) -> impl Iterator<Item = (String, String)> {
    let secrets = cluster.status.iter().flat_map(|status| &status.secrets);
    secrets.filter_map(|secret| Some((secret.name.clone(), secret.told.clone()?)))
}

/// An object as it would stand in a file. One that cannot be read is handed on as far as it can: reading it says what is wrong.
fn value<K: Kind + serde::Serialize>(object: &DeserializeGuard<K>) -> Value {
    let mut value = match &object.0 {
        Ok(object) => serde_json::to_value(object).unwrap_or_default(),
        Err(invalid) => serde_json::json!({
            "metadata": {"name": invalid.metadata.name, "namespace": invalid.metadata.namespace},
            "spec": invalid.error,
        }),
    };
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    value
}

/// One problem, as a status tells it.
pub fn told(problem: &Problem) -> api::inventory::FleetProblem {
    let (message, remedy) = problem.rule.halves();
    let limited = |text: &str, limit| api::text::plain(text, limit);
    let path = problem.path.to_string();
    api::inventory::FleetProblem {
        level: problem.level.clone(),
        object: limited(&problem.object.to_string(), 500),
        path: (!path.is_empty()).then(|| limited(&path, 1000)),
        rule: problem.rule.name().to_owned(),
        message: limited(&message, 1000),
        remedy: limited(&remedy, 1000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        let mut object = json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "fleet", "resourceVersion": "7"}, "status": {},
        });
        object["spec"] = spec;
        object
    }

    /// What clusters inherit from where all have this version, and these sites.
    fn shared(version: &str, sites: &[&str]) -> Vec<Value> {
        let levels = json!({"levels": [
            {"name": "environment", "kind": "Environment"}, {"name": "site", "kind": "Site"},
        ]});
        let template = json!({"backEnd": "Plain", "documents": [{"object": {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "{{ cluster.name }}"}, "spec": {"topology": {"version": "{{ version }}"}},
        }}]});
        let environment = json!({"template": "plain", "values": {"version": version}});
        let mut all = vec![
            object("Hierarchy", "default", levels),
            object("ClusterTemplate", "plain", template),
            object("Environment", "production", environment),
        ];
        let parents = || json!({"parents": {"environment": "production"}});
        all.extend(sites.iter().map(|site| object("Site", site, parents())));
        all
    }

    fn inventory(shared: Vec<Value>) -> Inventory {
        Inventory {
            versions: Vec::new(),
            specs: Specs::new(),
            sources: Sources::of(&shared).kept(),
            read: Fleet::read(shared, "fleet"),
            memo: Arc::default(),
            namespace: "fleet".to_owned(),
            rendered: Mutex::default(),
            since: Instant::now(),
        }
    }

    #[test]
    fn a_cluster_is_rendered_from_what_there_was_and_from_what_came_with_it() {
        let before = inventory(shared("v1.34.1", &["a"]));
        let before = &before.sources().unwrap().objects;
        let now = inventory(shared("v1.35.0", &["a", "b"]));
        for site in ["a", "b"] {
            let cluster = object("FleetCluster", "shop", json!({"parents": {"site": site}}));
            let cluster: FleetCluster = serde_json::from_value(cluster).unwrap();
            let version = |outcome: Outcome| {
                let revision = outcome.unwrap();
                revision.objects[0]["spec"]["topology"]["version"].clone()
            };
            assert_eq!(version(now.render_from(before, &cluster)), "v1.34.1");
            let latest = &now.sources().unwrap().objects;
            assert_eq!(version(now.render_from(latest, &cluster)), "v1.35.0");
        }
    }

    #[test]
    fn the_digest_of_what_is_inherited_is_of_what_people_wrote() {
        let digest = |objects: &[Value]| Sources::of(objects).revision;
        let mut seen = shared("v1", &["a", "b"]);
        let written = digest(&seen);
        seen.reverse();
        seen[0]["metadata"]["resourceVersion"] = json!("8");
        seen[0]["status"] = json!({"conditions": []});
        assert_eq!(digest(&seen), written);
        assert_ne!(digest(&shared("v2", &["a", "b"])), written);
        let large = "x".repeat(crate::names::LARGEST_RECORD);
        assert!(Sources::of(&shared(&large, &["a"])).kept().is_none());
    }
}
