//! Machines of a Cluster that has a topology.
//!
//! A version replaces all of them; a failure domain those of its part. What a variable or another ClusterClass replaces is decided by the
//! patches of the class, which are not rendered: it may be all of them, or none. So may a class, or a template that it names, which
//! becomes another under its name: the topology is made anew from it, and what differs is replaced.

use std::collections::BTreeMap;

use api::inventory::ValuePath;
use serde_json::{Value, json};

use super::{
    Bound, Edit, Edits, Effect, Happens, Live, autoscaler,
    fields::{self, Fields},
    group::{Change, Group, Outdated},
};
use crate::{
    contract::{self, CORE},
    problem::Object,
};

pub(super) fn topology(
    object: &Object,
    edit: Edit<'_>,
    all: &Edits<'_>,
    live: Option<&Live>,
) -> Vec<Effect> {
    let topology = |value: Option<&'_ Value>| {
        let topology = value.map(|value| value["spec"]["topology"].clone());
        topology.filter(Value::is_object)
    };
    let (before, after) = (topology(edit.before), topology(edit.after));
    let (old, new) = (parts(before.as_ref()), parts(after.as_ref()));
    let nothing = Value::Null;
    let (before, after) = (
        before.as_ref().unwrap_or(&nothing),
        after.as_ref().unwrap_or(&nothing),
    );
    let sure = fields::differing(&version(before), &version(after));
    let class = |value: Option<&Value>| class(value.unwrap_or(&Value::Null), &object.namespace);
    let mut perhaps = fields::differing(&class(edit.before), &class(edit.after));
    if let Some(after) = edit.after {
        perhaps.extend(under_its_name(object, after, all));
    }
    let mut effects = Vec::new();
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let group = key.group(object, live);
        match (old.get(key), new.get(key)) {
            (None, Some(part)) => effects.extend(group.born(autoscaler::at_birth(sized(part)))),
            (Some(part), None) => {
                let count = part["replicas"].as_u64();
                effects.extend(group.gone(count.and_then(|count| count.try_into().ok())));
            }
            (Some(old), Some(new)) => {
                let change = change(key, (old, new), (&sure, &perhaps), group.there());
                effects.extend(group.changed(change));
            }
            (None, None) => {}
        }
    }
    effects
}

/// A part of a topology that keeps machines.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
enum Key {
    ControlPlane,
    Deployment(String),
    Pool(String),
}

impl Key {
    fn group<'a>(&self, object: &'a Object, live: Option<&'a Live>) -> Group<'a> {
        let (part, label, value) = match self {
            Self::ControlPlane => ("controlPlane".to_owned(), CONTROL_PLANE, None),
            Self::Deployment(name) => (
                format!("machineDeployments[{name}]"),
                DEPLOYMENT,
                Some(name.as_str()),
            ),
            Self::Pool(name) => (format!("machinePools[{name}]"), POOL, Some(name.as_str())),
        };
        let machines = live
            .map(|live| live.labelled(&object.namespace, Some(&object.name), label, value))
            .filter(|machines| !machines.is_empty() || !matches!(self, Self::Pool(_)));
        Group {
            of: object,
            part: Some(part),
            machines,
        }
    }

    fn path(&self) -> String {
        match self {
            Self::ControlPlane => "spec.topology.controlPlane".to_owned(),
            Self::Deployment(name) => format!("spec.topology.workers.machineDeployments[{name}]"),
            Self::Pool(name) => format!("spec.topology.workers.machinePools[{name}]"),
        }
    }
}

fn parts(topology: Option<&Value>) -> BTreeMap<Key, Value> {
    let mut parts = BTreeMap::new();
    let Some(topology) = topology else {
        return parts;
    };
    let plane = &topology["controlPlane"];
    let plane = if plane.is_object() {
        plane.clone()
    } else {
        json!({})
    };
    parts.insert(Key::ControlPlane, plane);
    let mut add = |list: &Value, key: fn(String) -> Key| {
        for part in list.as_array().into_iter().flatten() {
            if let Some(name) = part["name"].as_str() {
                parts.insert(key(name.to_owned()), part.clone());
            }
        }
    };
    add(&topology["workers"]["machineDeployments"], Key::Deployment);
    add(&topology["workers"]["machinePools"], Key::Pool);
    parts
}

