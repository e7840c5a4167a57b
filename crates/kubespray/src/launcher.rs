//! Where runners run: a process of this machine, or a Job of the cluster that the operator runs in. The only seam between
//! the two modes; everything else is the same code.

use api::{Cluster, Run};
use kube::{Resource, ResourceExt};

use crate::{
    job::{self, Jobs},
    supervisor::{self, Supervisor},
};

/// Starts runners and knows which live.
pub enum Launcher {
    /// Processes of this machine.
    Process(Supervisor),
    /// Jobs of the cluster.
    Job(Jobs),
}

/// Why a runner could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// As a process.
    #[error("start a process")]
    Process(#[source] supervisor::Error),
    /// As a Job.
    #[error("start a Job")]
    Job(#[source] job::Error),
}

impl Launcher {
    /// Whether a run has a live runner.
    pub fn has_runner(&self, run: &Run) -> bool {
        match self {
            Self::Process(supervisor) => {
                let namespace = run.namespace().unwrap_or_default();
                supervisor.find(&namespace, &run.name_any()).is_some()
            }
            Self::Job(jobs) => jobs.is_at_work(run.meta()),
        }
    }

    /// Starts the runner of a run.
    pub async fn start(&self, run: &Run, cluster: Option<&Cluster>) -> Result<(), Error> {
        match self {
            Self::Process(supervisor) => supervisor
                .start(&run.namespace().unwrap_or_default(), &run.name_any())
                .map_err(Error::Process),
            Self::Job(jobs) => jobs.start(run, cluster).await.map_err(Error::Job),
        }
    }
}
