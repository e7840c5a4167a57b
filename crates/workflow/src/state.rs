//! How a run and its steps stand, derived from the journal alone.
//!
//! # Legal transitions
//!
//! | record | legal when | the step becomes | the run becomes |
//! |---|---|---|---|
//! | `RunStarted` | the run is not over; also when it failed | | Running |
//! | `StepStarted` | Running; every dependency done; the step Pending, Failed or Interrupted; fewer steps Running than the plan lets run side by side, none of which shares a target with it | Running | |
//! | `StepSucceeded`, `StepFailed` | the step is Running | Succeeded, Failed | |
//! | `StepInterrupted` | the step is Running | Interrupted | |
//! | `StepWaiting` | the step is Running | Waiting | Waiting |
//! | `StepApproved` | the step is Waiting | Pending | Running |
//! | `StepRetried` | the step is Failed | Pending | |
//! | `StepSkipped` | the step is Pending, Failed, Interrupted or Waiting; with a detail | Skipped | Running if it was Waiting |
//! | `RunPaused` | Running or Waiting | | Paused |
//! | `RunResumed` | Paused | | Running, or Waiting if a step waits |
//! | `RunSucceeded` | Running; every step Succeeded or Skipped | | Succeeded |
//! | `RunFailed` | Running; a step Failed, none Running | | Failed |
//! | `RunCancelled`, `RunSuperseded` | the run is not over, or failed; no step Running | | Cancelled, Superseded |
//! | `RequestRefused` | always | | |
//! | `Checkpoint` | it is the first record | as it says | as it says |
//!
//! Over means Succeeded, Cancelled or Superseded. A failed run can be taken up again by a request. Steps may end and
//! requests be answered while the run is Paused, because a step can be held at a task boundary. Every record has the
//! next sequence number, and a request is answered by one record only. A [`checkpoint`] has the number of the last record
//! that it stands for.

pub mod checkpoint;

use std::collections::VecDeque;

use api::run::{Applied, Exclusion, Failure, Record, RecordEvent, Results, RunPhase, StepPhase};
use jiff::Timestamp;

use crate::plan::CheckedPlan;

/// How a run stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    phase: RunPhase,
    phase_since: Option<Timestamp>,
    started_at: Option<Timestamp>,
    said: Option<String>,
    steps: Vec<StepState>,
    excluded: Vec<Exclusion>,
    answered: VecDeque<String>,
    unknown_bound: Option<String>,
    records: Vec<Record>,
    /// Of the records after the checkpoint.
    bytes: usize,
}

/// How a step stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepState {
    /// How it stands.
    pub phase: StepPhase,
    /// How often it was started.
    pub attempt: u32,
    /// How often it failed since a person last had it tried again; exclusions and remedies that let it go on do not count.
    pub failures: u32,
    /// Whether a person approved it.
    pub approved: bool,
    /// Whether its last failure left targets out or a remedy helped, so that it can be tried again at once.
    pub narrowed: bool,
    /// What was done about its failures since a person last had it tried again.
    pub remedied: Vec<Applied>,
    /// When the last attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What it did.
    pub results: Option<Results>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// What it waits for a person for.
    pub question: Option<String>,
}

/// A record that cannot follow those before it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{event:?} at record {sequence} cannot follow: {reason}")]
pub struct IllegalTransition {
    /// The record's number.
    pub sequence: u32,
    /// What it says.
    pub event: RecordEvent,
    /// Which rule it breaks.
    pub reason: Rule,
}

/// A rule that a record can break.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Rule {
    /// Sequence numbers have no gaps.
    #[error("its number should be {0}")]
    Sequence(u32),
    /// The phase of the run does not allow it.
    #[error("the run is {0:?}")]
    Run(RunPhase),
    /// The phase of the step does not allow it.
    #[error("step {0:?} is {1:?}")]
    Step(String, StepPhase),
    /// It needs a step, and names none of the plan.
    #[error("it names no step of the plan: {0:?}")]
    UnknownStep(Option<String>),
    /// Attempts are counted without gaps.
    #[error("its attempt should be {0}")]
    Attempt(u32),
    /// A dependency is not done.
    #[error("dependency {0:?} is not done")]
    Dependency(String),
    /// As many steps run as the plan lets run side by side.
    #[error("{0} steps are running")]
    Parallelism(usize),
    /// A request is answered once.
    #[error("request {0:?} was answered before")]
    Answered(String),
    /// A skipped step needs a reason.
    #[error("no reason is given")]
    NoReason,
    /// A checkpoint says how the run stood.
    #[error("it does not say how the run stood")]
    NoCheckpoint,
    /// A checkpoint stands in place of all before it.
    #[error("there are records before it")]
    NotFirst,
}

