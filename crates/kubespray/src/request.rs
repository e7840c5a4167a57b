//! Annotations with which people ask for something.

use crate::operation::{self, Operation};

/// The annotation whose value, when it changes, makes the cluster's operation start anew with a new run.
pub const START_AGAIN: &str = "windlass.dev/start-again";
/// The annotation of a Cluster with which a person asks that the playbooks run over the built cluster again: each value
/// once. A Run that came of it carries the same annotation.
pub const CONVERGE: &str = "kubespray.k8s.io/converge";
/// The annotation of a Cluster with which a person asks that the certificates of its control plane are renewed: each value once. A
/// Run that came of it carries the same annotation.
pub const RENEW: &str = "kubespray.k8s.io/renew-certificates";
/// The annotation of a ClusterNode with which a person wants its host removed whatever is lost: pods that a
/// PodDisruptionBudget holds, and a host that still runs and does not answer.
pub const FORCE_REMOVAL: &str = "kubespray.k8s.io/force-removal";
/// The annotation of a Cluster with which a person lets start now what waits for a maintenance window: each value once. A Run that
/// came of it carries the same annotation.
pub const MAINTAIN: &str = "kubespray.k8s.io/maintain-now";

/// The annotation by which an operation is asked for.
pub fn of(operation: &Operation) -> &'static str {
    if operation.name == operation::RENEW.name {
        RENEW
    } else {
        CONVERGE
    }
}
