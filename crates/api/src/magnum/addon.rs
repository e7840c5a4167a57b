//! `Addon`: a chart that is installed into clusters whose labels ask for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The namespace of a release where an Addon names none.
pub const NAMESPACE: &str = "kube-system";

/// A chart of Helm, and the clusters that it goes into: those of a project where it is in the project's namespace, those of all projects
/// where it is in the namespace of the pool.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "magnum.windlass.dev",
    version = "v1alpha1",
    kind = "Addon",
    namespaced,
    status = "AddonStatus",
    category = "windlass",
    derive = "PartialEq",
    doc = "A chart of Helm that is installed into clusters whose labels ask for it.",
    printcolumn(name = "Plugin", type_ = "string", json_path = ".spec.plugin"),
    printcolumn(name = "Chart", type_ = "string", json_path = ".status.chart"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AddonSpec {
    /// Which plugin of clusters it is. A label of each cluster says whether it has that.
    pub plugin: Plugin,
    /// Where its chart is.
    pub chart: AddonChart,
    /// The namespace of the release in the cluster, which is made where it is missing. Default: kube-system.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = (NAME_RULE, "a namespace has lower-case letters, digits and hyphens"))]
    pub namespace: Option<String>,
    /// The name of the release. Default: that of the Addon.
    #[schemars(length(min = 1, max = 53))]
    #[x_kube(validation = (NAME_RULE, "a release has lower-case letters, digits and hyphens"))]
    pub release_name: Option<String>,
    /// The values of the chart, beside its own. `${cluster.name}` and its like stand for what the cluster has. Helm keeps them in the cluster in
    /// the clear: name Secrets here, and write nothing secret.
    #[schemars(schema_with = "crate::schema::variables")]
    pub values: Option<Map<String, Value>>,
}

/// What names in Kubernetes are.
const NAME_RULE: &str = "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')";

/// Where a chart is: one of the two.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = (
    "has(self.oci) != has(self.configMapRef)",
    "set exactly one of oci and configMapRef"
))]
#[serde(rename_all = "camelCase")]
pub struct AddonChart {
    /// In a registry that lets everybody read it.
    pub oci: Option<OciChart>,
    /// In a ConfigMap beside the Addon, as `helm package` writes it.
    pub config_map_ref: Option<ChartRef>,
}

/// A chart in a registry.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OciChart {
    /// The repository, for example oci://registry.example.com/charts/calico.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = (
        "self.matches('^oci://[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+$')",
        "write a repository of a registry without a tag, for example oci://registry.example.com/charts/calico"
    ))]
    pub repository: String,
    /// The version, for example 3.31.0. Whoever publishes another chart by the same version is not noticed.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = (
        "self.matches('^v?[0-9]+[.][0-9]+[.][0-9]+([-+][0-9A-Za-z.+-]+)?$')",
        "write one version, for example 3.31.0"
    ))]
    pub version: String,
}

/// A key of a ConfigMap.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartRef {
    /// The ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data. Default: chart.tgz.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

impl ChartRef {
    /// The key.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or("chart.tgz")
    }
}

/// What clusters may have installed.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Plugin {
    /// The network, where `network_driver` is calico.
    Calico,
    /// The network, where `network_driver` is cilium.
    Cilium,
    /// The network, where `network_driver` is flannel.
    Flannel,
    /// OpenStack's cloud controller.
    CloudProvider,
    /// Volumes of Cinder.
    CinderCsi,
    /// Shares of Manila.
    ManilaCsi,
    /// Who may what, as Keystone says it.
    KeystoneAuth,
    /// Cluster API's autoscaler.
    Autoscaler,
    /// What nodes and pods use.
    Metrics,
    /// Prometheus.
    Monitoring,
    /// What is wrong with nodes.
    NodeProblemDetector,
    /// Ingresses by nginx.
    IngressNginx,
    /// Ingresses by Octavia.
    IngressOctavia,
    /// Ingresses by Traefik.
    IngressTraefik,
    /// The dashboard.
    Dashboard,
    /// What every cluster has. Of these there may be several.
    All,
}

impl Plugin {
    /// All of them, in the order in which they are installed.
    pub const EVERY: [Self; 16] = [
        Self::Calico,
        Self::Cilium,
        Self::Flannel,
        Self::CloudProvider,
        Self::CinderCsi,
        Self::ManilaCsi,
        Self::KeystoneAuth,
        Self::Autoscaler,
        Self::Metrics,
        Self::Monitoring,
        Self::NodeProblemDetector,
        Self::IngressNginx,
        Self::IngressOctavia,
        Self::IngressTraefik,
        Self::Dashboard,
        Self::All,
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Calico => "calico",
            Self::Cilium => "cilium",
            Self::Flannel => "flannel",
            Self::CloudProvider => "cloud-provider",
            Self::CinderCsi => "cinder-csi",
            Self::ManilaCsi => "manila-csi",
            Self::KeystoneAuth => "keystone-auth",
            Self::Autoscaler => "autoscaler",
            Self::Metrics => "metrics",
            Self::Monitoring => "monitoring",
            Self::NodeProblemDetector => "node-problem-detector",
            Self::IngressNginx => "ingress-nginx",
            Self::IngressOctavia => "ingress-octavia",
            Self::IngressTraefik => "ingress-traefik",
            Self::Dashboard => "dashboard",
            Self::All => "all",
        }
    }
}

/// How an Addon stands.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddonStatus {
    /// The generation that this speaks of.
    pub observed_generation: Option<i64>,
    /// The chart with its version, as it says them itself.
    #[schemars(length(max = 384))]
    pub chart: Option<String>,
    /// The version of the chart.
    #[schemars(length(max = 128))]
    pub version: Option<String>,
    /// The SHA-256 of the chart, in hex.
    #[schemars(length(max = 64))]
    pub digest: Option<String>,
    /// Ready: clusters may have it. Stalled: nothing goes on until somebody changes something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_called_by_its_word() {
        for plugin in Plugin::EVERY {
            let word = serde_json::to_value(plugin).unwrap();
            assert_eq!(word, plugin.word());
        }
    }
}
