//! `WaveApproval`: somebody's word that a wave of a roll-out may begin, in an object of its own.
//!
//! The same can be said in the Rollout (`spec.control.approved`); but who may write that may change its waves, budgets and gates as well, as
//! rights are of whole objects. Who may create these and no Rollouts lets waves begin, and nothing else.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Lets a wave of a run of a Rollout of its namespace begin. It counts for as long as it is there; what has begun by it stays begun, and is
/// kept in the record of the run.
#[derive(
    CustomResource, Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize,
)]
#[kube(
    group = "inventory.windlass.dev",
    version = "v1alpha1",
    kind = "WaveApproval",
    namespaced,
    shortname = "fwa",
    category = "windlass",
    doc = "Lets a wave of a roll-out begin.",
    printcolumn(name = "Rollout", type_ = "string", json_path = ".spec.rollout"),
    printcolumn(name = "Run", type_ = "string", json_path = ".spec.run"),
    printcolumn(name = "Wave", type_ = "string", json_path = ".spec.wave"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaveApprovalSpec {
    /// The Rollout.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("self == oldSelf", "an approval does not change: delete it, and make another one"))]
    pub rollout: String,
    /// The run, as `status.run.id` of the Rollout has it: for another run it counts for nothing.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = ("self == oldSelf", "an approval does not change: delete it, and make another one"))]
    pub run: String,
    /// The wave that may begin.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = ("self == oldSelf", "an approval does not change: delete it, and make another one"))]
    pub wave: String,
}
