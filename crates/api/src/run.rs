//! `Run`: one journalled execution of a plan.
//!
//! A Run is planned once, stored before its first step, and superseded, never edited, when the wish changes. Its spec is
//! immutable but for `control`, through which people steer it. Its status is derived from an append-only history.
//!
//! It belongs to any object, its subject, and is planned and executed by the engine of that object's kind. What is the
//! engine's own (its operations, the parameters of its actions, the inputs of its plans) is typed by the engine and
//! judged by it at planning and again by the runner.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Duration, Target, Threshold};

/// What to execute, and how people steer it.
#[derive(CustomResource, Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "workflow.windlass.dev",
    version = "v1alpha1",
    kind = "Run",
    namespaced,
    status = "RunStatus",
    category = "windlass",
    doc = "One journalled execution of a plan.",
    printcolumn(name = "Subject", type_ = "string", json_path = ".spec.subject.name"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".spec.operation"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "integer", json_path = ".status.progress"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    /// The object that the run works on, of the same namespace.
    #[x_kube(validation = ("self == oldSelf", "the subject of a Run cannot change: make another Run"))]
    pub subject: Subject,
    /// What the run does to its subject: a word of the engine, in CamelCase, for example Create.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    #[x_kube(validation = ("self == oldSelf", "the operation of a Run cannot change: make another Run"))]
    pub operation: String,
    /// The subject's generation that the run was planned from. A runner whose Run is older than another of the same
    /// subject must not start.
    #[schemars(range(min = 0))]
    #[x_kube(validation = ("self == oldSelf", "the generation of a Run cannot change: make another Run"))]
    pub generation: i64,
    /// The steps and everything they need.
    #[x_kube(validation = ("self == oldSelf", "the plan of a Run cannot change: make another Run"))]
    pub plan: Plan,
    /// How people steer it: the one part that may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
}

/// The object that a run works on, in the namespace of the run.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The group of its kind.
    #[schemars(length(max = 253))]
    pub api_group: String,
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// What tells it from a later object of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub uid: Option<String>,
}

impl Subject {
    /// An object as a subject.
    pub fn of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            api_group: K::group(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: object.meta().name.clone().unwrap_or_default(),
            uid: object.meta().uid.clone(),
        }
    }

    /// Whether the subject is of that kind.
    pub fn is_a<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        self.api_group == K::group(&()) && self.kind == K::kind(&())
    }
}

/// An immutable graph of steps, with the digest of what it was compiled from.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// SHA-256, in hex, of the operation and of all of the plan but its reason. The same inputs give the same plan, and a runner
    /// refuses one that is not what it was.
    #[schemars(length(max = 64))]
    pub digest: String,
    /// Why this operation, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub reason: Option<String>,
    /// What makes it another plan where the inputs are the same: the request that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub request: Option<String>,
    /// A digest of what is wished for, by which the same wish is known again whatever else of the plan changes. It is no part of
    /// `digest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub wish: Option<String>,
    /// What the steps work on, each target named once: those that the same steps work on are one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub groups: Vec<Group>,
    /// What the steps read, in the engine's own form. References to secrets, never secrets.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub inputs: Map<String, Value>,
    /// How many steps may run at a time. Steps that depend on each other or share a target never do. Default: 1, in the order
    /// of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub parallelism: Option<u8>,
    /// The steps, in an order in which they can be executed one by one.
    #[schemars(length(max = 256))]
    pub steps: Vec<Step>,
}

impl Plan {
    /// What a step of the plan works on.
    pub fn targets<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = &'a Target> {
        let groups = self.groups.iter();
        let of_step = groups.filter(|group| step.groups.contains(&group.name));
        of_step.flat_map(|group| &group.targets)
    }
}

/// Targets that the same steps work on.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its name, within the plan.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The targets, in the engine's order.
    #[schemars(length(max = 5000))]
    pub targets: Vec<Target>,
}

