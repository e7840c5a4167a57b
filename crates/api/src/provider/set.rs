//! `ProviderSet`: the providers of one installation as a whole, what versions they are to have, and how they come to them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{VersionPart, maintenance::Maintenance, upgrade::UpgradePolicy};

/// The group of [`ProviderSet`]. That of the providers is somebody else's.
pub const SET_GROUP: &str = "providers.windlass.dev";

/// What versions the providers of an installation are to have, and how they come to them. The installation is that of the CoreProvider in
/// the namespace of this object, with all providers that are installed beside it; there is one ProviderSet of it. It makes no providers
/// and removes none: it writes `spec.version` of those that are there.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "providers.windlass.dev",
    version = "v1alpha1",
    kind = "ProviderSet",
    namespaced,
    shortname = "pset",
    status = "ProviderSetStatus",
    category = "windlass",
    derive = "PartialEq",
    doc = "The providers of one installation of Cluster API as a whole: what versions they are to have, and how they come to them.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Contract", type_ = "string", json_path = ".status.contract"),
    printcolumn(name = "Plan", type_ = "string", json_path = ".status.plan.id"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.plan.phase"),
    printcolumn(name = "Done", type_ = "string", json_path = ".status.plan.done"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.available[*].version"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSetSpec {
    /// What is wanted of single providers. Those that are not named are as the policy has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["provider".into()]))]
    pub providers: Vec<SetProvider>,
    /// Up to which part of a version the providers upgrade themselves, to releases that ConfigMaps keep. They go together: a release whose
    /// contract does not go with that of the core is not taken. Default: they do not, and what is newer is told in `status.available`.
    pub upgrade: Option<UpgradePolicy>,
    /// When a plan may begin. `onWindowEnd: Pause` begins no other provider either once the window has closed.
    pub maintenance: Option<Maintenance>,
    /// Which plans wait for a person. Default: Never. One by which objects would lose fields or versions of their kind waits in any case.
    pub approval: Option<Approval>,
    /// What becomes of a provider whose new version does not get ready. Default: GoBack.
    pub on_failure: Option<OnFailure>,
}

/// What is wanted of one provider.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetProvider {
    /// Which one, as its objects are labelled: `cluster-api`, `bootstrap-kubeadm`, `infrastructure-docker`.
    #[schemars(length(min = 1, max = 63))]
    pub provider: String,
    /// The version that it is to have, as v1.14.2; where the policy takes newer ones, the least.
    #[schemars(length(max = 128))]
    pub version: Option<String>,
    /// Up to which part of a version it upgrades itself, instead of what `spec.upgrade` says of all.
    pub upgrade: Option<UpgradePolicy>,
}

/// Which plans wait for a person.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Approval {
    /// None.
    #[default]
    Never,
    /// Those with a newer minor or major version.
    Minor,
    /// All.
    Always,
}

/// What becomes of a provider whose new version does not get ready.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnFailure {
    /// It goes back to the version that it had, unless objects may be stored in a version of their kind which that one does not know, or
    /// one of them has a field which that one does not have.
    #[default]
    GoBack,
    /// It stays as it is until somebody mends it.
    Stay,
}

/// How the providers of an installation stand as a whole.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderSetStatus {
    /// The generation that this status speaks of.
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling, Stalled, and Planned: whether there is a plan to what is wanted, or why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The contract that the core keeps, as v1beta2.
    #[schemars(length(max = 32))]
    pub contract: Option<String>,
    /// The plan that waits or is carried out, or the last one.
    pub plan: Option<SetPlan>,
    /// How many plans were begun. An approval is of one beginning: the next plan has another id, whatever its versions are.
    pub begun: Option<i64>,
    /// What the set wrote last of each provider. What was put back since is not written again by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub written: Vec<WrittenVersion>,
    /// Newer versions that ConfigMaps keep and that the providers are not on their way to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub available: Vec<AvailableRelease>,
}

/// What is upgraded, in order. One that was begun goes on as it was begun, whatever releases come meanwhile.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetPlan {
    /// What tells it from others: versions before and after, what the releases hold that are kept of them, and how many plans were begun before.
    #[schemars(length(max = 32))]
    pub id: String,
    /// How far it is.
    pub phase: PlanPhase,
    /// The generation of the object that it came of.
    pub generation: Option<i64>,
    /// The contract that the core keeps afterwards.
    #[schemars(length(max = 32))]
    pub contract: String,
    /// When it was begun.
    pub began_at: Option<Time>,
    /// How many of its upgrades are done: 1/4.
    #[schemars(length(max = 16))]
    pub done: String,
    /// Its upgrades, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub upgrades: Vec<SetUpgrade>,
}

/// How far a plan is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PlanPhase {
    /// It waits for a person or for a maintenance window.
    #[default]
    Waiting,
    /// It is carried out.
    UnderWay,
    /// An upgrade of it failed, or was put back, and no other is begun.
    Stopped,
    /// It was carried out.
    Done,
}

/// The upgrade of one provider of a plan.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetUpgrade {
    /// The provider, as its objects are labelled.
    #[schemars(length(max = 63))]
    pub provider: String,
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The version that it had.
    #[schemars(length(max = 128))]
    pub from: String,
    /// The version that it gets.
    #[schemars(length(max = 128))]
    pub to: String,
    /// How far it is.
    pub state: UpgradeState,
}

/// How far the upgrade of a provider is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum UpgradeState {
    /// Its turn has not come.
    #[default]
    Waiting,
    /// Its version is written, and a run of the provider is at work or about to be.
    UnderWay,
    /// It has the version, and is ready.
    Done,
    /// It cannot get there before somebody changes something.
    Failed,
    /// The version that it had stands in its spec again.
    WentBack,
}

impl UpgradeState {
    /// As the status has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::UnderWay => "UnderWay",
            Self::Done => "Done",
            Self::Failed => "Failed",
            Self::WentBack => "WentBack",
        }
    }
}

/// The version that the set wrote last of a provider.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenVersion {
    /// The provider, as its objects are labelled.
    #[schemars(length(max = 63))]
    pub provider: String,
    /// The version.
    #[schemars(length(max = 128))]
    pub version: String,
    /// That an older one stands in its spec again: a mark of what the set was to do then, by which another wish is told from that.
    #[schemars(length(max = 32))]
    pub put_back: Option<String>,
}

/// A newer version that can be had.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AvailableRelease {
    /// The provider, as its objects are labelled.
    #[schemars(length(max = 63))]
    pub provider: String,
    /// Which part of the version changes: Patch, Minor or Major.
    pub change: VersionPart,
    /// The version: the newest that differs by that part.
    #[schemars(length(max = 128))]
    pub version: String,
    /// What a person can do to have it.
    #[schemars(length(max = 1024))]
    pub message: String,
}
