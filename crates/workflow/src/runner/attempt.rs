//! One call of the executor: a step, or a batch of steps, from start to end.

use std::{pin::pin, time::Duration};

use api::run::{
    Action, Failure, FailureClass, Interrupt, RecordEvent, Results, RunPhase, Step, StepPhase,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{Drive, Observer, RunError, ledger::Ledger};
use crate::{
    clock::Clock,
    control::{self, Intent, Steering, record},
    executor::{
        Executor, Rejected, Report, ReportKind, Reporter, Signal, StepContext, StepOutcome,
    },
    gate::{EXECUTOR_ENDED, STEP_TIMED_OUT, judge},
    journal::JournalStore,
};

/// The part of an attempt that is not in the journal, because it dies with the process.
struct Attempt {
    batch: Vec<(usize, Step)>,
    signal: watch::Sender<Signal>,
    /// When the running step has taken too long.
    deadline: Option<Instant>,
    /// When a step that does not heed the stop is dropped.
    drop_at: Option<Instant>,
    /// The run is paused with a step held.
    held: Option<Held>,
    /// A step of the batch did not succeed: nothing after it may start.
    closing: bool,
    timed_out: bool,
    /// Why the engine holds the run, if it does.
    reason: Option<String>,
}

/// What was left of the step's time limit when it was held.
struct Held {
    left: Option<Duration>,
}

impl<J: JournalStore, E: Executor, C: Clock, O: Observer> Drive<'_, J, E, C, O> {
    /// Executes the step at this place, with those that share its batch.
    pub(super) async fn attempt(&mut self, at: usize) -> Result<(), RunError> {
        let ledger = &mut self.ledger;
        let (Some(step), Some(before)) =
            (ledger.plan.steps().get(at), ledger.state.steps().get(at))
        else {
            return Ok(());
        };
        let (before, batch) = (before.clone(), batch(ledger, &self.controls.borrow(), at));
        ledger.append_step(at, record(RecordEvent::StepStarted))?;
        if let Action::Approve(approve) = &step.action {
            let question = approve.question.clone();
            let outcome = if before.approved {
                done()
            } else {
                StepOutcome::Waiting { question }
            };
            let end = judge(ledger.plan, step, &ledger.state, outcome);
            return ledger.append_step(at, end);
        }
        let (reporter, reports) = Reporter::new();
        let (signal, signals) = watch::channel(Signal::Continue);
        let context = StepContext {
            excluded: ledger.state.excluded().to_vec(),
            attempt: before.attempt + 1,
            approved: before.approved,
            interrupted: before.phase == StepPhase::Interrupted,
            signal: signals,
            reporter,
        };
        let mut attempt = Attempt {
            batch,
            signal,
            deadline: deadline(step),
            drop_at: None,
            held: None,
            closing: false,
            timed_out: false,
            reason: None,
        };
        self.supervise(&mut attempt, context, reports).await?;
        attempt.conclude(&mut self.ledger)
    }

    async fn supervise(
        &mut self,
        attempt: &mut Attempt,
        context: StepContext,
        mut reports: mpsc::Receiver<Report>,
    ) -> Result<(), RunError> {
        let steps = attempt.batch.iter().map(|(_, step)| step.clone()).collect();
        let ledger = &mut self.ledger;
        self.controls.mark_unchanged();
        attempt.steer(ledger, &self.controls)?;
        let mut work = pin!(self.executor.execute(steps, context));
        loop {
            let timer = attempt.drop_at.or(attempt.deadline);
            tokio::select! {
                biased;
                Some(report) = reports.recv() => {
                    let answer = attempt.take(ledger, &report.step, report.kind)?;
                    attempt.steer(ledger, &self.controls)?;
                    // An executor that does not wait for the answer has none to get.
                    let _ = report.answer.send(answer);
                }
                changed = self.controls.changed(), if self.steerable => {
                    self.steerable = changed.is_ok();
                    attempt.steer(ledger, &self.controls)?;
                }
                () = &mut work => return Ok(()),
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {
                    if attempt.drop_at.is_some() {
                        return Ok(());
                    }
                    attempt.timed_out = true;
                    attempt.drop_at = Some(Instant::now() + self.stop_grace);
                    attempt.steer(ledger, &self.controls)?;
                }
            }
        }
    }
}

