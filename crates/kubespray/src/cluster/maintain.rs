//! What waits for a maintenance window, and the request to let it start all the same. Pure.
//!
//! A request is a value of the annotation [`request::MAINTAIN`]. As one to converge, it is answered once: by the Run that starts by it,
//! which carries the value, or by a refusal.

use std::collections::BTreeSet;

use api::{
    Cluster, HostName, Run,
    cluster::MaintainRequest,
    maintenance::OnWindowEnd,
    run::{Plan, RunPhase, StepPhase},
};
use controller::window::Moment;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use runs::{control, is_active, phase};
use workflow::Rest;

use crate::{
    action::{self, Action},
    cluster::{
        built::{Built, is_built},
        decision::{Decision, NewRun, Situation},
        pending,
    },
    operation::{Operation, asked},
    request,
};

/// An operation that waits for a maintenance window.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The run that would start.
    pub new: NewRun,
    /// The hosts that it is about.
    pub hosts: Vec<HostName>,
    /// When the window opens.
    pub opens: Moment,
}

impl Waiting {
    /// What waits, and until when. It stays the same for as long as it waits.
    pub fn told(&self) -> String {
        format!(
            "{} waits for the maintenance window that opens at {}",
            pending::named(self.new.operation.name, &self.hosts),
            self.opens
        )
    }

    /// What is answered to somebody who asks for what comes behind it.
    pub fn comes_first(&self) -> String {
        format!(
            "{}; ask again when that has ended, or let it start now: windlass maintain",
            self.told()
        )
    }
}

/// What becomes of a run that an operation would start: it starts now, or waits for a window.
pub(super) fn admitted(
    situation: &Situation<'_>,
    built: &Built,
    mut new: NewRun,
) -> Result<NewRun, Box<Waiting>> {
    let now = situation.observed.now;
    let keeping = situation.wanted.ok().map(|wanted| &wanted.maintenance);
    // What a person asks for by its name is not held back.
    let asked = new.request.is_some();
    let takes = takes(&situation.observed.runs, new.operation);
    let opens = keeping.and_then(|keeping| keeping.begins(new.operation, now, takes));
    let Some(opens) = opens.filter(|_| !asked) else {
        return Ok(new);
    };
    if let Some(request) = open(situation.cluster) {
        let is_answer = |run: &Run| is_for(run, &request);
        if !situation.observed.runs.iter().any(is_answer) {
            new.maintain = Some(request);
            return Ok(new);
        }
    }
    let hosts = pending::hosts(built, &new.plan);
    Err(Box::new(Waiting { new, hosts, opens }))
}

/// How long an operation is likely to take: as long as it did when it succeeded last, without what it waited for people and windows.
pub(super) fn takes(runs: &[Run], operation: &Operation) -> Option<SignedDuration> {
    let mut runs = runs.iter().rev();
    let last =
        runs.find(|run| run.spec.operation == operation.name && phase(run) == RunPhase::Succeeded)?;
    let status = last.status.as_ref()?;
    let between = |began: &Option<Time>, ended: &Option<Time>| {
        let (began, ended) = (began.as_ref()?, ended.as_ref()?);
        Some(ended.0.duration_since(began.0))
    };
    let whole = between(&status.started_at, &status.finished_at)?;
    let steps = status.steps.iter();
    let steps = steps.filter_map(|step| between(&step.started_at, &step.finished_at));
    let worked = steps.fold(SignedDuration::ZERO, SignedDuration::saturating_add);
    // Steps that run side by side take longer together than the run.
    Some(worked.min(whole))
}

/// A change of where a run rests.
#[derive(Clone, Debug)]
pub struct RestChange {
    /// The run.
    pub run: Box<Run>,
    /// Where it is to rest. None: it is to go on.
    pub to: Option<Rest>,
    /// The request by which it goes on outside of a window.
    pub request: Option<String>,
}

impl RestChange {
    /// The annotations that it leaves beside.
    pub fn marks(&self) -> Option<(String, String)> {
        let request = self.request.clone()?;
        Some((request::MAINTAIN.to_owned(), request))
    }
}

/// What changes of where a run at work rests: after the next safe step once the window has closed, where the spec says so, and no more
/// once one is open. What a person asked for goes on whatever the windows say, and what a person paused is theirs.
pub(super) fn rest(situation: &Situation<'_>, decision: &Decision) -> Option<RestChange> {
    let Decision::Maintain(_, run) = decision else {
        return None;
    };
    let keeping = &situation.wanted.ok()?.maintenance;
    if !is_active(phase(run)) {
        return None;
    }
    let change = |to: Option<Rest>, request: Option<String>| RestChange {
        run: run.clone(),
        to,
        request,
    };
    let rests = control::rest(run);
    let operation = Operation::of(run)?;
    let mut asked = request::of(operation)
        .into_iter()
        .chain([request::MAINTAIN]);
    let asked = asked.any(|name| run.annotations().contains_key(name));
    let closed = keeping.waits(operation, situation.observed.now);
    match (closed, rests) {
        (Some(opens), None) if keeping.on_end == OnWindowEnd::Pause && !asked => {
            let after = safe_after(run)?;
            let why = format!("the maintenance window has closed, the next one opens at {opens}");
            Some(change(Some(Rest { after, why }), None))
        }
        (Some(_), Some(_)) if keeping.on_end == OnWindowEnd::Pause && !asked => {
            let request = open(situation.cluster)?;
            Some(change(None, Some(request)))
        }
        (_, Some(_)) => Some(change(None, None)),
        (_, None) => None,
    }
}

