//! Names with a digest of the content, for objects that must not change.
//!
//! Cluster API compares the name of the template that a Machine was made from, never its content: another content under the same
//! name rolls nothing. So another content must be another name, and the same content the same name for ever: the digest is made of
//! the content with its keys in order, without the name itself.
//!
//! References by kind and name follow, and so does a Cluster's to its ClusterClass, which says no kind: an edit of a class that is named
//! so is another class, to which one Cluster after the other is rebased, where one of a class in place would come to all at once.
//!
//! # Source
//! Cluster API, "Updating machine infrastructure and bootstrap templates", "Changing a ClusterClass" (rebase).

use std::collections::{BTreeMap, BTreeSet};

use api::inventory::{Naming, ValuePath};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{RenderedDocument, all_uses, rename};
use crate::{
    contract,
    problem::Object,
    template::world::{Made, MadeShape, Use},
};

/// Names the objects that are named so, what is referred to before what refers to it, and lets references in all objects follow.
pub(super) fn name(documents: &mut [RenderedDocument]) {
    for number in in_order(documents) {
        let Some(document) = documents.get_mut(number) else {
            continue;
        };
        let Object {
            kind,
            namespace,
            name: old,
        } = document.object.clone();
        let is_class =
            kind == "ClusterClass" && contract::group(&document.api_version) == contract::CORE;
        let new = format!("{old}-{}", digest(document));
        let uses = all_uses(&document.content);
        rename(&mut document.content, &["metadata", "name"], &new, &uses);
        document.object.name.clone_from(&new);
        for other in documents.iter_mut() {
            follow(&mut other.content, &kind, &old, &new, &uses);
            if is_class && let Some(at) = names_class(other, &namespace, &old) {
                rename(&mut other.content, at, &new, &uses);
            }
        }
    }
}

/// Where a Cluster says the name of this class, if it is the one that it names. What says no namespace is of the same.
fn names_class(
    document: &RenderedDocument,
    namespace: &str,
    name: &str,
) -> Option<&'static [&'static str]> {
    let is_cluster = document.object.kind == "Cluster"
        && contract::group(&document.api_version) == contract::CORE;
    let cluster = is_cluster.then(|| document.to_value())?;
    let class = contract::class(&cluster, &document.object.namespace)?;
    let is_there =
        class.namespace == namespace || class.namespace.is_empty() || namespace.is_empty();
    (class.name == name && is_there).then_some(class.at)
}

/// The numbers of those that are named so. One that refers to another comes behind it, wherever the two stand: its digest is one of the name
/// that the other gets. Two that refer to each other have no order, and keep that in which they stand.
fn in_order(documents: &[RenderedDocument]) -> Vec<usize> {
    let numbered = documents.iter().enumerate();
    let hashed = numbered.filter(|(_, document)| document.naming == Naming::Hashed);
    let hashed: Vec<_> = hashed.collect();
    let mut places = BTreeMap::<_, Vec<usize>>::new();
    for (number, document) in &hashed {
        let named = (document.object.kind.clone(), document.object.name.clone());
        places.entry(named).or_default().push(*number);
    }
    let mut order = Vec::new();
    let mut met = BTreeSet::new();
    for (number, _) in hashed {
        // Each with what it refers to that is still to be named, the next of which is the last.
        let mut open = Vec::new();
        let mut enter = |number: usize, open: &mut Vec<(usize, Vec<usize>)>| {
            if met.insert(number)
                && let Some(document) = documents.get(number)
            {
                let value = document.to_value();
                let named = contract::references(&value, &ValuePath::default());
                let named = named
                    .iter()
                    .map(|named| (named.kind.to_owned(), named.name.to_owned()));
                let named: BTreeSet<_> = named.collect();
                let all = named.iter().filter_map(|named| places.get(named));
                let mut all: Vec<_> = all.flatten().copied().collect();
                all.sort_unstable_by(|a, b| b.cmp(a));
                open.push((number, all));
            }
        };
        enter(number, &mut open);
        while let Some((number, before)) = open.last_mut() {
            if let Some(other) = before.pop() {
                enter(other, &mut open);
            } else {
                order.push(*number);
                open.pop();
            }
        }
    }
    order
}

fn digest(document: &RenderedDocument) -> String {
    let mut value = document.to_value();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("name");
    }
    of(&value, DIGITS)
}

/// The first digits of the digest of a value, however it was written.
pub(super) fn of(value: &Value, digits: usize) -> String {
    let digest = format!("{:x}", Sha256::digest(canonical(value).as_bytes()));
    digest.chars().take(digits).collect()
}

/// The value as JSON with the keys in order, however it was written.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: std::collections::BTreeMap<_, _> = map.iter().collect();
            let parts: Vec<_> = sorted
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => {
            let parts: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", parts.join(","))
        }
        plain => plain.to_string(),
    }
}

/// Lets references by kind and name follow.
fn follow(made: &mut Made, kind: &str, old: &str, new: &str, uses: &BTreeSet<Use>) {
    let is = |made: Option<&Made>, wanted: &str| {
        made.is_some_and(
            |made| matches!(&made.shape, MadeShape::Leaf(Value::String(text)) if text == wanted),
        )
    };
    match &mut made.shape {
        MadeShape::Map(map) => {
            if is(map.get("kind"), kind)
                && is(map.get("name"), old)
                && let Some(name) = map.get_mut("name")
            {
                rename(name, &[], new, uses);
            }
            for part in map.values_mut() {
                follow(part, kind, old, new, uses);
            }
        }
        MadeShape::List(list) => {
            for part in list {
                follow(part, kind, old, new, uses);
            }
        }
        MadeShape::Leaf(_) | MadeShape::Secret(_) => {}
    }
}

/// Ten digits of sixteen: two templates of one name meet by chance once in a million million.
pub(super) const DIGITS: usize = 10;
