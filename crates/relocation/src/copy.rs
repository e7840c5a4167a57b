//! What the copy of an object is, and whether an object is one. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta},
    core::TypeMeta,
};
use serde_json::{Value, json};

use crate::{
    domain::Domains,
    error::{Result, ensure},
    graph::Item,
    mark::{self, CREATED, GENERATIONS, MOVED_FROM, MOVING, is_marked, origin},
    side::{FIELD_MANAGER, Side},
};

/// The uids of originals, and of their copies.
pub(crate) type Uids = BTreeMap<String, String>;

/// What the copy of an object is to be: marked, with the copies of its owners as its owners. Its status is written apart.
pub(crate) fn copy(item: &Item, source: &Side, target: &Side, uids: &Uids) -> Item {
    let original = &item.object;
    let uid = original.uid().unwrap_or_default();
    let mut annotations = original.annotations().clone();
    let generations = mark::generation(&original.metadata).saturating_sub(1);
    annotations.retain(|name, _| !mark::ALL.contains(&name.as_str()));
    let place = source.place();
    annotations.insert(MOVED_FROM.to_owned(), origin(&place, &uid));
    if item.kind.is_acted_on() {
        annotations.insert(MOVING.to_owned(), mark::arriving(&place));
        let created = mark::created(&original.metadata);
        annotations.extend(created.map(|time| (CREATED.to_owned(), time.0.to_string())));
    }
    if item.kind.is_root() && generations > 0 {
        annotations.insert(GENERATIONS.to_owned(), generations.to_string());
    }
    let owners: Vec<_> = original
        .owner_references()
        .iter()
        .filter_map(|owner| {
            let mut owner = owner.clone();
            owner.uid.clone_from(uids.get(&owner.uid)?);
            Some(owner)
        })
        .collect();
    let mut data = original.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    let resource = &item.kind.resource;
    Item {
        kind: Arc::clone(&item.kind),
        object: DynamicObject {
            types: Some(TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            }),
            metadata: ObjectMeta {
                name: original.metadata.name.clone(),
                namespace: Some(target.namespace.clone()),
                labels: original.metadata.labels.clone(),
                annotations: Some(annotations),
                owner_references: (!owners.is_empty()).then_some(owners),
                ..ObjectMeta::default()
            },
            data,
        },
    }
}

/// The managers of an original's fields but for its status; none: nobody is known.
pub(crate) fn managers(item: &Item, domains: &Domains<'_>) -> Vec<ManagedFieldsEntry> {
    let entries = item.object.metadata.managed_fields.iter().flatten();
    // What an operator manages a copy gets from the operator there; a move manages its marks.
    let passes = |manager: &str| manager == FIELD_MANAGER || domains.manages(manager);
    let kept = entries.filter(|entry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        entry.subresource.as_deref().unwrap_or_default().is_empty() && !passes(manager)
    });
    kept.cloned().collect()
}

/// The status that the copy is to have: what it says of a generation is said of the copy's.
pub(crate) fn status(original: &Item, copy: &Item) -> Option<Value> {
    let mut status = original.object.data.get("status")?.clone();
    let (before, after) = (
        original.object.metadata.generation,
        copy.object.metadata.generation,
    );
    let carry = |value: &mut Value| {
        let Some(fields) = value.as_object_mut() else {
            return;
        };
        let Some(seen) = fields.get("observedGeneration").and_then(Value::as_i64) else {
            return;
        };
        if Some(seen) == before {
            fields.insert("observedGeneration".to_owned(), json!(after));
        } else {
            fields.remove("observedGeneration");
        }
    };
    carry(&mut status);
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten().for_each(carry);
    Some(status)
}

/// Whether what stands there under the name serves as it is: a Secret with the same content that somebody made before.
pub(crate) fn is_adopted(item: &Item, existing: &Item) -> bool {
    let content = |item: &Item| {
        let data = &item.object.data;
        (
            data["data"].clone(),
            data["binaryData"].clone(),
            data["type"].clone(),
        )
    };
    !item.kind.is_acted_on()
        && !existing.object.annotations().contains_key(MOVED_FROM)
        && item.object.owner_references().is_empty()
        && content(item) == content(existing)
}

/// Whether what stands there under the name is the copy of this very object, and not at work yet.
pub(crate) fn check_own(source: &Side, item: &Item, existing: &Item) -> Result<()> {
    let own = origin(&source.place(), &item.object.uid().unwrap_or_default());
    let found = existing.object.annotations().get(MOVED_FROM);
    ensure(found == Some(&own), || {
        format!(
            "{} metadata.name: there is another object of that name there; delete it, or move to another namespace with \
             --to-namespace",
            item.shown()
        )
    })?;
    ensure(
        !item.kind.is_acted_on() || is_marked(&existing.object),
        || {
            format!(
                "{}: its copy there has lost annotation {MOVING} before the move had ended, so it may have changed; delete the \
                 copy there with --cascade=orphan and without a finalizer, then start the same command again",
                item.shown()
            )
        },
    )
}

/// What a copy as it is stored differs in from what it is to be, if in anything: the path of a field.
pub(crate) fn difference(wanted: &Item, stored: &Item) -> Option<String> {
    let view = |item: &Item| {
        let mut data = item.object.data.clone();
        if let Some(fields) = data.as_object_mut() {
            fields.remove("status");
        }
        json!({
            "metadata": {
                "labels": item.object.labels(),
                "annotations": item.object.annotations(),
                "ownerReferences": item.object.owner_references(),
            },
            "object": data,
        })
    };
    first(&view(wanted), &view(stored), "")
}

/// As [`difference`], of the status.
pub(crate) fn status_difference(original: &Item, stored: &Item) -> Option<String> {
    let view = |status: Option<Value>| {
        let mut status = status.unwrap_or_default();
        if let Some(root) = &original.kind.root
            && let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
        {
            conditions.retain(|condition| {
                let kind = condition["type"].as_str().unwrap_or_default();
                !root.told_meanwhile.contains(&kind)
            });
        }
        status
    };
    let wanted = view(status(original, stored));
    first(
        &wanted,
        &view(stored.object.data.get("status").cloned()),
        "status",
    )
}

fn first(wanted: &Value, stored: &Value, path: &str) -> Option<String> {
    match (wanted, stored) {
        (Value::Object(wanted), Value::Object(stored)) => {
            let fields: BTreeSet<_> = wanted.keys().chain(stored.keys()).collect();
            fields.into_iter().find_map(|field| {
                let null = &Value::Null;
                first(
                    wanted.get(field).unwrap_or(null),
                    stored.get(field).unwrap_or(null),
                    &format!("{path}.{field}"),
                )
            })
        }
        (Value::Array(wanted), Value::Array(stored)) if wanted.len() == stored.len() => wanted
            .iter()
            .zip(stored)
            .enumerate()
            .find_map(|(at, (wanted, stored))| first(wanted, stored, &format!("{path}[{at}]"))),
        // An empty field and none are the same to every reader.
        (wanted, stored) if is_empty(wanted) && is_empty(stored) => None,
        (wanted, stored) => (wanted != stored).then(|| path.trim_start_matches('.').to_owned()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    }
}
