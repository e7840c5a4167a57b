//! The drift radar: what of its hosts a cluster has looked at between runs, and how they stand against what a run left.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Duration;

/// Looks at hosts between runs: one login to each, which reads and changes nothing.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Radar {
    /// How often each host is looked at, 10s to 24h. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
}

/// How a host stands against what the last run left on it.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RadarStatus {
    /// In one word.
    pub state: RadarState,
    /// Why nobody knows, where it is Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
    /// What is not as it was when the host answered last, the first 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub findings: Vec<Finding>,
    /// What it is held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
}

/// How a host stands against what the last run left on it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RadarState {
    /// Nobody knows: it does not answer.
    #[default]
    Unknown,
    /// As it was left.
    Same,
    /// Something is not.
    Drifted,
}

/// Something on a host that is not as it was.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What: a file by its path, or for example `unit kubelet`, `kernel`, `clock`.
    #[schemars(length(max = 256))]
    pub thing: String,
    /// What of it, for people.
    #[schemars(length(max = 512))]
    pub change: String,
}

/// What a host was like when it was looked at first after a run.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    /// The run. None: none was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub run: Option<String>,
    /// When it was looked at.
    pub taken_at: Time,
    /// A digest of what was asked: what is asked today and was not then is no difference. None: an earlier release asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub asked: Option<String>,
    /// What was seen: files with the beginning of their SHA-256, units with their state, programs with their version.
    #[schemars(schema_with = "things_schema")]
    pub things: BTreeMap<String, String>,
}

/// How many things of a host are remembered.
pub const MOST_THINGS: usize = 128;

fn things_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": MOST_THINGS,
        "additionalProperties": {"type": "string", "maxLength": 128},
    })
}
