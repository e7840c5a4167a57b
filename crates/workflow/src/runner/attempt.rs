//! One call of the executor: a step, or a batch of steps, from start to end.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use api::run::{
    Action, Failure, FailureClass, Interrupt, RecordEvent, Results, RunPhase, Step, StepPhase,
};
use tokio::{
    sync::watch,
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
    state::StepState,
};

/// The part of an attempt that is not in the journal, because it dies with the process.
pub(super) struct Attempt<'a> {
    /// What its reports are known by.
    number: u64,
    work: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    batch: Vec<(usize, Step)>,
    signal: watch::Sender<Signal>,
    /// When the running step has taken too long.
    deadline: Option<Instant>,
    /// When a step that does not heed the stop is dropped.
    drop_at: Option<Instant>,
    /// The step at hand is held.
    held: Option<Held>,
    /// A step of the batch did not succeed: nothing after it may start.
    closing: bool,
    timed_out: bool,
}

/// What was left of the step's time limit when it was held.
struct Held {
    left: Option<Duration>,
}

/// What a runner at work waits for.
enum Happened {
    Reported(Box<Report>),
    Steered(bool),
    /// The executor returned from the attempt at this place.
    Returned(usize),
    Late,
}

impl<'a, J: JournalStore, E: Executor, C: Clock, O: Observer> Drive<'a, J, E, C, O> {
    /// Begins to execute the step at this place, with those that share its batch.
    pub(super) fn attempt(&mut self, at: usize, steering: &Steering) -> Result<(), RunError> {
        let ledger = &mut self.ledger;
        let (Some(step), Some(before)) =
            (ledger.plan.steps().get(at), ledger.state.steps().get(at))
        else {
            return Ok(());
        };
        let (before, batch) = (before.clone(), batch(ledger, steering, at));
        self.retries.remove(&at);
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
        self.begun += 1;
        let (signal, signals) = watch::channel(Signal::Continue);
        let context = StepContext {
            excluded: ledger.state.excluded().to_vec(),
            attempt: before.attempt + 1,
            approved: before.approved,
            remedied: before.remedied.clone(),
            interrupted: before.phase == StepPhase::Interrupted,
            signal: signals,
            reporter: Reporter::new(self.reporter.clone(), self.begun),
        };
        let steps = batch.iter().map(|(_, step)| step.clone()).collect();
        let executor: &'a E = self.executor;
        self.attempts.push(Attempt {
            number: self.begun,
            work: Box::pin(executor.execute(steps, context)),
            batch,
            signal,
            deadline: deadline(step),
            drop_at: None,
            held: None,
            closing: false,
            timed_out: false,
        });
        Ok(())
    }

    /// Follows one thing that happens, or lets the time come.
    pub(super) async fn turn(&mut self, until: Option<Instant>) -> Result<(), RunError> {
        let timers = self.attempts.iter().filter_map(Attempt::timer);
        let timer = timers.chain(until).min();
        let happened = tokio::select! {
            biased;
            Some(report) = self.reports.recv() => Happened::Reported(Box::new(report)),
            changed = self.controls.changed(), if self.steerable => Happened::Steered(changed.is_ok()),
            at = returned(&mut self.attempts) => Happened::Returned(at),
            () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => Happened::Late,
        };
        match happened {
            Happened::Steered(steerable) => self.steerable = steerable,
            Happened::Reported(report) => {
                let answer = self.take(report.attempt, &report.step, report.kind)?;
                // Whoever is answered goes on as the controls want it by then.
                let steering = self.controls.borrow().clone();
                self.steer(&steering)?;
                // An executor that does not wait for the answer has none to get.
                let _ = report.answer.send(answer);
            }
            Happened::Returned(at) => self.conclude(at)?,
            Happened::Late => self.late()?,
        }
        Ok(())
    }

    fn take(
        &mut self,
        number: u64,
        id: &str,
        kind: ReportKind,
    ) -> Result<Result<(), Rejected>, RunError> {
        let mut attempts = self.attempts.iter_mut();
        let Some(attempt) = attempts.find(|attempt| attempt.number == number) else {
            return Ok(Err(Rejected));
        };
        let answer = attempt.take(&mut self.ledger, id, kind)?;
        self.pause_if_held()?;
        Ok(answer)
    }

    /// Tells the attempts what the controls want.
    pub(super) fn steer(&mut self, steering: &Steering) -> Result<(), RunError> {
        for attempt in &mut self.attempts {
            attempt.steer(&mut self.ledger, steering)?;
        }
        Ok(())
    }

    /// Has those stop whose time is over, and drops those that did not.
    fn late(&mut self) -> Result<(), RunError> {
        let now = Instant::now();
        let over = |timer: Option<Instant>| timer.is_some_and(|timer| timer <= now);
        while let Some(at) = self.attempts.iter().position(|one| over(one.drop_at)) {
            self.conclude(at)?;
        }
        for attempt in &mut self.attempts {
            if attempt.drop_at.is_none() && over(attempt.deadline) {
                attempt.timed_out = true;
                attempt.drop_at = Some(now + self.stop_grace);
            }
        }
        Ok(())
    }

