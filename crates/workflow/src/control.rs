//! What people want of a run, and the answer to each of their requests. Pure.
//!
//! `control.state`, `control.runUntil`, supersession, a rest and the engine's own hold are levels: the run follows them for as
//! long as they stand.
//! Requests are edges: each is carried out once, by its id, and answered by one record, between steps. A run that a
//! gate paused goes on by a `Retry` (or `Skip`) of the step, for its `state` was Running all the time.

use api::run::{
    Action, Control, DesiredState, Record, RecordEvent, Request, RequestAction, StepPhase,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    gate::{AfterFailure, after_failure},
    plan::CheckedPlan,
    state::State,
};

/// What the runner follows while it works.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Steering {
    /// The Run's `spec.control`.
    pub control: Control,
    /// Why a newer plan replaces this one, if it does.
    pub superseded: Option<String>,
    /// Why the run is held for now, whatever people want, if it is: the engine lacks what it needs to go on.
    pub held: Option<String>,
    /// Where the run rests for a while, if it is to.
    pub rest: Option<Rest>,
    /// Why this runner is to leave the run, paused as it is then, to another one, if it is.
    pub left: Option<String>,
}

/// A place where a run pauses until it is said no more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rest {
    /// The step after which it does.
    pub after: String,
    /// Why, for people.
    pub why: String,
}

impl Steering {
    /// Why the run pauses, where no person paused it.
    pub(crate) fn why_paused(&self) -> Option<String> {
        let rest = self.rest.as_ref().map(|rest| rest.why.clone());
        self.held.clone().or(rest)
    }
}

/// What the levels ask for now, the strongest first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Intent {
    Cancel,
    Supersede,
    Leave,
    Pause,
    Go,
}

pub(crate) fn intent(plan: &CheckedPlan, state: &State, steering: &Steering) -> Intent {
    let is_done = |id: &str| {
        let step = state.step(plan, id);
        step.is_some_and(crate::state::StepState::is_done)
    };
    let reached = steering.control.run_until.as_deref().is_some_and(is_done);
    let rests = steering
        .rest
        .as_ref()
        .is_some_and(|rest| is_done(&rest.after));
    match steering.control.state.unwrap_or_default() {
        DesiredState::Cancelled => Intent::Cancel,
        _ if steering.superseded.is_some() => Intent::Supersede,
        _ if steering.left.is_some() => Intent::Leave,
        DesiredState::Paused => Intent::Pause,
        DesiredState::Running if steering.held.is_some() => Intent::Pause,
        DesiredState::Running if reached || rests => Intent::Pause,
        DesiredState::Running => Intent::Go,
    }
}

/// The first request without an answer, with its answer.
pub(crate) fn answer(plan: &CheckedPlan, state: &State, steering: &Steering) -> Option<Record> {
    let open = |request: &&Request| !state.has_answered(&request.id);
    let request = steering.control.requests.iter().find(open)?;
    let (event, step, detail) = match decide(plan, state, request) {
        Ok((event, step)) => (event, Some(step), request.reason.clone()),
        Err(refusal) => (
            RecordEvent::RequestRefused,
            request.step.clone(),
            Some(refusal),
        ),
    };
    Some(Record {
        step,
        detail,
        request: Some(request.id.clone()),
        by: request.by.clone(),
        ..record(event)
    })
}

/// The answer to every open request, where none can be carried out.
pub(crate) fn refusals(state: &State, steering: &Steering, why: &str) -> Vec<Record> {
    let requests = steering.control.requests.iter();
    let open = requests.filter(|request| !state.has_answered(&request.id));
    open.map(|request| Record {
        step: request.step.clone(),
        detail: Some(why.to_owned()),
        request: Some(request.id.clone()),
        by: request.by.clone(),
        ..record(RecordEvent::RequestRefused)
    })
    .collect()
}

