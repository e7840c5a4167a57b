//! What an engine implements: executing steps, and reporting how they stand.

use api::run::{Applied, Exclusion, Failure, Progress, Results, Step};
use tokio::sync::{mpsc, oneshot, watch};

/// An engine that executes steps.
pub trait Executor: Send + Sync {
    /// Executes steps one after the other: a single one, or several that follow each other with the same batch and may
    /// share a process. Where the plan lets steps run side by side, there are several calls at a time, of steps that share
    /// no target.
    ///
    /// The first step is in the journal as started when this is called. Each further one is reported by
    /// [`Reporter::started`], each end by [`Reporter::finished`]. Steps that were not reported stay as they are: ending
    /// early is no failure for them. A step without a reported end counts as interrupted if a stop was asked for, and
    /// as failed otherwise.
    ///
    /// The future is dropped when a step has outlived its timeout and does not heed the stop, and when the journal
    /// cannot be written: dropping must end what was started.
    fn execute(&self, steps: Vec<Step>, context: StepContext) -> impl Future<Output = ()> + Send;
}

/// What steps are executed with.
#[derive(Debug)]
pub struct StepContext {
    /// Targets that are to be left out.
    pub excluded: Vec<Exclusion>,
    /// Which attempt at the first step this is, from 1.
    pub attempt: u32,
    /// Whether a person approved the first step.
    pub approved: bool,
    /// What was done about earlier failures of the first step. No other has failed.
    pub remedied: Vec<Applied>,
    /// Whether the first step was started before and did not end: remote work may still go on.
    pub interrupted: bool,
    /// What people want at the moment.
    pub signal: watch::Receiver<Signal>,
    /// Where to report.
    pub reporter: Reporter,
}

/// What people want of the steps being executed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Signal {
    /// To go on.
    #[default]
    Continue,
    /// To hold at the next boundary ([`Reporter::held`]) until the signal changes, or to end there with
    /// [`StepOutcome::Interrupted`].
    Pause,
    /// To end at the next boundary with [`StepOutcome::Interrupted`].
    Stop,
}

/// How far a step is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StepProgress {
    /// What it is at, for people.
    pub activity: Option<String>,
    /// The run that it waits for somebody to make.
    pub awaits: Option<String>,
    /// How much is done, if the engine counts.
    pub progress: Option<Progress>,
    /// What it did.
    pub results: Results,
}

/// How an attempt at a step ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StepOutcome {
    /// It is done.
    Succeeded {
        /// What it did.
        results: Results,
        /// Targets that did not answer; whether the run can go on without them is judged by the step's gate.
        unreachable: Vec<Exclusion>,
        /// More about it, for people.
        detail: Option<String>,
    },
    /// It failed.
    Failed {
        /// Why.
        failure: Failure,
        /// What it did.
        results: Results,
        /// Targets that did not answer.
        unreachable: Vec<Exclusion>,
        /// What was done about it by itself.
        remedies: Vec<Applied>,
    },
    /// It was stopped at a boundary, as the signal asked.
    Interrupted {
        /// More about it, for people.
        detail: Option<String>,
    },
    /// It needs the approval of a person and is executed again with it.
    Waiting {
        /// What is to be approved.
        question: String,
    },
}

/// Where an executor reports. Every report but progress returns when the journal has it.
#[derive(Clone, Debug)]
pub struct Reporter {
    reports: mpsc::Sender<Report>,
    attempt: u64,
}

/// The runner does not take the report: it has ended, or the step is none of those being executed. Stop working.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("report a step that the runner does not execute")]
pub struct Rejected;

#[derive(Debug)]
pub(crate) struct Report {
    /// Whose report it is: an attempt that has ended has nothing to say.
    pub(crate) attempt: u64,
    pub(crate) step: String,
    pub(crate) kind: ReportKind,
    pub(crate) answer: oneshot::Sender<Result<(), Rejected>>,
}

#[derive(Debug)]
pub(crate) enum ReportKind {
    Started,
    Progress(StepProgress),
    Held,
    Finished(StepOutcome),
}

impl Reporter {
    pub(crate) const fn new(reports: mpsc::Sender<Report>, attempt: u64) -> Self {
        Self { reports, attempt }
    }

    /// A step starts. Harmless for one that has started already.
    ///
    /// # Errors
    ///
    /// The runner has ended, or does not execute that step.
    pub async fn started(&self, step: &str) -> Result<(), Rejected> {
        self.report(step, ReportKind::Started).await
    }

    /// A step is that far.
    ///
    /// # Errors
    ///
    /// As of [`Reporter::started`].
    pub async fn progress(&self, step: &str, progress: StepProgress) -> Result<(), Rejected> {
        self.report(step, ReportKind::Progress(progress)).await
    }

    /// A step holds at a boundary, as [`Signal::Pause`] asked.
    ///
    /// # Errors
    ///
    /// As of [`Reporter::started`].
    pub async fn held(&self, step: &str) -> Result<(), Rejected> {
        self.report(step, ReportKind::Held).await
    }

    /// A step has ended.
    ///
    /// # Errors
    ///
    /// As of [`Reporter::started`].
    pub async fn finished(&self, step: &str, outcome: StepOutcome) -> Result<(), Rejected> {
        self.report(step, ReportKind::Finished(outcome)).await
    }

    async fn report(&self, step: &str, kind: ReportKind) -> Result<(), Rejected> {
        let (answer, answered) = oneshot::channel();
        let step = step.to_owned();
        let report = Report {
            attempt: self.attempt,
            step,
            kind,
            answer,
        };
        self.reports.send(report).await.map_err(|_| Rejected)?;
        answered.await.map_err(|_| Rejected)?
    }
}
