//! What somebody else installed: plain clusterctl, the existing operator, kubectl.
//!
//! Where it is right it is left as it is, down to who owns its fields. What the API would make of it is told by a dry run, with all
//! that it fills in, and is held against what is there. Where it is not right its fields become the provider's before it is applied:
//! a field stays as long as anybody owns it, and those that the release does not have any more are to go.
//!
//! # Source
//! client-go `util/csaupgrade`, for fields of those who did not apply.

use api::run::{Failure, Subject};
use clusterctl::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldsV1, ManagedFieldsEntry, ObjectMeta, OwnerReference,
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::Discovery,
};
use runs::calls::call;
use serde_json::{Value, json};

use super::{
    Installer,
    objects::{self, Resources},
    prune,
};
use crate::{drift::entries, names::COMPONENTS_MANAGER};

/// Who installs providers beside Windlass, as the API calls them: clusterctl, the existing operator, and kubectl with what `clusterctl
/// generate` prints. Who names no manager has the beginning of its user agent, which is the name of its program: that of the existing
/// operator is `manager`. What it has cached it applies as `capi-operator`.
const INSTALLERS: [&str; 7] = [
    "clusterctl",
    "capi-operator",
    "manager",
    "kubectl",
    "kubectl-client-side-apply",
    "kubectl-create",
    "before-first-apply",
];
/// kubectl, where somebody applies server-side with it. Whatever has the label of a provider may be applied so, and need not be of its release.
const KUBECTL: &str = "kubectl";
/// So many fields of an object are named.
const SHOWN: usize = 5;
/// Helm does not apply server-side by default. What it has is told by this annotation.
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// How an object of somebody else stands.
pub(super) enum Standing {
    /// As it should be.
    Right(Box<DynamicObject>),
    /// These fields should be otherwise. None where the API cannot try.
    Other(Box<DynamicObject>, Vec<String>),
    /// It went meanwhile.
    Gone,
}

impl Installer {
    /// What of these would be taken over otherwise than it is, for people, and how much is right. Nothing is written.
    pub(super) async fn foreseen(
        &self,
        there: &Client,
        served: &Discovery,
        objects: &[Object],
    ) -> Result<(usize, Vec<String>), Failure> {
        if self.has_applied(there).await? {
            return Ok((0, Vec::new()));
        }
        let released = self.released(there).await?;
        let (mut right, mut otherwise) = (0, Vec::new());
        let mut resources = Resources::default();
        for object in objects {
            let kind = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
            // The definition of its kind comes with it.
            if served.resolve_gvk(&kind).is_none() {
                continue;
            }
            let api = resources.api(there, object).await?;
            let before = api.get_metadata_opt(object.name()).await;
            let before =
                before.map_err(|error| call(format!("read {}", object.title()), &error))?;
            if before.is_none_or(|before| is_ours(&before.metadata)) {
                continue;
            }
            match look(&api, object, released.get(&prune::key(object))).await? {
                Standing::Right(_) => right += 1,
                Standing::Other(_, fields) => otherwise.push(told(object, &fields)),
                Standing::Gone => {}
            }
        }
        Ok((right, otherwise))
    }
}

/// An object and fields of it, for people.
pub(super) fn told(object: &Object, fields: &[String]) -> String {
    let shown = fields.iter().take(SHOWN).cloned();
    let more = fields.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("{more} more"));
    let shown: Vec<_> = shown.chain(more).collect();
    format!("{} ({})", object.title(), shown.join(", "))
}

/// Whether Windlass has applied an object.
pub(super) fn is_ours(meta: &ObjectMeta) -> bool {
    entries(meta).any(|entry| is_applied(entry) && is_of(entry, &[COMPONENTS_MANAGER]))
}

/// Holds an object of somebody else against what it should be, and against what else would be right. Nothing is written.
pub(super) async fn look(
    api: &Api<DynamicObject>,
    wanted: &Object,
    released: Option<&Object>,
) -> Result<Standing, Failure> {
    let live = api.get_opt(wanted.name()).await;
    let live = live.map_err(|error| call(format!("read {}", wanted.title()), &error))?;
    let Some(live) = live.map(Box::new) else {
        return Ok(Standing::Gone);
    };
    if let Some(released) = released
        && would_be(api, released, &live)
            .await?
            .is_some_and(|tried| differences(&live, &tried).is_empty())
    {
        return Ok(Standing::Right(live));
    }
    let Some(tried) = would_be(api, wanted, &live).await? else {
        return Ok(Standing::Other(live, Vec::new()));
    };
    let fields = differences(&live, &tried);
    Ok(if fields.is_empty() {
        Standing::Right(live)
    } else {
        Standing::Other(live, fields)
    })
}

/// What applying an object would make of it. None: somebody whom the API asks about it cannot be asked without consequences. What may not be
/// written, and stands as it is wanted, is left.
async fn would_be(
    api: &Api<DynamicObject>,
    object: &Object,
    live: &DynamicObject,
) -> Result<Option<DynamicObject>, Failure> {
    let parameters = PatchParams {
        dry_run: true,
        ..PatchParams::apply(COMPONENTS_MANAGER).force()
    };
    match api
        .patch(object.name(), &parameters, &Patch::Apply(object.value()))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 400 => Ok(None),
        // It is made anew.
        Err(kube::Error::Api(status)) if status.code == 422 && objects::is_binding(object) => {
            Ok(None)
        }
        Err(kube::Error::Api(status)) if status.code == 403 && objects::stands(object, live) => {
            Ok(Some(live.clone()))
        }
        tried => tried
            .map(Some)
            .map_err(|error| call(format!("try to apply {}", object.title()), &error)),
    }
}

