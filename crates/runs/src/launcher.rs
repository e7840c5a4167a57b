//! Where runners run: a process of this machine, or a Job of the cluster that the operator runs in. The only seam between
//! the two modes; everything else is the same code.

use std::sync::Arc;

use crate::{
    job::{self, Jobs, Template},
    presence::Presence,
    subject::Subjects,
    supervisor::{self, Supervisor},
};
use api::Run;
use kube::ResourceExt;

/// Starts runners and knows which live.
pub enum Launcher {
    /// Processes of this machine.
    Process(Supervisor),
    /// Jobs of the cluster.
    Job(Jobs),
}

/// Why a runner could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// As a process.
    #[error("run a process")]
    Process(#[source] supervisor::Error),
    /// As a Job.
    #[error("run a Job")]
    Job(#[source] job::Error),
}

impl Launcher {
    /// What runner pods are made after, where runners are pods.
    pub fn template(&self) -> Option<Arc<Template>> {
        match self {
            Self::Process(_) => None,
            Self::Job(jobs) => Some(Arc::clone(jobs.template())),
        }
    }

    /// How the runner of a run stands.
    ///
    /// # Errors
    ///
    /// As of [`Jobs::runner`]; of processes none.
    pub async fn runner(&self, run: &Run, subjects: &impl Subjects) -> Result<Presence, Error> {
        match self {
            Self::Process(supervisor) => {
                let namespace = run.namespace().unwrap_or_default();
                let name = run.name_any();
                Ok(match supervisor.find(&namespace, &name) {
                    Some(_) => Presence::AtWork,
                    None => Presence::Absent(supervisor.death(&namespace, &name)),
                })
            }
            Self::Job(jobs) => jobs.runner(run, subjects).await.map_err(Error::Job),
        }
    }

    /// Starts the runner of a run.
    ///
    /// # Errors
    ///
    /// As of [`Supervisor::start`] or [`Jobs::start`].
    pub async fn start(&self, run: &Run, subjects: &impl Subjects) -> Result<(), Error> {
        match self {
            Self::Process(supervisor) => supervisor
                .start(&run.namespace().unwrap_or_default(), &run.name_any())
                .map_err(Error::Process),
            Self::Job(jobs) => jobs.start(run, subjects).await.map_err(Error::Job),
        }
    }

    /// Takes back what was asked for: the runner of a run that does not come to work. A process comes or is gone.
    ///
    /// # Errors
    ///
    /// As of [`Jobs::stop`]; of processes none.
    pub async fn stop(&self, run: &Run) -> Result<(), Error> {
        match self {
            Self::Process(_) => Ok(()),
            Self::Job(jobs) => jobs.stop(run).await.map_err(Error::Job),
        }
    }
}