    /// Ends an attempt, and records how its step ended if the executor said nothing more about it.
    fn conclude(&mut self, at: usize) -> Result<(), RunError> {
        let mut attempt = self.attempts.remove(at);
        attempt.conclude(&mut self.ledger)?;
        self.pause_if_held()
    }

    /// The run is paused once all that runs is held.
    fn pause_if_held(&mut self) -> Result<(), RunError> {
        let all_held = self.attempts.iter().all(|attempt| attempt.held.is_some());
        let going = matches!(
            self.ledger.state.phase(),
            RunPhase::Running | RunPhase::Waiting
        );
        let Some(first) = self.attempts.first().filter(|_| all_held && going) else {
            return Ok(());
        };
        let step = first.running(&self.ledger).map(|(_, step)| step.id.clone());
        let detail = self.controls.borrow().why_paused();
        self.ledger.append(api::run::Record {
            step,
            detail,
            ..record(RecordEvent::RunPaused)
        })
    }
}

/// The first attempt from which the executor returns.
async fn returned(attempts: &mut [Attempt<'_>]) -> usize {
    poll_fn(|context| {
        for (at, attempt) in attempts.iter_mut().enumerate() {
            if attempt.work.as_mut().poll(context).is_ready() {
                return Poll::Ready(at);
            }
        }
        Poll::Pending
    })
    .await
}

impl Attempt<'_> {
    /// What it executes, or may execute yet.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.batch.iter().map(|(_, step)| step)
    }

    fn timer(&self) -> Option<Instant> {
        self.drop_at.or(self.deadline)
    }

    /// The step at hand, and where it stands.
    fn running<J, C, O>(&self, ledger: &Ledger<'_, J, C, O>) -> Option<&(usize, Step)> {
        let runs = |at: usize| {
            let now = ledger.state.steps().get(at);
            now.is_some_and(|now| now.phase == StepPhase::Running)
        };
        self.batch.iter().find(|(at, _)| runs(*at))
    }

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
        if self
            .running(ledger)
            .is_none_or(|(running, _)| *running != at)
        {
            let starts = matches!(kind, ReportKind::Started | ReportKind::Finished(_));
            if !starts || !self.is_next(ledger, at) {
                return Ok(Err(Rejected));
            }
            self.resume(ledger)?;
            if !ledger.may_start(at) {
                return Ok(Err(Rejected));
            }
            ledger.append_step(at, record(RecordEvent::StepStarted))?;
            self.deadline = deadline(&step);
        }
        match kind {
            ReportKind::Started => {}
            ReportKind::Progress(progress) => ledger.observer.progressed(id, &progress),
            ReportKind::Held => self.hold(),
            ReportKind::Finished(outcome) => self.finish(ledger, at, &step, outcome)?,
        }
        Ok(Ok(()))
    }

    /// Whether a step is the one of the batch that follows what is done.
    fn is_next<J, C, O>(&self, ledger: &Ledger<'_, J, C, O>, at: usize) -> bool {
        let is_done = |at: usize| {
            let now = ledger.state.steps().get(at);
            now.is_some_and(StepState::is_done)
        };
        let open = self.batch.iter().find(|(at, _)| !is_done(*at));
        !self.closing && open.is_some_and(|(open, _)| *open == at)
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

    /// The step at hand holds: its time limit stands still.
    fn hold(&mut self) {
        if self.held.is_some() || *self.signal.borrow() != Signal::Pause {
            return;
        }
        let left = self
            .deadline
            .take()
            .map(|at| at.saturating_duration_since(Instant::now()));
        self.held = Some(Held { left });
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
        steering: &Steering,
    ) -> Result<(), RunError> {
        let intent = control::intent(ledger.plan, &ledger.state, steering);
        let never = self
            .running(ledger)
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
        let Some((at, step)) = self.running(ledger).cloned() else {
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

/// The step at this place and those that can share its process: they follow it, have its batch, were not tried yet, and wait for
/// nothing else.
fn batch<J, C, O>(
    ledger: &Ledger<'_, J, C, O>,
    steering: &Steering,
    at: usize,
) -> Vec<(usize, Step)> {
    let mut batch: Vec<(usize, Step)> = Vec::new();
    let until = [
        steering.control.run_until.as_deref(),
        steering.rest.as_ref().map(|rest| rest.after.as_str()),
    ];
    let (plan, state) = (ledger.plan, &ledger.state);
    let rest = plan.steps().iter().zip(state.steps()).enumerate().skip(at);
    for (place, (step, now)) in rest {
        let comes_before = |id: &String| {
            let before = state.step(plan, id);
            before.is_some_and(StepState::is_done)
                || batch.iter().any(|(_, before)| before.id == *id)
        };
        let shares = batch.last().is_none_or(|(_, last)| {
            let fresh = matches!(now.phase, StepPhase::Pending) && !now.approved;
            let plain = matches!(step.action, Action::Engine(_));
            fresh
                && plain
                && last.batch.is_some()
                && last.batch == step.batch
                && !until.contains(&Some(&last.id))
                && step.depends_on.iter().all(comes_before)
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
        remedies: Vec::new(),
    }
}