impl Attempt {
    /// Follows a report of the executor.
    fn take<J: JournalStore, C: Clock, O: Observer>(
        &mut self,
        ledger: &mut Ledger<'_, J, C, O>,
        id: &str,
        kind: ReportKind,
    ) -> Result<Result<(), Rejected>, RunError> {
        let Some((at, step)) = self.batch.iter().find(|(_, step)| step.id == id).cloned() else {
            return Ok(Err(Rejected));
        };
        if ledger.running().is_none_or(|(running, _)| running != at) {
            let starts = matches!(kind, ReportKind::Started | ReportKind::Finished(_));
            if !starts || !self.may_start(ledger, at) {
                return Ok(Err(Rejected));
            }
            self.resume(ledger)?;
            ledger.append_step(at, record(RecordEvent::StepStarted))?;
            self.deadline = deadline(&step);
        }
        match kind {
            ReportKind::Started => {}
            ReportKind::Progress(progress) => ledger.observer.progressed(id, &progress),
            ReportKind::Held => self.hold(ledger, id)?,
            ReportKind::Finished(outcome) => self.finish(ledger, at, &step, outcome)?,
        }
        Ok(Ok(()))
    }

    fn may_start<J, C, O>(&self, ledger: &Ledger<'_, J, C, O>, at: usize) -> bool {
        let idle = ledger.state.first(StepPhase::Running).is_none();
        idle && !self.closing && ledger.state.next() == Some(at)
    }

    fn finish<J: JournalStore, C: Clock, O: Observer>(
        &mut self,
        ledger: &mut Ledger<'_, J, C, O>,
        at: usize,
        step: &Step,
        outcome: StepOutcome,
    ) -> Result<(), RunError> {
        let outcome = match outcome {
            StepOutcome::Succeeded { .. } => outcome,
            _ if self.timed_out => timed_out(step),
            StepOutcome::Interrupted { .. } if *self.signal.borrow() == Signal::Continue => {
                unfinished("the step was stopped, and nobody asked for it")
            }
            outcome => outcome,
        };
        let end = judge(ledger.plan, step, &ledger.state, outcome);
        self.closing |= end.event != RecordEvent::StepSucceeded;
        (self.deadline, self.drop_at, self.timed_out) = (None, None, false);
        ledger.append_step(at, end)
    }

    /// The run is paused with the step held: its time limit stands still.
    fn hold<J: JournalStore, C: Clock, O: Observer>(
        &mut self,
        ledger: &mut Ledger<'_, J, C, O>,
        id: &str,
    ) -> Result<(), RunError> {
        if self.held.is_some() || *self.signal.borrow() != Signal::Pause {
            return Ok(());
        }
        let left = self
            .deadline
            .take()
            .map(|at| at.saturating_duration_since(Instant::now()));
        self.held = Some(Held { left });
        let step = Some(id.to_owned());
        ledger.append(api::run::Record {
            step,
            detail: self.reason.clone(),
            ..record(RecordEvent::RunPaused)
        })
    }

    fn resume<J: JournalStore, C: Clock, O: Observer>(
        &mut self,
        ledger: &mut Ledger<'_, J, C, O>,
    ) -> Result<(), RunError> {
        let Some(Held { left }) = self.held.take() else {
            return Ok(());
        };
        self.deadline = left.map(|left| Instant::now() + left);
        match ledger.state.phase() {
            RunPhase::Paused => ledger.append(record(RecordEvent::RunResumed)),
            _ => Ok(()),
        }
    }

