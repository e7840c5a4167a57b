//! Checkpoints: one record that states how a run stood, in place of all before it.
//!
//! A run that is taken up a thousand times writes thousands of records, and the `Run` that carries them has a bound. So a
//! history that is long gives up its oldest records for their sum. What follows from the records afterwards is what
//! followed before, but for what people could read in them.

use api::run::{Checkpoint, Exclusion, Record, RecordEvent, StepCheckpoint};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{IllegalTransition, Rule, State, StepState};
use crate::{control, plan::CheckedPlan};

/// A history with more records gives up its oldest ones: an undisturbed run of the largest plan writes half as many.
pub const LONGEST: usize = 1024;
/// A history with more bytes of records after its checkpoint does so too: a sixth of what etcd takes for one object.
pub const LARGEST: usize = 256 * 1024;
/// The newest records stay as they are: that many at most.
const KEPT: usize = 256;
/// And that many bytes of them; the newest one stays however large it is.
const KEPT_BYTES: usize = 64 * 1024;
/// The newest answered requests that are known: some times what a `Run` holds at once.
pub(super) const ANSWERED: usize = 512;

impl State {
    /// How the run stands, but for its records. Equal values are followed by the same.
    pub fn checkpoint(&self, plan: &CheckedPlan) -> (Checkpoint, Vec<Exclusion>) {
        let steps = plan.steps().iter().zip(&self.steps);
        let touched = steps.filter(|(_, now)| **now != StepState::default());
        let checkpoint = Checkpoint {
            phase: self.phase,
            since: self.phase_since.map(Time),
            said: self.said.clone(),
            started_at: self.started_at.map(Time),
            steps: touched.map(|(step, now)| now.keep(&step.id)).collect(),
            answered: self.answered.iter().cloned().collect(),
            unknown_bound: self.unknown_bound.clone(),
        };
        (checkpoint, self.excluded.clone())
    }

    /// Whether the history is so long that it should be [`State::compacted`].
    pub fn is_long(&self) -> bool {
        self.records.len() > LONGEST || self.bytes > LARGEST
    }

    /// The same state with a short history: a checkpoint and the newest records. None: it is short.
    ///
    /// # Errors
    ///
    /// The records do not tell how the run stands, which cannot be: they were followed one by one.
    pub fn compacted(&self, plan: &CheckedPlan) -> Result<Option<Self>, IllegalTransition> {
        if !self.is_long() {
            return Ok(None);
        }
        self.checkpointed(plan, self.kept())
    }

    /// The same state with a checkpoint and that many of the newest records. None: there are none that it could stand for.
    ///
    /// # Errors
    ///
    /// As of [`State::compacted`].
    pub fn checkpointed(
        &self,
        plan: &CheckedPlan,
        kept: usize,
    ) -> Result<Option<Self>, IllegalTransition> {
        let (old, kept) = self
            .records
            .split_at(self.records.len().saturating_sub(kept));
        let plain = |record: &&Record| record.event != RecordEvent::Checkpoint;
        let Some(last) = old.last().filter(plain) else {
            return Ok(None);
        };
        let (checkpoint, excluded) = Self::replay(plan, old)?.checkpoint(plan);
        let first = Record {
            sequence: last.sequence,
            time: last.time.clone(),
            excluded,
            checkpoint: Some(Box::new(checkpoint)),
            ..control::record(RecordEvent::Checkpoint)
        };
        let mut state = Self::new(plan);
        state.apply(plan, first)?;
        for record in kept {
            state.apply(plan, record.clone())?;
        }
        Ok(Some(state))
    }

    /// How many of the newest records a compacted history keeps.
    fn kept(&self) -> usize {
        let mut bytes = 0;
        let fits = |record: &&Record| {
            bytes += size(record);
            record.event != RecordEvent::Checkpoint && bytes <= KEPT_BYTES
        };
        let fitting = self.records.iter().rev().take(KEPT).take_while(fits);
        fitting.count().max(1).min(self.records.len())
    }

    /// Whether a checkpoint may stand here.
    pub(super) fn check_checkpoint(&self, plan: &CheckedPlan, record: &Record) -> Result<(), Rule> {
        let checkpoint = record.checkpoint.as_ref().ok_or(Rule::NoCheckpoint)?;
        if !self.records.is_empty() {
            return Err(Rule::NotFirst);
        }
        let mut steps = checkpoint.steps.iter();
        match steps.find(|step| plan.position(&step.id).is_none()) {
            Some(step) => Err(Rule::UnknownStep(Some(step.id.clone()))),
            None => Ok(()),
        }
    }

    /// Takes over what a checkpoint tells.
    pub(super) fn restore(&mut self, plan: &CheckedPlan, checkpoint: &Checkpoint) {
        let instant = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        self.phase = checkpoint.phase;
        self.phase_since = instant(&checkpoint.since);
        self.started_at = instant(&checkpoint.started_at);
        self.said.clone_from(&checkpoint.said);
        self.unknown_bound.clone_from(&checkpoint.unknown_bound);
        self.answered = checkpoint.answered.iter().cloned().collect();
        for kept in &checkpoint.steps {
            let at = plan.position(&kept.id);
            if let Some(step) = at.and_then(|at| self.steps.get_mut(at)) {
                *step = StepState::kept(kept);
            }
        }
    }
}

impl StepState {
    fn keep(&self, id: &str) -> StepCheckpoint {
        let time = |instant: Option<Timestamp>| instant.map(Time);
        StepCheckpoint {
            id: id.to_owned(),
            phase: self.phase,
            attempt: self.attempt,
            failures: self.failures,
            approved: self.approved,
            narrowed: self.narrowed,
            remedied: self.remedied.clone(),
            started_at: time(self.started_at),
            finished_at: time(self.finished_at),
            results: self.results.clone(),
            failure: self.failure.clone(),
            question: self.question.clone(),
        }
    }

    fn kept(step: &StepCheckpoint) -> Self {
        Self {
            phase: step.phase,
            attempt: step.attempt,
            failures: step.failures,
            approved: step.approved,
            narrowed: step.narrowed,
            remedied: step.remedied.clone(),
            started_at: step.started_at.as_ref().map(|time| time.0),
            finished_at: step.finished_at.as_ref().map(|time| time.0),
            results: step.results.clone(),
            failure: step.failure.clone(),
            question: step.question.clone(),
        }
    }
}

/// What a record takes in a journal or a `Run`, in bytes.
pub(super) fn size(record: &Record) -> usize {
    serde_json::to_vec(record).map_or(0, |json| json.len())
}
