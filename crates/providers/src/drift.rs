//! Whether what was applied is still as it was applied.
//!
//! An API notes for each field of an object who wrote it last, and takes it from whoever had it before. So it is enough to look at the
//! metadata of objects, whatever is in them: where the fields that are the provider's are no more those that they were when its run
//! ended, somebody else has written one of them. Fields that others add are theirs, and are no drift.
//!
//! What somebody else installed and was found right has no fields of the provider's. There it is looked at who else writes more than
//! metadata, and when: the run that puts back what has drifted finds out whether it is right still.
//!
//! # Source
//! Kubernetes, Server-Side Apply: `metadata.managedFields`.

use std::collections::BTreeMap;

use api::{Run, provider::label, run::RunPhase};
use jiff::{Timestamp, ToSpan};
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    core::PartialObjectMeta,
};
use serde::{Deserialize, Serialize};

use crate::{
    names::{COMPONENTS_MANAGER, RENEWED_FROM},
    operation::Operation,
};

/// The key of the ConfigMap that keeps it.
pub const KEY: &str = "applied.json";
/// The key of the same ConfigMap that keeps what an installation is about to make, until it has come to its end.
pub(crate) const BEGUN: &str = "begun.json";
/// So many resources are looked at: a provider has objects of some twenty.
const MOST: usize = 100;
/// How long an object is left alone that was put back, and the longest that it becomes by doubling.
const PAUSE: (u32, u32) = (1, 64);

/// What a run has applied: for each resource the objects, and what tells whether the provider's fields in them are still its own.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Applied(Vec<OfResource>);

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfResource {
    api_version: String,
    kind: String,
    plural: String,
    /// By namespace and name.
    objects: BTreeMap<String, String>,
}

impl Applied {
    /// Notes an object as it was after it was applied.
    pub fn note(&mut self, resource: &ApiResource, meta: &ObjectMeta) {
        let objects = self.of(resource);
        objects.insert(place(meta), fields(meta));
    }

    /// Whether an object is noted.
    pub(crate) fn has(&self, resource: &ApiResource, meta: &ObjectMeta) -> bool {
        let place = place(meta);
        let mut of_kind = self.0.iter().filter(|of| of.is_of(resource));
        of_kind.any(|of| of.objects.contains_key(&place))
    }