impl State {
    /// The state before the first record.
    pub fn new(plan: &CheckedPlan) -> Self {
        Self {
            steps: vec![StepState::default(); plan.steps().len()],
            ..Self::default()
        }
    }

    /// The state after some records, oldest first.
    ///
    /// # Errors
    ///
    /// A record may not follow those before it.
    pub fn replay(plan: &CheckedPlan, records: &[Record]) -> Result<Self, IllegalTransition> {
        let mut state = Self::new(plan);
        for record in records {
            state.apply(plan, record.clone())?;
        }
        Ok(state)
    }

    /// Adds a record. An illegal one leaves the state as it is.
    ///
    /// # Errors
    ///
    /// The record may not come next.
    pub fn apply(&mut self, plan: &CheckedPlan, record: Record) -> Result<(), IllegalTransition> {
        let at = self.permits(plan, &record)?;
        if let Some(checkpoint) = &record.checkpoint {
            self.restore(plan, checkpoint);
        } else {
            self.bytes += checkpoint::size(&record);
        }
        if let Some(step) = at.and_then(|at| self.steps.get_mut(at)) {
            step.follow(&record);
        }
        self.follow(&record);
        self.records.push(record);
        Ok(())
    }

    /// Whether a record may come next, and the place of its step.
    ///
    /// # Errors
    ///
    /// It may not come next, and why.
    pub fn permits(
        &self,
        plan: &CheckedPlan,
        record: &Record,
    ) -> Result<Option<usize>, IllegalTransition> {
        self.check(plan, record)
            .map_err(|reason| IllegalTransition {
                sequence: record.sequence,
                event: record.event,
                reason,
            })
    }

    /// How the run stands.
    pub fn phase(&self) -> RunPhase {
        self.phase
    }

    /// Since when it stands so.
    pub fn phase_since(&self) -> Option<Timestamp> {
        self.phase_since
    }

    /// When the run started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// What was said when it came to stand as it does.
    pub fn said(&self) -> Option<&String> {
        self.said.as_ref()
    }

    /// The steps, in the plan's order.
    pub fn steps(&self) -> &[StepState] {
        &self.steps
    }

    /// A step by its id.
    pub fn step(&self, plan: &CheckedPlan, id: &str) -> Option<&StepState> {
        plan.position(id).and_then(|at| self.steps.get(at))
    }

    /// Targets that the steps to come leave out.
    pub fn excluded(&self) -> &[Exclusion] {
        &self.excluded
    }

    /// Whether a request has its answer.
    pub fn has_answered(&self, request: &str) -> bool {
        self.answered.iter().any(|answered| answered == request)
    }

    /// The value of `runUntil` that was refused last, as it names no step.
    pub(crate) fn unknown_bound(&self) -> Option<&String> {
        self.unknown_bound.as_ref()
    }

    /// Everything that happened, or a checkpoint and all after it, oldest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The number of the record to come.
    pub fn next_sequence(&self) -> u32 {
        self.records.last().map_or(1, |record| record.sequence + 1)
    }

    /// Whether nothing can happen any more. A failed run is not over: a request takes it up again.
    pub fn is_over(&self) -> bool {
        is_over(self.phase)
    }

    /// Where the first step in some phase stands.
    pub fn first(&self, phase: StepPhase) -> Option<usize> {
        self.steps.iter().position(|step| step.phase == phase)
    }

    /// Where the steps in some phase stand.
    pub fn all(&self, phase: StepPhase) -> impl Iterator<Item = usize> {
        let steps = self.steps.iter().enumerate();
        steps.filter_map(move |(at, step)| (step.phase == phase).then_some(at))
    }

    /// Where the first step that is not done stands.
    pub fn next(&self) -> Option<usize> {
        self.steps.iter().position(|step| !step.is_done())
    }

