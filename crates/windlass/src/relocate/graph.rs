//! The objects of a namespace that belong together, each after its owners; what a copy of one is, and whether it is one.

use std::collections::{BTreeMap, BTreeSet};

use api::Run;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta},
    core::TypeMeta,
};
use kubespray::moving::{self, CREATED, GENERATIONS, MOVED, MOVED_FROM, MOVING};
use serde_json::{Value, json};

use super::side::{FIELD_MANAGER, Item, Kind, Side, origin};

/// Annotations that belong to a move, not to what is moved.
const OWN: [&str; 5] = [MOVING, MOVED, MOVED_FROM, CREATED, GENERATIONS];

/// References to Secrets in the inputs of a plan.
const PLANNED: [&str; 2] = ["key", "knownHostsSecret"];

/// Names of Secrets in a spec, as a list.
const PULL_SECRETS: &str = "imagePullSecrets";

/// Conditions of a Cluster that its operator computes from where it stands, on either side.
const COMPUTED: [&str; 3] = ["Ready", "Reconciling", "Stalled"];

/// The objects, each after its owners.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) items: Vec<Item>,
}

/// Reads what belongs to the clusters of a namespace.
pub(super) async fn read(side: &Side) -> anyhow::Result<Graph> {
    let mut items = Vec::new();
    for kind in [Kind::Cluster, Kind::ClusterNode, Kind::Run] {
        items.extend(side.list(kind).await?);
    }
    let uids: BTreeSet<String> = items.iter().filter_map(|item| item.object.uid()).collect();
    let mut secrets: BTreeSet<String> = BTreeSet::new();
    for item in items.iter().filter(|item| item.kind.is_ours()) {
        referenced(&item.object.data, &mut secrets);
        if item.kind == Kind::Cluster {
            let name = item.name();
            secrets.insert(kubespray::secret::kubeconfig_name(&name));
            secrets.insert(moving::host_keys_name(&name));
        }
    }
    for kind in [Kind::Secret, Kind::ConfigMap] {
        let owned = |item: &Item| {
            let owners = item.object.owner_references();
            owners.iter().any(|owner| uids.contains(&owner.uid))
        };
        let wanted =
            |item: &Item| owned(item) || kind == Kind::Secret && secrets.contains(&item.name());
        items.extend(side.list(kind).await?.into_iter().filter(wanted));
    }
    Ok(Graph {
        items: ordered(items)?,
    })
}

/// The Secrets that a spec or a plan names: every `...SecretRef` and `secretKeyRef`, what a plan calls them, and those for
/// images.
fn referenced(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let one = field.ends_with("SecretRef")
                    || field == kubespray::variables::REFERENCE
                    || PLANNED.contains(&field.as_str());
                if one {
                    names.extend(value["name"].as_str().map(str::to_owned));
                } else if field == PULL_SECRETS {
                    names.extend(value.as_array().into_iter().flatten().filter_map(named));
                }
                referenced(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| referenced(value, names)),
        _ => {}
    }
}

fn named(value: &Value) -> Option<String> {
    let name = value.as_str().or_else(|| value["name"].as_str())?;
    Some(name.to_owned())
}

/// Each after its owners; otherwise by kind, age and name.
fn ordered(mut items: Vec<Item>) -> anyhow::Result<Vec<Item>> {
    items.sort_by_key(|item| {
        (
            item.kind,
            moving::created(&item.object.metadata),
            item.name(),
        )
    });
    let mut waiting: BTreeSet<String> = items.iter().filter_map(|item| item.object.uid()).collect();
    let mut done = Vec::new();
    while !items.is_empty() {
        let free = |item: &Item| {
            let owners = item.object.owner_references();
            !owners.iter().any(|owner| waiting.contains(&owner.uid))
        };
        let Some(at) = items.iter().position(free) else {
            let names: Vec<_> = items.iter().map(Item::shown).collect();
            anyhow::bail!(
                "metadata.ownerReferences of {}: they own each other in a circle; remove one of the references",
                names.join(", ")
            );
        };
        let item = items.remove(at);
        if let Some(uid) = item.object.uid() {
            waiting.remove(&uid);
        }
        done.push(item);
    }
    Ok(done)
}

