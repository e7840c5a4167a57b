//! What differs between two inventories: which clusters, which objects, which leaves.

use std::collections::{BTreeMap, BTreeSet};

use api::inventory::ValuePath;
use serde::Serialize;
use serde_json::Value;

use crate::{
    contract,
    fleet::Fleet,
    impact::{self, Effect},
    problem::{Object, Problems},
    render::Rendered,
};

/// A cluster that is not the same in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterChange {
    /// The cluster.
    pub cluster: Object,
    /// What happens to it.
    pub change: Change,
    /// Its objects that are not the same.
    pub objects: Vec<ObjectChange>,
    /// What that does to its machines and hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// An object that is not the same in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    /// The object.
    pub object: Object,
    /// What happens to it.
    pub change: Change,
    /// Its leaves that are not the same, for an object that is in both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<LeafChange>,
}

/// A leaf that is not the same in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeafChange {
    /// Its path in the object.
    pub path: String,
    /// What it was; none for a leaf that is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What it is; none for a leaf that goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// What happens to something.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Change {
    /// It is new.
    Added,
    /// It goes.
    Removed,
    /// It stays, and is not the same.
    Changed,
}

type Leaves = BTreeMap<String, Value>;
/// By group, for another version of the same is the same object.
type Objects = BTreeMap<(String, Object), Leaves>;

/// Compares what two inventories render to.
///
/// # Errors
/// What is wrong with either; nothing is compared then.
pub fn diff(base: &Fleet, head: &Fleet) -> Result<Vec<ClusterChange>, Problems> {
    let (before, after) = (rendered(base)?, rendered(head)?);
    let none = Objects::new();
    let mut changes = Vec::new();
    for cluster in both(&before, &after) {
        let (old, new) = (before.get(cluster), after.get(cluster));
        let objects = objects(old.unwrap_or(&none), new.unwrap_or(&none));
        let change = change(old, new);
        if change != Change::Changed || !objects.is_empty() {
            changes.push(ClusterChange {
                cluster: cluster.clone(),
                change,
                objects,
                effects: effects(cluster, change, base, head)?,
            });
        }
    }
    Ok(changes)
}

/// What becomes of the machines of a cluster. Those that change are rendered again: to keep all of both costs more.
fn effects(
    cluster: &Object,
    change: Change,
    base: &Fleet,
    head: &Fleet,
) -> Result<Vec<Effect>, Problems> {
    let rendered = |fleet: &Fleet| Ok(fleet.render(cluster)?.objects());
    let before = match change {
        Change::Added => Vec::new(),
        // A cluster that is no longer described stays as it stands.
        Change::Removed => return Ok(Vec::new()),
        Change::Changed => rendered(base)?,
    };
    let after = rendered(head)?;
    Ok(impact::impact(&cluster.namespace, &before, &after, None))
}

/// Compares what a cluster was rendered to with what it is rendered to.
pub fn between(before: &[Value], after: &[Value]) -> Vec<ObjectChange> {
    objects(&read(before), &read(after))
}

/// Objects by what they are, with their leaves.
fn read(values: &[Value]) -> Objects {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let values = values.iter().map(|value| {
        let object = Object {
            kind: text(&value["kind"]),
            namespace: text(&value["metadata"]["namespace"]),
            name: text(&value["metadata"]["name"]),
        };
        let mut leaves = Leaves::new();
        collect(value, &ValuePath::default(), &mut leaves);
        let version = value["apiVersion"].as_str().unwrap_or_default();
        ((contract::group(version).to_owned(), object), leaves)
    });
    values.collect()
}

fn collect(value: &Value, path: &ValuePath, leaves: &mut Leaves) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                collect(value, &path.key(key), leaves);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (number, value) in list.iter().enumerate() {
                collect(value, &path.index(number), leaves);
            }
        }
        leaf => {
            leaves.insert(path.to_string(), leaf.clone());
        }
    }
}

fn rendered(fleet: &Fleet) -> Result<BTreeMap<Object, Objects>, Problems> {
    let mut all = BTreeMap::new();
    fleet.render_all(|rendered: Rendered| {
        let documents = rendered.documents.iter().map(|document| {
            let leaves = document.content.leaves().into_iter();
            let leaves = leaves.map(|(path, made)| (path.to_string(), made.to_value()));
            (
                (
                    contract::group(&document.api_version).to_owned(),
                    document.object.clone(),
                ),
                leaves.collect(),
            )
        });
        all.insert(rendered.resolved.cluster.clone(), documents.collect());
    })?;
    Ok(all)
}

fn objects(before: &Objects, after: &Objects) -> Vec<ObjectChange> {
    let mut changes = Vec::new();
    for key in both(before, after) {
        let (old, new) = (before.get(key), after.get(key));
        let leaves = match (old, new) {
            (Some(old), Some(new)) => leaves(old, new),
            _ => Vec::new(),
        };
        let change = change(old, new);
        if change != Change::Changed || !leaves.is_empty() {
            changes.push(ObjectChange {
                object: key.1.clone(),
                change,
                leaves,
            });
        }
    }
    changes
}

fn leaves(before: &Leaves, after: &Leaves) -> Vec<LeafChange> {
    both(before, after)
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| LeafChange {
            path: path.clone(),
            before: before.get(path).cloned(),
            after: after.get(path).cloned(),
        })
        .collect()
}

fn both<'a, K: Ord, V>(before: &'a BTreeMap<K, V>, after: &'a BTreeMap<K, V>) -> BTreeSet<&'a K> {
    before.keys().chain(after.keys()).collect()
}

fn change<T>(before: Option<T>, after: Option<T>) -> Change {
    match (before, after) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::Changed,
    }
}
