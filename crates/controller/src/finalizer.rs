//! Finalizers: an object that has one stays, though it is deleted, until what belongs to it is gone.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Owns the finalizers and nothing else, so that no controller gives one up by applying other fields of the object.
const MANAGER: &str = "windlass-finalizer";

/// Whether the object is held.
pub fn is_held<K: Resource>(object: &K, finalizer: &str) -> bool {
    object.finalizers().iter().any(|name| name == finalizer)
}

/// Holds the object, unless it is held. One that is gone, or another of its name, is not made or changed.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn hold<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    if is_held(object, finalizer) {
        return Ok(());
    }
    // A finalizer that was never there needs no compare-and-swap: apply merges it into the list.
    let name = object.name_any();
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "uid": object.uid(), "finalizers": [finalizer]},
    });
    let parameters = PatchParams::apply(MANAGER).force();
    let written = api.patch(&name, &parameters, &Patch::Apply(&body)).await;
    unless_gone(written)
}

/// Lets the object go. Only as it was seen: somebody may have added another finalizer.
///
/// # Errors
///
/// The API refuses, also because the object was changed meanwhile, or does not answer.
pub async fn release<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    if !is_held(object, finalizer) {
        return Ok(());
    }
    let finalizers = object.finalizers().iter();
    let rest: Vec<_> = finalizers.filter(|name| *name != finalizer).collect();
    let patch =
        json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": rest}});
    let parameters = PatchParams::default();
    let written = api
        .patch(&object.name_any(), &parameters, &Patch::Merge(&patch))
        .await;
    unless_gone(written)
}

fn unless_gone<K>(written: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => written.map(drop),
    }
}
