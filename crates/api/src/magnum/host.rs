//! `Host`: a machine of the pool that bare-metal clusters stand on.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A machine that answers ssh. A cluster claims it and gives it back; two clusters never have the same one.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "magnum.windlass.dev",
    version = "v1alpha1",
    kind = "Host",
    namespaced,
    category = "windlass",
    doc = "A machine of the pool that bare-metal clusters stand on.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Flavor", type_ = "string", json_path = ".spec.flavor"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.claim.cluster"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.claim.node"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct HostSpec {
    /// Where ssh connects to.
    #[schemars(length(min = 1, max = 253))]
    pub address: String,
    /// The port of ssh. Default: 22.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The user to log in as. Default: root.
    #[schemars(length(min = 1, max = 64))]
    pub user: Option<String>,
    /// The flavor by which node groups ask for it. Default: none; it is taken by any group, after those of the flavor that the
    /// group asks for.
    #[schemars(length(min = 1, max = 255))]
    pub flavor: Option<String>,
    /// Who has it. It is written by whoever claims it and by nobody else; none: it is free.
    pub claim: Option<Claim>,
}

/// Who has a host.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The UUID of the cluster.
    #[schemars(length(min = 36, max = 36))]
    pub cluster: String,
    /// The UUID of the node group.
    #[schemars(length(min = 36, max = 36))]
    pub group: String,
    /// The name of the ClusterNode.
    #[schemars(length(min = 1, max = 63))]
    pub node: String,
}
