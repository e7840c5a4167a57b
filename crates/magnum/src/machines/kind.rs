//! The kinds of Cluster API that a cluster is made of.

use kube::api::ApiResource;

/// A kind.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// A cluster.
    Cluster,
    /// Its network and load balancer.
    Infrastructure,
    /// Its control planes.
    ControlPlane,
    /// A group of workers.
    Deployment,
    /// One generation of such a group.
    MachineSet,
    /// A machine.
    Machine,
    /// The server that it is.
    Server,
    /// What such servers are made like.
    ServerTemplate,
    /// What such nodes are made like.
    NodeTemplate,
    /// What replaces machines.
    HealthCheck,
    /// What is put into a cluster when it is there.
    Addons,
}

/// Where something of Cluster API is.
const CORE: (&str, &str) = ("cluster.x-k8s.io", "v1beta2");
const ADDONS: (&str, &str) = ("addons.cluster.x-k8s.io", "v1beta2");
const BOOTSTRAP: (&str, &str) = ("bootstrap.cluster.x-k8s.io", "v1beta2");
const CONTROL_PLANE: (&str, &str) = ("controlplane.cluster.x-k8s.io", "v1beta2");
/// Releases up to 0.14 serve no other version, and those after it still serve this one.
const INFRASTRUCTURE: (&str, &str) = ("infrastructure.cluster.x-k8s.io", "v1beta1");

impl Kind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Cluster,
        Self::Infrastructure,
        Self::ControlPlane,
        Self::Deployment,
        Self::MachineSet,
        Self::Machine,
        Self::Server,
        Self::ServerTemplate,
        Self::NodeTemplate,
        Self::HealthCheck,
        Self::Addons,
    ];

    /// Those that tell how a cluster stands.
    pub const TELLING: [Self; 6] = [
        Self::Cluster,
        Self::Infrastructure,
        Self::ControlPlane,
        Self::Deployment,
        Self::Machine,
        Self::Server,
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Infrastructure => "OpenStackCluster",
            Self::ControlPlane => "KubeadmControlPlane",
            Self::Deployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::Machine => "Machine",
            Self::Server => "OpenStackMachine",
            Self::ServerTemplate => "OpenStackMachineTemplate",
            Self::NodeTemplate => "KubeadmConfigTemplate",
            Self::HealthCheck => "MachineHealthCheck",
            Self::Addons => "ClusterResourceSet",
        }
    }

    const fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Cluster
            | Self::Deployment
            | Self::MachineSet
            | Self::Machine
            | Self::HealthCheck => CORE,
            Self::Addons => ADDONS,
            Self::ControlPlane => CONTROL_PLANE,
            Self::NodeTemplate => BOOTSTRAP,
            Self::Infrastructure | Self::Server | Self::ServerTemplate => INFRASTRUCTURE,
        }
    }

    /// Its group.
    pub const fn group(self) -> &'static str {
        self.place().0
    }

    /// Its version.
    pub const fn version(self) -> &'static str {
        self.place().1
    }

    /// Group and version.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    /// What the API calls it.
    pub fn resource(self) -> ApiResource {
        ApiResource {
            group: self.group().to_owned(),
            version: self.version().to_owned(),
            api_version: self.api_version(),
            kind: self.word().to_owned(),
            plural: format!("{}s", self.word().to_lowercase()),
        }
    }

    /// Whether Cluster API neither makes nor takes away objects of this kind.
    pub const fn is_made_by_us_alone(self) -> bool {
        matches!(
            self,
            Self::ServerTemplate | Self::NodeTemplate | Self::HealthCheck | Self::Addons
        )
    }

    /// By an object.
    pub fn of(object: &serde_json::Value) -> Option<Self> {
        let version = object["apiVersion"].as_str()?;
        let group = version.split('/').next()?;
        let word = object["kind"].as_str()?;
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.word() == word && kind.group() == group)
    }
}
