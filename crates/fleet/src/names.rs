//! What Windlass calls itself towards the API, where it works on fleets.

/// The field manager of the objects that clusters are made of.
pub const MANAGER: &str = "windlass-fleet";
/// The field manager of the status of FleetClusters and Rollouts.
pub const STATUS_MANAGER: &str = "windlass-fleet-status";

/// How many bytes are kept in one object: an API server takes a megabyte and a half, with what it adds of its own.
pub const LARGEST_RECORD: usize = 1_000_000;

/// The record of a revision of a cluster.
pub fn record(cluster: &str, revision: &str) -> String {
    format!("{cluster}-{revision}")
}
