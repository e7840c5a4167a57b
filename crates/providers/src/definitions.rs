//! The definitions that a provider leaves when it is deleted, for a person who wants them gone too.
//!
//! With a definition go all objects of its kind, whoever made them. So no run deletes one, and an operator has no right to: it is asked for
//! by hand, and done to definitions alone that have the provider's label, that nobody else keeps, and that have no objects.

use std::{fmt::Debug, time::Duration};

use api::{
    provider::{GROUP, label},
    run::Subject,
};
use k8s_openapi::{
    api::apps::v1::{DaemonSet, Deployment, StatefulSet},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, ListParams, Preconditions},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::{
    drift::{self, Applied},
    engine::{self, Known},
    health,
    outline::Outline,
};

/// How long between two looks at one that goes.
const LOOK: Duration = Duration::from_millis(100);
/// How long one may take to go: it has no objects.
const GOING: Duration = Duration::from_mins(1);

/// A definition with the label of a provider.
#[derive(Clone, Debug)]
pub struct Definition {
    found: CustomResourceDefinition,
    of: clusterctl::Provider,
    keeper: Option<String>,
}

impl Definition {
    /// Its name, as `things.example.com`.
    pub fn name(&self) -> String {
        self.found.name_any()
    }

    /// Who keeps it beside the provider, for people: another owner, a Helm release, who applies it.
    pub fn keeper(&self) -> Option<&str> {
        self.keeper.as_deref()
    }

    /// Why this is not to go, as it was read last.
    fn objection(&self, now: &CustomResourceDefinition) -> Option<RemoveError> {
        let name = self.name();
        if now.uid() != self.found.uid() {
            return Some(RemoveError::Replaced(name));
        }
        let label = now.labels().get(label::PROVIDER);
        if label != Some(&self.of.manifest_label()) {
            return Some(RemoveError::Released(name));
        }
        let keeper = keeper(now, &self.of)?;
        Some(RemoveError::Kept(name, keeper))
    }
}

/// Why a definition was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// Objects of its kind are there.
    #[error("remove definition {0}, which has objects: {1}")]
    InUse(String, String),
    /// Whether it has objects cannot be seen.
    #[error("see whether definition {0} has objects, of which no version is served")]
    Unseen(String),
    /// Somebody else keeps it by now.
    #[error("remove definition {0}, which {1} keeps by now")]
    Kept(String, String),
    /// It is none of the provider any more.
    #[error("remove definition {0}, which has not the label of the provider any more")]
    Released(String),
    /// It is another one by now.
    #[error("remove definition {0}, which was made anew meanwhile")]
    Replaced(String),
    /// It does not go.
    #[error(
        "see definition {0} go within {seconds} s, which is deleted and has the finalizers {1}",
        seconds = GOING.as_secs()
    )]
    Stays(String, String),
    /// The API refuses or does not answer.
    #[error("{0}")]
    Api(String, #[source] kube::Error),
}

/// The definitions with the label of a provider, by name.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn of(
    client: &Client,
    provider: &clusterctl::Provider,
) -> Result<Vec<Definition>, kube::Error> {
    let label = format!("{}={}", label::PROVIDER, provider.manifest_label());
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let found = api.list(&ListParams::default().labels(&label)).await?;
    let definitions = found.items.into_iter().map(|found| Definition {
        keeper: keeper(&found, provider),
        of: provider.clone(),
        found,
    });
    Ok(definitions.collect())
}

/// Who keeps one beside a provider.
fn keeper(found: &CustomResourceDefinition, provider: &clusterctl::Provider) -> Option<String> {
    engine::keeper_beside(&found.metadata, &subject(provider))
}

fn subject(provider: &clusterctl::Provider) -> Subject {
    Subject {
        api_group: GROUP.to_owned(),
        kind: provider.provider_type().to_string(),
        name: provider.name().to_owned(),
        ..Subject::default()
    }
}

/// The workloads with the label of a provider that somebody else keeps, for people: they are at work when the provider has gone.
///
/// # Errors
///
/// The API refuses or does not answer. One without pods has no workloads.
pub async fn workloads_left(
    client: &Client,
    provider: &clusterctl::Provider,
    namespace: &str,
) -> Result<Vec<String>, kube::Error> {
    let label = provider.manifest_label();
    let noted = drift::noted(client, namespace, &label).await?;
    let noted = noted.and_then(Result::ok);
    let mut left = left_of::<Deployment>(client, provider, noted.as_ref()).await?;
    left.extend(left_of::<StatefulSet>(client, provider, noted.as_ref()).await?);
    left.extend(left_of::<DaemonSet>(client, provider, noted.as_ref()).await?);
    Ok(left)
}

