//! What people ask of kubespray's operator by annotations, and what waits until they do.

use serde_json::Value;

/// The annotation whose value, when it changes, makes the cluster's operation start anew with a new run.
pub const START_AGAIN: &str = "windlass.dev/start-again";
/// The annotation of a Cluster with which a person asks that the playbooks run over the built cluster again: each value
/// once. A Run that came of it carries the same annotation.
pub const CONVERGE: &str = "kubespray.k8s.io/converge";
/// The annotation of a Cluster with which a person asks that the certificates of its control plane are renewed: each value once. A
/// Run that came of it carries the same annotation.
pub const RENEW: &str = "kubespray.k8s.io/renew-certificates";
/// The annotation of a Cluster with which a person asks that it is recovered after etcd lost its quorum: each value once. It says what is
/// given up. A Run that came of it carries the same annotation.
pub const RECOVER: &str = "kubespray.k8s.io/recover";
/// The annotation of a Cluster with which a person asks that one component is brought to what the spec says: each value once. Its first
/// word is the component, what follows tells one request from others. A Run that came of it carries the same annotation.
pub const COMPONENT: &str = "kubespray.k8s.io/upgrade-component";
/// The annotation of a Cluster with which a person asks for a snapshot of etcd in the store: each value once. A Run that came of it
/// carries the same annotation.
pub const SNAPSHOT: &str = "kubespray.k8s.io/snapshot";
/// The annotation of a Cluster with which a person asks that a snapshot of the store is drilled: each value once. Its first word is the
/// name of the snapshot, what follows tells one request from others. A Run that came of it carries the same annotation.
pub const DRILL: &str = "kubespray.k8s.io/drill-snapshot";
/// The annotation of a Cluster with which a person asks for something of the toolbox: each value once. It is a verb, what it takes, the
/// hosts, and a word that tells one request from others. A Run that came of it carries the same annotation.
pub const TOOLBOX: &str = "kubespray.k8s.io/toolbox";
/// The annotation of a ClusterNode with which a person wants its host removed whatever is lost: pods that a
/// PodDisruptionBudget holds, and a host that still runs and does not answer.
pub const FORCE_REMOVAL: &str = "kubespray.k8s.io/force-removal";
/// The annotation of a ClusterNode that is deleted with which a person says which host takes its place: the name of another ClusterNode,
/// of the same roles. The host leaves when that one is part of the cluster, or before it if it is lost.
pub const REPLACED_BY: &str = "kubespray.k8s.io/replaced-by";
/// The annotation of a ClusterNode with which a person wants what is left of Kubernetes removed from its host, which is no part of the
/// cluster: each value once. It begins with the host's name. A Run that came of it carries the same annotation.
pub const RESET_HOST: &str = "kubespray.k8s.io/reset-host";
/// The annotation of a Cluster with which a person lets start now what waits for a maintenance window: each value once. A Run that
/// came of it carries the same annotation.
pub const MAINTAIN: &str = "kubespray.k8s.io/maintain-now";

/// Those that are of kubespray's operator alone.
pub const ALL: [&str; 11] = [
    CONVERGE,
    RENEW,
    RECOVER,
    COMPONENT,
    SNAPSHOT,
    DRILL,
    TOOLBOX,
    FORCE_REMOVAL,
    REPLACED_BY,
    RESET_HOST,
    MAINTAIN,
];

/// Whether what an entry of `status.pending` tells is carried out when somebody asks to converge, and no sooner.
pub fn waits_for_request(pending: &Value) -> bool {
    pending["operation"] == super::CONVERGE && pending["reason"] == super::NOT_REQUESTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_among_all() {
        let written = include_str!("request.rs").split('"');
        let is_one = |text: &&str| text.starts_with("kubespray.k8s.io/") && !text.ends_with('/');
        assert_eq!(written.filter(is_one).collect::<Vec<_>>(), ALL);
    }
}
