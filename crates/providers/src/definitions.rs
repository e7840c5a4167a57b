//! The definitions that a provider leaves when it is deleted, for a person who wants them gone too.
//!
//! With a definition go all objects of its kind, whoever made them. So no run deletes one, and an operator has no right to: it is asked for
//! by hand, and done to definitions alone that have the provider's label, that nobody else keeps, and that have no objects.

use std::time::Duration;

use api::{
    provider::{GROUP, label},
    run::Subject,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};
use tokio::time::{sleep, timeout};

use crate::{engine, health};

/// How long between two looks at one that goes.
const LOOK: Duration = Duration::from_millis(100);
/// How long one may take to go: it has no objects.
const GOING: Duration = Duration::from_mins(1);

/// A definition with the label of a provider.
#[derive(Clone, Debug)]
pub struct Definition {
    found: CustomResourceDefinition,
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
    let subject = Subject {
        api_group: GROUP.to_owned(),
        kind: provider.provider_type().to_string(),
        name: provider.name().to_owned(),
        ..Subject::default()
    };
    let found = api.list(&ListParams::default().labels(&label)).await?;
    let definitions = found.items.into_iter().map(|found| Definition {
        keeper: engine::keeper(&found.metadata, &subject),
        found,
    });
    Ok(definitions.collect())
}

/// Removes one, unless objects of its kind are there, and waits until it is gone.
///
/// # Errors
///
/// It has objects, or does not go. That it is gone already is none.
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
    if found.uid() != uid {
        return Err(RemoveError::Replaced(name));
    }
    // What is stored in a version that is not served is there all the same.
    if !health::is_established(&found) || !found.spec.versions.iter().any(|one| one.served) {
        return Err(RemoveError::Unseen(name));
    }
    let objects = health::of_definition(client, &found).await;
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
