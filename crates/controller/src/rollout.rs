//! How far the pods of a workload are what it asks for now. Pure.
//!
//! # Source
//! kubectl `pkg/polymorphichelpers/rollout_status.go`.

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};

/// How far it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rollout {
    /// How many pods there are to be.
    pub wanted: i32,
    /// How many serve.
    pub available: i32,
    /// How many are of the newest form.
    pub updated: i32,
    /// Whether these numbers are of what is asked for now.
    pub is_seen: bool,
}

impl Rollout {
    /// That of a DaemonSet: a pod on each node that is to have one.
    pub fn of_daemon_set(object: &DaemonSet) -> Self {
        let status = object.status.clone().unwrap_or_default();
        Self {
            wanted: status.desired_number_scheduled,
            available: status.number_available.unwrap_or_default(),
            updated: status.updated_number_scheduled.unwrap_or_default(),
            is_seen: status.observed_generation >= object.metadata.generation,
        }
    }

    /// That of a StatefulSet.
    pub fn of_stateful_set(object: &StatefulSet) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let wanted = object.spec.as_ref().and_then(|spec| spec.replicas);
        Self {
            wanted: wanted.unwrap_or(1),
            available: status.available_replicas.unwrap_or_default(),
            updated: status.updated_replicas.unwrap_or_default(),
            is_seen: status.observed_generation >= object.metadata.generation,
        }
    }

    /// Whether all of them serve, of whatever form.
    pub fn is_available(&self) -> bool {
        self.is_seen && self.available >= self.wanted
    }

    /// Whether all of them serve and are of the newest form.
    pub fn is_done(&self) -> bool {
        self.is_available() && self.updated >= self.wanted
    }
}
