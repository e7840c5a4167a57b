//! All objects of an inventory, read and checked by themselves.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use api::inventory::{
    ClusterTemplate, Customer, Environment, FleetCluster, FleetClusterSpec, GROUP, Hierarchy,
    InfraProvider, LEVEL_LABEL, LevelKind, Rollout, Settings, Site, ValuePath, WaveApproval,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    chain::Prefix,
    memo::{Named, Reads},
    order::Order,
    problem::{Object, Problem, Problems, Rule},
    render::digest,
    template::Compiled,
};

/// The inventory: every object of it, by namespace and name. It never changes; a change of the files is another inventory.
#[derive(Debug, Default)]
pub struct Fleet {
    pub(crate) orders: BTreeMap<Name, Arc<Order>>,
    pub(crate) layers: BTreeMap<(String, Slot, String), Layer>,
    pub(crate) clusters: BTreeMap<Name, Arc<FleetClusterSpec>>,
    pub(crate) templates: BTreeMap<Name, Arc<Compiled>>,
    /// Digests of values in Vault that have changed and for which machines of a cluster are replaced, by VaultSecret and key.
    pub(crate) changed: BTreeMap<Name, Arc<Changed>>,
    /// Digests of what objects say, but of clusters.
    pub(crate) contents: HashMap<Object, Arc<str>>,
    /// What the levels above clusters come to, by the Hierarchy and the objects.
    pub(crate) prefixes: Mutex<HashMap<(Name, Vec<Object>), Remembered>>,
    /// The objects that clusters read which name these, where all of them are there.
    reads: Mutex<HashMap<Named, Option<Reads>>>,
}

/// What levels come to, or what is wrong with them.
pub(crate) type Remembered = Result<Arc<Prefix>, Vec<Problem>>;

/// Digests of values that have changed, by VaultSecret and key.
pub(crate) type Changed = BTreeMap<String, String>;

/// Namespace and name.
pub(crate) type Name = (String, String);

/// Where an object of a level stands, whatever the levels are called.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Slot {
    /// By its kind.
    Kind(LevelKind),
    /// By its label.
    Label(String),
}

/// An object of a level.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) object: Object,
    pub(crate) settings: Settings,
}

impl Fleet {
    /// Reads the objects of an inventory. Objects without a namespace are of `namespace`; those of other groups are not of the
    /// inventory and left alone.
    ///
    /// # Errors
    /// Everything that is wrong with an object by itself.
    pub fn read(
        objects: impl IntoIterator<Item = Value>,
        namespace: &str,
    ) -> Result<Self, Problems> {
        let mut fleet = Self::default();
        let mut problems = Vec::new();
        for object in objects {
            if let Err(mut found) = fleet.add(object, namespace) {
                problems.append(&mut found);
            }
        }
        if problems.is_empty() {
            Ok(fleet)
        } else {
            Err(Problems(problems))
        }
    }

    /// Adds a cluster that was read before: from one inventory to the next most are the same, and are told by that.
    pub fn add_cluster(
        &mut self,
        cluster: &Object,
        spec: Arc<FleetClusterSpec>,
        changed: BTreeMap<String, String>,
    ) {
        let name = (cluster.namespace.clone(), cluster.name.clone());
        if !changed.is_empty() {
            self.changed.insert(name.clone(), Arc::new(changed));
        }
        self.clusters.insert(name, spec);
    }

    /// The clusters, by namespace and name.
    pub fn clusters(&self) -> impl Iterator<Item = Object> {
        self.clusters.keys().map(|(namespace, name)| Object {
            kind: "FleetCluster".into(),
            namespace: namespace.clone(),
            name: name.clone(),
        })
    }

