//! Finds what belongs to a provider and removes what should not be there.

use std::collections::BTreeSet;

use api::provider::label;
use api::run::{Failure, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions},
    core::PartialObjectMeta,
    discovery::verbs,
};
use runs::calls::call;

use super::{
    material,
    takeover::{self, Known},
};
use crate::{drift::Applied, outline::Outline};

/// An object by group, kind, namespace and name.
pub(super) type Key = (String, String, String, String);

/// The key of an object that is applied.
pub(super) fn key(object: &clusterctl::Object) -> Key {
    let [group, kind, namespace, name] = [
        object.group(),
        object.kind(),
        object.namespace(),
        object.name(),
    ]
    .map(str::to_owned);
    (group, kind, namespace, name)
}

/// Something that has a provider's label.
pub(super) struct Found {
    resource: ApiResource,
    meta: PartialObjectMeta<DynamicObject>,
}

impl Found {
    fn key(&self) -> Key {
        let ApiResource { group, kind, .. } = &self.resource;
        (
            group.clone(),
            kind.clone(),
            self.meta.namespace().unwrap_or_default(),
            self.meta.name_any(),
        )
    }

    pub(super) fn title(&self) -> String {
        let (_, kind, namespace, name) = self.key();
        format!("{kind} {namespace}/{name}")
    }

    /// Who else keeps it, by what runs have noted as applied.
    pub(super) fn keeper(&self, provider: &Subject, noted: Option<&Applied>) -> Option<String> {
        let known = match noted {
            None => Known::Nothing,
            Some(noted) if self.is_in(noted) => Known::Applied,
            Some(_) => Known::Others,
        };
        takeover::keeper(&self.meta.metadata, provider, known)
    }

    /// Whether it is noted.
    pub(super) fn is_in(&self, noted: &Applied) -> bool {
        noted.has(&self.resource, &self.meta.metadata)
    }

    /// Its metadata.
    pub(super) fn meta(&self) -> &ObjectMeta {
        &self.meta.metadata
    }

    /// The objects of its kind, where it is.
    pub(super) fn api(&self, there: &Client) -> Api<DynamicObject> {
        match self.meta.namespace() {
            Some(namespace) => Api::namespaced_with(there.clone(), &namespace, &self.resource),
            None => Api::all_with(there.clone(), &self.resource),
        }
    }
}

/// Kinds that are never removed here: with a definition go its objects, with a namespace all that is in it, and what clusterctl
/// keeps has steps of its own. Endpoints are Kubernetes' and have the labels of their Service.
///
/// # Source
/// clusterctl deletes neither definitions nor namespaces unless it is told to.
fn is_kept(resource: &ApiResource) -> bool {
    match resource.group.as_str() {
        "" => matches!(resource.kind.as_str(), "Namespace" | "Endpoints" | "Event"),
        group => matches!(
            group,
            "apiextensions.k8s.io" | "clusterctl.cluster.x-k8s.io"
        ),
    }
}

/// Everything that has the label of a provider, whatever it is, and which kinds of others could not be looked at. Of a kind that may not be listed
/// it is what was noted as applied; where that is not known, such a kind is a failure.
pub(super) async fn find(
    there: &Client,
    manifest_label: &str,
    noted: Option<&Applied>,
    is_known: impl Fn(&str, &str) -> bool,
) -> Result<(Vec<Found>, Vec<String>), Failure> {
    let all = kinds(there).await?;
    look(there, &all, (manifest_label, noted), is_known).await
}

/// What of it may be removed. Objects of the provider's own definitions are of people and their controllers, whatever labels they have.
pub(super) async fn removable(
    there: &Client,
    manifest_label: &str,
    noted: &Applied,
    is_known: impl Fn(&str, &str) -> bool,
) -> Result<(Vec<Found>, Vec<String>), Failure> {
    let parameters = ListParams::default().labels(&format!("{}={manifest_label}", label::PROVIDER));
    let own = Api::<Outline>::all(there.clone()).list(&parameters).await;
    let own = own.map_err(|error| call("list the definitions of the provider", &error))?;
    let is_own = |resource: &ApiResource| {
        let mut own = own.iter().map(|one| &one.spec);
        own.any(|own| own.group == resource.group && own.names.kind == resource.kind)
    };
    let mut kinds = kinds(there).await?;
    kinds.retain(|one| !is_own(one));
    look(there, &kinds, (manifest_label, Some(noted)), is_known).await
}