impl Graph {
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.kind == kind)
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = &Item> {
        self.of(Kind::Cluster)
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        self.of(Kind::Run)
            .filter_map(|item| item.object.clone().try_parse().ok())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.items.iter().map(Item::shown).collect()
    }

    /// Whether the point of no return is behind: every copy was compared.
    pub(super) fn is_moved(&self) -> bool {
        self.clusters()
            .all(|cluster| cluster.object.annotations().contains_key(MOVED))
    }

    /// An earlier move that did not end must have been to the same place.
    pub(super) fn same_target(&self, target: &Side) -> anyhow::Result<()> {
        let (mark, returning) = (
            moving::leaving(&target.place()),
            moving::returning(&target.place()),
        );
        for cluster in self.clusters() {
            let found = moving::mark(&cluster.object.metadata).unwrap_or(&mark);
            anyhow::ensure!(
                *found != returning,
                "{}: annotation {MOVING} is {found:?}; end that first, with --abort",
                cluster.shown()
            );
            anyhow::ensure!(
                *found == mark,
                "{}: annotation {MOVING} is {found:?}, another move that has not ended; end it first, with the same \
                 --to-kubeconfig and --to-namespace as then, or take it back with --abort",
                cluster.shown()
            );
        }
        Ok(())
    }
}

/// The uids of originals, and of their copies.
pub(super) type Uids = BTreeMap<String, String>;

/// What the copy of an object is to be: marked, with the copies of its owners as its owners. Its status is written apart.
pub(super) fn copy(item: &Item, source: &Side, target: &Side, uids: &Uids) -> Item {
    let original = &item.object;
    let uid = original.uid().unwrap_or_default();
    let mut annotations = original.annotations().clone();
    let generations = moving::generation(&original.metadata).saturating_sub(1);
    annotations.retain(|name, _| !OWN.contains(&name.as_str()));
    let place = source.place();
    annotations.insert(MOVED_FROM.to_owned(), origin(&place, &uid));
    if item.kind.is_ours() {
        annotations.insert(MOVING.to_owned(), moving::arriving(&place));
        let created = moving::created(&original.metadata);
        annotations.extend(created.map(|time| (CREATED.to_owned(), time.0.to_string())));
    }
    if item.kind == Kind::Cluster && generations > 0 {
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
    let resource = item.kind.resource();
    Item {
        kind: item.kind,
        object: DynamicObject {
            types: Some(TypeMeta {
                api_version: resource.api_version,
                kind: resource.kind,
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
pub(super) fn managers(item: &Item) -> Vec<ManagedFieldsEntry> {
    let entries = item.object.metadata.managed_fields.iter().flatten();
    // The operator manages its finalizer, which a copy gets from the operator there; a move manages its marks.
    let passing = [kubespray::cluster::FIELD_MANAGER, FIELD_MANAGER];
    let kept = entries.filter(|entry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        entry.subresource.as_deref().unwrap_or_default().is_empty() && !passing.contains(&manager)
    });
    kept.cloned().collect()
}

/// The status that the copy is to have: what it says of a generation is said of the copy's.
pub(super) fn status(original: &Item, copy: &Item) -> Option<Value> {
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

/// What a copy as it is stored differs in from what it is to be, if in anything: the path of a field.
pub(super) fn difference(wanted: &Item, stored: &Item) -> Option<String> {
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
pub(super) fn status_difference(original: &Item, stored: &Item) -> Option<String> {
    let view = |status: Option<Value>| {
        let mut status = status.unwrap_or_default();
        if original.kind == Kind::Cluster
            && let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
        {
            conditions.retain(|condition| {
                let kind = condition["type"].as_str().unwrap_or_default();
                !COMPUTED.contains(&kind)
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
