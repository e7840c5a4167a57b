//! Executes a plan: decides from the journal and the controls what comes next, and writes every edge to the journal
//! before it acts on it.
//!
//! The loop has no memory of its own. After every record it asks again what follows from the state, so that a runner that
//! takes a run up after a crash does what the dead one would have done. A step that the dead one had started is recorded
//! as interrupted and executed again; one that succeeded never is.
//!
//! Where the plan lets steps run side by side, the run is one thing all the same: requests are answered when a step could
//! start; nothing starts while a step has failed for good or waits for a person; the run is paused when all that runs holds;
//! and it ends when nothing runs any more.

mod attempt;
mod ledger;

use std::{collections::HashMap, time::Duration};

use api::run::{Record, RecordEvent, RunPhase, Step, StepPhase};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use self::{attempt::Attempt, ledger::Ledger};
use crate::{
    clock::Clock,
    control::{self, Intent, Steering, record},
    executor::{Executor, Report, StepProgress},
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
    let (reporter, reports) = mpsc::channel(1);
    Drive {
        ledger,
        executor: &*executor,
        controls,
        steerable: true,
        stop_grace: *stop_grace,
        attempts: Vec::new(),
        begun: 0,
        reporter,
        reports,
        retries: HashMap::new(),
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

/// Refuses what is asked of a run that nobody executes, for this reason: the state after the answers. None: nothing is asked.
///
/// # Errors
///
/// The records tell what cannot have happened.
pub fn refuse_without_runner(
    plan: &CheckedPlan,
    records: &[Record],
    steering: &Steering,
    why: &str,
    clock: &impl Clock,
) -> Result<Option<State>, RunError> {
    let state = State::replay(plan, records).map_err(RunError::Illegal)?;
    let refusals = control::refusals(&state, steering, why);
    if refusals.is_empty() {
        return Ok(None);
    }
    let mut ledger = Ledger {
        plan,
        state,
        journal: &mut MemoryJournal::default(),
        clock,
        observer: &mut Nobody,
    };
    for refusal in refusals {
        ledger.append(refusal)?;
    }
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
    /// What is being executed.
    attempts: Vec<Attempt<'a>>,
    /// How many attempts ever began.
    begun: u64,
    reporter: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
    /// When failed steps, by their places, are tried again.
    retries: HashMap<usize, Instant>,
}

/// What a pass of the loop found to do next.
enum Next {
    /// Something was recorded: look again.
    Again,
    /// Something has to happen first, or that time to come.
    Await(Option<Instant>),
    /// It goes on elsewhere.
    Leave,
    /// Execute the step at this place.
    Execute(usize),
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
            // A copy: whoever steers waits while the channel is looked at, and what is written below is told to observers, who
            // may steer in turn.
            let steering = self.controls.borrow_and_update().clone();
            self.steer(&steering)?;
            match self.next(&steering)? {
                Next::Again => {}
                Next::Leave => return Ok(Outcome::Parked),
                Next::Await(None) if self.is_idle() && !self.steerable => {
                    return Ok(Outcome::Parked);
                }
                Next::Await(until) => self.turn(until).await?,
                Next::Execute(at) => self.attempt(at, &steering)?,
            }
        }
    }

    /// Whether nothing is being executed.
    const fn is_idle(&self) -> bool {
        self.attempts.is_empty()
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

    fn next(&mut self, steering: &Steering) -> Result<Next, RunError> {
        let (plan, state) = (self.ledger.plan, &self.ledger.state);
        let intent = control::intent(plan, state, steering);
        if state.next().is_none() {
            return self.when_idle(|drive| drive.resumed_or(record(RecordEvent::RunSucceeded)));
        }
        if self.attempts.len() >= plan.parallelism() {
            return Ok(Next::Await(None));
        }
        if let Some(end) = ending(intent, steering) {
            return self.when_idle(|drive| drive.end(end));
        }
        let notice = control::answer(plan, state, steering)
            .or_else(|| control::unknown_bound(plan, state, steering));
        if let Some(record) = notice {
            return self.end(record);
        }
        match intent {
            Intent::Leave if state.phase() == RunPhase::Paused && self.is_idle() => Ok(Next::Leave),
            Intent::Leave => self.pause(Record {
                detail: steering.left.clone(),
                ..record(RecordEvent::RunPaused)
            }),
            Intent::Pause => self.pause(Record {
                detail: steering.why_paused(),
                ..record(RecordEvent::RunPaused)
            }),
            _ => self.proceed(),
        }
    }

    fn proceed(&mut self) -> Result<Next, RunError> {
        if let Some(next) = self.stopped()? {
            return Ok(next);
        }
        let now = Instant::now();
        let mut soonest: Option<Instant> = None;
        let mut startable = None;
        for at in self.free() {
            let due = self.due(at, now);
            if due <= now {
                startable = Some(at);
                break;
            }
            soonest = Some(soonest.map_or(due, |soonest| soonest.min(due)));
        }
        let waits = startable.is_none() && soonest.is_none();
        if self.ledger.state.phase() == RunPhase::Paused && !waits {
            return self.when_idle(|drive| drive.end(record(RecordEvent::RunResumed)));
        }
        Ok(startable.map_or(Next::Await(soonest), Next::Execute))
    }

    /// What follows from a step that goes on only by a person, if there is one. What runs beside it is not stopped for it.
    fn stopped(&mut self) -> Result<Option<Next>, RunError> {
        let steps = self.ledger.plan.steps().iter();
        for (step, now) in steps.zip(self.ledger.state.steps()) {
            let id = || Some(step.id.clone());
            let record = match now.phase {
                StepPhase::Waiting if self.ledger.state.phase() == RunPhase::Paused => {
                    record(RecordEvent::RunResumed)
                }
                StepPhase::Waiting => return Ok(Some(Next::Await(None))),
                StepPhase::Failed => match after_failure(step, now) {
                    AfterFailure::Retry(_) => continue,
                    AfterFailure::Pause => Record {
                        step: id(),
                        detail: now.failure.as_ref().map(|failure| failure.message.clone()),
                        ..record(RecordEvent::RunPaused)
                    },
                    AfterFailure::Fail => Record {
                        step: id(),
                        failure: now.failure.clone(),
                        ..record(RecordEvent::RunFailed)
                    },
                },
                _ => continue,
            };
            let next = match record.event {
                RecordEvent::RunPaused => self.pause(record),
                RecordEvent::RunFailed => self.when_idle(|drive| drive.resumed_or(record)),
                _ => self.when_idle(|drive| drive.end(record)),
            };
            return next.map(Some);
        }
        Ok(None)
    }

    /// The steps that could start now, but for the time between two attempts.
    fn free(&self) -> Vec<usize> {
        let steps = self.ledger.plan.steps();
        let taken: Vec<_> = self.attempts.iter().flat_map(Attempt::steps).collect();
        let mut ready = self.ledger.state.ready(self.ledger.plan);
        ready.retain(|at| {
            let step = steps.get(*at);
            step.is_some_and(|step| {
                let clashes =
                    |other: &&Step| step.id == other.id || CheckedPlan::share_targets(step, other);
                !taken.iter().any(clashes)
            })
        });
        ready
    }

    /// When a step is to be executed. A failed one waits, the same time however often it is looked at.
    fn due(&mut self, at: usize, now: Instant) -> Instant {
        let step = self.ledger.plan.steps().get(at);
        let wait = match step.zip(self.ledger.state.steps().get(at)) {
            Some((step, state)) if state.phase == StepPhase::Failed => after_failure(step, state),
            _ => return now,
        };
        let AfterFailure::Retry(wait) = wait else {
            return now;
        };
        let jittered = || wait.mul_f64(rand::random_range(0.5..=1.0));
        *self.retries.entry(at).or_insert_with(|| now + jittered())
    }

    /// What can only be done when nothing is being executed.
    fn when_idle(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<Next, RunError>,
    ) -> Result<Next, RunError> {
        if self.is_idle() {
            act(self)
        } else {
            Ok(Next::Await(None))
        }
    }

    fn pause(&mut self, record: Record) -> Result<Next, RunError> {
        if self.ledger.state.phase() == RunPhase::Paused {
            return Ok(Next::Await(None));
        }
        self.when_idle(|drive| drive.end(record))
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
