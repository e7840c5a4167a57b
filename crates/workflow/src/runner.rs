//! Executes a plan: decides from the journal and the controls what comes next, and writes every edge to the journal
//! before it acts on it.
//!
//! The loop has no memory of its own. After every record it asks again what follows from the state, so that a runner that
//! takes a run up after a crash does what the dead one would have done. A step that the dead one had started is recorded
//! as interrupted and executed again; one that succeeded never is.

mod attempt;
mod ledger;

use std::time::Duration;

use api::run::{Record, RecordEvent, RunPhase, StepPhase};
use tokio::sync::watch;

use self::ledger::Ledger;
use crate::{
    clock::Clock,
    control::{self, Intent, Steering, record},
    executor::{Executor, StepProgress},
    gate::{AfterFailure, after_failure},
    journal::{JournalError, JournalStore, MemoryJournal},
    plan::CheckedPlan,
    state::{IllegalTransition, State},
};

/// Learns what happens, for status, logs and Events. It is called in the runner's loop: it must not block.
pub trait Observer: Send {
    /// A record was written; `state` has it already.
    fn recorded(&mut self, record: &Record, state: &State);

    /// A running step got further.
    fn progressed(&mut self, step: &str, progress: &StepProgress) {
        let _ = (step, progress);
    }
}

/// How a runner left its run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Every step is done.
    Succeeded,
    /// A step failed for good; a request to retry or skip it, and another call of [`run`], go on.
    Failed,
    /// A person ended it.
    Cancelled,
    /// A newer plan ended it.
    Superseded,
    /// It is paused because another runner is to go on with it; or it waits for a person (paused, or for an approval), but
    /// its controls are closed: nobody can steer it any more.
    Parked,
}

/// Why a runner cannot work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The journal cannot be read or written.
    #[error("keep the journal")]
    Journal(#[source] JournalError),
    /// The journal tells what cannot have happened, or belongs to another plan.
    #[error("replay the journal")]
    Illegal(#[source] IllegalTransition),
}

/// What a run is executed with.
#[derive(Debug)]
pub struct Runner<J, E, C, O> {
    /// Where the records are kept.
    pub journal: J,
    /// Who executes the steps.
    pub executor: E,
    /// Where the records' times come from.
    pub clock: C,
    /// Who learns what happens.
    pub observer: O,
    /// How long a step that outlived its timeout has to stop, before it is dropped.
    pub stop_grace: Duration,
}

/// The default of [`Runner::stop_grace`].
pub const STOP_GRACE: Duration = Duration::from_secs(30);

/// Executes a plan, from wherever its journal says it is, to its end.
///
/// Pauses and approvals are waited for; a failed step ends the call, and a later one goes on when a request for the step
/// is there.
///
/// # Errors
///
/// Only the journal can stop a runner. What goes wrong in a step is in the journal and in the outcome.
pub async fn run<J: JournalStore, E: Executor, C: Clock, O: Observer>(
    plan: &CheckedPlan,
    runner: &mut Runner<J, E, C, O>,
    controls: watch::Receiver<Steering>,
) -> Result<Outcome, RunError> {
    let records = runner.journal.load().map_err(RunError::Journal)?;
    let state = State::replay(plan, &records).map_err(RunError::Illegal)?;
    let Runner {
        journal,
        executor,
        clock,
        observer,
        stop_grace,
    } = runner;
    let ledger = Ledger {
        plan,
        state,
        journal,
        clock,
        observer,
    };
    let stop_grace = *stop_grace;
    Drive {
        ledger,
        executor,
        controls,
        steerable: true,
        stop_grace,
    }
    .finish()
    .await
}

/// Ends a run that nobody executes, if its controls want its end: the state after the end, with the records that lead there.
///
/// For a run whose runner cannot be had: it would never be told of its end. A runner that does come finds the run over.
///
/// # Errors
///
/// The records tell what cannot have happened.
pub fn end_without_runner(
    plan: &CheckedPlan,
    records: &[Record],
    steering: &Steering,
    clock: &impl Clock,
) -> Result<Option<State>, RunError> {
    let state = State::replay(plan, records).map_err(RunError::Illegal)?;
    let intent = control::intent(plan, &state, steering);
    let end = ending(intent, steering).filter(|_| !state.is_over());
    let Some(end) = end else {
        return Ok(None);
    };
    let mut ledger = Ledger {
        plan,
        state,
        journal: &mut MemoryJournal::default(),
        clock,
        observer: &mut Nobody,
    };
    ledger.interrupt()?;
    ledger.append(end)?;
    Ok(Some(ledger.state))
}

/// An observer of what nobody else need know at once.
struct Nobody;

impl Observer for Nobody {
    fn recorded(&mut self, _: &Record, _: &State) {}
}

struct Drive<'a, J, E, C, O> {
    ledger: Ledger<'a, J, C, O>,
    executor: &'a E,
    controls: watch::Receiver<Steering>,
    steerable: bool,
    stop_grace: Duration,
}

