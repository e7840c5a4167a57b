//! What a provider is made of and lies in another namespace than its own: a Secret with values of variables, and credentials of registries, or a
//! ConfigMap with further manifests.
//!
//! The operator reads every one of them, so whoever may write providers in some namespace could have it read what is of others, and have its values
//! put into objects, or sent to a registry, that they name. So whoever lends them says to whom, on what is lent.

use api::provider::ProviderSpec;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, Resource, api::ObjectMeta};
use serde::de::DeserializeOwned;

use crate::{check::given, names::PROVIDER_NAMESPACES};

/// Whether providers of a namespace may be made of what has this metadata.
pub fn is_lent(meta: &ObjectMeta, namespace: &str) -> bool {
    if meta.namespace.as_deref() == Some(namespace) {
        return true;
    }
    let annotations = meta.annotations.as_ref();
    let lent = annotations.and_then(|annotations| annotations.get(PROVIDER_NAMESPACES));
    let mut lent = lent.into_iter().flat_map(|lent| lent.split(','));
    lent.any(|lent| lent.trim() == namespace)
}

/// That what a field names is not there for providers of `own`, and what to do. Whether something of that name is there in a namespace of others is
/// not told.
pub(crate) fn missing(
    kind: &str,
    field: &str,
    (namespace, name): (&str, &str),
    own: &str,
) -> String {
    let title = format!("{kind} {namespace}/{name}");
    if namespace == own {
        return format!("{title}, which {field} names, is not there; make it");
    }
    let kubectl = format!(
        "kubectl -n {namespace} annotate {} {name} {PROVIDER_NAMESPACES}={own}",
        kind.to_lowercase()
    );
    format!(
        "{title}, which {field} names, is not there, or is not lent to providers of namespace {own}: it is of another one, whose people say so by `{kubectl}` \
         (apart by commas where there are more); or keep one in namespace {own}"
    )
}

/// What a spec names in other namespaces and its providers may not be made of, for people.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn not_lent(
    client: &Client,
    spec: &ProviderSpec,
    own: &str,
) -> Result<Vec<String>, kube::Error> {
    let mut told = Vec::new();
    if let Some(reference) = &spec.config_secret {
        let namespace = given(reference.namespace.as_deref()).unwrap_or(own);
        let place = (namespace, reference.name.as_str());
        told.extend(refusal::<Secret>(client, "spec.configSecret", place, own).await?);
    }
    if let Some(reference) = &spec.additional_manifests {
        let namespace = given(reference.namespace.as_deref()).unwrap_or(own);
        let place = (namespace, reference.name.as_str());
        told.extend(refusal::<ConfigMap>(client, "spec.additionalManifests", place, own).await?);
    }
    Ok(told)
}

async fn refusal<K>(
    client: &Client,
    field: &str,
    (namespace, name): (&str, &str),
    own: &str,
) -> Result<Option<String>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    if namespace == own {
        return Ok(None);
    }
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let found = api.get_metadata_opt(name).await?;
    let is_lent = found.is_some_and(|found| is_lent(&found.metadata, own));
    Ok((!is_lent).then(|| missing(&K::kind(&()), field, (namespace, name), own)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_of_another_namespace_says_whom_it_is_lent_to() {
        let meta = |lent: Option<&str>| ObjectMeta {
            namespace: Some("vault".to_owned()),
            annotations: lent
                .map(|lent| BTreeMap::from([(PROVIDER_NAMESPACES.to_owned(), lent.to_owned())])),
            ..ObjectMeta::default()
        };
        for (lent, to, expected) in [
            (None, "vault", true),
            (None, "evil", false),
            (Some(""), "evil", false),
            (Some("a, capi-system"), "capi-system", true),
            (Some("a, capi-system"), "capi", false),
            (Some("*"), "evil", false),
        ] {
            assert_eq!(is_lent(&meta(lent), to), expected, "{lent:?} {to}");
        }
        let told = missing("Secret", "spec.configSecret", ("vault", "crown"), "evil");
        let remedy =
            "`kubectl -n vault annotate secret crown windlass.dev/provider-namespaces=evil`";
        assert!(told.contains(remedy), "{told}");
    }
}
