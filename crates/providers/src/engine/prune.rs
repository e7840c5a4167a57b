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

use super::{material, takeover};

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

    /// Who else keeps it.
    pub(super) fn keeper(&self, provider: &Subject) -> Option<String> {
        takeover::keeper(&self.meta.metadata, provider)
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

/// Everything that has the label of a provider and may be removed.
pub(super) async fn find(there: &Client, manifest_label: &str) -> Result<Vec<Found>, Failure> {
    let parameters = ListParams::default().labels(&format!("{}={manifest_label}", label::PROVIDER));
    let discovery = material::discover(there).await?;
    let mut found = Vec::new();
    for (resource, capabilities) in discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        let can = |verb| capabilities.supports_operation(verb);
        if is_kept(&resource) || !can(verbs::LIST) || !can(verbs::DELETE) {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(there.clone(), &resource);
        let listed = match api.list_metadata(&parameters).await {
            // It is served no more, whatever discovery says.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => continue,
            listed => listed.map_err(|error| call(format!("list {}", resource.plural), &error))?,
        };
        // What has a controller goes with that.
        let is_own = |meta: &PartialObjectMeta<DynamicObject>| {
            !meta
                .owner_references()
                .iter()
                .any(|owner| owner.controller == Some(true))
        };
        let own = listed.items.into_iter().filter(is_own);
        found.extend(own.map(|meta| Found {
            resource: resource.clone(),
            meta,
        }));
    }
    Ok(found)
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
