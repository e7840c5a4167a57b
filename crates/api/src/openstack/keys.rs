//! Keys of a service that are rotated on a schedule, and how they stand.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The keys of a service.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Keys {
    /// Those of Fernet, which seal Keystone's tokens.
    pub fernet: Option<KeyRing>,
}

/// Keys that follow each other.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyRing {
    /// When they are rotated by themselves. A schedule by which a key would go while a token that it sealed is valid is refused: fewer
    /// rotations or a higher `fernet_tokens.max_active_keys` is the way then. Default: only when somebody has the step done
    /// (`windlass openstack run NAME keys/rotate`).
    pub rotate: Option<RotationSchedule>,
}

/// When keys or a password are rotated by themselves.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationSchedule {
    /// Minute, hour, day of the month, month and day of the week, as cron has them. `0 3 * * 0` is every Sunday night.
    #[schemars(length(min = 9, max = 128))]
    #[x_kube(validation = (
        "self.matches('^ *[^ ]+( +[^ ]+){4} *$')",
        "a schedule has five fields: minute, hour, day of the month, month, day of the week; write for example 0 3 * * 0"
    ))]
    pub schedule: String,
    /// The time zone of the schedule, by its name in the IANA database, for example Europe/Berlin. Default: UTC.
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// How the keys of a service stand that are rotated on a schedule.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeysStatus {
    /// Those of Fernet.
    pub fernet: Option<RotationStatus>,
}

/// How keys, or a password, stand that are rotated on a schedule.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationStatus {
    /// When they were rotated last, by whomever; before the first time, when they were made.
    pub rotated_at: Option<Time>,
    /// When the next rotation is due: by the schedule, or later where a key has to be kept until then. One that has passed waits.
    pub due_at: Option<Time>,
    /// What a rotation that is due waits for, or that the last one failed.
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
}
