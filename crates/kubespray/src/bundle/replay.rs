//! A run as it stood at a moment, from its records alone.

use std::{collections::HashMap, io::BufRead as _};

use ansible::event::{Event, Kind};
use api::{
    Duration, Run, RunStatus,
    run::{Record, RecordEvent, StepPhase},
};
use jiff::{SignedDuration, Timestamp};
use workflow::{
    CheckedPlan, State, StepProgress,
    plan::PlanError,
    state::IllegalTransition,
    status::{Live, derive},
};

use super::Bundle;

/// A moment of a run, as people name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// A time.
    At(Timestamp),
    /// So long after the run began.
    After(Duration),
    /// Right after this record.
    Record(u32),
}

/// Why there is no such moment.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It is none.
    #[error(
        "--at {0:?} is no moment: write a time as 2026-01-02T03:04:05Z, a time since the beginning as 1m30s, or the number of a record as '#12'"
    )]
    NoMoment(String),
    /// It is before what is known.
    #[error("nothing is known of that moment: the records go from {from} to {to}")]
    Unknown {
        /// The first record's time.
        from: Timestamp,
        /// The last one's.
        to: Timestamp,
    },
    /// Nothing has happened.
    #[error("the run has no records: it had not begun when the bundle was made")]
    NotBegun,
    /// The plan is none.
    #[error("read the plan of the run")]
    Plan(#[source] PlanError),
    /// The records tell no story.
    #[error("replay the records of the run")]
    Records(#[source] IllegalTransition),
}

impl std::str::FromStr for Moment {
    type Err = ReplayError;

    fn from_str(text: &str) -> Result<Self, ReplayError> {
        let number = text.strip_prefix('#').and_then(|text| text.parse().ok());
        let after = || text.parse().ok().map(Self::After);
        let at = || text.parse().ok().map(Self::At);
        let moment = number.map(Self::Record).or_else(after).or_else(at);
        moment.ok_or_else(|| ReplayError::NoMoment(text.to_owned()))
    }
}

impl Bundle {
    /// The Run as it stood at a moment; none: at the end. The same records give the same status, wherever and whenever it is asked.
    ///
    /// # Errors
    ///
    /// Nothing is known of that moment, or the records do not fit the plan.
    pub fn at(&self, moment: Option<Moment>) -> Result<Run, ReplayError> {
        let (Some(first), Some(last)) = (self.records.first(), self.records.last()) else {
            return Err(ReplayError::NotBegun);
        };
        let (from, to) = (first.time.0, last.time.0);
        let (now, known) = match moment {
            None => (to, self.records.len()),
            Some(Moment::At(at)) => (at, self.until(at)),
            Some(Moment::After(after)) => {
                let seconds = i64::try_from(after.seconds()).unwrap_or(i64::MAX);
                let at = from.as_second().saturating_add(seconds);
                // Its records are finer than seconds: a whole second after the beginning has begun.
                let at = Timestamp::new(at, from.subsec_nanosecond());
                let at = at.unwrap_or(Timestamp::MAX);
                (at, self.until(at))
            }
            Some(Moment::Record(number)) => {
                let known = self
                    .records
                    .iter()
                    .take_while(|record| record.sequence <= number);
                let known = known.count();
                let at = known.checked_sub(1).and_then(|at| self.records.get(at));
                (at.map_or(from, |record| record.time.0), known)
            }
        };
        let records = self.records.get(..known).unwrap_or_default();
        if records.is_empty() {
            return Err(ReplayError::Unknown { from, to });
        }
        let mut run = self.run.clone();
        run.status = Some(self.status(&run, records, now)?);
        Ok(run)
    }

    fn until(&self, at: Timestamp) -> usize {
        let until = self.records.iter().take_while(|record| record.time.0 <= at);
        until.count()
    }

    fn status(
        &self,
        run: &Run,
        records: &[Record],
        now: Timestamp,
    ) -> Result<RunStatus, ReplayError> {
        let plan = CheckedPlan::new(run.spec.plan.clone()).map_err(ReplayError::Plan)?;
        let state = State::replay(&plan, records).map_err(ReplayError::Records)?;
        let running: Vec<&str> = plan
            .steps()
            .iter()
            .zip(state.steps())
            .filter(|(_, stands)| stands.phase == StepPhase::Running)
            .map(|(step, _)| step.id.as_str())
            .collect();
        let live = Live {
            steps: self.activity(records, &running, now),
            runner: run.status.as_ref().and_then(|status| status.runner.clone()),
            now,
        };
        Ok(derive(&plan, &state, &live))
    }

    /// The task that the running step was at. Of several side by side nobody can tell whose it was.
    fn activity(
        &self,
        records: &[Record],
        running: &[&str],
        now: Timestamp,
    ) -> HashMap<String, StepProgress> {
        let [step] = running else {
            return HashMap::new();
        };
        let mut started = records.iter().rev().filter(|record| {
            record.event == RecordEvent::StepStarted && record.step.as_deref() == Some(step)
        });
        let Some(started) = started.next() else {
            return HashMap::new();
        };
        let within = |event: &Event| {
            let since = SignedDuration::try_from_secs_f64(event.time);
            let at = since.and_then(Timestamp::from_duration);
            at.is_ok_and(|at| started.time.0 <= at && at <= now)
        };
        let lines = self.events().lines().map_while(Result::ok);
        let starts = lines.filter(|line| line.contains("\"task_start\""));
        let events = starts.filter_map(|line| serde_json::from_str::<Event>(&line).ok());
        let tasks = events.filter(within).filter_map(|event| match event.kind {
            Kind::TaskStart { name, .. } => Some(name),
            _ => None,
        });
        let Some(activity) = tasks.last() else {
            return HashMap::new();
        };
        let progress = StepProgress {
            activity: Some(activity),
            ..StepProgress::default()
        };
        HashMap::from([((*step).to_owned(), progress)])
    }
}