/// Makes the fields of those who installed an object the provider's. Its values stay as they are.
pub(super) async fn take(
    api: &Api<DynamicObject>,
    object: &Object,
    live: &DynamicObject,
) -> Result<(), Failure> {
    let api_version = object.value()["apiVersion"].as_str().unwrap_or_default();
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let Some(entries) = taken(entries, api_version) else {
        return Ok(());
    };
    let parameters = PatchParams {
        field_manager: Some(COMPONENTS_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let body = json!({"metadata": {
        // Whoever writes it meanwhile is not to lose their fields.
        "resourceVersion": live.metadata.resource_version, "managedFields": entries,
    }});
    api.patch(object.name(), &parameters, &Patch::Merge(&body))
        .await
        .map(drop)
        .map_err(|error| call(format!("take over {}", object.title()), &error))
}

/// The entries with those of the installers made one of the provider's. None: they have none of this version.
fn taken(entries: &[ManagedFieldsEntry], api_version: &str) -> Option<Vec<ManagedFieldsEntry>> {
    let is_taken = |entry: &&ManagedFieldsEntry| {
        entry.subresource.is_none()
            && is_of(entry, &INSTALLERS)
            && entry.api_version.as_deref() == Some(api_version)
    };
    let (installers, others): (Vec<_>, Vec<_>) = entries.iter().partition(is_taken);
    let last = installers.last()?;
    let mut fields = json!({});
    for entry in &installers {
        if let Some(FieldsV1(of_entry)) = &entry.fields_v1 {
            unite(&mut fields, of_entry);
        }
    }
    let own = ManagedFieldsEntry {
        manager: Some(COMPONENTS_MANAGER.to_owned()),
        operation: Some(APPLY.to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..(*last).clone()
    };
    Some(
        std::iter::once(own)
            .chain(others.into_iter().cloned())
            .collect(),
    )
}

/// A set of fields is a tree of maps.
fn unite(all: &mut Value, more: &Value) {
    let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) else {
        return;
    };
    for (key, value) in more {
        unite(all.entry(key).or_insert_with(|| json!({})), value);
    }
}

/// What runs have noted of an object that has the provider's label.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Known {
    /// That it is of the release: it was applied, or left as it was, for it was right.
    Applied,
    /// All that is of the release, and this is not.
    Others,
    /// No run has come so far.
    Nothing,
}

/// Who else keeps an object that has the provider's label, for people. None: it is the provider's, whoever installed that.
pub(crate) fn keeper(meta: &ObjectMeta, provider: &Subject, known: Known) -> Option<String> {
    if is_ours(meta) {
        return None;
    }
    let applies = |entry: &&ManagedFieldsEntry| is_applied(entry) && is_of(entry, &[KUBECTL]);
    keeper_beside(meta, provider).or_else(|| match known {
        Known::Applied => None,
        Known::Nothing => entries(meta)
            .any(|one| applies(&one))
            .then(|| KUBECTL.to_owned()),
        Known::Others => {
            let writer = entries(meta).last().and_then(|entry| entry.manager.clone());
            Some(writer.unwrap_or_else(|| "somebody else".to_owned()))
        }
    })
}

/// The same of one that Windlass may have applied: what somebody else applies beside it is theirs too, and what goes with it for good does not
/// come back by itself.
pub(crate) fn keeper_beside(meta: &ObjectMeta, provider: &Subject) -> Option<String> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let is_provider = |owner: &OwnerReference| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        group == Some(provider.api_group.as_str())
            && owner.kind == provider.kind
            && owner.name == provider.name
    };
    if let Some(owner) = owners.first()
        && !owners.iter().any(is_provider)
    {
        return Some(format!("{} {}", owner.kind, owner.name));
    }
    let annotations = meta.annotations.as_ref();
    if let Some(release) = annotations.and_then(|all| all.get(HELM_RELEASE)) {
        return Some(format!("Helm release {release}"));
    }
    let is_other = |entry: &&ManagedFieldsEntry| {
        !is_of(entry, &INSTALLERS) && !is_of(entry, &[COMPONENTS_MANAGER])
    };
    let mut others = entries(meta).filter(|entry| is_applied(entry) && is_other(entry));
    others.next().and_then(|entry| entry.manager.clone())
}

fn is_applied(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() == Some(APPLY)
}

fn is_of(entry: &ManagedFieldsEntry, managers: &[&str]) -> bool {
    let manager = entry.manager.as_deref();
    manager.is_some_and(|manager| managers.contains(&manager))
}

/// The fields that are otherwise, without their values: these may be secret.
fn differences(live: &DynamicObject, tried: &DynamicObject) -> Vec<String> {
    let mut found = Vec::new();
    compare(&compared(live), &compared(tried), "", &mut found);
    found
}

/// An object without what is another with every write.
fn compared(object: &DynamicObject) -> Value {
    let mut value = object.data.clone();
    let meta = &object.metadata;
    value["metadata"] = json!({
        "labels": meta.labels, "annotations": meta.annotations, "finalizers": meta.finalizers,
        "ownerReferences": meta.owner_references,
    });
    value
}

fn compare(live: &Value, tried: &Value, path: &str, found: &mut Vec<String>) {
    match (live, tried) {
        (Value::Object(one), Value::Object(other)) => {
            let more = other.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(more) {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                compare(&live[key], &tried[key], &path, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                compare(one, other, &format!("{path}[{at}]"), found);
            }
        }
        _ if live == tried => {}
        _ => found.push(path.to_owned()),
    }
}

const APPLY: &str = "Apply";

#[cfg(test)]
mod tests;
