//! `Hierarchy`: which levels there are, in which order, and how their values are merged.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ValuePath;

/// Which levels a fleet has, from the weakest to the strongest, and how values of several levels become one. The cluster itself
/// is always the last. Without a Hierarchy the levels are environment, customer, site and infraProvider, all required.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "inventory.windlass.dev",
    version = "v1alpha1",
    kind = "Hierarchy",
    plural = "hierarchies",
    namespaced,
    shortname = "fhier",
    category = "windlass",
    doc = "The levels of a fleet, their order, and how values are merged.",
    printcolumn(name = "Levels", type_ = "string", json_path = ".spec.levels[*].name"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HierarchySpec {
    /// The levels, the weakest first: a later one overrides an earlier one.
    #[schemars(length(min = 1, max = 16))]
    pub levels: Vec<Level>,
    /// What clusters may set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterLevel>,
    /// How values that several levels set become one, by their paths; the first rule that fits a path is taken. Without one: what
    /// stands above, at first Deep with lists replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub merges: Vec<MergeRule>,
}

/// One level.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Level {
    /// Its name, by which objects name their parents.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Which objects stand on it. Only ConfigMap may be the kind of several levels.
    pub kind: LevelKind,
    /// Whether every cluster must have an object of this level. Default: Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<Presence>,
    /// What objects of this level may set: a schema of their values. With `additionalProperties: false` it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::open_schema")]
    pub schema: Option<Map<String, Value>>,
    /// What must hold of the values that each object of this level and the weaker ones come to together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub rules: Vec<ValueRule>,
}

/// The level of the clusters themselves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterLevel {
    /// What clusters may set: a schema of their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::open_schema")]
    pub schema: Option<Map<String, Value>>,
    /// What must hold of all values of a cluster together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub rules: Vec<ValueRule>,
}

/// What must hold of values: an expression in CEL.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ValueRule {
    /// An expression in CEL that must be true. `self` is what the values of the level and of those above it come to:
    /// `self.replicas % 2 == 1`. It has the functions of a validation rule, and may cost as much. One that has no answer, because a
    /// value is not there, is broken: ask with `has(self.replicas)` first. Templates and references to secrets stand as they are
    /// written.
    #[schemars(length(min = 1, max = 1024))]
    pub rule: String,
    /// What is told when it is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 160))]
    pub message: Option<String>,
    /// The value that is wrong when it is broken: whoever sets it is told. Default: all of the values, of the object of the level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<ValuePath>,
}

/// Which objects stand on a level.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum LevelKind {
    /// Environments.
    Environment,
    /// Customers.
    Customer,
    /// Sites.
    Site,
    /// InfraProviders.
    InfraProvider,
    /// ConfigMaps with the label `inventory.windlass.dev/level`, whose value is the level's name. Their keys `values`, `parents` and
    /// `final` hold as YAML what other kinds have in their specs, their key `template` the name of a ClusterTemplate.
    ConfigMap,
}

/// Whether every cluster must have an object of a level.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Presence {
    /// Each cluster has exactly one.
    #[default]
    Required,
    /// A cluster may have none.
    Optional,
}

/// How values of several levels at one path become one.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("(self.strategy == 'ListByKey') == has(self.key)", "set key for the strategy ListByKey, and for no other"),
    validation = ("self.strategy == 'Deep' || !has(self.lists)", "set lists for the strategy Deep only"),
    validation = ("self.strategy != 'First' && self.strategy != 'Hash' || !has(self.knockoutPrefix)", "First and Hash have no knockoutPrefix: remove it, or take Deep, Unique or ListByKey")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MergeRule {
    /// Which values, for example `kubespray.variables` or `nodes.*.labels`.
    pub path: ValuePath,
    /// How they become one.
    pub strategy: Strategy,
    /// What Deep does with lists. Default: Replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<Lists>,
    /// A text that takes out what weaker levels set, of Deep, Unique and ListByKey: as the whole value of a key the key, before
    /// a list's entry, or before the value of its key, that entry, alone in a list all of it. Default: nothing is taken out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub knockout_prefix: Option<String>,
    /// The key by which ListByKey tells that two entries are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub key: Option<String>,
}

/// How values of several levels become one.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Strategy {
    /// The strongest level's value, whole.
    First,
    /// One list of the entries of all levels, the strongest level's first, each once.
    Unique,
    /// One map of the keys of all levels; of a key that several set, the strongest level's value, whole.
    Hash,
    /// As Hash, but maps below are merged in the same way.
    Deep,
    /// A list of maps: entries with the same value of `key` are merged as Deep does, the others added at the end.
    ListByKey,
}

/// What Deep does with lists.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Lists {
    /// The strongest level's list, whole.
    #[default]
    Replace,
    /// One list of the entries of all levels, the weakest level's first, each once.
    Unique,
}
