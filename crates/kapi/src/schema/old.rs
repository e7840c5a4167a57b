//! What an update leaves as it is.
//!
//! A definition may be tightened while objects are stored. What the schema now has against a value that an update does not touch
//! would otherwise refuse every update, even one that removes the last finalizer, and a deleted object would never go.
//!
//! # Source
//! KEP 4008, `CRDValidationRatcheting`. Kubernetes compares the whole object where something is wrong at its root, and so refuses
//! changes of metadata there; here metadata, which no schema constrains but for its name, is not compared.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::{ListType, Node};

/// Whether the value at a path is the one that is stored.
pub(super) fn unchanged(path: &str, old: &Value, new: &Value) -> bool {
    let (Value::Object(before), Value::Object(after), true) = (old, new, path.is_empty()) else {
        return old == new;
    };
    same_but(before, after, &["metadata"])
}

/// Whether an update changes nothing but metadata and the status.
pub(super) fn same_but_status(old: &Value, new: &Value) -> bool {
    let objects = old.as_object().zip(new.as_object());
    objects.is_some_and(|(old, new)| same_but(old, new, &["metadata", "status"]))
}

fn same_but(old: &Map<String, Value>, new: &Map<String, Value>, but: &[&str]) -> bool {
    let rest = |name: &&String| !but.contains(&name.as_str());
    old.keys().filter(rest).count() == new.keys().filter(rest).count()
        && new
            .iter()
            .filter(|(name, _)| rest(name))
            .all(|(name, value)| old.get(name) == Some(value))
}

/// The stored items of a list, by what tells them apart. Nothing does in lists that are one value, nor in sets: a changed item
/// of a set is another one.
pub(super) struct Former<'a> {
    node: &'a Node,
    items: BTreeMap<String, &'a Value>,
}

impl<'a> Former<'a> {
    pub fn of(node: &'a Node, old: Option<&'a Value>) -> Self {
        let keyed = matches!(node.list, ListType::Map(_));
        let items = old.filter(|_| keyed).and_then(Value::as_array);
        let named =
            |item: &'a Value| Some((crate::canonical::canonical(&identity(node, item)?), item));
        Self {
            node,
            items: items.into_iter().flatten().filter_map(named).collect(),
        }
    }

    /// The stored form of an item.
    pub fn item(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        let name = crate::canonical::canonical(&identity(self.node, item)?);
        self.items.get(&name).copied()
    }
}

/// What tells an item of a set or of a keyed list from the others.
pub(super) fn identity(node: &Node, item: &Value) -> Option<Value> {
    match &node.list {
        ListType::Atomic => None,
        ListType::Set => Some(item.clone()),
        ListType::Map(keys) => {
            let fields = keys
                .iter()
                .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Some(Value::Object(fields.collect()))
        }
    }
}