/// One restartable piece of a plan. Steps are safe to repeat and only go forward.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// A name that stays the same from plan to plan: lower-case words with `-`, in groups by `/`, for example
    /// `etcd/install`.
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r"^[a-z0-9]+([-./][a-z0-9]+)*$")
    )]
    pub id: String,
    /// What it does, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub title: String,
    /// The steps that must be done before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 128)))]
    pub depends_on: Vec<String>,
    /// What is executed.
    pub action: Action,
    /// The groups of targets that it works on. Empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 64)))]
    pub groups: Vec<String>,
    /// How long one attempt may take. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// How it is tried again. Default: not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How many of its targets may be unreachable, and what happens when it is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// What happens when it has failed for good, whatever failed. Default: Fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// Where the step may be stopped.
    #[serde(default)]
    pub interrupt: Interrupt,
    /// Steps that follow each other with the same batch may share one process; nothing is decided between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub batch: Option<String>,
    /// How much of the run the step is, relative to the others, for percent and ETA. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: Option<u32>,
}

/// What a step executes.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Waits for a person.
    Approve(Approve),
    /// What an engine does.
    Engine(EngineAction),
    /// What another run does, which is made, followed, steered and cancelled by this one.
    Run(ChildRun),
}

/// A run of another object as a step of this one. Its plan is made when the step starts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildRun {
    /// The object that it works on, of the same namespace.
    pub subject: Subject,
    /// What it does to it: a word of the engine, in CamelCase.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    pub operation: String,
    /// What its plan is made from, which the engine judges.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub parameters: Map<String, Value>,
}

/// An action of an engine.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineAction {
    /// The engine, for example kubespray.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$")
    )]
    pub name: String,
    /// Which of its actions, in CamelCase, for example AnsiblePlay.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    pub action: String,
    /// The parameters of that action, which the engine judges.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub parameters: Map<String, Value>,
}

/// Waits for a person.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approve {
    /// What is to be approved.
    #[schemars(length(max = 1024))]
    pub question: String,
}

/// How a step is tried again after a failure that may pass.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How many times more.
    #[schemars(range(max = 10))]
    pub limit: u8,
    /// The wait before the second attempt; it doubles with every further one, with jitter. Default: 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off: Option<Duration>,
}

/// How many targets of a step may be unreachable, and what happens when it is more.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The bound. Up to it, unreachable targets are left out of the steps that follow.
    pub unreachable: Threshold,
    /// What happens when it is more.
    pub on_breach: OnBreach,
}

/// What happens when more targets are unreachable than the threshold allows.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnBreach {
    /// The run fails.
    #[default]
    Fail,
    /// The targets are left out all the same.
    Exclude,
    /// The run pauses until a person resumes or cancels it; the step is then tried again.
    Pause,
}

/// What happens when a step has failed for good.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnFailure {
    /// The run fails.
    #[default]
    Fail,
    /// The run goes on: the engine counts the step as done, and its record says what failed.
    Ignore,
    /// The run pauses until a person has the step tried again, or skipped.
    Pause,
}

/// Where a step may be stopped.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Interrupt {
    /// Between two of its tasks: what it has done stays and is done again at no harm. A newer plan may supersede the
    /// run here.
    #[default]
    AtTask,
    /// Only before it starts.
    Never,
}

/// How people steer a run.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Control {
    /// Whether it should go on. Default: Running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DesiredState>,
    /// The step after which it pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub run_until: Option<String>,
    /// What people asked for; each is carried out once and leaves a record in the history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub requests: Vec<Request>,
}

/// Whether a run should go on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DesiredState {
    /// It should.
    #[default]
    Running,
    /// It stops at the next task boundary and keeps its place.
    Paused,
    /// It ends at the next task boundary, for good.
    Cancelled,
}

/// One thing that a person asked of a run.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// What tells it from others; any text that is unique within the run.
    #[schemars(length(min = 1, max = 64))]
    pub id: String,
    /// What to do.
    pub action: RequestAction,
    /// The step that it is about. Default: for Retry the failed one, for Approve the waiting one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub step: Option<String>,
    /// Why; mandatory for Skip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub by: Option<String>,
}

