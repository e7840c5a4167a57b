//! How an object of OpenStack stands.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BackupsStatus, KeysStatus, PasswordsStatus, SeedLeft};
use crate::cluster::ConvergeRequest;

/// How a cloud, a service or a seed stands.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// The generation that this status speaks of.
    pub observed_generation: Option<i64>,
    /// How far it is.
    pub phase: Option<Phase>,
    /// What the run that stands for its wish does.
    #[schemars(length(max = 64))]
    pub goal: Option<String>,
    /// How many of the run's steps are done: 4/11.
    #[schemars(length(max = 16))]
    pub steps: Option<String>,
    /// The step that is at work and what it sees, or what does not answer: what it waits for, what was seen, for how long, and how many
    /// times it was tried.
    #[schemars(length(max = 512))]
    pub blocked_on: Option<String>,
    /// The run.
    #[schemars(length(max = 253))]
    pub run: Option<String>,
    /// The last request for a backup, by the annotation `openstack.windlass.dev/backup` of a cloud, and what became of it.
    pub backup: Option<ConvergeRequest>,
    /// The last request to drill a backup, by the annotation `openstack.windlass.dev/drill-backup` of a cloud, and what became of it.
    pub drill: Option<ConvergeRequest>,
    /// The last request to restore a backup, by the annotation `openstack.windlass.dev/restore-backup` of a cloud, and what became of it.
    pub restore: Option<ConvergeRequest>,
    /// The backups of a cloud that lie in its store.
    pub backups: Option<BackupsStatus>,
    /// The keys of a service that are rotated on a schedule.
    pub keys: Option<KeysStatus>,
    /// The passwords of a cloud or a service that are rotated on a schedule.
    pub passwords: Option<PasswordsStatus>,
    /// What a seed made, no longer names, and is in Keystone still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub left: Vec<SeedLeft>,
    /// Ready, Reconciling, Stalled; EndpointHealthy of a service, which says whether it answers, and of a seed, whether its Keystone does;
    /// BackedUp of a cloud with backups; Drifted of a seed, which says whether Keystone has something else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Phase {
    /// Something has to come first, which comes by itself.
    #[default]
    Waiting,
    /// A run is at work on it.
    Working,
    /// It is as it should be.
    Ready,
    /// It was made, and does not work.
    Unhealthy,
    /// Somebody must change something.
    Stalled,
    /// It goes.
    Deleting,
}