/// The step, from the one at hand on, after which nothing is left half done: no node waits without its pods. None: there is none
/// before the end. Steps that run side by side have no such place.
fn safe_after(run: &Run) -> Option<String> {
    let plan = &run.spec.plan;
    if plan.parallelism.is_some_and(|many| many > 1) {
        return None;
    }
    let status = run.status.as_ref();
    let is_done = |id: &str| {
        let mut steps = status.iter().flat_map(|status| &status.steps);
        steps.any(|step| {
            step.id == id && matches!(step.phase, StepPhase::Succeeded | StepPhase::Skipped)
        })
    };
    let at = plan.steps.iter().position(|step| !is_done(&step.id))?;
    let mut drained: BTreeSet<HostName> = BTreeSet::new();
    for (place, step) in plan.steps.iter().enumerate() {
        let hosts = || action::hosts_of(plan, step);
        match action::of(step) {
            Ok(Some(Action::Drain { .. })) => drained.extend(hosts()),
            // A batch of an upgrade drains its nodes itself, and where it was repeated the gate behind it lets pods in again.
            Ok(Some(Action::AnsiblePlay(play))) if play.limited => {
                let gated = hosts().into_iter().filter(|host| gated(plan, place, host));
                drained.extend(gated);
            }
            Ok(Some(Action::ForgetNodes { .. } | Action::Gate(_))) => {
                for host in hosts() {
                    drained.remove(&host);
                }
            }
            _ => {}
        }
        let is_last = place + 1 == plan.steps.len();
        if place >= at && drained.is_empty() && !is_last {
            return Some(step.id.clone());
        }
    }
    None
}

/// Whether a host goes through a gate after that place.
fn gated(plan: &Plan, place: usize, host: &HostName) -> bool {
    let later = plan.steps.iter().skip(place + 1);
    let mut gates = later.filter(|step| matches!(action::of(step), Ok(Some(Action::Gate(_)))));
    gates.any(|step| action::hosts_of(plan, step).contains(host))
}

/// The answer to an open request, if the decision is one.
pub fn answer(cluster: &Cluster, decision: &Decision) -> Option<MaintainRequest> {
    let request = open(cluster)?;
    if cluster.meta().deletion_timestamp.is_some() {
        return None;
    }
    let run = |name: String| MaintainRequest {
        request: request.clone(),
        run: Some(name),
        refused: None,
    };
    let refused = |why: &str| MaintainRequest {
        request: request.clone(),
        run: None,
        refused: Some(why.to_owned()),
    };
    Some(match decision {
        Decision::Start(new) if new.maintain.as_ref() == Some(&request) => run(new.name.clone()),
        Decision::Maintain(_, at_work) if is_for(at_work, &request) => run(at_work.name_any()),
        Decision::Keep(built) if built.run.as_ref().is_some_and(|run| is_for(run, &request)) => {
            run(built.run.as_ref().map(ResourceExt::name_any)?)
        }
        Decision::Keep(built) if built.looks_before.is_some() => return None,
        // The next pass finds it so.
        Decision::Maintain(_, at_work) if control::rest(at_work).is_some() => return None,
        Decision::Maintain(_, at_work) if is_active(phase(at_work)) => refused(&format!(
            "run {} is under way: ask again when it has ended",
            at_work.name_any()
        )),
        Decision::Stall(_) => {
            refused("the spec must be corrected first: see the condition Stalled")
        }
        // Of a cluster that is built and waits for its playbooks only.
        Decision::AwaitPlaybooks(_) if is_built(cluster) => return None,
        // When that has ended.
        Decision::Supersede(run, _) if Operation::of(run).is_some_and(|it| it.of_built) => {
            return None;
        }
        _ => refused("nothing waits for a maintenance window"),
    })
}

/// The request that no answer is known to.
fn open(cluster: &Cluster) -> Option<String> {
    let status = cluster.status.as_ref();
    let answered = status.and_then(|status| status.maintain.as_ref());
    let answered = answered.map(|last| last.request.as_str());
    asked::open(cluster, request::MAINTAIN, asked::LENGTH, answered)
}

fn is_for(run: &Run, request: &str) -> bool {
    asked::is_for(run, request::MAINTAIN, request)
}
