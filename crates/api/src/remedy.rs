//! Remedies: what may be done on hosts about a failure without a person.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is done on the hosts on which a step has failed, before the step is tried again: once for each host and step,
/// until a person has the step tried again.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum Remedy {
    /// Waits, up to 15 minutes, until no other program holds the lock of the host's package manager.
    WaitForPackageLock,
    /// Removes packages that were fetched to be installed, where the file system that holds them is nearly full.
    ClearCaches,
    /// Removes container images that no container uses, where the file system that holds them is nearly full. They must be there to be
    /// pulled again.
    PruneImages,
}

impl Remedy {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::WaitForPackageLock,
        Self::ClearCaches,
        Self::PruneImages,
    ];
}

impl fmt::Display for Remedy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}
