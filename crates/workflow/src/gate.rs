//! What follows from the way a step ended: thresholds and retries. Pure.
//!
//! - A gate is judged when targets turn out to be unreachable: all targets of the step that are left out by then, earlier
//!   ones too, against all its targets. Up to the bound they are left out of everything that follows. Above it the step
//!   fails (`Fail`), or fails and the run pauses (`Pause`), or they are left out all the same (`Exclude`).
//! - A step that failed for unreachable targets is tried again at once without them; that ends, because every such attempt
//!   leaves out at least one more target. It does not use up a retry.
//! - `Transient` and `External` failures are tried again as often as the step's `retry` says: a target or a registry that is
//!   away may be back. `Permanent` and `Config` fail at once.
//! - A step that failed and against whose failure a remedy helped is tried again at once too. That ends, because a target gets a
//!   remedy once, and it does not use up a retry.
//! - A step that failed for good and says so (`onFailure: Pause`) pauses the run instead of failing it.
//! - A step without a gate leaves out what an attempt that *succeeded* did without; one that failed, fails.

use std::{collections::HashSet, time::Duration};

use api::run::{Exclusion, Failure, FailureClass, OnBreach, OnFailure, Record, RecordEvent, Step};

use crate::{
    control::record,
    executor::StepOutcome,
    plan::CheckedPlan,
    state::{State, StepState},
};

/// The code of the failure when a gate stops a step.
pub const GATE_BREACHED: &str = "TooManyUnreachable";
/// The code of the failure when a step outlives its timeout.
pub const STEP_TIMED_OUT: &str = "StepTimedOut";
/// The code of the failure when an executor ends without a word about a step.
pub const EXECUTOR_ENDED: &str = "ExecutorEnded";

/// The back-off never gets longer than this: ten doublings of the default would be more than an hour.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);
const DEFAULT_BACK_OFF: Duration = Duration::from_secs(5);

/// What is done about a failed step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AfterFailure {
    /// It is tried again, after this wait before jitter.
    Retry(Duration),
    /// The run pauses until a person has it tried again or skipped.
    Pause,
    /// The run fails.
    Fail,
}

/// Decides from the journal alone, so that a restart decides the same.
pub fn after_failure(step: &Step, state: &StepState) -> AfterFailure {
    let Some(failure) = &state.failure else {
        return AfterFailure::Fail;
    };
    if state.narrowed {
        return AfterFailure::Retry(Duration::ZERO);
    }
    if failure.code == GATE_BREACHED {
        return match step.gate.as_ref().map(|gate| gate.on_breach) {
            Some(OnBreach::Pause) => AfterFailure::Pause,
            _ => for_good(step),
        };
    }
    match &step.retry {
        Some(retry) if may_pass(failure) && state.failures <= u32::from(retry.limit) => {
            AfterFailure::Retry(back_off(retry.back_off, state.failures))
        }
        _ => for_good(step),
    }
}

/// What follows where a step is not tried again by itself.
fn for_good(step: &Step) -> AfterFailure {
    match step.on_failure {
        Some(OnFailure::Pause) => AfterFailure::Pause,
        _ => AfterFailure::Fail,
    }
}

/// The record of the end of an attempt.
pub(crate) fn judge(
    plan: &CheckedPlan,
    step: &Step,
    state: &State,
    outcome: StepOutcome,
) -> Record {
    match outcome {
        StepOutcome::Succeeded {
            results,
            unreachable,
            detail,
        } => {
            let fresh = fresh(state, unreachable);
            let base = Record {
                results: Some(results),
                ..record(RecordEvent::StepSucceeded)
            };
            match breach(plan, step, state, &fresh) {
                Some(failure) => Record {
                    event: RecordEvent::StepFailed,
                    failure: Some(failure),
                    ..base
                },
                None => Record {
                    excluded: fresh,
                    detail,
                    ..base
                },
            }
        }
        StepOutcome::Failed {
            failure,
            results,
            unreachable,
            remedies,
        } => {
            let fresh = fresh(state, unreachable);
            let base = Record {
                results: Some(results),
                remedies,
                ..record(RecordEvent::StepFailed)
            };
            let passing = step.gate.is_some() && may_pass(&failure);
            match breach(plan, step, state, &fresh) {
                Some(breach) if passing => Record {
                    failure: Some(breach),
                    ..base
                },
                None if passing => Record {
                    failure: Some(failure),
                    excluded: fresh,
                    ..base
                },
                _ => Record {
                    failure: Some(failure),
                    ..base
                },
            }
        }
        StepOutcome::Interrupted { detail } => Record {
            detail,
            ..record(RecordEvent::StepInterrupted)
        },
        StepOutcome::Waiting { question } => Record {
            detail: Some(question),
            ..record(RecordEvent::StepWaiting)
        },
    }
}

fn fresh(state: &State, unreachable: Vec<Exclusion>) -> Vec<Exclusion> {
    let known = state.excluded().iter().map(|known| known.target.clone());
    let mut known: HashSet<_> = known.collect();
    let mut fresh = unreachable;
    fresh.retain(|target| known.insert(target.target.clone()));
    fresh
}

fn breach(plan: &CheckedPlan, step: &Step, state: &State, fresh: &[Exclusion]) -> Option<Failure> {
    let gate = step.gate.as_ref().filter(|_| !fresh.is_empty())?;
    let targets: HashSet<_> = plan.plan().targets(step).collect();
    let left_out = state.excluded().iter().chain(fresh);
    let affected = left_out
        .filter(|target| targets.contains(&target.target))
        .count();
    let total = targets.len();
    if gate.on_breach == OnBreach::Exclude || !gate.unreachable.is_exceeded(affected, total) {
        return None;
    }
    let reasons: Vec<_> = fresh
        .iter()
        .take(10)
        .map(|h| format!("{}: {}", h.target, h.reason))
        .collect();
    Some(Failure {
        class: FailureClass::External,
        code: GATE_BREACHED.to_owned(),
        message: format!(
            "{affected} of {total} do not answer, {} are allowed: {}",
            gate.unreachable,
            reasons.join("; ")
        ),
        remedy: Some(
            "bring them back, then have the step tried again; or raise the threshold".to_owned(),
        ),
        targets: fresh.iter().map(|target| target.target.clone()).collect(),
    })
}

fn may_pass(failure: &Failure) -> bool {
    matches!(
        failure.class,
        FailureClass::Transient | FailureClass::External
    )
}

fn back_off(base: Option<api::Duration>, failures: u32) -> Duration {
    let base = base.map_or(DEFAULT_BACK_OFF, Duration::from);
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    base.saturating_mul(factor).min(LONGEST_BACK_OFF.max(base))
}
