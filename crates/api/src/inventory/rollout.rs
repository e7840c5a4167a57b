//! `Rollout`: how changes of an inventory come to the clusters, and how far the one under way is.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, Threshold, maintenance::Window};

/// How changes of the inventory come to the FleetClusters of the namespace: in waves, a canary first, within budgets. It stands for as
/// long as the clusters do; each change that it carries out is a run of it, which its status tells of. Without one, changes are shown
/// and not carried out.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "inventory.windlass.dev",
    version = "v1alpha1",
    kind = "Rollout",
    namespaced,
    shortname = "fro",
    status = "RolloutStatus",
    category = "windlass",
    doc = "How changes of an inventory come to its clusters, and how far the one under way is.",
    printcolumn(name = "Run", type_ = "string", json_path = ".status.run.id"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Wave", type_ = "string", json_path = ".status.wave"),
    printcolumn(name = "Done", type_ = "string", json_path = ".status.done"),
    printcolumn(name = "Budget", type_ = "string", json_path = ".status.budget"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.next"),
    printcolumn(name = "Waits", type_ = "string", json_path = ".status.waits"),
    printcolumn(
        name = "Queued",
        type_ = "string",
        json_path = ".status.queued",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutSpec {
    /// Labels of the FleetClusters that it is for. Default: all of the namespace. A cluster that several Rollouts are for belongs to
    /// the oldest.
    #[serde(default)]
    #[schemars(schema_with = "selector_schema")]
    pub selector: Option<BTreeMap<String, String>>,
    /// The waves, in order: the next begins when the one before is done. Clusters that none names are a last wave, `rest`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub waves: Vec<Wave>,
    /// Which clusters go first, as a wave `canary` of their own. If one fails, no other is begun. Default: one cluster of the first wave.
    pub canary: Option<Canary>,
    /// How many clusters of one object of a level may be under way or not well at once. Default: one of a `site`, where the Hierarchy
    /// has such a level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["level".into()]))]
    pub budgets: Vec<Budget>,
    /// How many clusters may be under way at once, whatever they belong to. Default: 1.
    #[schemars(range(min = 1, max = 1000))]
    pub parallel: Option<u16>,
    /// How long a cluster must be well after its change before it counts as done. Default: 1m.
    pub soak: Option<Duration>,
    /// How long a cluster may take to be well after its change. Default: 4h.
    pub deadline: Option<Duration>,
    /// What must hold of a cluster's own object, beside that it is Ready, before it counts as done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gates: Vec<Gate>,
    /// Which waves wait for a person. Default: Never.
    pub approval: Option<Approval>,
    /// When clusters may be begun; those that overlap are one. What is under way when one closes goes on. Without any, they are begun at
    /// any time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,
    /// How many clusters may fail, as a number or a share of the run's, before no other is begun. Default: 0.
    pub failures: Option<Threshold>,
    /// What becomes of a run when the inventory is edited meanwhile. Default: Queue.
    pub on_edit: Option<OnEdit>,
    /// How people steer it.
    pub control: Option<RolloutControl>,
}

/// A wave: the clusters of some objects of a level, or those with some labels.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("has(self.level) != has(self.selector)", "a wave names its clusters by level and objects, or by selector: give one of the two"),
    validation = ("has(self.level) == (has(self.objects) && size(self.objects) > 0)", "a wave by level names the objects of the level"),
    validation = ("!(self.name in ['canary', 'rest', 'rollback'])", "canary, rest and rollback are waves that are there already: give another name")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wave {
    /// Its name.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// The level whose objects are named.
    #[schemars(length(min = 1, max = 63))]
    pub level: Option<String>,
    /// The names of objects of that level: clusters that belong to one are of this wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub objects: Vec<String>,
    /// Labels of FleetClusters.
    #[serde(default)]
    #[schemars(schema_with = "selector_schema")]
    pub selector: Option<BTreeMap<String, String>>,
}

/// The clusters that go first.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("!(has(self.count) && has(self.clusters))", "give clusters, or count"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Canary {
    /// How many of those that change, in the order of the waves. 0: none.
    #[schemars(range(max = 100))]
    pub count: Option<u16>,
    /// Their names; those of them that change. Where none does, one cluster of the first wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    pub clusters: Vec<String>,
}

/// How many clusters of one object of a level may be under way or not well at once.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// The level.
    #[schemars(length(min = 1, max = 63))]
    pub level: String,
    /// How many.
    #[schemars(range(min = 1, max = 1000))]
    pub maximum: u16,
}

/// What must hold of a cluster's own object: a condition that it has, or a rule in CEL.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("has(self.type) != has(self.rule)", "a gate is a condition, by type and status, or a rule: give one of the two"),
    validation = ("has(self.type) == has(self.status)", "a gate by type names the status that the condition must have; a rule has none"),
    validation = ("!has(self.message) || has(self.rule)", "a message is of a rule: a condition has its own")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gate {
    /// The type of a condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub condition: Option<String>,
    /// The status that it must have: True, False or Unknown.
    pub status: Option<GateStatus>,
    /// An expression in CEL that must be true. `self` is the cluster's own object, all of it:
    /// `self.status.nodes.healthy == self.status.nodes.total`. It has the functions of a validation rule, and may cost as much. One that
    /// has no answer yet, because a field is not there, is not true.
    #[schemars(length(min = 1, max = 1024))]
    pub rule: Option<String>,
    /// What is told while the rule is not true.
    #[schemars(length(min = 1, max = 160))]
    pub message: Option<String>,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum GateStatus {
    /// It holds.
    #[default]
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

impl GateStatus {
    /// As a condition has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Which waves wait for a person. Default: Never.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Approval {
    /// None.
    #[default]
    Never,
    /// The one after the canary.
    AfterCanary,
    /// Each, the canary too.
    EveryWave,
}

/// What becomes of a run when the inventory is edited meanwhile. Default: Queue.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnEdit {
    /// It goes on to its end with what it was begun with; the edit is the next run. A run that is halted or aborted gives way at once, and
    /// so does one that waits for its first maintenance window.
    #[default]
    Queue,
    /// No other cluster is begun; when those under way are through, the edit is the next run.
    Supersede,
}

/// How people steer a roll-out.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.run) || !(has(self.approved) && size(self.approved) > 0) && !(has(self.skip) && size(self.skip) > 0) && !(has(self.state) && self.state in ['Aborted', 'RolledBack'])", "name the run that is approved, aborted, rolled back or has clusters skipped: status.run.id"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutControl {
    /// Whether it should go on. Default: Running.
    pub state: Option<RolloutState>,
    /// The run that the other fields, Aborted and RolledBack are about; for another run they count for nothing.
    #[schemars(length(min = 1, max = 32))]
    pub run: Option<String>,
    /// The waves that may begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 34), inner(length(min = 1, max = 63)))]
    pub approved: Vec<String>,
    /// The clusters that this run leaves out, or whose failure no longer counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 253)))]
    pub skip: Vec<String>,
}

/// Whether a roll-out should go on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RolloutState {
    /// It should.
    #[default]
    Running,
    /// No other cluster is begun, and no other run.
    Paused,
    /// No other cluster of this run is begun, for good; the next edit is another run.
    Aborted,
    /// This run ends, and the clusters that it has begun go back to the revision that each had before, in a run of their own. A run that
    /// has ended is taken back with those that came after it, as long as it is one of the last three. Refused where a version of
    /// Kubernetes or of kubespray would go down: then nothing goes back, and no other cluster is begun.
    RolledBack,
}