    fn add(&mut self, mut value: Value, namespace: &str) -> Result<(), Vec<Problem>> {
        let object = identity(&value, namespace);
        let group = value["apiVersion"].as_str().unwrap_or_default().to_owned();
        let status = value.as_object_mut();
        let status = status.and_then(|fields| fields.remove("status"));
        if group == "v1" && object.kind == "ConfigMap" {
            return match level_of(&value) {
                Some(level) => {
                    self.note(&object, &value);
                    self.add_config_map(object, level, &value)
                }
                None => Ok(()),
            };
        }
        if !group.starts_with(&format!("{GROUP}/")) {
            return Ok(());
        }
        if group != format!("{GROUP}/v1alpha1") {
            return Err(unknown(&object));
        }
        self.note(&object, &value);
        let name = (object.namespace.clone(), object.name.clone());
        match object.kind.as_str() {
            "Environment" => {
                let spec = typed::<Environment>(&object, value)?.spec;
                self.add_layer(object, Slot::Kind(LevelKind::Environment), spec.into())
            }
            "Customer" => {
                let spec = typed::<Customer>(&object, value)?.spec;
                self.add_layer(object, Slot::Kind(LevelKind::Customer), spec.into())
            }
            "Site" => {
                let spec = typed::<Site>(&object, value)?.spec;
                self.add_layer(object, Slot::Kind(LevelKind::Site), spec.into())
            }
            "InfraProvider" => {
                let spec = typed::<InfraProvider>(&object, value)?.spec;
                self.add_layer(object, Slot::Kind(LevelKind::InfraProvider), spec.into())
            }
            "Hierarchy" => {
                let spec = typed::<Hierarchy>(&object, value)?.spec;
                let order = Order::read(&object, spec).map_err(|problem| vec![problem])?;
                once(&object, self.orders.insert(name, Arc::new(order)).is_some())
            }
            "FleetCluster" => {
                let spec = typed::<FleetCluster>(&object, value)?.spec;
                let changed = changed(status.as_ref());
                if !changed.is_empty() {
                    self.changed.insert(name.clone(), Arc::new(changed));
                }
                once(
                    &object,
                    self.clusters.insert(name, Arc::new(spec)).is_some(),
                )
            }
            "ClusterTemplate" => {
                let spec = typed::<ClusterTemplate>(&object, value)?.spec;
                let compiled = Compiled::read(&object, spec)?;
                once(
                    &object,
                    self.templates.insert(name, Arc::new(compiled)).is_some(),
                )
            }
            // How changes come to clusters is no part of what they are.
            "Rollout" => typed::<Rollout>(&object, value).map(drop),
            "WaveApproval" => typed::<WaveApproval>(&object, value).map(drop),
            "FleetRevision" => Ok(()),
            _ => Err(unknown(&object)),
        }
    }

    /// Keeps a digest of what clusters may read of an object. A cluster is read by itself alone, and compared whole.
    fn note(&mut self, object: &Object, value: &Value) {
        if !matches!(
            object.kind.as_str(),
            "FleetCluster" | "FleetRevision" | "Rollout" | "WaveApproval"
        ) {
            let says = json!([value["spec"], value["data"]]);
            self.contents.insert(object.clone(), digest(&says).into());
        }
    }

    fn add_layer(
        &mut self,
        object: Object,
        slot: Slot,
        settings: Settings,
    ) -> Result<(), Vec<Problem>> {
        if let Some(lock) = settings.locks.iter().find(|lock| !lock.is_of_keys()) {
            return Err(vec![Problem {
                object,
                level: None,
                path: field(&["spec", "final"]),
                rule: Rule::Reserved {
                    what: format!("{lock} names an entry of a list, or any"),
                    remedy: "a lock is of a key: name the key of the list or map",
                },
            }]);
        }
        let key = (object.namespace.clone(), slot, object.name.clone());
        let layer = Layer {
            object: object.clone(),
            settings,
        };
        once(&object, self.layers.insert(key, layer).is_some())
    }

