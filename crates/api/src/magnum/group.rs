//! Node groups: part of their cluster.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Nodes of a cluster that are alike. They stand inside their cluster, so that a cluster is never seen without its groups, and what
/// changes both is one write.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// Its UUID.
    #[schemars(length(min = 36, max = 36))]
    pub uuid: String,
    /// What people call it, once in a cluster.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// What its nodes are for: master, worker, or a word of its maker's.
    pub role: Role,
    /// Whether it was made with the cluster. Default: false.
    pub is_default: Option<bool>,
    /// How many nodes it should have.
    pub node_count: u32,
    /// How many it must have at least. Default: 0.
    pub min_node_count: Option<u32>,
    /// How many it may have at most. Default: any number.
    pub max_node_count: Option<u32>,
    /// The flavor of its nodes.
    #[schemars(length(min = 1, max = 255))]
    pub flavor_id: Option<String>,
    /// The image of its nodes.
    #[schemars(length(min = 1, max = 255))]
    pub image_id: Option<String>,
    /// The version of Kubernetes of its nodes, where it is not that of its cluster, which is that of the control planes.
    pub kubernetes_version: Option<crate::KubernetesVersion>,
    /// The size of the volume for containers, in GB.
    #[schemars(range(min = 1))]
    pub docker_volume_size: Option<u32>,
    /// Settings that have no field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::labels_schema")]
    pub labels: BTreeMap<String, String>,
    /// Labels of its nodes in Kubernetes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::labels_schema")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its nodes in Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub node_taints: Vec<NodeTaint>,
    /// Nodes that have to go first when it shrinks: addresses, names or ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub nodes_to_remove: Vec<String>,
    /// When it was made, RFC 3339.
    #[schemars(length(max = 64))]
    pub created_at: Option<String>,
    /// When a client last changed it, RFC 3339.
    #[schemars(length(max = 64))]
    pub updated_at: Option<String>,
}

impl NodeGroup {
    /// Whether its nodes are control planes.
    pub fn is_master(&self) -> bool {
        self.role.0 == Role::MASTER
    }

    /// Whether it was made with the cluster.
    pub fn is_default(&self) -> bool {
        self.is_default.unwrap_or_default()
    }
}

/// What nodes are for.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Role(#[schemars(length(min = 1, max = 255))] pub String);

impl Role {
    /// Of control planes.
    pub const MASTER: &'static str = "master";
    /// Of workers.
    pub const WORKER: &'static str = "worker";
}

impl Default for Role {
    fn default() -> Self {
        Self(Self::WORKER.to_owned())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A taint of nodes in Kubernetes.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTaint {
    /// Its key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Its value.
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// What it does to pods.
    pub effect: TaintEffect,
}

/// What a taint does to pods.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TaintEffect {
    /// None come that do not tolerate it.
    NoSchedule,
    /// None come where another node will do.
    PreferNoSchedule,
    /// Those that do not tolerate it go.
    NoExecute,
}
