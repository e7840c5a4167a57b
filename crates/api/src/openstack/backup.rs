//! Backups of a cloud: when they are taken, where they lie, and what lies there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::snapshots::{Encryption, Keep, Store};

/// Backups of a cloud: the databases of its services, and the keys without which they cannot be read.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.schedule) || !has(self.timeZone)", "timeZone is that of schedule: write a schedule too, or take timeZone out"))]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// When one is taken by itself: minute, hour, day of the month, month and day of the week, as cron has them. `0 3 * * *` is every
    /// night. Default: only when somebody asks (`windlass openstack backup`).
    #[schemars(length(min = 9, max = 128))]
    #[x_kube(validation = (
        "self.matches('^ *[^ ]+( +[^ ]+){4} *$')",
        "a schedule has five fields: minute, hour, day of the month, month, day of the week; write for example 0 3 * * *"
    ))]
    pub schedule: Option<String>,
    /// The time zone of the schedule, by its name in the IANA database, for example Europe/Berlin. Default: UTC.
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// What is kept: what is beyond either bound is removed, and the newest one never is. Default: all of them.
    pub keep: Option<Keep>,
    /// Where they lie: those of a cloud are in `openstack/NAMESPACE/NAME` below it.
    pub store: Store,
    /// What they are encrypted with, in the format of age. It has to be said: passwords and keys are in them.
    pub encryption: Encryption,
}

/// What lies in the store, as the last run that looked saw it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupsStatus {
    /// Where that is.
    #[serde(default)]
    #[schemars(length(max = 2048))]
    pub place: String,
    /// When it was looked at.
    pub seen_at: Option<Time>,
    /// How many there are.
    #[serde(default)]
    pub count: u32,
    /// The newest hundred, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub kept: Vec<BackupStatus>,
    /// The last drill.
    pub drill: Option<BackupDrill>,
}

/// A backup that lies in the store.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Its name.
    #[schemars(length(max = 64))]
    pub name: String,
    /// How it stands.
    pub state: BackupState,
    /// When it was taken.
    pub taken_at: Option<Time>,
    /// The release of the cloud then.
    #[schemars(length(max = 64))]
    pub release: Option<String>,
    /// Its size, in bytes, before it was encrypted.
    pub size: Option<i64>,
    /// How many tables are in it.
    pub tables: Option<i64>,
    /// How many rows they have.
    pub rows: Option<i64>,
}

/// How a backup in the store stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum BackupState {
    /// It was read back from the store as it was written.
    Verified,
    /// It has no manifest: it was not written to its end.
    Unfinished,
    /// Its manifest cannot be read, or its size is another one, or it is not encrypted.
    Altered,
    /// It is of a cloud of the same name in another cluster.
    OtherCloud,
}

/// A drill: a backup that was brought back beside the cloud.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupDrill {
    /// The backup.
    #[schemars(length(max = 64))]
    pub name: String,
    /// When it was drilled.
    pub at: Time,
    /// What came of it.
    pub result: BackupDrillResult,
    /// The same for people.
    #[schemars(length(max = 2048))]
    pub message: String,
}

/// What came of a drill.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum BackupDrillResult {
    /// All tables came back with what was in them, and Keystone knew its administrator.
    Passed,
    /// They did not.
    Failed,
    /// It was begun, and has not come to its end: it is at work, or its runner or its time ended before it.
    Unfinished,
}
