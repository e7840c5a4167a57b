//! How many machines there are to be, and who says that: an autoscaler, where its annotations say so.
//!
//! # Source
//! Cluster API 1.14.2, `core/webhooks/admission/machinedeployment.go`, `calculateMachineDeploymentReplicas`; those of MachineSets and
//! MachinePools have the same rule.

use serde_json::Value;

/// The least and the most of an autoscaler, where an object or a part of a topology with this metadata is left to one. As for Cluster
/// API, one that says but one of them is not.
pub fn range(metadata: &Value) -> Option<(u32, u32)> {
    let bound = |key: &str| {
        metadata["annotations"][key]
            .as_str()
            .and_then(|text| text.parse().ok())
    };
    Some((bound(MIN_SIZE)?, bound(MAX_SIZE)?))
}

/// How many there are before and after; None: nobody knows who has not looked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Size {
    pub(super) before: Option<u32>,
    pub(super) after: Option<u32>,
}

/// By the replicas and the metadata of what keeps machines, before and after, where it stays, and by how many there are.
pub(super) fn size(before: (&Value, &Value), after: (&Value, &Value), there: Option<u32>) -> Size {
    let now = set(before.0).or(there);
    let wanted = match (set(after.0), range(after.1), set(before.0)) {
        (Some(replicas), _, _) => Some(replicas),
        (None, Some((least, most)), _) => now.map(|now| now.max(least).min(most.max(least))),
        // Nobody owns the field any more, and the webhook puts in what it does for a new object.
        (None, None, Some(_)) => Some(UNSET),
        (None, None, None) => now,
    };
    Size {
        before: now,
        after: wanted,
    }
}

/// How many a new one has.
pub(super) fn at_birth((replicas, metadata): (&Value, &Value)) -> u32 {
    set(replicas)
        .or_else(|| range(metadata).map(|(least, _)| least))
        .unwrap_or(UNSET)
}

fn set(replicas: &Value) -> Option<u32> {
    replicas.as_u64().and_then(|number| number.try_into().ok())
}

/// The annotations of the autoscaler.
pub const MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
/// Beside the least, the most.
pub const MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// By the webhooks, where nothing is said.
const UNSET: u32 = 1;
