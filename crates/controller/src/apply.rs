//! Server-side apply that writes only what is not there yet.
//!
//! One field manager per controller, always forced: the fields that a controller applies are its own. What is compared is
//! what would be sent: an object that already holds every applied value is left alone, and a status is left alone when it
//! is equal as a whole. A field that a later version of a controller no longer applies is therefore only given up with the
//! next change of that object.

use std::fmt::Debug;

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{DeserializeGuard, NamespaceResourceScope},
    runtime::reflector::{ObjectRef, Store},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::stream::await_version;

/// Why an apply failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object cannot be written as JSON.
    #[error("write {kind} {name} as JSON")]
    Serialize {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The API refused, or did not answer.
    #[error("apply {kind} {name}")]
    Api {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

impl Error {
    /// Whether the same may succeed in a while: the API is away.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Api { source, .. } if crate::away::is_away(source))
    }
}

/// Applies `wanted` unless `existing` holds all of it already.
///
/// # Errors
///
/// The object cannot be written as JSON, or the API refuses it or does not answer.
pub async fn apply<K>(
    api: &Api<K>,
    manager: &str,
    wanted: &K,
    existing: Option<&K>,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let name = wanted.meta().name.clone().unwrap_or_default();
    let kind = K::kind(&()).into_owned();
    let json = |object: &K| {
        serde_json::to_value(object).map_err(|source| Error::Serialize {
            kind: kind.clone(),
            name: name.clone(),
            source,
        })
    };
    let mut wanted = json(wanted)?;
    if let Some(existing) = existing
        && contains(&json(existing)?, &wanted)
    {
        return Ok(());
    }
    if let Some(fields) = wanted.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(K::api_version(&())));
        fields.insert("kind".to_owned(), json!(kind));
    }
    api.patch(
        &name,
        &PatchParams::apply(manager).force(),
        &Patch::Apply(&wanted),
    )
    .await
    .map(drop)
    .map_err(|source| Error::Api {
        kind: kind.clone(),
        name: name.clone(),
        source,
    })
}

/// Writes the status of an object if it changed, and waits until the store shows it, so that the next pass begins with it.
///
/// # Errors
///
/// The API refuses the status or does not answer.
pub async fn write_status<K, S>(
    client: &Client,
    store: &Store<DeserializeGuard<K>>,
    manager: &str,
    (object, existing): (&K, Option<&S>),
    wanted: &S,
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + 'static,
    S: Serialize + PartialEq,
{
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let api = Api::<K>::namespaced(client.clone(), &namespace);
    let written = apply_status(&api, manager, &name, wanted, existing).await?;
    if let Some(version) = written {
        let object = ObjectRef::new(&name).within(&namespace);
        await_version(store, &object, &version).await;
    }
    Ok(())
}

/// Applies the status of an object by its subresource, unless it is equal to the existing one. Returns the version that the
/// object has then, if it was written.
///
/// # Errors
///
/// The API refuses the status or does not answer.
pub async fn apply_status<K, S>(
    api: &Api<K>,
    manager: &str,
    name: &str,
    wanted: &S,
    existing: Option<&S>,
) -> Result<Option<String>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    S: Serialize + PartialEq,
{
    if existing == Some(wanted) {
        return Ok(None);
    }
    let kind = K::kind(&()).into_owned();
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": kind,
        "metadata": {"name": name},
        "status": wanted,
    });
    api.patch_status(
        name,
        &PatchParams::apply(manager).force(),
        &Patch::Apply(&body),
    )
    .await
    .map(|object| object.meta().resource_version.clone())
    .map_err(|source| Error::Api {
        kind,
        name: name.to_owned(),
        source,
    })
}

/// Applies the status of an object if it is still in the version that was read. For a status
/// that is a record: what was decided on the ground of an older one is refused. Returns the version that the object has then.
///
/// # Errors
///
/// The object was changed meanwhile, or the API refuses the status or does not answer.
pub async fn apply_status_at<K, S>(
    api: &Api<K>,
    manager: &str,
    name: &str,
    version: &str,
    wanted: &S,
) -> Result<Option<String>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    S: Serialize,
{
    let kind = K::kind(&()).into_owned();
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": kind,
        "metadata": {"name": name, "resourceVersion": version},
        "status": wanted,
    });
    api.patch_status(
        name,
        &PatchParams::apply(manager).force(),
        &Patch::Apply(&body),
    )
    .await
    .map(|object| object.meta().resource_version.clone())
    .map_err(|source| Error::Api {
        kind,
        name: name.to_owned(),
        source,
    })
}

/// Whether `existing` holds every value of `wanted`. Lists must be equal in length, and in order.
pub fn contains(existing: &Value, wanted: &Value) -> bool {
    match (existing, wanted) {
        (Value::Object(existing), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            value.is_null()
                || existing
                    .get(key)
                    .is_some_and(|there| contains(there, value))
        }),
        (Value::Array(existing), Value::Array(wanted)) => {
            existing.len() == wanted.len()
                && existing
                    .iter()
                    .zip(wanted)
                    .all(|(existing, wanted)| contains(existing, wanted))
        }
        _ => existing == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_written() {
        let existing = json!({"metadata": {"name": "a", "uid": "1"}, "list": [{"a": 1, "b": 2}]});
        for (wanted, there) in [
            (json!({"metadata": {"name": "a"}}), true),
            (json!({"metadata": {"name": "a", "labels": null}}), true),
            (json!({"metadata": {"name": "b"}}), false),
            (json!({"list": [{"a": 1}]}), true),
            (json!({"list": []}), false),
            (json!({"other": 1}), false),
        ] {
            assert_eq!(contains(&existing, &wanted), there, "{wanted}");
        }
    }
}