    fn add_config_map(
        &mut self,
        object: Object,
        level: String,
        value: &Value,
    ) -> Result<(), Vec<Problem>> {
        let mut spec = Map::new();
        for key in ["values", "parents", "final"] {
            let Some(text) = value["data"][key].as_str() else {
                continue;
            };
            let parsed: Value = serde_saphyr::from_str(text)
                .map_err(|error| vec![malformed(&object, &["data", key], &error.to_string())])?;
            spec.insert(key.to_owned(), parsed);
        }
        if let Some(template) = value["data"].get("template") {
            spec.insert("template".to_owned(), template.clone());
        }
        // The fields are those of any level.
        let spec: api::inventory::EnvironmentSpec =
            serde_path_to_error::deserialize(Value::Object(spec)).map_err(|error| {
                let path = error.path().to_string();
                vec![malformed(
                    &object,
                    &["data"],
                    &format!("{path}: {}", error.inner()),
                )]
            })?;
        self.add_layer(object, Slot::Label(level), spec.into())
    }

    pub(crate) fn remembered(&self, key: &(Name, Vec<Object>)) -> Option<Remembered> {
        let prefixes = self.prefixes.lock();
        let prefixes = prefixes.unwrap_or_else(PoisonError::into_inner);
        prefixes.get(key).cloned()
    }

    /// What is read by a cluster that names these, found out once.
    pub(crate) fn reads_once(
        &self,
        named: Named,
        find: impl FnOnce() -> Option<Reads>,
    ) -> Option<Reads> {
        let known = self.reads.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.entry(named).or_insert_with(find).clone()
    }

    pub(crate) fn remember(&self, key: (Name, Vec<Object>), prefix: &Remembered) {
        let prefixes = self.prefixes.lock();
        let mut prefixes = prefixes.unwrap_or_else(PoisonError::into_inner);
        prefixes.insert(key, prefix.clone());
    }
}

pub(crate) fn identity(value: &Value, namespace: &str) -> Object {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    Object {
        kind: text(&value["kind"]).unwrap_or_default(),
        namespace: text(&value["metadata"]["namespace"]).unwrap_or_else(|| namespace.to_owned()),
        name: text(&value["metadata"]["name"]).unwrap_or_default(),
    }
}

/// What the status of a FleetCluster says of values that have changed. One in a file has none.
fn changed(status: Option<&Value>) -> Changed {
    let secrets = status.and_then(|status| status["secrets"].as_array());
    let changed = secrets.into_iter().flatten();
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    changed
        .filter_map(|secret| text(&secret["name"]).zip(text(&secret["told"])))
        .collect()
}

fn level_of(config_map: &Value) -> Option<String> {
    let label = &config_map["metadata"]["labels"][LEVEL_LABEL];
    label.as_str().map(ToOwned::to_owned)
}

fn typed<K: DeserializeOwned>(object: &Object, value: Value) -> Result<K, Vec<Problem>> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path: Vec<_> = path.split('.').filter(|part| *part != ".").collect();
        vec![malformed(object, &path, &error.inner().to_string())]
    })
}

fn malformed(object: &Object, path: &[&str], what: &str) -> Problem {
    Problem {
        object: object.clone(),
        level: None,
        path: field(path),
        rule: Rule::Malformed {
            kind: object.kind.clone(),
            what: api::text::plain(what, 300),
        },
    }
}

fn unknown(object: &Object) -> Vec<Problem> {
    vec![Problem {
        object: object.clone(),
        level: None,
        path: ValuePath::default(),
        rule: Rule::UnknownKind {
            group: GROUP.into(),
        },
    }]
}

fn once(object: &Object, twice: bool) -> Result<(), Vec<Problem>> {
    if !twice {
        return Ok(());
    }
    Err(vec![Problem {
        object: object.clone(),
        level: None,
        path: ValuePath::default(),
        rule: Rule::Twice,
    }])
}

/// The path of a field.
pub(crate) fn field(keys: &[&str]) -> ValuePath {
    keys.iter()
        .filter(|key| !key.is_empty())
        .fold(ValuePath::default(), |path, key| path.key(key))
}
