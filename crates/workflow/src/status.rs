//! The `Run` status, derived from the state and from how far the running step is. Pure.

use std::collections::HashMap;

use api::{
    RunStatus,
    run::{RunPhase, RunnerIdentity, Step, StepPhase, StepStatus},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    bounds,
    executor::StepProgress,
    plan::CheckedPlan,
    state::{State, StepState},
};

/// The targets that a list of the API names at most, by its schema.
pub(crate) const TARGETS: usize = 5000;

/// What the journal does not tell: how far the running step is, and who executes it.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// How far steps are, by id.
    pub steps: HashMap<String, StepProgress>,
    /// The process at work.
    pub runner: Option<RunnerIdentity>,
    /// The time now, for the estimate of the end.
    pub now: Timestamp,
}

/// The status of a run, cut to what the API takes. Its history is that of the state, or as [`State::compacted`] leaves it where
/// that is long.
pub fn derive(plan: &CheckedPlan, state: &State, live: &Live) -> RunStatus {
    let compacted = state.compacted(plan).ok().flatten();
    let records = compacted.as_ref().unwrap_or(state).records();
    let current = current(state).and_then(|at| plan.steps().get(at).zip(state.steps().get(at)));
    let over = state.is_over() || state.phase() == RunPhase::Failed;
    let message = message(plan, state, current);
    let mut status = RunStatus {
        phase: state.phase(),
        progress: Some(percent(plan, state, live)),
        step: current.map(|(step, _)| step.id.clone()),
        started_at: state.started_at().map(Time),
        finished_at: state.phase_since().filter(|_| over).map(Time),
        estimated_finish: estimate(plan, state, live).map(Time),
        steps: steps(plan, state, live),
        excluded: state.excluded().iter().take(TARGETS).cloned().collect(),
        history: records.to_vec(),
        runner: live.runner.clone(),
        failure: current
            .filter(|(_, now)| now.phase == StepPhase::Failed)
            .and_then(|(_, now)| now.failure.clone()),
        conditions: conditions(state, &message),
        message: Some(message),
    };
    bounds::status(&mut status);
    status
}

/// Where the step stands that the run is at: of several, one that failed or waits for a person.
fn current(state: &State) -> Option<usize> {
    let phases = [StepPhase::Failed, StepPhase::Waiting, StepPhase::Running];
    let mut found = phases.into_iter().filter_map(|phase| state.first(phase));
    found.next().or_else(|| state.next())
}

fn steps(plan: &CheckedPlan, state: &State, live: &Live) -> Vec<StepStatus> {
    let status = |(step, now): (&Step, &StepState)| {
        let running = now.phase == StepPhase::Running;
        let live = live.steps.get(&step.id);
        StepStatus {
            id: step.id.clone(),
            phase: now.phase,
            attempt: (now.attempt > 0).then_some(now.attempt),
            started_at: now.started_at.map(Time),
            finished_at: now.finished_at.map(Time),
            activity: live.filter(|_| running).and_then(activity),
            awaits: live
                .filter(|_| running)
                .and_then(|live| live.awaits.clone()),
            progress: live.and_then(|live| live.progress.clone()),
            results: now
                .results
                .clone()
                .or_else(|| live.map(|live| live.results.clone())),
            failure: now
                .failure
                .clone()
                .filter(|_| now.phase == StepPhase::Failed),
        }
    };
    plan.steps().iter().zip(state.steps()).map(status).collect()
}

/// What the step is at, as far as the schema holds it: a status that is refused would hide the end of the run.
fn activity(live: &StepProgress) -> Option<String> {
    let mut activity = live.activity.clone()?;
    api::text::cut(&mut activity, ACTIVITY);
    Some(activity)
}

fn message(plan: &CheckedPlan, state: &State, current: Option<(&Step, &StepState)>) -> String {
    let total = plan.steps().len();
    let done = state.steps().iter().filter(|step| step.is_done()).count();
    let (id, now) = match current {
        Some((step, now)) => (step.id.as_str(), now.clone()),
        None => ("", StepState::default()),
    };
    let failure = now
        .failure
        .as_ref()
        .map_or_else(String::new, |f| format!("{}: {}", f.code, f.message));
    match state.phase() {
        RunPhase::Pending => format!("{total} steps to do"),
        RunPhase::Running if now.phase == StepPhase::Failed => {
            format!("step {id} failed and is tried again: {failure}")
        }
        RunPhase::Running => match running(plan, state).as_slice() {
            [] | [_] => format!("step {} of {total}: {id}", (done + 1).min(total)),
            several => format!("{done} of {total} steps done; at {}", several.join(", ")),
        },
        RunPhase::Paused => match state.said() {
            Some(detail) if now.phase == StepPhase::Failed => format!(
                "paused before step {id}: {detail}; retry or skip the step, or cancel the run"
            ),
            Some(detail) => format!("paused at step {id}: {detail}"),
            None => format!("paused at step {id} by its controls"),
        },
        RunPhase::Waiting => {
            format!(
                "step {id} waits for an approval: {}",
                now.question.unwrap_or_default()
            )
        }
        RunPhase::Succeeded => format!("{total} steps done"),
        RunPhase::Failed => format!("step {id} failed: {failure}"),
        RunPhase::Cancelled => format!(
            "cancelled after {done} of {total} steps; not done: {}",
            left(plan, state)
        ),
        RunPhase::Superseded => match state.said() {
            Some(why) => format!("superseded after {done} of {total} steps: {why}"),
            None => format!("superseded after {done} of {total} steps"),
        },
    }
}

