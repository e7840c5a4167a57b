//! The inventories of namespaces, as their objects were seen last, rendered once for all that ask.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use api::inventory::{
    ClusterTemplate, Customer, Environment, FleetCluster, Hierarchy, InfraProvider, Site,
};
use controller::{Manager, stream::in_namespace, watch::Kind};
use futures::FutureExt;
use inventory::{Fleet, Memo, Object, Problem, Problems};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{core::DeserializeGuard, runtime::reflector::Store};
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
    read: Result<Fleet, Problems>,
    namespace: String,
    rendered: Mutex<BTreeMap<String, Arc<Outcome>>>,
    /// That of the inventory before too: an edit renders those clusters that it concerns.
    memo: Arc<Mutex<Memo<Arc<Outcome>>>>,
    since: Instant,
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
    /// What the template says that they are.
    pub back_end: api::inventory::BackEnd,
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
        objects.add(&self.clusters, namespace)?;
        objects.add(&self.config_maps, namespace)?;
        objects.versions.sort();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inventory) = known.get(namespace)
            && inventory.versions == objects.versions
        {
            return Some(Arc::clone(inventory));
        }
        let values = objects.values.into_iter().map(|value| value());
        let read = Fleet::read(values, namespace);
        let memo = known.get(namespace).map(|before| Arc::clone(&before.memo));
        let memo = memo.unwrap_or_default();
        if let Ok(fleet) = &read {
            let mut memo = memo.lock().unwrap_or_else(PoisonError::into_inner);
            memo.retain(fleet);
        }
        let inventory = Arc::new(Inventory {
            read,
            memo,
            versions: objects.versions,
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
        let mut rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = rendered
            .entry(cluster.to_owned())
            .or_insert_with(|| self.rendered(cluster));
        Arc::clone(outcome)
    }

    /// For how much longer it must be left alone before it is at rest.
    pub fn unrest(&self) -> Duration {
        AT_REST.saturating_sub(self.since.elapsed())
    }

    fn rendered(&self, cluster: &str) -> Arc<Outcome> {
        let fleet = match &self.read {
            Ok(fleet) => fleet,
            Err(problems) => return Arc::new(Err(problems.clone())),
        };
        let cluster = Object {
            kind: "FleetCluster".into(),
            namespace: self.namespace.clone(),
            name: cluster.into(),
        };
        let mut memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        memo.render(fleet, &cluster, || Arc::new(render(fleet, &cluster)))
    }
}

fn render(fleet: &Fleet, cluster: &Object) -> Outcome {
    let rendered = fleet.render(cluster)?;
    let levels = rendered.resolved.levels.iter();
    let levels = levels.map(|source| (source.level.clone(), source.object.name.clone()));
    let objects = rendered.objects();
    Ok(Revision {
        name: inventory::revision(&objects),
        back_end: rendered.back_end(),
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
            // A ConfigMap has no generation.
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
