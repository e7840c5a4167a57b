//! What Windlass calls itself, and its things, towards the API.

/// The field manager of what is written of a Cluster.
pub const CLUSTER_MANAGER: &str = "windlass-cluster";
/// The field manager of what is written of a ClusterNode.
pub const NODE_MANAGER: &str = "windlass-node";
/// What keeps a Cluster until its deletion policy is carried out.
pub const FINALIZER: &str = "kubespray.k8s.io/cluster";

/// What keeps a ClusterNode until its host is no part of the cluster any more.
pub const NODE_FINALIZER: &str = "kubespray.k8s.io/node";

/// The annotation of a Cluster that somebody else has built: its first run takes it over as it stands, and changes nothing on its hosts.
pub const ADOPTED: &str = "kubespray.k8s.io/adopted";

/// The Lease of a cluster.
pub fn lease_name(cluster: &str) -> String {
    runs::lease_name("Cluster", cluster)
}

/// The name of the Secret that carries the recorded keys of a cluster's hosts to where there is no file of them.
pub fn host_keys_name(cluster: &str) -> String {
    format!("{cluster}-host-keys")
}
