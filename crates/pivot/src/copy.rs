//! What the copy of an object is, and whether an object is one. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta},
    core::TypeMeta,
};
use serde_json::{Value, json};

use crate::{
    contract,
    pause::{self, OWN_PAUSE},
    place::{FIELD_MANAGER, Item, Place},
};

/// The annotation of copies while they are being made: whose they are.
pub(crate) const PIVOT_FROM: &str = "windlass.dev/pivot-from";

/// The uids of originals, and of their copies.
pub(crate) type Uids = BTreeMap<String, String>;

/// What the copies of a move say of where they are from.
pub(crate) struct Origin(String);

impl Origin {
    /// That of a move that leaves a place. Copies of two namespaces are told apart: each move takes back its own only.
    pub(crate) fn new(here: &Place) -> Self {
        Self(format!("{}/{}/", here.api, here.namespace))
    }

    fn mark(&self, item: &Item) -> String {
        format!("{}{}", self.0, item.uid())
    }

    /// The uid of what an object is the copy of.
    pub(crate) fn of<'a>(&self, item: &'a Item) -> Option<&'a str> {
        item.annotation(PIVOT_FROM)?.strip_prefix(&self.0)
    }

    /// Whether it is the copy of this very object.
    pub(crate) fn is_copy(&self, copy: &Item, original: &Item) -> bool {
        self.of(copy) == Some(original.uid())
    }
}

/// Whether some move, this or another one, is making it.
pub(crate) fn is_any_copy(item: &Item) -> bool {
    item.annotation(PIVOT_FROM).is_some()
}

/// What the copy of an object is to be: with the copies of its owners as its owners, and without a status, which controllers make anew.
/// It is paused whatever its original says by now: only the end of a move lets it go on.
pub(crate) fn copy(item: &Item, origin: &Origin, uids: &Uids) -> Item {
    let original = &item.object;
    let mut annotations = original.annotations().clone();
    annotations.insert(PIVOT_FROM.to_owned(), origin.mark(item));
    let owners = original.owner_references().iter().filter_map(|owner| {
        let mut owner = owner.clone();
        owner.uid.clone_from(uids.get(&owner.uid)?);
        Some(owner)
    });
    let owners: Vec<_> = owners.collect();
    let mut data = original.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    if contract::is_pausable(item) {
        annotations.insert(OWN_PAUSE.to_owned(), pause::before(item).to_owned());
    }
    if item.kind.is_cluster() {
        data["spec"]["paused"] = json!(true);
    } else if item.kind.is_cluster_class() {
        let value = annotations.entry(contract::PAUSED.to_owned());
        value.or_default();
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
                namespace: original.metadata.namespace.clone(),
                labels: original.metadata.labels.clone(),
                annotations: Some(annotations),
                finalizers: original.metadata.finalizers.clone(),
                owner_references: (!owners.is_empty()).then_some(owners),
                ..ObjectMeta::default()
            },
            data,
        },
    }
}

/// The managers of an original's fields: a controller that applies must neither share its fields with a move nor leave some behind.
pub(crate) fn managers(item: &Item) -> Vec<ManagedFieldsEntry> {
    let entries = item.object.metadata.managed_fields.iter().flatten();
    let kept = entries.filter(|entry| {
        let is_whole = entry.subresource.as_deref().unwrap_or_default().is_empty();
        is_whole && entry.manager.as_deref() != Some(FIELD_MANAGER)
    });
    kept.cloned().collect()
}

/// Whether an object has fields that a move is said to manage.
pub(crate) fn is_managed(item: &Item) -> bool {
    let mut entries = item.object.metadata.managed_fields.iter().flatten();
    entries.any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
}

/// Whether the content of both is the same: that of their specs and data, whoever labelled them how.
pub(crate) fn is_same_content(one: &Item, other: &Item) -> bool {
    let content = |item: &Item| {
        let mut data = item.object.data.clone();
        if let Some(fields) = data.as_object_mut() {
            fields.remove("status");
        }
        data
    };
    is_within(&content(one), &content(other), "").is_none()
        && is_within(&content(other), &content(one), "").is_none()
}

/// What a copy is not as it should be, if anything: the path of a field.
pub(crate) fn difference(wanted: &Item, stored: &Item) -> Option<String> {
    let (wanted, stored) = (view(wanted), view(stored));
    is_within(&wanted, &stored, "").or_else(|| is_within(&stored, &wanted, ""))
}

/// What of an object its copy lacks, if anything. The other side may add to it: a newer provider has more defaults.
pub(crate) fn lack(wanted: &Item, stored: &Item) -> Option<String> {
    is_within(&view(wanted), &view(stored), "")
}

/// What of an original is lost with it, if anything, when it is deleted. What a move itself writes to originals is not looked at, nor
/// whether the copy is still paused: after the point of no return it is what counts.
pub(crate) fn lost(original: &Item, origin: &Origin, uids: &Uids, stored: &Item) -> Option<String> {
    let mut wanted = copy(original, origin, uids);
    let metadata = &mut wanted.object.metadata;
    // They were taken away if an earlier call was stopped before it deleted the original.
    metadata
        .finalizers
        .clone_from(&stored.object.metadata.finalizers);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.remove(contract::DELETE_FOR_MOVE);
    if contract::is_pausable(original) {
        annotations.remove(OWN_PAUSE);
        annotations.remove(contract::PAUSED);
    }
    if original.kind.is_cluster()
        && let Some(spec) = wanted.object.data["spec"].as_object_mut()
    {
        spec.remove("paused");
    }
    lack(&wanted, stored)
}

fn view(item: &Item) -> Value {
    let mut data = item.object.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    json!({
        "metadata": {
            "labels": item.object.labels(),
            "annotations": item.object.annotations(),
            "finalizers": item.object.finalizers(),
            "ownerReferences": item.object.owner_references(),
        },
        "object": data,
    })
}

/// The first field of one that the other does not have.
fn is_within(wanted: &Value, stored: &Value, path: &str) -> Option<String> {
    match (wanted, stored) {
        (Value::Object(wanted), Value::Object(stored)) => {
            wanted.iter().find_map(|(field, wanted)| {
                let stored = stored.get(field).unwrap_or(&Value::Null);
                is_within(wanted, stored, &format!("{path}.{field}"))
            })
        }
        (Value::Array(wanted), Value::Array(stored)) if wanted.len() == stored.len() => wanted
            .iter()
            .zip(stored)
            .enumerate()
            .find_map(|(at, (wanted, stored))| is_within(wanted, stored, &format!("{path}[{at}]"))),
        // An empty field and none are the same to every reader.
        (wanted, stored) if is_empty(wanted) && is_empty(stored) => None,
        (wanted, stored) => (wanted != stored).then(|| {
            let path = path.trim_start_matches('.');
            path.strip_prefix("object.").unwrap_or(path).to_owned()
        }),
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

/// The patch with which a copy becomes an object like any other, and goes on if this move had paused its original.
pub(crate) fn release(copy: &Item) -> Value {
    let mut patch =
        pause::resumption(copy).unwrap_or_else(|| json!({"metadata": {"annotations": {}}}));
    patch["metadata"]["annotations"][PIVOT_FROM] = Value::Null;
    patch["metadata"]["annotations"][OWN_PAUSE] = Value::Null;
    patch
}
