//! What a run of a provider works from, as its plan holds it. References to Secrets and what tells that they changed, never values.

use std::collections::BTreeMap;

use api::{
    provider::{AdditionalDeployment, Deployment, Manager, Patch, ProviderSpec, ProviderType},
    run::Subject,
};
use clusterctl::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The inputs of a plan.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// The version.
    pub version: String,
    /// The contract that it keeps to.
    pub contract: String,
    /// The Secret with the kubeconfig of the cluster to install in. None: where the provider is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The manifests. None: the provider is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<Manifests>,
    /// The Secret with the values of variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<Variables>,
    /// Further manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional: Option<Additional>,
    /// What is changed in the objects.
    #[serde(default, skip_serializing_if = "Changes::is_none")]
    pub changes: Changes,
    /// The newer version whose definitions may be there, where this one goes back from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goes_back_from: Option<String>,
    /// Of a deletion: whether a run of this very object has installed the provider, so that all that Windlass applied of it is its own, noted or
    /// not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_installed: bool,
}

/// What a spec changes in the objects of its provider.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Changes {
    /// Of the controller manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
    /// Of further Deployments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_deployments: Option<BTreeMap<String, AdditionalDeployment>>,
    /// Patches that name what they are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_patches: Option<Vec<String>>,
    /// Patches with targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<Vec<Patch>>,
}

impl Changes {
    /// Those of a spec.
    pub fn of(spec: &ProviderSpec) -> Self {
        Self {
            manager: spec.manager.clone(),
            deployment: spec.deployment.clone(),
            additional_deployments: spec.additional_deployments.clone(),
            manifest_patches: spec.manifest_patches.clone(),
            patches: spec.patches.clone(),
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Manifests in a ConfigMap of the provider's namespace.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifests {
    /// The ConfigMap.
    pub config_map: String,
    /// SHA-256 of what it holds, in hex.
    pub digest: String,
}

/// A Secret with values of variables. What it holds has no digest here: a short value could be guessed from it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Variables {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What tells it from a later one of that name.
    pub uid: String,
    /// What tells what it held from what it holds later.
    pub resource_version: String,
}

impl Variables {
    /// What pods are marked by, so that they are replaced when it is another. Of what the Secret holds nothing goes into it.
    pub fn mark(&self) -> String {
        controller::digest(&[&self.uid, &self.resource_version], 16)
    }
}

/// Further manifests.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Additional {
    /// The namespace of their ConfigMap.
    pub namespace: String,
    /// The ConfigMap.
    pub name: String,
    /// SHA-256 of what it holds, in hex.
    pub digest: String,
}

/// Why a run is none of a provider.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its inputs are not these.
    #[error("read the inputs of the plan")]
    Inputs(#[source] serde_json::Error),
    /// Its version is none.
    #[error("read the version of the plan: {0}")]
    Version(String),
    /// Its subject is no provider.
    #[error("read the subject of the run: {0}")]
    Subject(String),
}

impl Inputs {
    /// As a plan holds them.
    ///
    /// # Errors
    ///
    /// None, as long as every field is text.
    pub fn to_map(&self) -> Result<Map<String, Value>, serde_json::Error> {
        match serde_json::to_value(self)? {
            Value::Object(map) => Ok(map),
            _ => Ok(Map::new()),
        }
    }

    /// Of a plan.
    ///
    /// # Errors
    ///
    /// They are not these.
    pub fn from_map(map: &Map<String, Value>) -> Result<Self, Unreadable> {
        serde_json::from_value(Value::Object(map.clone())).map_err(Unreadable::Inputs)
    }

    /// What a plan wants, without what was there before it.
    pub fn wish(map: &Map<String, Value>) -> Map<String, Value> {
        let mut map = map.clone();
        map.remove("goesBackFrom");
        map
    }

    /// What is needed to end with a provider: nothing is rendered any more.
    #[must_use]
    pub fn bare(self) -> Self {
        Self {
            manifests: None,
            variables: None,
            additional: None,
            changes: Changes::default(),
            goes_back_from: None,
            ..self
        }
    }

    /// The version as one.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn version(&self) -> Result<Version, Unreadable> {
        self.version
            .parse()
            .map_err(|error| Unreadable::Version(format!("{error}")))
    }
}

/// The provider that a run is of.
///
/// # Errors
///
/// It is of something else.
pub fn provider_of(subject: &Subject) -> Result<clusterctl::Provider, Unreadable> {
    let kind = subject.kind.parse().map_err(Unreadable::Subject)?;
    clusterctl::Provider::new(kind, &subject.name)
        .map_err(|error| Unreadable::Subject(error.to_string()))
}

/// The provider of that type and name.
///
/// # Errors
///
/// The name is none of one.
pub fn provider(kind: ProviderType, name: &str) -> Result<clusterctl::Provider, Unreadable> {
    provider_of(&Subject {
        kind: kind.kind().to_owned(),
        name: name.to_owned(),
        ..Subject::default()
    })
}
