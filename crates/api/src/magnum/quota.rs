//! `CoeQuota`: how much a project may have.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of a resource a project may have. Its name is that of the resource, in lower case.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "magnum.windlass.dev",
    version = "v1alpha1",
    kind = "CoeQuota",
    namespaced,
    category = "windlass",
    doc = "How much of a resource an OpenStack project may have.",
    printcolumn(name = "Project", type_ = "string", json_path = ".spec.projectId"),
    printcolumn(name = "Limit", type_ = "integer", json_path = ".spec.hardLimit"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CoeQuotaSpec {
    /// The number that clients page by.
    pub id: u32,
    /// The project.
    #[schemars(length(min = 1, max = 64))]
    pub project_id: String,
    /// What is counted.
    pub resource: QuotaResource,
    /// How many there may be.
    pub hard_limit: u32,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum QuotaResource {
    /// Clusters.
    #[default]
    Cluster,
}