/// Says, once, that `runUntil` names no step.
pub(crate) fn unknown_bound(
    plan: &CheckedPlan,
    state: &State,
    steering: &Steering,
) -> Option<Record> {
    let until = steering.control.run_until.as_ref()?;
    let said = state.unknown_bound() == Some(until);
    (plan.position(until).is_none() && !said).then(|| Record {
        step: Some(until.clone()),
        detail: Some(format!(
            "runUntil names {until:?}, which is no step of the plan: the run does not stop there"
        )),
        ..record(RecordEvent::RequestRefused)
    })
}

/// Whether a failed run is taken up again: one of the open requests changes a step.
pub(crate) fn takes_up(plan: &CheckedPlan, state: &State, steering: &Steering) -> bool {
    let open = steering
        .control
        .requests
        .iter()
        .filter(|request| !state.has_answered(&request.id));
    open.into_iter()
        .any(|request| decide(plan, state, request).is_ok())
}

/// A record of an event, to be completed.
pub(crate) fn record(event: RecordEvent) -> Record {
    Record {
        sequence: 0,
        time: Time(jiff::Timestamp::UNIX_EPOCH),
        event,
        step: None,
        attempt: None,
        detail: None,
        request: None,
        by: None,
        excluded: Vec::new(),
        results: None,
        failure: None,
        remedies: Vec::new(),
        checkpoint: None,
    }
}

fn decide(
    plan: &CheckedPlan,
    state: &State,
    request: &Request,
) -> Result<(RecordEvent, String), String> {
    let at = target(plan, state, request)?;
    let (Some(step), Some(now)) = (plan.steps().get(at), state.steps().get(at)) else {
        return Err("the plan has no such step".to_owned());
    };
    let id = step.id.clone();
    match (request.action, now.phase) {
        (RequestAction::Approve, StepPhase::Waiting) => Ok((RecordEvent::StepApproved, id)),
        (RequestAction::Retry, StepPhase::Failed) => Ok((RecordEvent::StepRetried, id)),
        (RequestAction::Skip, _)
            if request
                .reason
                .as_deref()
                .is_none_or(|why| why.trim().is_empty()) =>
        {
            Err(format!("skipping step {id:?} needs a reason"))
        }
        // A question that is skipped would be one that is approved, by who has not said so.
        (RequestAction::Skip, phase)
            if phase == StepPhase::Waiting || matches!(step.action, Action::Approve(_)) =>
        {
            Err(format!(
                "step {id:?} asks a person: approve it, or cancel the run"
            ))
        }
        (RequestAction::Skip, phase) if phase != StepPhase::Running && !now.is_done() => {
            Ok((RecordEvent::StepSkipped, id))
        }
        (RequestAction::Approve, phase) => Err(format!(
            "step {id:?} does not wait for an approval: it is {phase:?}"
        )),
        (RequestAction::Retry, phase) => {
            Err(format!("step {id:?} has not failed: it is {phase:?}"))
        }
        (RequestAction::Skip, phase) => {
            Err(format!("step {id:?} cannot be skipped: it is {phase:?}"))
        }
    }
}

fn target(plan: &CheckedPlan, state: &State, request: &Request) -> Result<usize, String> {
    if let Some(id) = &request.step {
        return plan
            .position(id)
            .ok_or_else(|| format!("step {id:?} is no step of the plan"));
    }
    match request.action {
        RequestAction::Approve => state
            .first(StepPhase::Waiting)
            .ok_or("no step waits for an approval"),
        RequestAction::Retry => failed(plan, state).ok_or("no step has failed"),
        RequestAction::Skip => Err("a skip must name its step"),
    }
    .map_err(str::to_owned)
}

/// The failed step that a person is asked about: of several, one that is not tried again by itself.
fn failed(plan: &CheckedPlan, state: &State) -> Option<usize> {
    let stops = |at: &usize| {
        let step = plan.steps().get(*at).zip(state.steps().get(*at));
        step.is_some_and(|(step, now)| !matches!(after_failure(step, now), AfterFailure::Retry(_)))
    };
    let mut failed = state.all(StepPhase::Failed);
    failed
        .find(stops)
        .or_else(|| state.first(StepPhase::Failed))
}
