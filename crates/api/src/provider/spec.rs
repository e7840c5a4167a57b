//! What a provider should be.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Deployment, Manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// What a provider should be.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "!(has(self.manifestPatches) && has(self.patches))",
    "Cannot set both 'patches' and 'manifestPatches'"
))]
pub struct ProviderSpec {
    /// The version, as v1.13.4. Default: the newest that the source has, which `status.installedVersion` then says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Settings of the controller manager, which become arguments of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Settings of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
    /// The Secret with the variables of the manifests and the credentials of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_secret: Option<ObjectReference>,
    /// Where the manifests come from. Default: the source that clusterctl knows for a provider of that kind and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_config: Option<FetchConfig>,
    /// The ConfigMap whose key `manifests` holds more objects, which are installed with those of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_manifests: Option<ObjectReference>,
    /// Merge patches (RFC 7396) in YAML. Each names the object it is for by kind, apiVersion, metadata.name and
    /// metadata.namespace, as far as they are given; `patches` says the same more clearly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_patches: Option<Vec<String>>,
    /// Patches of the manifests, in their order. Not together with `manifestPatches`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<Vec<Patch>>,
    /// Settings of further Deployments of the provider, by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_deployments: Option<BTreeMap<String, AdditionalDeployment>>,
}

/// Settings of a further Deployment.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdditionalDeployment {
    /// Settings of its controller manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Settings of the Deployment itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
}

/// An object by its name.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Its name.
    pub name: String,
    /// Its namespace. Default: the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Where the manifests of a provider come from: exactly one of these.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "[has(self.oci), has(self.url), has(self.selector)].exists_one(x,x)",
    "Must specify one and only one of {oci, url, selector}"
))]
pub struct FetchConfig {
    /// An OCI artefact, as registry.example.com/providers/aws:v2.13.0. Default of its tag: spec.version. With http:// before
    /// it, it is fetched without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<String>,
    /// The address of a release's files, as `https://github.com/OWNER/REPOSITORY/releases`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Labels of ConfigMaps in the provider's namespace, one a version, each with the keys `metadata` and `components`. Its
    /// version is its label provider.cluster.x-k8s.io/version, or else its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::label_selector")]
    pub selector: Option<LabelSelector>,
}

/// A patch of manifests.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// The patch in YAML: a mapping is a merge patch (RFC 7396), a list a JSON patch (RFC 6902).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// The objects that it is for. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PatchTarget>,
}

/// Which objects a patch is for: those that have all of what is given.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchTarget {
    /// Their API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Their API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Their kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Their namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A selector of their labels, as kubectl takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
}
