//! Backups of a cloud: the databases of its services as one text of statements, with the keys without which they cannot be read.
//!
//! - [`archive`]: that text, and how it is read again;
//! - [`manifest`]: what is told of it beside it, and whether it fits a cloud;
//! - [`errand`]: how people ask for a backup, a drill and a restore, and what they are answered;
//! - [`standing`]: when the next one is due, and whether the last is young enough.
//!
//! All of it is pure; the engine does it, and the crate `snapshots` keeps it.

pub mod archive;
pub mod errand;
pub mod manifest;
pub mod standing;

use api::{
    openstack,
    snapshots::{Encryption, Keep, Store},
};
use controller::{Problem, window::Recurrence};
use serde::{Deserialize, Serialize};
use snapshots::settings;

pub use errand::Errand;
pub use manifest::Manifest;

/// Where the settings stand.
pub(crate) const FIELD: &str = "OpenStack spec.backup";
/// The condition that says whether the last backup is as young as the schedule has it.
pub const BACKED_UP: &str = "BackedUp";

/// The ConfigMap in which a run leaves what lies in a cloud's store.
pub fn catalogue_name(cloud: &str) -> String {
    format!("{cloud}-backups")
}

/// Its key.
pub const CATALOGUE_KEY: &str = "backups.json";

/// What the steps of backups read. References to Secrets, never Secrets.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Input {
    /// Where they lie.
    pub store: Store,
    /// What is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// What they are encrypted with.
    pub encryption: Encryption,
}

impl Input {
    /// What a spec says.
    pub fn of(backup: &openstack::Backup) -> Self {
        Self {
            store: backup.store.clone(),
            keep: backup.keep.clone(),
            encryption: backup.encryption.clone(),
        }
    }
}

/// When a backup is taken by itself.
///
/// # Errors
///
/// Everything that is wrong with what is written.
pub fn schedule(backup: &openstack::Backup) -> Result<Option<Recurrence>, Vec<Problem>> {
    let (field, zone) = (format!("{FIELD}.schedule"), format!("{FIELD}.timeZone"));
    let read = |schedule: &String| {
        let zone = (backup.time_zone.as_deref(), zone.as_str());
        Recurrence::read((schedule, &field), zone)
    };
    backup.schedule.as_ref().map(read).transpose()
}

/// What is wrong with what a spec says of backups.
pub fn wrong(backup: &openstack::Backup) -> Vec<Problem> {
    let mut problems = schedule(backup).err().unwrap_or_default();
    problems.extend(settings::of_store(FIELD, &backup.store, false));
    problems.extend(settings::of_encryption(FIELD, &backup.encryption));
    problems
}
