//! Settings of a provider's controller manager.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of a controller manager. Each becomes an argument of its container, or of its probes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manager {
    /// How long after the last time every object is looked at again, as 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_period: Option<String>,
    /// How one of several replicas is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_election: Option<LeaderElection>,
    /// The one namespace that the manager watches. Default: all, as providers are meant to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_namespace: Option<String>,
    /// How long the manager has to end in order, as 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_shut_down: Option<String>,
    /// Settings of all controllers of the manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Controllers>,
    /// Where metrics are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Where the manager answers that it is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Where the manager answers the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// The address of the profiler, as localhost:6060. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiler_address: Option<String>,
    /// How many objects of a kind are worked on at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_concurrent_reconciles: Option<u32>,
    /// How much is logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // The existing definition has the default.
    #[schemars(extend("default" = 1))]
    pub verbosity: Option<u32>,
    /// Features to turn on or off. Those of the manifests that are not named stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// Further arguments, by name with the dashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_args: Option<BTreeMap<String, String>>,
}

/// How one of several replicas is chosen.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    /// Whether one is chosen at all.
    pub leader_elect: bool,
    /// How long one that is gone is waited for, as 15s.
    pub lease_duration: String,
    /// How long the chosen one tries to stay it, as 10s.
    pub renew_deadline: String,
    /// The kind of object that is held.
    pub resource_lock: String,
    /// The name of that object.
    pub resource_name: String,
    /// The namespace of that object.
    pub resource_namespace: String,
    /// How long between two tries, as 2s.
    pub retry_period: String,
}

/// Settings of all controllers of a manager.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controllers {
    /// How many objects of a kind are worked on at once, by kind and group, as Cluster.cluster.x-k8s.io.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // The existing definition names no format and no bound: a plain int of Go.
    pub group_kind_concurrency: Option<BTreeMap<String, isize>>,
    /// How long the first lists may take, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_sync_timeout: Option<i64>,
    /// Whether a controller that panics goes on with the next object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recover_panic: Option<bool>,
}

/// Where metrics are.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Their address, for managers that know no diagnosticsAddress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_address: Option<String>,
    /// The address of metrics and profiles, as :8443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics_address: Option<String>,
    /// Whether they are served without TLS and to everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_diagnostics: Option<bool>,
}

/// Where a manager answers that it is well.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The address, as :9440.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_probe_bind_address: Option<String>,
    /// The path that tells that it is ready, without the slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_endpoint_name: Option<String>,
    /// The path that tells that it is alive, without the slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_endpoint_name: Option<String>,
}

/// Where a manager answers the API server.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // As that of `groupKindConcurrency`.
    pub port: Option<isize>,
    /// The address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The directory of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_dir: Option<String>,
}
