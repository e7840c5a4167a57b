//! Snapshots of etcd that are kept outside of the cluster.
//!
//! A runner takes them, brings them back and drills them ([`crate::runner`]); here is what it is told ([`settings`]), what it asks of
//! hosts and what they answer (`host`), and what is told of what lies in the store (`standing`). What a host or a store says is data.

pub(crate) mod host;
pub mod settings;
pub mod standing;

pub use settings::{Snapshots, SnapshotsInput};
pub use standing::Standing;

/// The name of the Secret in which a run leaves what lies in a cluster's store.
pub fn catalogue_name(cluster: &str) -> String {
    format!("{cluster}-snapshots")
}

/// Where the pod of a runner has the volume of the store.
pub(crate) const VOLUME: &str = "/var/lib/windlass/snapshots";
/// The key of the Secret with what lies in the store.
pub const CATALOGUE_KEY: &str = "snapshots.json";
/// The condition that says whether the last good snapshot is as young as the schedule has it.
pub const BACKED_UP: &str = "BackedUp";
