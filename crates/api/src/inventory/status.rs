//! How a cluster of a fleet stands.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a cluster of a fleet stands.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetClusterStatus {
    /// The generation that this status speaks of.
    pub observed_generation: Option<i64>,
    /// What the inventory renders it to now: a FleetRevision.
    #[schemars(length(max = 32))]
    pub rendered: Option<String>,
    /// What its objects were made from.
    #[schemars(length(max = 32))]
    pub applied: Option<String>,
    /// What its objects are being made from, while that is another.
    #[schemars(length(max = 32))]
    pub target: Option<String>,
    /// What its objects were begun to be made from. While it stands they may be of both that and what was applied.
    #[schemars(length(max = 32))]
    pub begun: Option<String>,
    /// Revisions that were begun before that and not brought to their end: their objects may be there too, and go with the next change
    /// that is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 32)))]
    pub abandoned: Vec<String>,
    /// Revisions before whose VaultSecrets stay until it is well, and templates until nothing needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 32)))]
    pub former: Vec<String>,
    /// At what it was born in the middle of a run, until it is what the inventory renders it to.
    #[schemars(length(max = 512))]
    pub born: Option<String>,
    /// The values in Vault for whose changes its machines are replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub secrets: Vec<FleetSecret>,
    /// How what was applied stands.
    pub health: Option<FleetHealth>,
    /// What its own object says, or why nothing can be applied.
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The conditions of its own object: type, then status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "gates")]
    pub gates: BTreeMap<String, String>,
    /// What the rules of its roll-out's gates are for its own object: a digest of the rule, then True, False, or Unknown and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "rules")]
    pub rules: BTreeMap<String, String>,
    /// What the inventory would change and nothing has carried out.
    pub pending: Option<PendingChange>,
    /// Why it cannot be rendered or applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub problems: Vec<FleetProblem>,
    /// Ready, Reconciling, Stalled, UpToDate, and VaultUnavailable while Vault is away or sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A value in Vault for whose changes machines are replaced.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetSecret {
    /// The VaultSecret, a slash, and the key of its Secret.
    #[schemars(length(max = 512))]
    pub name: String,
    /// What tells that it changed, as the VaultSecret says it. What was read last counts while Vault cannot be read.
    #[schemars(length(max = 16))]
    pub digest: String,
    /// What templates tell machines of it: the digest when it changed last. Not there: it is what was seen first, for which no machine is
    /// replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub told: Option<String>,
    /// Where it is in Vault: server, mount and path. Not there: the reference keeps to one version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1536))]
    pub place: Option<String>,
    /// The version in Vault that was read last. Not there: the engine keeps none, or Vault cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// What was read there last, where the engine keeps no versions, as the VaultSecret says it. Not there: Vault cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub contents: Option<String>,
}

/// How what was applied of a cluster stands.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum FleetHealth {
    /// Its own operator is at work on it, or has not seen it yet.
    #[default]
    AtWork,
    /// It is ready, and nothing is left to do.
    Well,
    /// It is not, and does not become so by itself.
    Failed,
    /// It could not be applied.
    Refused,
}

/// What would change.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingChange {
    /// How many objects come, go or change.
    pub objects: u32,
    /// How many fields of objects change, and how many objects come or go.
    pub fields: u32,
    /// The first of them: object, field, what it was and what it is.
    #[schemars(length(max = 32), inner(length(max = 512)))]
    pub changes: Vec<String>,
}

/// One thing that is wrong.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetProblem {
    /// The level of the object that must change, where it stands on one.
    #[schemars(length(max = 63))]
    pub level: Option<String>,
    /// The object that must change.
    #[schemars(length(max = 512))]
    pub object: String,
    /// The field or value.
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// The rule that it breaks, in one word.
    #[schemars(length(max = 63))]
    pub rule: String,
    /// What is wrong.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// What to do.
    #[schemars(length(max = 1024))]
    pub remedy: String,
}

fn gates(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 16},
    })
}

fn rules(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 256},
    })
}