    fn check(&self, plan: &CheckedPlan, record: &Record) -> Result<Option<usize>, Rule> {
        if record.event == RecordEvent::Checkpoint {
            return self.check_checkpoint(plan, record).map(|()| None);
        }
        if record.sequence != self.next_sequence() {
            return Err(Rule::Sequence(self.next_sequence()));
        }
        if let Some(id) = record.request.as_ref().filter(|id| self.has_answered(id)) {
            return Err(Rule::Answered(id.clone()));
        }
        if of_step(record.event) {
            return self.check_step(plan, record).map(Some);
        }
        self.check_run(record.event).map(|()| None)
    }

    fn check_run(&self, event: RecordEvent) -> Result<(), Rule> {
        use RunPhase::{Failed, Paused, Running, Waiting};
        let idle = self.first(StepPhase::Running).is_none();
        let legal = match event {
            RecordEvent::RequestRefused => true,
            RecordEvent::RunStarted => !self.is_over(),
            RecordEvent::RunPaused => matches!(self.phase, Running | Waiting),
            RecordEvent::RunResumed => self.phase == Paused,
            RecordEvent::RunSucceeded => self.phase == Running && self.next().is_none(),
            RecordEvent::RunFailed => {
                self.phase == Running && idle && self.first(StepPhase::Failed).is_some()
            }
            RecordEvent::RunCancelled | RecordEvent::RunSuperseded => {
                idle && (!self.is_over() || self.phase == Failed)
            }
            _ => false,
        };
        legal.then_some(()).ok_or(Rule::Run(self.phase))
    }

    fn check_step(&self, plan: &CheckedPlan, record: &Record) -> Result<usize, Rule> {
        let unknown = || Rule::UnknownStep(record.step.clone());
        let id = record.step.as_deref().ok_or_else(unknown)?;
        let at = plan.position(id).ok_or_else(unknown)?;
        let step = self.steps.get(at).ok_or_else(unknown)?;
        if !step.allows(record.event) {
            return Err(Rule::Step(id.to_owned(), step.phase));
        }
        if !matches!(
            self.phase,
            RunPhase::Running | RunPhase::Waiting | RunPhase::Paused
        ) {
            return Err(Rule::Run(self.phase));
        }
        if record.event == RecordEvent::StepSkipped && record.detail.is_none() {
            return Err(Rule::NoReason);
        }
        let attempt = step.attempt + u32::from(record.event == RecordEvent::StepStarted);
        if record.attempt.is_some_and(|given| given != attempt) {
            return Err(Rule::Attempt(attempt));
        }
        if record.event == RecordEvent::StepStarted {
            self.check_start(plan, at)?;
        }
        Ok(at)
    }

    fn check_start(&self, plan: &CheckedPlan, at: usize) -> Result<(), Rule> {
        if self.phase != RunPhase::Running {
            return Err(Rule::Run(self.phase));
        }
        let Some(step) = plan.steps().get(at) else {
            return Err(Rule::UnknownStep(None));
        };
        let running = || self.all(StepPhase::Running);
        if running().count() >= plan.parallelism() {
            return Err(Rule::Parallelism(plan.parallelism()));
        }
        let mut others = running().filter_map(|at| plan.steps().get(at));
        if let Some(other) = others.find(|other| CheckedPlan::share_targets(step, other)) {
            return Err(Rule::Step(other.id.clone(), StepPhase::Running));
        }
        let mut open = step.depends_on.iter().filter(|id| !self.has_done(plan, id));
        open.next()
            .map_or(Ok(()), |id| Err(Rule::Dependency(id.clone())))
    }

    fn has_done(&self, plan: &CheckedPlan, step: &str) -> bool {
        self.step(plan, step).is_some_and(StepState::is_done)
    }

    /// Where the steps stand that are not done, but all that they depend on is: one by one the first that is not done.
    pub(crate) fn ready(&self, plan: &CheckedPlan) -> Vec<usize> {
        if plan.parallelism() == 1 {
            return self.next().into_iter().collect();
        }
        let steps = plan.steps().iter().zip(&self.steps).enumerate();
        let ready = steps.filter(|(_, (step, now))| {
            !now.is_done() && step.depends_on.iter().all(|id| self.has_done(plan, id))
        });
        ready.map(|(at, _)| at).collect()
    }