    /// The groups and kinds of what is noted.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|of| {
            let ApiResource { group, kind, .. } = of.resource();
            (group, kind)
        })
    }

    /// What is there of the objects of a resource that were applied, looked at one by one: for who may not list them.
    pub(crate) async fn one_by_one(
        &self,
        there: &Client,
        resource: &ApiResource,
    ) -> Result<Vec<PartialObjectMeta<DynamicObject>>, kube::Error> {
        let of_kind = self.0.iter().filter(|of| of.is_of(resource));
        let places = of_kind.flat_map(|of| of.objects.keys());
        let mut found = Vec::new();
        for place in places.filter(|place| is_place(place)) {
            let (api, name) = match place.split_once('/') {
                Some((namespace, name)) => {
                    let api = Api::namespaced_with(there.clone(), namespace, resource);
                    (api, name)
                }
                None => (Api::all_with(there.clone(), resource), place.as_str()),
            };
            found.extend(api.get_metadata_opt(name).await?);
        }
        Ok(found)
    }

    fn of(&mut self, resource: &ApiResource) -> &mut BTreeMap<String, String> {
        let is_it =
            |of: &OfResource| of.api_version == resource.api_version && of.kind == resource.kind;
        let at = self.0.iter().position(is_it).unwrap_or_else(|| {
            self.0.push(OfResource {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
                plural: resource.plural.clone(),
                objects: BTreeMap::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[at].objects
    }
}

/// The ConfigMap that keeps what was applied for a provider, in its namespace of the cluster that it is installed in.
pub fn config_map(manifest_label: &str) -> String {
    format!("windlass-applied-{manifest_label}")
}

/// What was applied for a provider, or that it cannot be read, for people; none where no run has noted it.
///
/// # Errors
///
/// The API refuses or does not answer.
pub(crate) async fn noted(
    there: &Client,
    namespace: &str,
    manifest_label: &str,
) -> Result<Option<Result<Applied, String>>, kube::Error> {
    let name = config_map(manifest_label);
    let maps = Api::<ConfigMap>::namespaced(there.clone(), namespace);
    let Some(map) = maps.get_opt(&name).await? else {
        return Ok(None);
    };
    let data = map.data.unwrap_or_default();
    // An installation that has not come to its end.
    if data.contains_key(BEGUN) && !data.contains_key(KEY) {
        return Ok(None);
    }
    let text = data.get(KEY);
    let applied = text.and_then(|text| serde_json::from_str(text).ok());
    Ok(Some(applied.ok_or_else(|| {
        format!("ConfigMap {namespace}/{name}: what was applied cannot be read there")
    })))
}

/// Whether there is a record, be it of an installation that has not come to its end.
///
/// # Errors
///
/// As of [`noted`].
pub(crate) async fn has_record(
    there: &Client,
    namespace: &str,
    manifest_label: &str,
) -> Result<bool, kube::Error> {
    let maps = Api::<ConfigMap>::namespaced(there.clone(), namespace);
    let found = maps.get_metadata_opt(&config_map(manifest_label)).await?;
    Ok(found.is_some())
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What is not as it was applied, for people. Where the record of what was applied is gone, that.
    pub drifted: Vec<String>,
    /// What was looked at by its label.
    pub resources: Vec<ApiResource>,
    /// Which Secrets were looked at, by namespace and name.
    pub secrets: Vec<(String, String)>,
    /// When the next certificate is to be renewed, which nothing tells.
    pub renewed_from: Option<Timestamp>,
}

/// Looks whether everything is as a run that came to its end has applied it, and noted.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn look(
    there: &Client,
    namespace: &str,
    manifest_label: &str,
    now: Timestamp,
) -> Result<Seen, kube::Error> {
    let mut seen = Seen::default();
    let applied = match noted(there, namespace, manifest_label).await? {
        // Nothing else tells what is missing, or when a certificate ends.
        None => {
            let name = config_map(manifest_label);
            seen.drifted.push(format!(
                "ConfigMap {namespace}/{name}, by which that is seen, is gone"
            ));
            return Ok(seen);
        }
        Some(Ok(applied)) => applied,
        Some(Err(unreadable)) => {
            seen.drifted.push(unreadable);
            return Ok(seen);
        }
    };
    let parameters = ListParams::default().labels(&format!("{}={manifest_label}", label::PROVIDER));
    for of in applied.0.iter().take(MOST) {
        let resource = of.resource();
        let found = found(there, &applied, &resource, &parameters).await?;
        let found: Vec<_> = found.iter().map(|found| &found.metadata).collect();
        seen.drifted
            .extend(of.differences(found.iter().copied(), now));
        let renewed = found.iter().filter_map(|meta| renewed_from(meta));
        seen.renewed_from = renewed.chain(seen.renewed_from).min();
        if is_secret(&resource) {
            let names = of.objects.keys().filter(|place| is_place(place));
            let names = names.filter_map(|place| place.split_once('/'));
            let names = names.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
            seen.secrets.extend(names);
        } else {
            seen.resources.push(resource);
        }
    }
    Ok(seen)
}

/// What is there of a resource. Secrets are nobody's to list for the sake of one.
async fn found(
    there: &Client,
    applied: &Applied,
    resource: &ApiResource,
    parameters: &ListParams,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, kube::Error> {
    if is_secret(resource) {
        return applied.one_by_one(there, resource).await;
    }
    let api = Api::<DynamicObject>::all_with(there.clone(), resource);
    match api.list_metadata(parameters).await {
        // With the definition went the objects.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        found => Ok(found?.items),
    }
}

fn is_secret(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.kind == "Secret"
}

impl OfResource {
    /// Whichever version of the kind it was.
    fn is_of(&self, resource: &ApiResource) -> bool {
        let noted = self.resource();
        (&noted.group, &noted.kind) == (&resource.group, &resource.kind)
    }

    fn resource(&self) -> ApiResource {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version));
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    fn differences<'a>(
        &self,
        found: impl Iterator<Item = &'a ObjectMeta>,
        now: Timestamp,
    ) -> Vec<String> {
        let found: BTreeMap<_, _> = found.map(|meta| (place(meta), meta)).collect();
        let lines = self.objects.iter().filter_map(|(place, noted)| {
            // The record lies in a cluster of somebody's.
            let title = format!(
                "{} {}",
                api::text::plain(&self.kind, 64),
                api::text::plain(place, 320)
            );
            let Some(meta) = found.get(place) else {
                return Some(format!("{title} is gone"));
            };
            if fields(meta) != *noted {
                return Some(format!("{title} was changed{}", by(meta)));
            }
            is_to_be_renewed(meta, now).then(|| format!("{title} has a certificate to be renewed"))
        });
        lines.collect()
    }
}

fn is_to_be_renewed(meta: &ObjectMeta, now: Timestamp) -> bool {
    renewed_from(meta).is_some_and(|from| from <= now)
}

fn renewed_from(meta: &ObjectMeta) -> Option<Timestamp> {
    let annotations = meta.annotations.as_ref()?;
    annotations.get(RENEWED_FROM)?.parse().ok()
}

fn place(meta: &ObjectMeta) -> String {
    let name = meta.name.clone().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

/// Whether it names an object and nothing else: the record lies in a cluster of somebody's.
fn is_place(place: &str) -> bool {
    let mut names = place.splitn(2, '/');
    names.all(|name| !name.contains(['/', '%', '?', '#']) && !["", ".", ".."].contains(&name))
}

/// What tells the fields that are the provider's from others.
fn fields(meta: &ObjectMeta) -> String {
    let own =
        entries(meta).find(|entry| is_ours(entry) && entry.operation.as_deref() == Some("Apply"));
    let text = match own {
        Some(own) => text(own),
        None => entries(meta).filter_map(written).collect(),
    };
    controller::digest(&[&text], 16)
}

fn text(entry: &ManagedFieldsEntry) -> String {
    let fields = entry.fields_v1.as_ref();
    fields
        .map(|fields| fields.0.to_string())
        .unwrap_or_default()
}

/// What somebody else has written when. None: labels and annotations of their own.
fn written(entry: &ManagedFieldsEntry) -> Option<String> {
    let fields = entry.fields_v1.as_ref()?.0.as_object()?;
    if fields.keys().all(|field| field == "f:metadata") {
        return None;
    }
    let manager = entry.manager.as_deref().unwrap_or_default();
    let time = entry.time.as_ref().map(|time| time.0.to_string());
    Some(format!(
        "{manager} {} {}\n",
        time.unwrap_or_default(),
        text(entry)
    ))
}

/// Who wrote it last, beside the provider.
fn by(meta: &ObjectMeta) -> String {
    let others = entries(meta).filter(|entry| !is_ours(entry));
    let last = others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    let Some(manager) = last.and_then(|entry| entry.manager.as_deref()) else {
        return String::new();
    };
    format!(" by {}", api::text::plain(manager, 128))
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(COMPONENTS_MANAGER)
}

/// Whoever writes the status of an object, or its scale, writes something else.
pub(crate) fn entries(meta: &ObjectMeta) -> impl Iterator<Item = &ManagedFieldsEntry> {
    let entries = meta.managed_fields.iter().flatten();
    entries.filter(|entry| entry.subresource.is_none())
}

/// Whether what has drifted is put back now. Somebody who writes it again and again is answered ever more slowly.
pub fn is_due(runs: &[Run], now: Timestamp) -> bool {
    let is_repair = |run: &&Run| run.spec.operation == Operation::Repair.name();
    let repairs = runs.iter().rev().take_while(is_repair).count();
    let Some(last) = runs.last().filter(|_| repairs > 0) else {
        return true;
    };
    let status = last.status.as_ref();
    let is_over = status.is_some_and(|status| status.phase == RunPhase::Succeeded);
    let Some(finished) = status.and_then(|status| status.finished_at.as_ref()) else {
        return is_over;
    };
    let doubled = u32::try_from(repairs - 1)
        .ok()
        .and_then(|n| PAUSE.0.checked_shl(n.min(16)));
    let minutes = doubled.unwrap_or(PAUSE.1).min(PAUSE.1);
    finished
        .0
        .checked_add(i64::from(minutes).minutes())
        .is_ok_and(|due| due <= now)
}

#[cfg(test)]
mod tests;