    /// Tells the executor what the controls want, as far as the step at hand lets it be told.
    fn steer<J: JournalStore, C: Clock, O: Observer>(
        &mut self,
        ledger: &mut Ledger<'_, J, C, O>,
        controls: &watch::Receiver<Steering>,
    ) -> Result<(), RunError> {
        // A copy: whoever steers waits while the channel is looked at, and what is written below is told to observers, who may
        // steer in turn.
        let steering = controls.borrow().clone();
        let intent = control::intent(ledger.plan, &ledger.state, &steering);
        self.reason.clone_from(&steering.held);
        let never = ledger
            .running()
            .is_some_and(|(_, step)| step.interrupt == Interrupt::Never);
        let wanted = match intent {
            _ if self.timed_out || self.closing => Signal::Stop,
            _ if never => Signal::Continue,
            Intent::Cancel | Intent::Supersede | Intent::Leave => Signal::Stop,
            Intent::Pause => Signal::Pause,
            Intent::Go => Signal::Continue,
        };
        if wanted == Signal::Continue {
            self.resume(ledger)?;
        }
        self.signal
            .send_if_modified(|signal| std::mem::replace(signal, wanted) != wanted);
        Ok(())
    }

    /// Records how a step ended that the executor said nothing more about.
    fn conclude<J: JournalStore, C: Clock, O: Observer>(
        &mut self,
        ledger: &mut Ledger<'_, J, C, O>,
    ) -> Result<(), RunError> {
        let Some((at, step)) = ledger.running().map(|(at, step)| (at, step.clone())) else {
            return Ok(());
        };
        let outcome = match *self.signal.borrow() {
            _ if self.timed_out => timed_out(&step),
            Signal::Continue => unfinished("the executor ended without a result"),
            _ => StepOutcome::Interrupted { detail: None },
        };
        self.finish(ledger, at, &step, outcome)
    }
}

/// The step at this place and those that can share its process: they follow it, have its batch and were not tried yet.
fn batch<J, C, O>(
    ledger: &Ledger<'_, J, C, O>,
    steering: &Steering,
    at: usize,
) -> Vec<(usize, Step)> {
    let mut batch: Vec<(usize, Step)> = Vec::new();
    let until = steering.control.run_until.as_deref();
    let rest = ledger
        .plan
        .steps()
        .iter()
        .zip(ledger.state.steps())
        .enumerate()
        .skip(at);
    for (place, (step, state)) in rest {
        let shares = batch.last().is_none_or(|(_, last)| {
            let fresh = matches!(state.phase, StepPhase::Pending) && !state.approved;
            let plain = !matches!(step.action, Action::Approve(_));
            fresh
                && plain
                && last.batch.is_some()
                && last.batch == step.batch
                && until != Some(&last.id)
        });
        if !shares {
            break;
        }
        batch.push((place, step.clone()));
    }
    batch
}

fn deadline(step: &Step) -> Option<Instant> {
    let timeout = step.timeout.map(Duration::from)?;
    Instant::now().checked_add(timeout)
}

fn done() -> StepOutcome {
    StepOutcome::Succeeded {
        results: Results::default(),
        unreachable: Vec::new(),
        detail: None,
    }
}

fn timed_out(step: &Step) -> StepOutcome {
    let limit = step
        .timeout
        .map(|limit| limit.to_string())
        .unwrap_or_default();
    failed(STEP_TIMED_OUT, format!("the step took longer than {limit}"))
}

fn unfinished(message: &str) -> StepOutcome {
    failed(EXECUTOR_ENDED, message.to_owned())
}

fn failed(code: &str, message: String) -> StepOutcome {
    StepOutcome::Failed {
        failure: Failure {
            class: FailureClass::Transient,
            code: code.to_owned(),
            message,
            remedy: Some("read the step's log, then have it tried again".to_owned()),
            targets: Vec::new(),
        },
        results: Results::default(),
        unreachable: Vec::new(),
    }
}
