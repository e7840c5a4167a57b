//! `FleetRevision`: what a cluster was rendered to, kept so that it can be applied later as it was.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a FleetCluster was rendered to. Windlass writes it; its name is that of the cluster with a digest of the objects behind it, and
/// one whose objects are not those of the digest is refused.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "inventory.windlass.dev",
    version = "v1alpha1",
    kind = "FleetRevision",
    namespaced,
    shortname = "frev",
    category = "windlass",
    doc = "What a cluster of a fleet was rendered to.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".spec.revision"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FleetRevisionSpec {
    /// The FleetCluster; or, as Rollout/NAME, the Rollout that keeps what clusters inherit from.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("self == oldSelf", "a revision does not change"))]
    pub cluster: String,
    /// The digest of the objects.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = ("self == oldSelf", "a revision does not change"))]
    pub revision: String,
    /// The objects of levels that the cluster belonged to when it was rendered to this first: level, then name. Budgets of roll-outs count
    /// a cluster that is brought elsewhere where it was as well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub levels: BTreeMap<String, String>,
    /// The objects, in the order in which they are applied.
    #[schemars(schema_with = "objects")]
    pub objects: Vec<Map<String, Value>>,
}

fn objects(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let items = crate::schema::variables(generator);
    schemars::json_schema!({"type": "array", "maxItems": 20_000, "items": items})
}