fn running<'a>(plan: &'a CheckedPlan, state: &State) -> Vec<&'a str> {
    let running = state.all(StepPhase::Running);
    let steps = running.filter_map(|at| plan.steps().get(at));
    steps.map(|step| step.id.as_str()).collect()
}

/// The steps that are not done, those that had begun named as such; the first few, and how many more.
fn left(plan: &CheckedPlan, state: &State) -> String {
    const SHOWN: usize = 8;
    let steps = plan.steps().iter().zip(state.steps());
    let left: Vec<_> = steps
        .filter(|(_, now)| !now.is_done())
        .map(|(step, now)| match now.phase {
            StepPhase::Interrupted => format!("{} (interrupted)", step.id),
            StepPhase::Failed => format!("{} (failed)", step.id),
            _ => step.id.clone(),
        })
        .collect();
    let shown = left
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match left.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Percent by weight. A running step counts by its progress, never quite as done; only a run that succeeded is at 100.
fn percent(plan: &CheckedPlan, state: &State, live: &Live) -> u8 {
    if state.phase() == RunPhase::Succeeded {
        return 100;
    }
    let (done, total) = weights(plan, state, live);
    u8::try_from((done * 100 / total.max(1)).min(99)).unwrap_or(99)
}

/// Thousandths of weight that are done, and in all.
fn weights(plan: &CheckedPlan, state: &State, live: &Live) -> (u64, u64) {
    let mut sum = (0, 0);
    for (step, now) in plan.steps().iter().zip(state.steps()) {
        let weight = 1000 * u64::from(step.weight.unwrap_or(1));
        sum.1 += weight;
        sum.0 += match now.phase {
            _ if now.is_done() => weight,
            StepPhase::Running => weight * share(step, live) / 1000,
            _ => 0,
        };
    }
    sum
}

/// Thousandths of a running step that are done; at most 950, because more may turn up than was counted.
fn share(step: &Step, live: &Live) -> u64 {
    let live = live.steps.get(&step.id);
    let progress = live
        .and_then(|live| live.progress.clone())
        .unwrap_or_default();
    // Where nobody knows the total, a step that weighs more is expected to do more.
    let total = progress.total.or(step.weight).unwrap_or(1);
    (u64::from(progress.done) * 1000 / u64::from(total.max(1))).min(950)
}

/// When the run should be done: what is left takes as long, by weight, as what is done took, one step after the other. Pauses do
/// not count. Nothing is said before a twentieth is done.
fn estimate(plan: &CheckedPlan, state: &State, live: &Live) -> Option<Timestamp> {
    let (done, total) = weights(plan, state, live);
    if state.phase() != RunPhase::Running || done * 20 < total || done == 0 {
        return None;
    }
    let worked: i64 = state
        .steps()
        .iter()
        .map(|step| worked(step, live.now))
        .sum();
    let left = i128::from(worked) * i128::from(total - done) / i128::from(done);
    let left = SignedDuration::from_secs(i64::try_from(left).ok()?);
    live.now.checked_add(left).ok()
}

fn worked(step: &StepState, now: Timestamp) -> i64 {
    let end = match step.phase {
        StepPhase::Running => Some(now),
        _ if step.is_done() => step.finished_at,
        _ => None,
    };
    let seconds = step
        .started_at
        .zip(end)
        .map(|(start, end)| end.as_second() - start.as_second());
    seconds.unwrap_or(0).max(0)
}

/// Conditions after kstatus: `Ready` always; `Reconciling` while the run goes on by itself; `Stalled` while or because it
/// needs a person, and for runs that ended without success.
fn conditions(state: &State, message: &str) -> Vec<Condition> {
    let started = state.started_at();
    let since = state
        .phase_since()
        .or(started)
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let (reason, extra) = match state.phase() {
        RunPhase::Pending => ("Pending", Some("Reconciling")),
        RunPhase::Running => ("Running", Some("Reconciling")),
        RunPhase::Paused => ("Paused", Some("Stalled")),
        RunPhase::Waiting => ("WaitingForApproval", Some("Stalled")),
        RunPhase::Succeeded => ("Succeeded", None),
        RunPhase::Failed => ("StepFailed", Some("Stalled")),
        RunPhase::Cancelled => ("Cancelled", Some("Stalled")),
        RunPhase::Superseded => ("Superseded", Some("Stalled")),
    };
    let ready = state.phase() == RunPhase::Succeeded;
    let condition = |type_: &str, status: bool, since| Condition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(since),
        observed_generation: None,
    };
    let ready_since = if ready {
        since
    } else {
        started.unwrap_or(since)
    };
    let mut conditions = vec![condition("Ready", ready, ready_since)];
    conditions.extend(extra.map(|type_| condition(type_, true, since)));
    conditions
}

/// How long the schema lets the text of an activity be.
const ACTIVITY: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_activity_is_cut_to_what_the_schema_holds() {
        let long = StepProgress {
            activity: Some("é".repeat(300)),
            ..StepProgress::default()
        };
        let activity = activity(&long).unwrap_or_default();
        assert!(
            activity.len() <= ACTIVITY && activity.ends_with('…'),
            "{activity}"
        );
    }
}