/// How far a roll-out is.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The generation that this status speaks of.
    pub observed_generation: Option<i64>,
    /// How it stands.
    pub phase: Option<RolloutPhase>,
    /// The wave that is under way: its number, how many there are, its name.
    #[schemars(length(max = 128))]
    pub wave: Option<String>,
    /// How many clusters are done: 3/12.
    #[schemars(length(max = 32))]
    pub done: Option<String>,
    /// How many clusters are under way, and how many may be: 1/2.
    #[schemars(length(max = 128))]
    pub budget: Option<String>,
    /// The clusters that are next.
    #[schemars(length(max = 512))]
    pub next: Option<String>,
    /// Why they wait, and what to do about it.
    #[schemars(length(max = 1024))]
    pub waits: Option<String>,
    /// What an edit meanwhile changes, and what becomes of it.
    #[schemars(length(max = 1024))]
    pub queued: Option<String>,
    /// The run that is under way, or the last one.
    pub run: Option<RolloutRun>,
    /// What clusters inherited from when they were last what the inventory renders: a FleetRevision of this Rollout.
    #[schemars(length(max = 32))]
    pub sources: Option<String>,
    /// While a run is under way: at what a cluster starts that is born now.
    pub births: Option<Births>,
    /// Clusters that people had skipped in earlier runs, and those of runs that were rolled back: name, then the revision that they are
    /// not brought to until the inventory has made another one of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "skipped_schema")]
    pub skipped: BTreeMap<String, String>,
    /// Runs that ended, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<RolloutRecord>,
    /// Ready, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// At what a cluster starts that is born while a run is under way.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Births {
    /// What it inherits from: a FleetRevision of the Rollout. Objects that this does not have count as they are now. Default: all do.
    #[schemars(length(max = 32))]
    pub sources: Option<String>,
    /// Which that is, and why.
    #[schemars(length(max = 512))]
    pub message: String,
}

