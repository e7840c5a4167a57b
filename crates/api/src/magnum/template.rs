//! `CoeClusterTemplate`: what clusters of a project have in common.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What clusters have in common. Its name is its UUID.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "magnum.windlass.dev",
    version = "v1alpha1",
    kind = "CoeClusterTemplate",
    namespaced,
    category = "windlass",
    doc = "What clusters of an OpenStack project have in common.",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Server", type_ = "string", json_path = ".spec.serverType"),
    printcolumn(name = "Visibility", type_ = "string", json_path = ".spec.visibility"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CoeClusterTemplateSpec {
    /// What people call it; several may have one name.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// The project that it belongs to.
    #[schemars(length(min = 1, max = 64))]
    pub project_id: String,
    /// Who made it.
    #[schemars(length(min = 1, max = 64))]
    pub user_id: String,
    /// The image of the servers, by name or id.
    #[schemars(length(min = 1, max = 255))]
    pub image_id: String,
    /// What the servers are. Default: vm.
    pub server_type: Option<ServerType>,
    /// The flavor of workers; of a bare-metal cluster that of the hosts to take.
    #[schemars(length(min = 1, max = 255))]
    pub flavor_id: Option<String>,
    /// The flavor of control planes. Default: that of workers.
    #[schemars(length(min = 1, max = 255))]
    pub master_flavor_id: Option<String>,
    /// The name of a key pair.
    #[schemars(length(min = 1, max = 255))]
    pub keypair_id: Option<String>,
    /// Addresses of name servers, with commas between them.
    #[schemars(length(min = 1, max = 255))]
    pub dns_nameserver: Option<String>,
    /// The network that floating addresses come from.
    #[schemars(length(min = 1, max = 255))]
    pub external_network_id: Option<String>,
    /// The network of the servers.
    #[schemars(length(min = 1, max = 255))]
    pub fixed_network: Option<String>,
    /// Its subnet.
    #[schemars(length(min = 1, max = 255))]
    pub fixed_subnet: Option<String>,
    /// The network plugin. Default: calico.
    pub network_driver: Option<NetworkDriver>,
    /// The port of the Kubernetes API.
    #[schemars(range(min = 1024, max = 65535))]
    pub apiserver_port: Option<u16>,
    /// The size of the volume for containers, in GB.
    #[schemars(range(min = 1))]
    pub docker_volume_size: Option<u32>,
    /// How containers' layers are stored.
    #[schemars(length(min = 1, max = 255))]
    pub docker_storage_driver: Option<String>,
    /// The operating system of the image.
    #[schemars(length(min = 1, max = 255))]
    pub cluster_distro: Option<String>,
    /// The proxy for http.
    #[schemars(length(min = 1, max = 255))]
    pub http_proxy: Option<String>,
    /// The proxy for https.
    #[schemars(length(min = 1, max = 255))]
    pub https_proxy: Option<String>,
    /// What is reached without a proxy.
    #[schemars(length(min = 1, max = 4096))]
    pub no_proxy: Option<String>,
    /// What provides persistent volumes.
    pub volume_driver: Option<VolumeDriver>,
    /// A registry that is reached without TLS.
    #[schemars(length(min = 1, max = 255))]
    pub insecure_registry: Option<String>,
    /// Labels: settings that have no field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::labels_schema")]
    pub labels: BTreeMap<String, String>,
    /// Words to find it by.
    #[schemars(length(min = 1, max = 255))]
    pub tags: Option<String>,
    /// The driver that it asks for.
    #[schemars(length(min = 1, max = 255))]
    pub driver: Option<String>,
    /// Whether the cluster has a registry of its own. Default: false.
    pub registry_enabled: Option<bool>,
    /// Whether the API is served without TLS. Default: false.
    pub tls_disabled: Option<bool>,
    /// Whether control planes stand behind a load balancer. Default: false.
    pub master_lb_enabled: Option<bool>,
    /// Whether servers get floating addresses. Default: true.
    pub floating_ip_enabled: Option<bool>,
    /// Who sees it. Default: Project.
    pub visibility: Option<Visibility>,
}

/// What the servers of a cluster are.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerType {
    /// Virtual machines.
    #[default]
    Vm,
    /// Hosts of the pool.
    Bm,
}

impl ServerType {
    /// Whether nodes are machines of Cluster API, each made of an image, and objects that the store of all clusters has to keep.
    pub const fn has_machines(self) -> bool {
        match self {
            Self::Vm => true,
            Self::Bm => false,
        }
    }

    /// Whether nodes are hosts of the pool, for which a cluster may have to wait.
    pub const fn has_pool(self) -> bool {
        match self {
            Self::Vm => false,
            Self::Bm => true,
        }
    }

    /// Whether a cluster is made of what its project has in the cloud, such as images and networks.
    pub const fn asks_cloud(self) -> bool {
        match self {
            Self::Vm => true,
            Self::Bm => false,
        }
    }
}

/// A network plugin.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkDriver {
    /// Calico.
    #[default]
    Calico,
    /// Cilium.
    Cilium,
    /// Flannel.
    Flannel,
}

/// What provides persistent volumes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeDriver {
    /// Cinder.
    Cinder,
}

/// Who sees a template.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Visibility {
    /// Its project.
    #[default]
    Project,
    /// Everybody.
    Public,
    /// Its project's administrators make clusters of it, nobody else.
    Hidden,
    /// As with Hidden, and it stays marked as public.
    PublicHidden,
}

impl Visibility {
    /// Of Magnum's two words.
    pub const fn of(public: bool, hidden: bool) -> Self {
        match (public, hidden) {
            (false, false) => Self::Project,
            (true, false) => Self::Public,
            (false, true) => Self::Hidden,
            (true, true) => Self::PublicHidden,
        }
    }

    /// Whether it is marked as public.
    pub const fn is_public(self) -> bool {
        matches!(self, Self::Public | Self::PublicHidden)
    }

    /// Whether it is hidden.
    pub const fn is_hidden(self) -> bool {
        matches!(self, Self::Hidden | Self::PublicHidden)
    }
}
