//! `CoeCluster`: a cluster as clients of Magnum see it.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NetworkDriver, NodeGroup, Plugin, ServerType};

/// A cluster with its node groups. Its name is its UUID.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "magnum.windlass.dev",
    version = "v1alpha1",
    kind = "CoeCluster",
    namespaced,
    status = "CoeClusterStatus",
    category = "windlass",
    doc = "A cluster as clients of Magnum see it.",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.health.status"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.apiAddress"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
// Else an edit would have servers made for a cluster that has them elsewhere.
#[x_kube(validation = (
    "has(self.imported) == has(oldSelf.imported)",
    "a cluster stays imported, or stays one that is made here: delete it, and create it anew"
))]
#[serde(rename_all = "camelCase")]
pub struct CoeClusterSpec {
    /// What people call it; several may have one name.
    #[schemars(length(min = 1, max = 242))]
    pub name: String,
    /// The project that it belongs to.
    #[schemars(length(min = 1, max = 64))]
    pub project_id: String,
    /// Who made it.
    #[schemars(length(min = 1, max = 64))]
    pub user_id: String,
    /// The UUID of its template.
    #[schemars(length(min = 36, max = 36))]
    pub cluster_template_id: String,
    /// What its servers are, as its template said when it was made. Default: vm.
    pub server_type: Option<ServerType>,
    /// The version of Kubernetes, for example 1.34.3. Default: that of the newest kubespray release.
    pub kubernetes_version: Option<crate::KubernetesVersion>,
    /// The network plugin, as its template said when it was made. Default: calico.
    pub network_driver: Option<NetworkDriver>,
    /// The name of a key pair.
    #[schemars(length(min = 1, max = 255))]
    pub keypair: Option<String>,
    /// How long making it may take, in minutes. Default: 60.
    pub create_timeout: Option<u32>,
    /// The size of the volume for containers, in GB.
    #[schemars(range(min = 1))]
    pub docker_volume_size: Option<u32>,
    /// Settings that have no field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::labels_schema")]
    pub labels: BTreeMap<String, String>,
    /// The flavor of workers.
    #[schemars(length(min = 1, max = 255))]
    pub flavor_id: Option<String>,
    /// The flavor of control planes.
    #[schemars(length(min = 1, max = 255))]
    pub master_flavor_id: Option<String>,
    /// The network of the servers.
    #[schemars(length(min = 1, max = 255))]
    pub fixed_network: Option<String>,
    /// Its subnet.
    #[schemars(length(min = 1, max = 255))]
    pub fixed_subnet: Option<String>,
    /// Where members of etcd find each other.
    #[schemars(length(min = 1, max = 255))]
    pub discovery_url: Option<String>,
    /// Whether servers get floating addresses.
    pub floating_ip_enabled: Option<bool>,
    /// Whether control planes stand behind a load balancer.
    pub master_lb_enabled: Option<bool>,
    /// How many workers of a group an upgrade replaces, or takes out of service, at once. Default: 1.
    #[schemars(range(min = 1))]
    pub max_batch_size: Option<u32>,
    /// Its node groups, two at least.
    #[schemars(length(min = 2, max = 64))]
    pub node_groups: Vec<NodeGroup>,
    /// Where it was made by another Magnum: it is shown and its certificates are signed, and nothing is built, changed or taken away.
    /// It says so from the beginning, or never. Default: it is made here.
    pub imported: Option<Imported>,
}

/// What another Magnum told of a cluster that has no place elsewhere.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// How its driver calls what it is made of: a stack, or a Cluster of Cluster API.
    #[schemars(length(min = 1, max = 255))]
    pub stack_id: Option<String>,
    /// The version of what runs containers.
    #[schemars(length(min = 1, max = 255))]
    pub container_version: Option<String>,
    /// What node groups are made of, by UUID, where it is not what the cluster is made of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::labels_schema")]
    pub group_stack_ids: BTreeMap<String, String>,
}

