//! `ClusterNode`: one host of a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    cluster::{Certificates, SecretKeyRef},
    radar::RadarStatus,
    run::Failure,
};

/// One host of the cluster of the same namespace.
#[derive(CustomResource, Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "kubespray.k8s.io",
    version = "v1",
    kind = "ClusterNode",
    namespaced,
    status = "ClusterNodeStatus",
    shortname = "kcn",
    category = "windlass",
    doc = "A host of a Cluster.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.inventory.ansible_host"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.node.health"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.versions.kubelet"),
    printcolumn(name = "Roles", type_ = "string", json_path = ".spec.roles", priority = 1),
    printcolumn(name = "OS", type_ = "string", json_path = ".status.facts.os", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.failure.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "the name of a ClusterNode becomes the host's name: use at most 63 lower-case letters, digits and '-' (RFC 1123 label)"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNodeSpec {
    /// What the host is for. A host with several roles names them in `roles`.
    #[serde(rename = "type")]
    #[x_kube(validation = ("self == oldSelf", "the type of a host that is part of a cluster cannot change: remove the ClusterNode and add it again"))]
    pub node_type: NodeType,
    /// All roles of the host, where `type` alone does not say it. Default: master is control plane and etcd member
    /// unless the cluster has hosts of type etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 5))]
    pub roles: Option<Vec<Role>>,
    /// Host variables, as in an Ansible inventory. Values are strings, integers, booleans, lists or objects of these. A value
    /// of a variable that has no field here may be `{secretKeyRef: {name: SECRET, key: KEY}}`, however deep.
    pub inventory: HostVariables,
    /// The Secret with further variables of this host, in the form of a Cluster's. `inventory` wins over it, and the
    /// cluster's variables win over both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_vars_secret_ref: Option<SecretKeyRef>,
    /// When certificates are renewed; overrides the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
}

/// What a host is for.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum NodeType {
    /// Control plane; also etcd unless the cluster has hosts of type etcd.
    #[serde(rename = "master")]
    Master,
    /// Runs workloads.
    #[serde(rename = "worker")]
    Worker,
    /// An etcd member.
    #[serde(rename = "etcd")]
    Etcd,
    /// A Calico route reflector.
    #[serde(rename = "calico-rr")]
    CalicoRr,
    /// The host to reach the others through.
    #[serde(rename = "bastion")]
    Bastion,
}

/// One role of a host: the inventory group it stands in.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum Role {
    /// `kube_control_plane`.
    #[serde(rename = "control-plane")]
    ControlPlane,
    /// `etcd`.
    #[serde(rename = "etcd")]
    Etcd,
    /// `kube_node`.
    #[serde(rename = "worker")]
    Worker,
    /// `calico_rr`.
    #[serde(rename = "calico-rr")]
    CalicoRr,
    /// `bastion`.
    #[serde(rename = "bastion")]
    Bastion,
}

/// Host variables, as in an Ansible inventory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HostVariables {
    /// The address that ssh connects to.
    #[schemars(length(min = 1, max = 253))]
    pub ansible_host: String,
    /// The ssh port. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub ansible_port: Option<u16>,
    /// The user to log in as. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub ansible_user: Option<String>,
    /// The address that Kubernetes uses. Default: `ansible_host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub ip: Option<String>,
    /// The address that other hosts use. Default: `ip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub access_ip: Option<String>,
    /// The name of the etcd member. Default: etcdN in order of creation, pinned in the cluster's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub etcd_member_name: Option<String>,
    /// Every other variable.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What was observed of a host.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNodeStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The host's health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeHealth>,
    /// What the operator is doing with the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Ready, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// What the host said of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<NodeFacts>,
    /// When it answered last, moved at most once an hour while nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// The versions of what runs on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<NodeVersions>,
    /// The certificates that its servers show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub certificates: Vec<CertificateStatus>,
    /// How it stands against what the last run left on it, where the cluster has a radar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub radar: Option<RadarStatus>,
    /// The last request to reset the host that a run was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reset: Option<String>,
    /// What is wrong with it, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// How healthy something is.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum Health {
    /// Everything that was probed answered as it should.
    #[default]
    #[serde(rename = "HEALTH_OK")]
    Ok,
    /// It works, something needs attention.
    #[serde(rename = "HEALTH_WARN")]
    Warn,
    /// It does not work.
    #[serde(rename = "HEALTH_ERR")]
    Err,
}

impl Health {
    /// The word for it in objects.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "HEALTH_OK",
            Self::Warn => "HEALTH_WARN",
            Self::Err => "HEALTH_ERR",
        }
    }
}

/// The health of a host.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHealth {
    /// How healthy.
    pub health: Health,
    /// When it became what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_changed: Option<Time>,
    /// What it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_health: Option<Health>,
}

/// What the operator is doing with a host.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum NodeState {
    /// For the operator to do something with it.
    #[default]
    Waiting,
    /// Being asked whether it answers.
    Probing,
    /// Being made part of the cluster.
    Joining,
    /// Part of the cluster.
    Joined,
    /// Did not answer and was left out.
    Excluded,
    /// Being removed.
    Removing,
    /// Its last operation failed and waits for a person.
    Failed,
}

/// What a host said of itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// The operating system, for example Debian GNU/Linux 12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub os: Option<String>,
    /// The kernel's release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub kernel: Option<String>,
    /// The architecture, for example amd64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub architecture: Option<String>,
    /// The Python that Ansible uses on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub python: Option<String>,
}

/// A certificate of a host.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// What shows it: kube-apiserver, etcd or kubelet.
    #[schemars(length(max = 64))]
    pub name: String,
    /// When it ends.
    pub not_after: Time,
}

/// The versions of what runs on a host.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeVersions {
    /// The kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub kubelet: Option<String>,
    /// The container runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub container_runtime: Option<String>,
}
