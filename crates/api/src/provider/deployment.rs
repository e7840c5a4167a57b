//! Settings of a provider's Deployment.
//!
//! What belongs to pods is kept as it was written, and its schema is Kubernetes': nothing here looks into it, so no version of
//! Kubernetes that this program was built with can take a field away from it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Settings of a Deployment. What is not given stays as the manifests have it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// How many pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Labels of the nodes that its pods run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The taints that its pods tolerate. An empty list takes away those of the manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::tolerations")]
    pub tolerations: Option<Vec<Value>>,
    /// Which nodes its pods prefer and avoid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::affinity")]
    pub affinity: Option<Map<String, Value>>,
    /// Settings of its containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Vec<Container>>,
    /// The account that its pods have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The Secrets with which its images are pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<ImagePullSecret>>,
}

/// A Secret with which images are pulled.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ImagePullSecret {
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// Settings of a container.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Which one.
    pub name: String,
    /// Its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_url: Option<String>,
    /// Arguments by name, with the dashes. What `manager` says of the same argument counts more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<BTreeMap<String, String>>,
    /// Variables of its environment. Those of the manifests that are not named stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvironmentVariable>>,
    /// What it asks for and may use, instead of what the manifests say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::resources")]
    pub resources: Option<Map<String, Value>>,
    /// What it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
}

/// A variable of a container's environment.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where its value is, instead of here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::value_from")]
    pub value_from: Option<Map<String, Value>>,
}