/// How a cluster stands.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CoeClusterStatus {
    /// The generation that this status speaks of.
    pub observed_generation: Option<i64>,
    /// How far what was asked for is. None: the cluster is being made.
    pub state: Option<State>,
    /// Why.
    #[schemars(length(max = 4096))]
    pub reason: Option<String>,
    /// Its health, as was last told by whom the service trusts to.
    pub health: Option<HealthReport>,
    /// Where the Kubernetes API answers.
    #[schemars(length(max = 255))]
    pub api_address: Option<String>,
    /// The version of Kubernetes, for example v1.34.3.
    #[schemars(length(max = 64))]
    pub coe_version: Option<String>,
    /// How its groups stand, by UUID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub groups: BTreeMap<String, GroupStatus>,
    /// What is installed into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub addons: Vec<AddonReport>,
}

/// How an Addon stands in a cluster.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddonReport {
    /// The Addon as NAMESPACE/NAME; a release that no Addon asks for any more by its own namespace and name; or a plugin that there is no
    /// Addon for.
    #[schemars(length(max = 317))]
    pub name: String,
    /// Which plugin it is.
    pub plugin: Option<Plugin>,
    /// The generation of the Addon that this speaks of.
    pub observed_generation: Option<i64>,
    /// How far it is.
    pub state: AddonState,
    /// The version of the chart that is installed.
    #[schemars(length(max = 128))]
    pub version: Option<String>,
    /// Why.
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
}

/// How far an Addon is in a cluster.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum AddonState {
    /// Something else has to come first.
    Waiting,
    /// Helm is at work.
    Installing,
    /// It is there as it should be.
    Installed,
    /// Helm is at work to take it away.
    Removing,
    /// Somebody has to change something.
    Refused,
    /// Helm could not do it. It is tried again.
    Failed,
}

/// How far what was asked for is, in Magnum's words.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// It is being made.
    CreateInProgress,
    /// It was made.
    CreateComplete,
    /// It could not be made.
    CreateFailed,
    /// It is being changed.
    UpdateInProgress,
    /// It was changed.
    UpdateComplete,
    /// It could not be changed.
    UpdateFailed,
    /// It goes.
    DeleteInProgress,
    /// It could not go.
    DeleteFailed,
}

impl State {
    /// The word of Magnum.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CreateInProgress => "CREATE_IN_PROGRESS",
            Self::CreateComplete => "CREATE_COMPLETE",
            Self::CreateFailed => "CREATE_FAILED",
            Self::UpdateInProgress => "UPDATE_IN_PROGRESS",
            Self::UpdateComplete => "UPDATE_COMPLETE",
            Self::UpdateFailed => "UPDATE_FAILED",
            Self::DeleteInProgress => "DELETE_IN_PROGRESS",
            Self::DeleteFailed => "DELETE_FAILED",
        }
    }

    /// Whether something could not be done.
    pub const fn is_failed(self) -> bool {
        matches!(
            self,
            Self::CreateFailed | Self::UpdateFailed | Self::DeleteFailed
        )
    }

    /// Whether nothing is being done and nothing failed.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::CreateComplete | Self::UpdateComplete)
    }
}

/// The health of a cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HealthReport {
    /// In a word.
    pub status: HealthStatus,
    /// What it is made of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::labels_schema")]
    pub reasons: BTreeMap<String, String>,
}

/// Health in a word.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HealthStatus {
    /// All is well.
    Healthy,
    /// Something is not.
    Unhealthy,
    /// Nobody knows.
    #[default]
    Unknown,
}

/// How a node group stands.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// How far it is. None: it is being made.
    pub state: Option<State>,
    /// Why.
    #[schemars(length(max = 4096))]
    pub reason: Option<String>,
    /// The version of Kubernetes of its nodes, for example v1.34.3; of the one that is behind the others where they differ.
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// The addresses of its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub node_addresses: Vec<String>,
}
