//! How the configuration files of a service are held against the schema of its release.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the configuration files of a service are held against the schema of its release, which its image knows.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchemaCheck {
    /// Settings that are let through although the release does not know them: SECTION.KEY, or SECTION.* for all of a section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 3, max = 256), regex(pattern = r"^[^\s.]+\.\S+$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub allow: Vec<String>,
    /// What becomes of a change whose image cannot check: it has no oslo.config, or does not know its own options. Default: Refuse.
    pub without_validator: Option<WithoutValidator>,
}

/// What becomes of a change whose image cannot check its configuration files.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum WithoutValidator {
    /// Nothing of it is begun.
    #[default]
    Refuse,
    /// It goes on, and the step says that nothing was checked.
    Proceed,
}