/// What a pass of the loop found to do next.
enum Next {
    /// Something was recorded: look again.
    Again,
    /// Only a change of the controls can help.
    Await,
    /// It goes on elsewhere.
    Leave,
    /// Execute the step at this place, after this wait.
    Execute(usize, Duration),
}

impl<J: JournalStore, E: Executor, C: Clock, O: Observer> Drive<'_, J, E, C, O> {
    async fn finish(mut self) -> Result<Outcome, RunError> {
        if let Some(outcome) = self.take_up()? {
            return Ok(outcome);
        }
        loop {
            if let Some(outcome) = ended(self.ledger.state.phase()) {
                return Ok(outcome);
            }
            match self.next()? {
                Next::Again => {}
                Next::Leave => return Ok(Outcome::Parked),
                Next::Await if !self.steerable => return Ok(Outcome::Parked),
                Next::Await => self.steered().await,
                Next::Execute(at, wait) => {
                    if self.waited(wait).await {
                        self.attempt(at).await?;
                    }
                }
            }
        }
    }

    /// Records that this runner is at work, and what its predecessor left open. A run that is over, or failed with no
    /// request to go on, is left as it is.
    fn take_up(&mut self) -> Result<Option<Outcome>, RunError> {
        let steering = self.controls.borrow_and_update().clone();
        if self.ledger.state.is_over() {
            return Ok(ended(self.ledger.state.phase()));
        }
        if self.ledger.state.phase() == RunPhase::Failed {
            let intent = control::intent(self.ledger.plan, &self.ledger.state, &steering);
            if let Some(end) = ending(intent, &steering) {
                self.ledger.append(end)?;
                return Ok(ended(self.ledger.state.phase()));
            }
            if !control::takes_up(self.ledger.plan, &self.ledger.state, &steering) {
                while let Some(refusal) =
                    control::answer(self.ledger.plan, &self.ledger.state, &steering)
                {
                    self.ledger.append(refusal)?;
                }
                return Ok(Some(Outcome::Failed));
            }
        }
        self.ledger.append(record(RecordEvent::RunStarted))?;
        self.ledger.interrupt()?;
        Ok(None)
    }

    fn next(&mut self) -> Result<Next, RunError> {
        let steering = self.controls.borrow_and_update().clone();
        let intent = control::intent(self.ledger.plan, &self.ledger.state, &steering);
        if self.ledger.state.next().is_none() {
            return self.resumed_or(record(RecordEvent::RunSucceeded));
        }
        if let Some(end) = ending(intent, &steering) {
            return self.end(end);
        }
        let notice = control::answer(self.ledger.plan, &self.ledger.state, &steering)
            .or_else(|| control::unknown_bound(self.ledger.plan, &self.ledger.state, &steering));
        if let Some(record) = notice {
            return self.end(record);
        }
        match intent {
            Intent::Leave if self.ledger.state.phase() == RunPhase::Paused => Ok(Next::Leave),
            Intent::Leave => self.end(Record {
                detail: steering.left,
                ..record(RecordEvent::RunPaused)
            }),
            Intent::Pause => self.pause(Record {
                detail: steering.held,
                ..record(RecordEvent::RunPaused)
            }),
            _ => self.proceed(),
        }
    }

    fn proceed(&mut self) -> Result<Next, RunError> {
        let Some((at, step, now)) = self.current() else {
            return Ok(Next::Again);
        };
        let wait = match now.phase {
            StepPhase::Waiting => None,
            StepPhase::Failed => match after_failure(step, now) {
                AfterFailure::Retry(wait) => Some(wait),
                AfterFailure::Pause => {
                    let detail = now.failure.as_ref().map(|failure| failure.message.clone());
                    let step = Some(step.id.clone());
                    return self.pause(Record {
                        step,
                        detail,
                        ..record(RecordEvent::RunPaused)
                    });
                }
                AfterFailure::Fail => {
                    let (step, failure) = (Some(step.id.clone()), now.failure.clone());
                    let record = Record {
                        step,
                        failure,
                        ..record(RecordEvent::RunFailed)
                    };
                    return self.resumed_or(record);
                }
            },
            _ => Some(Duration::ZERO),
        };
        if self.ledger.state.phase() == RunPhase::Paused {
            return self.end(record(RecordEvent::RunResumed));
        }
        Ok(wait.map_or(Next::Await, |wait| Next::Execute(at, wait)))
    }

    fn current(&self) -> Option<(usize, &api::run::Step, &crate::state::StepState)> {
        let at = self.ledger.state.next()?;
        Some((
            at,
            self.ledger.plan.steps().get(at)?,
            self.ledger.state.steps().get(at)?,
        ))
    }

    fn pause(&mut self, record: Record) -> Result<Next, RunError> {
        if self.ledger.state.phase() == RunPhase::Paused {
            return Ok(Next::Await);
        }
        self.end(record)
    }

    /// Appends the record, or what lets it follow: a paused run is resumed first.
    fn resumed_or(&mut self, wanted: Record) -> Result<Next, RunError> {
        match self.ledger.state.phase() {
            RunPhase::Paused => self.end(record(RecordEvent::RunResumed)),
            _ => self.end(wanted),
        }
    }

    fn end(&mut self, record: Record) -> Result<Next, RunError> {
        self.ledger.append(record)?;
        Ok(Next::Again)
    }

    /// Waits for a retry's back-off. `false`: the controls changed, so that everything must be looked at again.
    async fn waited(&mut self, wait: Duration) -> bool {
        let wait = wait.mul_f64(rand::random_range(0.5..=1.0));
        if wait.is_zero() {
            return true;
        }
        let until = tokio::time::Instant::now() + wait;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return true,
                () = self.steered(), if self.steerable => {
                    let steering = self.controls.borrow().clone();
                    let quiet = control::intent(self.ledger.plan, &self.ledger.state, &steering) == Intent::Go
                        && control::answer(self.ledger.plan, &self.ledger.state, &steering).is_none();
                    if !quiet {
                        return false;
                    }
                }
            }
        }
    }

    async fn steered(&mut self) {
        self.steerable = self.controls.changed().await.is_ok();
    }
}

/// The record that ends the run, if the controls want its end.
fn ending(intent: Intent, steering: &Steering) -> Option<Record> {
    match intent {
        Intent::Cancel => Some(record(RecordEvent::RunCancelled)),
        Intent::Supersede => {
            let detail = steering.superseded.clone();
            Some(Record {
                detail,
                ..record(RecordEvent::RunSuperseded)
            })
        }
        Intent::Leave | Intent::Pause | Intent::Go => None,
    }
}

fn ended(phase: RunPhase) -> Option<Outcome> {
    match phase {
        RunPhase::Succeeded => Some(Outcome::Succeeded),
        RunPhase::Failed => Some(Outcome::Failed),
        RunPhase::Cancelled => Some(Outcome::Cancelled),
        RunPhase::Superseded => Some(Outcome::Superseded),
        _ => None,
    }
}
