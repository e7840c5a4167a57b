//! What Windlass calls itself towards the API, where it works on fleets.

/// The field manager of the objects that clusters are made of.
pub const MANAGER: &str = "windlass-fleet";
/// The field manager of the status of FleetClusters and Rollouts.
pub const STATUS_MANAGER: &str = "windlass-fleet-status";

/// The record of a revision of a cluster.
pub fn record(cluster: &str, revision: &str) -> String {
    format!("{cluster}-{revision}")
}