async fn left_of<K>(
    client: &Client,
    provider: &clusterctl::Provider,
    noted: Option<&Applied>,
) -> Result<Vec<String>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let label = format!("{}={}", label::PROVIDER, provider.manifest_label());
    let api = Api::<K>::all(client.clone());
    let parameters = ListParams::default().labels(&label);
    let found = match api.list_metadata(&parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        found => found?,
    };
    Ok(kept(&found.items, provider, noted))
}

/// Those that somebody else keeps, for people. Pure.
fn kept<K>(
    found: &[PartialObjectMeta<K>],
    provider: &clusterctl::Provider,
    noted: Option<&Applied>,
) -> Vec<String>
where
    K: Resource<DynamicType = ()>,
{
    let subject = subject(provider);
    let resource = ApiResource::erase::<K>(&());
    let kept = found.iter().filter_map(|one| {
        let known = match noted {
            None => Known::Nothing,
            Some(noted) if noted.has(&resource, &one.metadata) => Known::Applied,
            Some(_) => Known::Others,
        };
        let keeper = engine::keeper(&one.metadata, &subject, known)?;
        let namespace = one.namespace().unwrap_or_default();
        let kind = K::kind(&());
        Some(format!("{kind} {namespace}/{} of {keeper}", one.name_any()))
    });
    kept.collect()
}

/// Removes one, unless objects of its kind are there, or somebody else keeps it by now, and waits until it is gone.
///
/// # Errors
///
/// It has objects, is kept, or does not go. That it is gone already is none.
pub async fn remove(client: &Client, definition: &Definition) -> Result<(), RemoveError> {
    let name = definition.name();
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let failed = |what: &str| {
        let what = format!("{what} {name}");
        move |source| RemoveError::Api(what, source)
    };
    let found = api
        .get_opt(&name)
        .await
        .map_err(failed("read definition"))?;
    let Some(found) = found else { return Ok(()) };
    let uid = definition.found.uid();
    if let Some(objection) = definition.objection(&found) {
        return Err(objection);
    }
    // What is stored in a version that is not served is there all the same.
    let outline = Outline::from(&found);
    if !health::is_established(&outline) || !found.spec.versions.iter().any(|one| one.served) {
        return Err(RemoveError::Unseen(name));
    }
    let objects = match health::of_served(client, &outline).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err(RemoveError::Unseen(name));
        }
        objects => objects,
    };
    if let Some(objects) = objects.map_err(failed("look for objects of definition"))? {
        return Err(RemoveError::InUse(name, objects));
    }
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&name, &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            return Err(RemoveError::Replaced(name));
        }
        deleted => deleted.map(drop).map_err(failed("delete definition"))?,
    }
    let mut finalizers = String::new();
    let gone = async {
        loop {
            match api.get_metadata_opt(&name).await? {
                Some(found) if found.uid() == uid => finalizers = found.finalizers().join(", "),
                _ => return Ok(()),
            }
            sleep(LOOK).await;
        }
    };
    match timeout(GOING, gone).await {
        Ok(gone) => gone.map_err(failed("look for definition")),
        Err(_) => Err(RemoveError::Stays(name, finalizers)),
    }
}

#[cfg(test)]
mod tests {
    use clusterctl::{Provider, ProviderType};
    use serde_json::{Value, json};

    use super::*;
    use crate::names::COMPONENTS_MANAGER;

    #[test]
    fn what_stays_at_work_is_what_somebody_else_keeps() {
        let applied = |manager: &str| json!([{"manager": manager, "operation": "Apply"}]);
        let deployment = |name: &str, metadata: Value| {
            let mut metadata = metadata;
            metadata["name"] = json!(name);
            metadata["namespace"] = json!("harbour");
            let object = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
            });
            serde_json::from_value::<PartialObjectMeta<Deployment>>(object).unwrap()
        };
        let helm = json!({"annotations": {"meta.helm.sh/release-name": "boats"}});
        let own = json!({"managedFields": applied(COMPONENTS_MANAGER)});
        let flux = json!({"managedFields": applied("kustomize-controller")});
        let found = [
            deployment("own", own),
            deployment("by-helm", helm),
            deployment("by-flux", flux),
            deployment("by-clusterctl", json!({})),
        ];
        let provider = Provider::new(ProviderType::Infrastructure, "boat").unwrap();
        assert_eq!(
            kept(&found, &provider, None),
            [
                "Deployment harbour/by-helm of Helm release boats",
                "Deployment harbour/by-flux of kustomize-controller",
            ]
        );
    }
}
