//! `ClusterTemplate`: which objects a cluster of a fleet is rendered to.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Which objects a cluster is rendered to. Every text of them in which `{{`, `{%` or `{#` stands is a template in the language of
/// Jinja; one that is a single `{{ expression }}` gives the expression's value with its type, be it a number, a list or a map.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "inventory.windlass.dev",
    version = "v1alpha1",
    kind = "ClusterTemplate",
    namespaced,
    shortname = "fct",
    category = "windlass",
    doc = "The objects that a cluster of a fleet is rendered to.",
    printcolumn(name = "BackEnd", type_ = "string", json_path = ".spec.backEnd"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterTemplateSpec {
    /// What the objects are, and how they are checked.
    pub back_end: BackEnd,
    /// A schema of the values of a cluster, of all its levels together; `required` says what they must set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::open_schema")]
    pub schema: Option<Map<String, Value>>,
    /// How the VaultSecrets of a cluster read Vault, in the words of their spec: `vault`, and where they differ from the usual `mount`,
    /// `engine` and `refreshEvery`. Its texts are templates. Each secret that `{vault: {path, key}}` names in the values that are used is
    /// one VaultSecret, and a reference to its Secret stands where the value would. Default: such values are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::open_schema")]
    pub vault_secrets: Option<Map<String, Value>>,
    /// The objects, in the order in which they are printed.
    #[schemars(length(min = 1, max = 64))]
    pub documents: Vec<TemplateDocument>,
}

/// What objects are, and how they are checked.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum BackEnd {
    /// A Cluster of kubespray.k8s.io with its ClusterNodes, which must be as their definitions say, and whatever else they need.
    #[default]
    Kubespray,
    /// Any objects, for example those of Cluster API, of which nothing is known here.
    Plain,
}

/// One object of a template, or one for each entry of a list or map.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TemplateDocument {
    /// Makes an object for each entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
    /// An expression; where it is false there is no such object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub when: Option<String>,
    /// How the object is named. Default: Fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naming: Option<Naming>,
    /// The object.
    #[schemars(schema_with = "crate::schema::variables")]
    pub object: Map<String, Value>,
}

/// The list or map for whose entries there is an object each.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForEach {
    /// An expression that gives a list or a map, for example `nodes`.
    #[schemars(length(min = 1, max = 4096))]
    pub values: String,
    /// The name that an entry has in the object's templates. Its key, or its number from 0, is `key`. Default: item.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
}

/// How an object is named. Default: Fixed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Naming {
    /// As its `metadata.name` says.
    #[default]
    Fixed,
    /// With a digest of its content behind that, for objects that must not change, such as the machine templates of Cluster API:
    /// another content is another object. References by `kind` and `name` in the cluster's other objects follow; one in an
    /// object whose own name is hashed must stand behind what it refers to.
    Hashed,
}
