//! Objects as clients read them: the order of members is the one in which they are sent.

use std::collections::BTreeMap;

use api::magnum::{HealthStatus, NetworkDriver, NodeTaint, ServerType, VolumeDriver};
use serde::Serialize;

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// What it is to the object that it stands in.
    pub rel: &'static str,
    /// The address.
    pub href: String,
}

/// A cluster template.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
#[expect(clippy::struct_excessive_bools, reason = "the members are the API's")]
pub struct ClusterTemplate {
    pub uuid: String,
    pub name: String,
    pub coe: &'static str,
    pub image_id: String,
    pub flavor_id: Option<String>,
    pub master_flavor_id: Option<String>,
    pub dns_nameserver: Option<String>,
    pub keypair_id: Option<String>,
    pub external_network_id: Option<String>,
    pub fixed_network: Option<String>,
    pub fixed_subnet: Option<String>,
    pub network_driver: NetworkDriver,
    pub apiserver_port: Option<u16>,
    pub docker_volume_size: Option<u32>,
    pub docker_storage_driver: Option<String>,
    pub cluster_distro: Option<String>,
    pub http_proxy: Option<String>,
    pub https_proxy: Option<String>,
    pub no_proxy: Option<String>,
    pub volume_driver: Option<VolumeDriver>,
    pub registry_enabled: bool,
    pub labels: BTreeMap<String, String>,
    pub tls_disabled: bool,
    pub public: bool,
    pub hidden: bool,
    pub server_type: ServerType,
    pub insecure_registry: Option<String>,
    pub master_lb_enabled: bool,
    pub floating_ip_enabled: bool,
    pub project_id: String,
    pub user_id: String,
    pub tags: Option<String>,
    pub driver: Option<String>,
    pub links: Vec<Link>,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}

/// A cluster. What a list leaves out is none there, and not sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct Cluster {
    pub uuid: String,
    pub name: String,
    pub cluster_template_id: String,
    pub keypair: Option<String>,
    pub node_count: u32,
    pub master_count: u32,
    pub docker_volume_size: Option<u32>,
    pub labels: BTreeMap<String, String>,
    pub master_flavor_id: Option<String>,
    pub flavor_id: Option<String>,
    pub create_timeout: u32,
    pub links: Vec<Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    pub status: &'static str,
    pub health_status: Option<HealthStatus>,
    /// What is asked for, and never what is kept: always false.
    pub merge_labels: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub detail: Option<ClusterDetail>,
}

/// What is told of a cluster beside what a list says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct ClusterDetail {
    pub status_reason: Option<String>,
    pub health_status_reason: BTreeMap<String, String>,
    pub discovery_url: Option<String>,
    pub api_address: Option<String>,
    pub coe_version: Option<String>,
    pub container_version: Option<String>,
    pub project_id: String,
    pub user_id: String,
    pub node_addresses: Vec<String>,
    pub master_addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<BTreeMap<String, String>>,
    pub fixed_network: Option<String>,
    pub fixed_subnet: Option<String>,
    pub floating_ip_enabled: bool,
    pub master_lb_enabled: bool,
    #[serde(flatten)]
    pub labels: LabelDifference,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}

/// How labels differ from those that they could have been inherited from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LabelDifference {
    /// What the other one says where both say something else.
    pub labels_overridden: BTreeMap<String, String>,
    /// What only this one has.
    pub labels_added: BTreeMap<String, String>,
    /// What only the other one has.
    pub labels_skipped: BTreeMap<String, String>,
}

/// A node group. What a list leaves out is none there, and not sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct NodeGroup {
    pub uuid: String,
    pub name: String,
    pub flavor_id: Option<String>,
    pub image_id: Option<String>,
    pub node_count: u32,
    pub role: String,
    pub min_node_count: u32,
    pub max_node_count: Option<u32>,
    pub is_default: bool,
    pub stack_id: Option<String>,
    pub status: &'static str,
    /// What is asked for, and never what is kept: always false.
    pub merge_labels: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub detail: Option<NodeGroupDetail>,
}

/// What is told of a node group beside what a list says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct NodeGroupDetail {
    pub id: usize,
    pub cluster_id: String,
    pub project_id: String,
    pub docker_volume_size: Option<u32>,
    pub labels: BTreeMap<String, String>,
    pub links: Vec<Link>,
    pub node_addresses: Vec<String>,
    pub status_reason: Option<String>,
    pub version: Option<String>,
    pub node_labels: BTreeMap<String, String>,
    pub node_taints: Vec<NodeTaint>,
    #[serde(flatten)]
    pub difference: LabelDifference,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}

/// A certificate: that of an authority, or one that it signed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct Certificate {
    pub cluster_uuid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_type: Option<&'static str>,
    pub pem: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csr: Option<String>,
    pub links: Vec<Link>,
}

/// A quota.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct Quota {
    pub project_id: String,
    pub resource: &'static str,
    pub hard_limit: u32,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptQuota>,
}

/// What is told of a quota beside that where somebody has set it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct KeptQuota {
    pub id: u32,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}

/// How much a project, or everybody, has.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Stats {
    /// Clusters.
    pub clusters: usize,
    /// Their nodes, control planes among them.
    pub nodes: u64,
}

/// A part of the service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the members are those of the API's reference, by name"
)]
pub struct Service {
    pub id: u32,
    pub host: String,
    pub binary: &'static str,
    pub state: &'static str,
    pub disabled: bool,
    pub disabled_reason: Option<String>,
    pub report_count: u64,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}