/// How a roll-out stands.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum RolloutPhase {
    /// No change waits for it.
    #[default]
    Idle,
    /// A change waits to be begun.
    Gathering,
    /// Clusters are under way, or may be begun.
    Running,
    /// It waits for a person's approval.
    WaitingForApproval,
    /// It waits for a maintenance window.
    WaitingForWindow,
    /// It was paused.
    Paused,
    /// Too many clusters failed, or a canary did.
    Halted,
    /// It was aborted.
    Aborted,
    /// A later edit takes its place.
    Superseded,
    /// What it had begun goes back to what it was before.
    RolledBack,
    /// Every cluster is done, or was skipped.
    Succeeded,
}

/// One change that is carried out: what each cluster becomes was written down when it began, and does not change.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRun {
    /// Its name: a digest of its clusters, their revisions and when it began.
    #[schemars(length(max = 32))]
    pub id: String,
    /// When it began.
    pub started: Option<Time>,
    /// When it ended.
    pub ended: Option<Time>,
    /// The run that it takes back.
    #[schemars(length(max = 32))]
    pub rolls_back: Option<String>,
    /// What its clusters inherited from when it was written down: a FleetRevision of the Rollout. None: that is too large to be kept.
    #[schemars(length(max = 32))]
    pub sources: Option<String>,
    /// Its waves, in order.
    #[schemars(length(max = 34), inner(length(max = 63)))]
    pub waves: Vec<String>,
    /// Its clusters, wave by wave.
    #[schemars(length(max = 1000))]
    pub clusters: Vec<RolloutMember>,
    /// The waves that began because a person let them, and who that was. It is only added to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 34))]
    pub approvals: Vec<RolloutApproval>,
}

/// A wave that a person let begin.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutApproval {
    /// The wave.
    #[schemars(length(max = 63))]
    pub wave: String,
    /// Who wrote spec.control.approved last before it began: the field manager that the API has noted. `windlass inventory approve` has
    /// the user in it. It is what the client says of itself; the audit log of the API has who that was.
    #[schemars(length(max = 128))]
    pub by: Option<String>,
    /// When that was written, by the clock of the API.
    pub at: Option<Time>,
}

/// A cluster of a run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutMember {
    /// The FleetCluster.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its wave.
    #[schemars(length(max = 63))]
    pub wave: String,
    /// What it counts against: the objects of the budgets' levels, as site/fra1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 320)))]
    pub domains: Vec<String>,
    /// What it becomes: a FleetRevision.
    #[schemars(length(max = 32))]
    pub revision: String,
    /// What it was when the run was written down.
    #[schemars(length(max = 32))]
    pub before: Option<String>,
    /// How far it is.
    pub phase: MemberPhase,
    /// Since when.
    pub since: Option<Time>,
    /// When it was begun.
    pub begun: Option<Time>,
    /// What it waits for, or what is wrong with it.
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}

/// How far a cluster of a run is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum MemberPhase {
    /// It has not been begun.
    #[default]
    Pending,
    /// It is being changed, or not yet well after that.
    Updating,
    /// It is well, and is watched for a while.
    Soaking,
    /// It is well.
    Done,
    /// It is not well. When it becomes so, it goes on by itself.
    Failed,
    /// A person had it left out.
    Skipped,
    /// Its FleetCluster went before it was begun.
    Gone,
}

/// A run that ended.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRecord {
    /// Its name.
    #[schemars(length(max = 32))]
    pub id: String,
    /// How it ended.
    pub phase: RolloutPhase,
    /// When it began.
    pub started: Option<Time>,
    /// When it ended.
    pub ended: Option<Time>,
    /// How many clusters were done.
    pub done: u32,
    /// How many failed or were skipped.
    pub not_done: u32,
    /// Who let waves begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 34))]
    pub approvals: Vec<RolloutApproval>,
    /// The run that it took back.
    #[schemars(length(max = 32))]
    pub rolls_back: Option<String>,
    /// What clusters inherited from before it: a FleetRevision of the Rollout. Of the last three runs.
    #[schemars(length(max = 32))]
    pub sources: Option<String>,
    /// The clusters that it has begun, and those that were skipped. Of the last three runs: those can be taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub clusters: Vec<RolloutChange>,
}

/// What a run that ended has made of a cluster.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutChange {
    /// The FleetCluster.
    #[schemars(length(max = 253))]
    pub name: String,
    /// What it was before: a FleetRevision.
    #[schemars(length(max = 32))]
    pub before: Option<String>,
    /// What the run brought it to.
    #[schemars(length(max = 32))]
    pub revision: String,
}

fn skipped_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 10_000,
        "additionalProperties": {"type": "string", "maxLength": 32},
    })
}

fn selector_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    crate::schema::labels(generator)
}