/// What a person asks of a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RequestAction {
    /// Lets a step that waits for a person go on.
    Approve,
    /// Tries a failed step again.
    Retry,
    /// Counts a step as done without executing it.
    Skip,
}

/// How a run stands, derived from its history.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// How it stands.
    #[serde(default)]
    pub phase: RunPhase,
    /// Percent done, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub progress: Option<u8>,
    /// The step it is at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub step: Option<String>,
    /// What is going on, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When it should be done, from what its steps are and what is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_finish: Option<Time>,
    /// How each step stands, in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub steps: Vec<StepStatus>,
    /// Targets that were left out, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000))]
    pub excluded: Vec<Exclusion>,
    /// Every transition, oldest first; only ever appended to, but that a checkpoint may stand in place of the oldest ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048))]
    pub history: Vec<Record>,
    /// The process that executes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerIdentity>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Ready, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl RunStatus {
    /// Whether a request has its answer in the history.
    pub fn has_answered(&self, request: &str) -> bool {
        self.history.iter().any(|record| {
            let checkpoint = record.checkpoint.iter();
            let earlier = checkpoint.flat_map(|checkpoint| &checkpoint.answered);
            record.request.iter().chain(earlier).any(|id| id == request)
        })
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RunPhase {
    /// Not started.
    #[default]
    Pending,
    /// At work.
    Running,
    /// Paused by a person or a gate.
    Paused,
    /// Waiting for an approval.
    Waiting,
    /// Every step is done.
    Succeeded,
    /// A step failed; a retry of that step goes on.
    Failed,
    /// Ended by a person.
    Cancelled,
    /// Ended for a newer plan.
    Superseded,
}

/// How a step stands.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// The step.
    #[schemars(length(max = 128))]
    pub id: String,
    /// How it stands.
    pub phase: StepPhase,
    /// Which attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When the attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// What it is at, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub activity: Option<String>,
    /// The run that the operator is to make, as which the step goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub awaits: Option<String>,
    /// How far the attempt is, in the unit of its engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Results>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// How far an attempt at a step is.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// How much is done.
    pub done: u32,
    /// How much it is in all, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Of what, for example tasks.
    #[schemars(length(max = 32))]
    pub unit: String,
}

/// What a step did: counts by words of its engine, for example ok, changed, failed.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Results(pub BTreeMap<String, u32>);

impl JsonSchema for Results {
    fn schema_name() -> Cow<'static, str> {
        "Results".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "maxProperties": 16,
            "additionalProperties": {"type": "integer", "format": "int64", "minimum": 0},
        })
    }
}

/// How a step stands.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum StepPhase {
    /// Not started.
    #[default]
    Pending,
    /// Being executed.
    Running,
    /// Done.
    Succeeded,
    /// Failed.
    Failed,
    /// Stopped before its end; it is executed again.
    Interrupted,
    /// Counted as done by a person.
    Skipped,
    /// Waiting for an approval.
    Waiting,
}

/// A target that was left out of a run.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Exclusion {
    /// The target.
    pub target: Target,
    /// Why.
    #[schemars(length(max = 1024))]
    pub reason: String,
}

/// One transition of a run or of a step.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its number, from 1, without gaps.
    pub sequence: u32,
    /// When it was written, for people: nothing is derived from it but durations that are shown.
    pub time: Time,
    /// What happened.
    pub event: RecordEvent,
    /// The step that it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub step: Option<String>,
    /// The attempt that it belongs to, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// More about it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub detail: Option<String>,
    /// The request that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub request: Option<String>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub by: Option<String>,
    /// Targets that it left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000))]
    pub excluded: Vec<Exclusion>,
    /// What the step did, when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Results>,
    /// Why, for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What was done about the failure by itself, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub remedies: Vec<Applied>,
    /// How the run stood, for a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<Checkpoint>>,
}

