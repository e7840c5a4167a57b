//! What a domain gives, so that its runs are executed.

use std::{path::PathBuf, sync::Arc, time::Duration};

use api::{
    Run,
    run::{RunSpec, RunnerIdentity},
};
use controller::lease::Proof;
use kube::{Client, ResourceExt};
use workflow::{CheckedPlan, plan::PlanError};

use crate::{layout::Layout, runner::beside::Beside};

/// Executes the runs of one kind of subject.
///
/// The runner calls [`Engine::leave`] before it takes the Lease of the subject, and [`Engine::prepare`] when it has it.
pub trait Engine: Send + Sync + 'static {
    /// What executes the steps of a run.
    type Executor: workflow::Executor;

    /// The digest that the plan of a run must have. One that has another is not what was planned, and gives way to a new one.
    ///
    /// # Errors
    ///
    /// The plan cannot be written as JSON.
    fn digest(&self, spec: &RunSpec) -> Result<String, serde_json::Error>;

    /// Who is told until when the Lease is surely held, whenever that changes. What the engine starts must not work beyond
    /// that, though the runner itself is stopped.
    ///
    /// # Errors
    ///
    /// Nobody can be told.
    fn leave(&self, work: &Work) -> Result<Leave, EngineError>;

    /// Prepares to execute the steps of a run whose Lease is held, as `proof` tells. Before anything is done that others would
    /// see, the executor looks at the proof.
    ///
    /// # Errors
    ///
    /// The plan's inputs are not this engine's, or what the run needs on this machine cannot be made.
    fn prepare(&self, work: &Arc<Work>, proof: Proof) -> Result<Self::Executor, EngineError>;

    /// Ends at once what was started for a run: its Lease is lost, or its pod is told to end.
    fn end_now(&self, work: &Work) -> impl Future<Output = ()> + Send;

    /// Removes what must not stay of a run that its runner leaves.
    fn clean(&self, executor: Self::Executor);

    /// The words of its Events.
    fn words(&self) -> Words;
}

/// How an engine calls things in the Events of its runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Words {
    /// What its targets are called, for example nodes.
    pub targets: &'static str,
    /// The reason of the Event that tells of targets that were left out, for example HostsExcluded.
    pub excluded: &'static str,
    /// How the names of the logs end, before `.log`, that the engine's own programs write beside those of the steps.
    pub own_logs: &'static str,
}

/// Is told when the leave to work ends, in time since the machine's boot; zero: it has ended.
pub type Leave = Arc<dyn Fn(Duration) + Send + Sync>;

/// Why an engine cannot execute a run.
pub type EngineError = Box<dyn std::error::Error + Send + Sync>;

/// A run at work: what its runner and its engine both know.
pub struct Work {
    /// The API.
    pub client: Client,
    /// The data directory.
    pub layout: Layout,
    /// The run's own directory.
    pub directory: PathBuf,
    /// The Run.
    pub run: Run,
    /// Its plan.
    pub plan: CheckedPlan,
    /// Who executes it.
    pub identity: RunnerIdentity,
    /// The API, if it runs beside the runner and may end before it.
    pub(crate) beside: Option<Beside>,
}

impl Work {
    /// A run whose steps somebody executes without a runner, as a test of an engine does, with its files in this directory.
    ///
    /// # Errors
    ///
    /// It has no plan that can be executed.
    pub fn alone(client: Client, run: Run, directory: PathBuf) -> Result<Self, PlanError> {
        Ok(Self {
            client,
            layout: Layout::new(&directory),
            directory,
            plan: CheckedPlan::new(run.spec.plan.clone())?,
            run,
            identity: RunnerIdentity::default(),
            beside: None,
        })
    }

    /// The namespace of the run and of its subject.
    pub fn namespace(&self) -> String {
        self.run.namespace().unwrap_or_default()
    }

    /// The name of what the run works on.
    pub fn subject(&self) -> &str {
        &self.run.spec.subject.name
    }
}