/// What replaces all of them.
fn version(topology: &Value) -> Fields {
    let version = fields::version(&topology["version"]);
    Fields::from([("spec.topology.version".to_owned(), version)])
}

/// What may replace any of them.
fn class(cluster: &Value, namespace: &str) -> Fields {
    let class = contract::class(cluster, namespace);
    let class = class.map(|class| [class.namespace, class.name]);
    let variables = fields::filled(&cluster["spec"]["topology"]["variables"]);
    Fields::from([
        ("spec.topology.classRef".to_owned(), json!(class)),
        ("spec.topology.variables".to_owned(), variables),
    ])
}

/// The class, and the templates that it names, that were changed under their names.
fn under_its_name(object: &Object, cluster: &Value, all: &Edits<'_>) -> Vec<String> {
    let changed = all.changed(&named(object, cluster, all)).into_iter();
    changed
        .map(|what| format!("{what} under its name"))
        .collect()
}

/// The class of a Cluster, and the templates that it names.
pub(super) fn named<'a>(
    object: &Object,
    cluster: &Value,
    all: &Edits<'a>,
) -> Vec<(&'a str, Object)> {
    let Some(class) = contract::class(cluster, &object.namespace) else {
        return Vec::new();
    };
    let class = Object {
        kind: "ClusterClass".to_owned(),
        namespace: class.namespace.to_owned(),
        name: class.name.to_owned(),
    };
    let itself = (CORE, class);
    let edit = all.0.get(&itself).copied().unwrap_or_default();
    let mut named = Vec::new();
    for value in [edit.before, edit.after].into_iter().flatten() {
        let references = contract::references(&value["spec"], &ValuePath::default());
        let references: Vec<_> = references.iter().map(|reference| reference.value).collect();
        named.extend(Edits::named(&itself.1.namespace, &references));
    }
    named.push(itself);
    named.sort();
    named.dedup();
    named
}

fn change<'a>(
    key: &Key,
    (old, new): (&Value, &Value),
    (sure, perhaps): (&[String], &[String]),
    there: Option<u32>,
) -> Change<'a> {
    let path = key.path();
    let of = |part: &Value, keys: &[&str]| -> Value {
        keys.iter()
            .map(|key| ((*key).to_owned(), part[*key].clone()))
            .collect()
    };
    let changed = |keys: &[&str]| fields::keys(&path, &of(old, keys), &of(new, keys));
    let mut because = sure.to_vec();
    because.extend(changed(&["failureDomain"]));
    let bound = if because.is_empty() || matches!(key, Key::Pool(_)) {
        Bound::AtMost
    } else {
        Bound::Exactly
    };
    because.extend(perhaps.iter().cloned());
    because.extend(changed(&["class", "variables"]));
    Change {
        size: autoscaler::size(sized(old), sized(new), there),
        outdated: Outdated {
            bound,
            ..Outdated::all(Happens::Replaced, because)
        },
        in_place: changed(&IN_PLACE),
    }
}

fn sized(part: &Value) -> (&Value, &Value) {
    (&part["replicas"], &part["metadata"])
}

/// The fields of a part that are brought to Machines where they are, with what they were called in v1beta1.
const IN_PLACE: [&str; 8] = [
    "metadata",
    "deletion",
    "readinessGates",
    "minReadySeconds",
    "taints",
    "nodeDrainTimeout",
    "nodeVolumeDetachTimeout",
    "nodeDeletionTimeout",
];
const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
const DEPLOYMENT: &str = "topology.cluster.x-k8s.io/deployment-name";
const POOL: &str = "topology.cluster.x-k8s.io/pool-name";