/// A remedy that was applied to targets after a failure, because the plan allows it.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The remedy's name.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The targets. None of them gets it again for this step, until a person has the step tried again.
    #[schemars(length(max = 1000))]
    pub targets: Vec<Target>,
    /// Whether it helped: the step is tried again at once, which uses up no retry.
    pub helped: bool,
    /// What came of it, for people.
    #[schemars(length(max = 1024))]
    pub said: String,
}

impl fmt::Display for Applied {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = if self.helped {
            "; the step is tried again"
        } else {
            ""
        };
        write!(formatter, "{}: {}{next}", self.name, self.said)
    }
}

/// How a run stood after a record, in place of that record and all before it. The targets that were left out stand in the
/// record itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// How the run stood.
    pub phase: RunPhase,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What was said about that, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub said: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// How the steps stood that had been touched, in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub steps: Vec<StepCheckpoint>,
    /// The requests that were answered, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), inner(length(max = 64)))]
    pub answered: Vec<String>,
    /// The value of `runUntil` that was refused last, as it names no step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub unknown_bound: Option<String>,
}

/// How a step stood.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepCheckpoint {
    /// The step.
    #[schemars(length(max = 128))]
    pub id: String,
    /// How it stood.
    pub phase: StepPhase,
    /// How often it had been started.
    pub attempt: u32,
    /// How often it had failed since a person last had it tried again.
    #[serde(default)]
    pub failures: u32,
    /// Whether a person had approved it.
    #[serde(default)]
    pub approved: bool,
    /// Whether its last failure left targets out, or a remedy helped.
    #[serde(default)]
    pub narrowed: bool,
    /// What was done about its failures since a person last had it tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub remedied: Vec<Applied>,
    /// When the last attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// What it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Results>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What it waits for a person for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub question: Option<String>,
}

/// What happened to a run or to a step.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RecordEvent {
    /// A runner took the run up, for the first time or again.
    RunStarted,
    /// Every step is done.
    RunSucceeded,
    /// A step failed for good.
    RunFailed,
    /// A person ended it.
    RunCancelled,
    /// A newer plan ended it.
    RunSuperseded,
    /// It was paused.
    RunPaused,
    /// It goes on.
    RunResumed,
    /// A step started.
    StepStarted,
    /// A step is done.
    StepSucceeded,
    /// A step failed.
    StepFailed,
    /// A step was stopped before its end, or its runner died.
    StepInterrupted,
    /// A step waits for an approval.
    StepWaiting,
    /// A person approved a step.
    StepApproved,
    /// A person asked for a step to be tried again.
    StepRetried,
    /// A person counted a step as done.
    StepSkipped,
    /// What a person asked for cannot be done; `detail` says why. The run goes on as it was.
    RequestRefused,
    /// What happened before stands in `checkpoint` alone. Only ever the first record, with the number of the last that it
    /// stands for.
    Checkpoint,
}

/// The process that executes a run.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerIdentity {
    /// What tells it from other runners: host, process and start time, or the pod.
    #[schemars(length(max = 256))]
    pub id: String,
    /// Its process on the machine, standalone only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
}

/// Why something failed, and what a person can do.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What kind of failure.
    pub class: FailureClass,
    /// A constant in CamelCase that names the failure, for example GateBreached.
    #[schemars(length(min = 1, max = 64))]
    pub code: String,
    /// What happened, for people.
    #[schemars(length(max = 4096))]
    pub message: String,
    /// What to do, or what happens next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub remedy: Option<String>,
    /// The targets that it happened on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub targets: Vec<Target>,
}

/// What kind of failure.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum FailureClass {
    /// It may pass: tried again by itself.
    Transient,
    /// It will not pass by itself.
    Permanent,
    /// What was asked for cannot be done: the spec must change.
    Config,
    /// Something outside must change first: a host, a network, a registry.
    External,
}