    fn follow(&mut self, record: &Record) {
        self.started_at.get_or_insert(record.time.0);
        for target in &record.excluded {
            if !self
                .excluded
                .iter()
                .any(|known| known.target == target.target)
            {
                self.excluded.push(target.clone());
            }
        }
        match &record.request {
            Some(request) => self.answered.push_back(request.clone()),
            None if record.event == RecordEvent::RequestRefused => {
                self.unknown_bound.clone_from(&record.step);
            }
            None => {}
        }
        if self.answered.len() > checkpoint::ANSWERED {
            self.answered.pop_front();
        }
        let phase = self.phase_after(record.event);
        if phase != self.phase {
            self.phase = phase;
            self.phase_since = Some(record.time.0);
            self.said.clone_from(&record.detail);
        }
    }

    fn phase_after(&self, event: RecordEvent) -> RunPhase {
        let going = || match self.first(StepPhase::Waiting) {
            Some(_) => RunPhase::Waiting,
            None => RunPhase::Running,
        };
        match event {
            RecordEvent::RunStarted | RecordEvent::RunResumed => going(),
            RecordEvent::RunPaused => RunPhase::Paused,
            RecordEvent::RunSucceeded => RunPhase::Succeeded,
            RecordEvent::RunFailed => RunPhase::Failed,
            RecordEvent::RunCancelled => RunPhase::Cancelled,
            RecordEvent::RunSuperseded => RunPhase::Superseded,
            RecordEvent::StepWaiting | RecordEvent::StepApproved | RecordEvent::StepSkipped
                if self.phase != RunPhase::Paused =>
            {
                going()
            }
            _ => self.phase,
        }
    }
}

impl StepState {
    /// Whether what depends on it can start.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, StepPhase::Succeeded | StepPhase::Skipped)
    }

    fn allows(&self, event: RecordEvent) -> bool {
        use StepPhase::{Failed, Interrupted, Pending, Running, Waiting};
        match event {
            RecordEvent::StepStarted => matches!(self.phase, Pending | Failed | Interrupted),
            RecordEvent::StepApproved => self.phase == Waiting,
            RecordEvent::StepRetried => self.phase == Failed,
            RecordEvent::StepSkipped => {
                matches!(self.phase, Pending | Failed | Interrupted | Waiting)
            }
            _ => self.phase == Running,
        }
    }

    fn follow(&mut self, record: &Record) {
        let waits = record.event == RecordEvent::StepWaiting;
        self.question = record.detail.clone().filter(|_| waits);
        match record.event {
            RecordEvent::StepStarted => {
                self.phase = StepPhase::Running;
                self.attempt += 1;
                self.started_at = Some(record.time.0);
                (self.finished_at, self.results, self.narrowed) = (None, None, false);
                self.failure = None;
            }
            RecordEvent::StepApproved => (self.phase, self.approved) = (StepPhase::Pending, true),
            RecordEvent::StepRetried => {
                (self.phase, self.failures) = (StepPhase::Pending, 0);
                self.remedied.clear();
            }
            event => {
                self.phase = ended(event);
                self.finished_at = Some(record.time.0);
                self.results.clone_from(&record.results);
                self.failure.clone_from(&record.failure);
                self.narrowed = event == RecordEvent::StepFailed
                    && (!record.excluded.is_empty() || helped(record));
                self.remedied.extend(record.remedies.iter().cloned());
                self.failures += u32::from(event == RecordEvent::StepFailed && !self.narrowed);
            }
        }
    }
}

/// Whether a remedy let the step go on.
fn helped(record: &Record) -> bool {
    record.remedies.iter().any(|applied| applied.helped)
}

fn ended(event: RecordEvent) -> StepPhase {
    match event {
        RecordEvent::StepSucceeded => StepPhase::Succeeded,
        RecordEvent::StepFailed => StepPhase::Failed,
        RecordEvent::StepWaiting => StepPhase::Waiting,
        RecordEvent::StepSkipped => StepPhase::Skipped,
        _ => StepPhase::Interrupted,
    }
}

fn of_step(event: RecordEvent) -> bool {
    use RecordEvent::{
        StepApproved, StepFailed, StepInterrupted, StepRetried, StepSkipped, StepStarted,
        StepSucceeded, StepWaiting,
    };
    matches!(
        event,
        StepStarted
            | StepSucceeded
            | StepFailed
            | StepInterrupted
            | StepWaiting
            | StepApproved
            | StepRetried
            | StepSkipped
    )
}

fn is_over(phase: RunPhase) -> bool {
    matches!(
        phase,
        RunPhase::Succeeded | RunPhase::Cancelled | RunPhase::Superseded
    )
}
