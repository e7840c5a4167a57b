//! A definition without its schemas.
//!
//! The definitions of four providers have some ten thousand nodes of schemas, each of which takes about a kilobyte as a value: tens of
//! MiB that nothing here looks at. So they are skipped where they are read, and who wants one reads that definition alone.

use std::borrow::Cow;

use k8s_openapi::{
    ClusterResourceScope,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionNames,
        CustomResourceDefinitionStatus,
    },
};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

/// A definition as the API has it, but for schemas and what goes with them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Outline {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it defines.
    pub spec: OutlineSpec,
    /// How it stands.
    pub status: Option<CustomResourceDefinitionStatus>,
}

/// What a definition defines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OutlineSpec {
    /// The group of its kind.
    pub group: String,
    /// `Namespaced` or `Cluster`.
    pub scope: String,
    /// The names of its kind.
    pub names: CustomResourceDefinitionNames,
    /// The versions of its kind.
    pub versions: Vec<OutlineVersion>,
    /// Who makes one version of another.
    pub conversion: Option<CustomResourceConversion>,
}

/// A version of a kind.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct OutlineVersion {
    /// Its name.
    pub name: String,
    /// Whether the API answers for it.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
}

impl From<&CustomResourceDefinition> for Outline {
    fn from(definition: &CustomResourceDefinition) -> Self {
        let spec = &definition.spec;
        let versions = spec.versions.iter().map(|version| OutlineVersion {
            name: version.name.clone(),
            served: version.served,
            storage: version.storage,
        });
        Self {
            metadata: definition.metadata.clone(),
            spec: OutlineSpec {
                group: spec.group.clone(),
                scope: spec.scope.clone(),
                names: spec.names.clone(),
                versions: versions.collect(),
                conversion: spec.conversion.clone(),
            },
            status: definition.status.clone(),
        }
    }
}

impl Resource for Outline {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
