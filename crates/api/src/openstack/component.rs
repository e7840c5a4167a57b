//! What is said for one component of a service.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A component of a service: pods of their own, such as those of its API.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceComponent {
    /// How many pods it has; of the component api that is the field replicas of the service. Default: what the service's description says.
    #[schemars(range(min = 0, max = 100))]
    pub replicas: Option<u16>,
    /// What the configuration files say in this component alone, by the names of the files. It comes after what is said for all
    /// components.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::files")]
    pub config: BTreeMap<String, String>,
    /// The components of the service that are at work before it starts, beside those that it waits for anyway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 30)))]
    pub after: Vec<String>,
}
