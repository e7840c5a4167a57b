//! The one place that writes records: proves that one may follow, writes it, and only then lets it count.

use api::run::{Record, RecordEvent, StepPhase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Observer, RunError};
use crate::{
    bounds, clock::Clock, control::record, journal::JournalStore, plan::CheckedPlan, state::State,
    status::TARGETS,
};

pub(super) struct Ledger<'a, J, C, O> {
    pub(super) plan: &'a CheckedPlan,
    pub(super) state: State,
    pub(super) journal: &'a mut J,
    pub(super) clock: &'a C,
    pub(super) observer: &'a mut O,
}

impl<J: JournalStore, C: Clock, O: Observer> Ledger<'_, J, C, O> {
    pub(super) fn append_step(&mut self, at: usize, mut record: Record) -> Result<(), RunError> {
        let started = u32::from(record.event == RecordEvent::StepStarted);
        record.step = self.plan.steps().get(at).map(|step| step.id.clone());
        record.attempt = self
            .state
            .steps()
            .get(at)
            .map(|step| step.attempt + started);
        self.append(record)
    }

    pub(super) fn append(&mut self, mut record: Record) -> Result<(), RunError> {
        record.sequence = self.state.next_sequence();
        // The API keeps whole seconds; so does the journal, or the two copies of a record would differ.
        let seconds = self.clock.now().as_second();
        record.time = Time(Timestamp::from_second(seconds).unwrap_or_default());
        // Cut as the API's copy is, or the two would differ.
        bound(&mut record);
        bounds::record(&mut record);
        self.state
            .permits(self.plan, &record)
            .map_err(RunError::Illegal)?;
        self.journal.append(&record).map_err(RunError::Journal)?;
        self.state
            .apply(self.plan, record.clone())
            .map_err(RunError::Illegal)?;
        self.compact()?;
        self.observer.recorded(&record, &self.state);
        Ok(())
    }

    /// Puts a checkpoint in place of the oldest records, where there are many. What cannot be written now is tried again at the
    /// next record: the long journal is as good.
    fn compact(&mut self) -> Result<(), RunError> {
        let compacted = self.state.compacted(self.plan).map_err(RunError::Illegal)?;
        let Some(compacted) = compacted else {
            return Ok(());
        };
        match self.journal.replace(compacted.records()) {
            Ok(()) => self.state = compacted,
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the journal was not compacted"
            ),
        }
        Ok(())
    }

    /// Records that steps were left in the middle, if some were.
    pub(super) fn interrupt(&mut self) -> Result<(), RunError> {
        while let Some(at) = self.state.first(StepPhase::Running) {
            let detail = Some("its runner ended before it did".to_owned());
            let interrupted = Record {
                detail,
                ..record(RecordEvent::StepInterrupted)
            };
            self.append_step(at, interrupted)?;
        }
        Ok(())
    }

    /// Whether a step may start now.
    pub(super) fn may_start(&self, at: usize) -> bool {
        let started = Record {
            sequence: self.state.next_sequence(),
            step: self.plan.steps().get(at).map(|step| step.id.clone()),
            ..record(RecordEvent::StepStarted)
        };
        self.state.permits(self.plan, &started).is_ok()
    }
}

/// Keeps what an executor said within the bounds of the API's schema.
fn bound(record: &mut Record) {
    shorten(record.detail.as_mut(), 2048);
    if let Some(failure) = &mut record.failure {
        shorten(Some(&mut failure.message), 4096);
        shorten(failure.remedy.as_mut(), 1024);
        let more = failure.targets.len().saturating_sub(MOST_TARGETS);
        if more > 0 {
            shorten(Some(&mut failure.message), 4096 - 64);
            failure.message += &format!(" (and {more} more)");
            failure.targets.truncate(MOST_TARGETS);
        }
    }
    // Who is left out must be known to the last target; why, of many, is said of the first alone.
    record.excluded.truncate(TARGETS);
    for (place, target) in record.excluded.iter_mut().enumerate() {
        let limit = if place < IN_FULL { 256 } else { 32 };
        shorten(Some(&mut target.reason), limit);
    }
}

/// The targets of a failure that are named.
const MOST_TARGETS: usize = 1000;
/// The targets of which it is said in full why they are left out.
const IN_FULL: usize = 100;

fn shorten(text: Option<&mut String>, limit: usize) {
    if let Some(text) = text.filter(|text| text.chars().count() > limit) {
        *text = text.chars().take(limit - 1).chain(['…']).collect();
    }
}