/// Of a kind that no release is known to have had there is nothing of the provider; where its API is broken, that keeps nobody from being upgraded or
/// deleted.
async fn look(
    there: &Client,
    kinds: &[ApiResource],
    (manifest_label, noted): (&str, Option<&Applied>),
    is_known: impl Fn(&str, &str) -> bool,
) -> Result<(Vec<Found>, Vec<String>), Failure> {
    let (mut found, mut unseen) = (Vec::new(), Vec::new());
    for resource in kinds {
        match list(there, resource, manifest_label, noted).await {
            Ok(listed) => found.extend(listed),
            Err(kube::Error::Api(status))
                if status.code >= 500 && !is_known(&resource.group, &resource.kind) =>
            {
                let name = format!("{}.{}", resource.plural, resource.group);
                let why = format!("the API answers {}", status.code);
                unseen.push(format!("{name} ({why}), not looked at"));
            }
            Err(error) => return Err(call(format!("look for {}", resource.plural), &error)),
        }
    }
    Ok((found, unseen))
}

/// The kinds whose objects are removed here.
async fn kinds(there: &Client) -> Result<Vec<ApiResource>, Failure> {
    let discovery = material::discover(there).await?;
    let all = discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources);
    let kinds = all.filter_map(|(resource, capabilities)| {
        let can = |verb| capabilities.supports_operation(verb);
        (!is_kept(&resource) && can(verbs::LIST) && can(verbs::DELETE)).then_some(resource)
    });
    Ok(kinds.collect())
}

/// What of a kind has the label of a provider.
async fn list(
    there: &Client,
    resource: &ApiResource,
    manifest_label: &str,
    noted: Option<&Applied>,
) -> Result<Vec<Found>, kube::Error> {
    let parameters = ListParams::default().labels(&format!("{}={manifest_label}", label::PROVIDER));
    let api: Api<DynamicObject> = Api::all_with(there.clone(), resource);
    let listed = match (api.list_metadata(&parameters).await, noted) {
        // It is served no more, whatever discovery says.
        (Err(kube::Error::Api(status)), _) if matches!(status.code, 404 | 405) => Vec::new(),
        (Err(kube::Error::Api(status)), Some(noted)) if status.code == 403 => {
            labelled(noted.one_by_one(there, resource).await?, manifest_label)
        }
        (listed, _) => listed?.items,
    };
    // What has a controller goes with that.
    let is_own = |meta: &PartialObjectMeta<DynamicObject>| {
        !meta
            .owner_references()
            .iter()
            .any(|owner| owner.controller == Some(true))
    };
    let own = listed.into_iter().filter(is_own);
    let found = own.map(|meta| Found {
        resource: resource.clone(),
        meta,
    });
    Ok(found.collect())
}

/// Those that have the label of a provider.
fn labelled(
    mut found: Vec<PartialObjectMeta<DynamicObject>>,
    manifest_label: &str,
) -> Vec<PartialObjectMeta<DynamicObject>> {
    found.retain(|meta| {
        let provider = meta.labels().get(label::PROVIDER);
        provider.is_some_and(|provider| provider == manifest_label)
    });
    found
}

/// Those that are none of `wanted`.
pub(super) fn surplus(found: Vec<Found>, wanted: &BTreeSet<Key>) -> Vec<Found> {
    found
        .into_iter()
        .filter(|found| !wanted.contains(&found.key()))
        .collect()
}

/// Removes it, if it is still what was found.
pub(super) async fn remove(there: &Client, found: &Found) -> Result<(), Failure> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: found.meta.uid(),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    let api = found.api(there);
    match api.delete(&found.meta.name_any(), &parameters).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result
            .map(drop)
            .map_err(|error| call(format!("delete {}", found.title()), &error)),
    }
}
