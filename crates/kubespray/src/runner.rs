//! The engine of kubespray's runs: what the steps of a plan do on this machine and on the hosts.

use std::{ops::Deref, path::PathBuf, sync::Arc, time::SystemTime};

use ansible::{playbook::Leave, source::Policy};
use api::run::RunSpec;
use controller::lease::Proof;
use runs::{Engine, Words, Work, engine::EngineError, runner};

use crate::{cluster::compile, inputs::Inputs, layout::Layout};

mod carried;
mod executor;
mod plays;
mod prepare;
mod secrets;
mod source;
mod steps;
mod workspace;

/// The file of a run's directory with what its tasks did, one event a line.
pub const EVENTS: &str = "events.jsonl";
/// The file with the events before those, where they were many.
pub const FORMER_EVENTS: &str = "events-former.jsonl";

/// The Lease of a cluster.
pub fn lease_name(cluster: &str) -> String {
    runs::lease_name("Cluster", cluster)
}

/// Executes runs of Clusters.
#[derive(Clone, Debug)]
pub struct Kubespray {
    /// What a source of playbooks may be, and what it may cost.
    pub sources: Policy,
}

impl Kubespray {
    /// Executes a run that was taken up.
    ///
    /// # Errors
    ///
    /// The run cannot be prepared, or its journal or its Lease cannot be kept.
    pub async fn execute(self, run: runner::TakenUp) -> Result<runner::Exit, runner::Error> {
        if run.is_in_pod()
            && let Err(error) = runs::sweep::sweep_beside(run.directory(), SystemTime::now())
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the volume was not swept"
            );
        }
        run.execute(self).await
    }
}

impl Engine for Kubespray {
    type Executor = executor::KubesprayExecutor;

    fn digest(&self, spec: &RunSpec) -> Result<String, serde_json::Error> {
        compile::digest(&spec.operation, &spec.plan)
    }

    fn leave(&self, work: &Work) -> Result<runs::engine::Leave, EngineError> {
        let leave = Leave::open(leave_file(work))?;
        Ok(Arc::new(move |end| {
            if let Err(error) = leave.until(end) {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the playbook was not told that it may go on"
                );
            }
        }))
    }

    fn prepare(&self, work: &Arc<Work>, proof: Proof) -> Result<Self::Executor, EngineError> {
        let work = Arc::new(ClusterWork {
            layout: Layout::new(work.layout.root()),
            inputs: Inputs::from_map(&work.run.spec.plan.inputs)?,
            sources: self.sources.clone(),
            work: Arc::clone(work),
        });
        let workspace = workspace::Workspace::prepare(Arc::clone(&work))?;
        Ok(executor::KubesprayExecutor::new(work, workspace, proof))
    }

    async fn end_now(&self, work: &Work) {
        plays::end_now(&work.directory).await;
    }

    fn clean(&self, executor: Self::Executor) {
        executor.clean();
    }

    fn words(&self) -> Words {
        Words {
            targets: "nodes",
            excluded: "HostsExcluded",
            own_logs: "ansible",
        }
    }
}

/// The file that says until when playbooks may work.
fn leave_file(work: &Work) -> PathBuf {
    work.directory.join("leave")
}

/// What every part of the engine knows of a run.
pub(crate) struct ClusterWork {
    pub(crate) work: Arc<Work>,
    pub(crate) layout: Layout,
    pub(crate) inputs: Inputs,
    pub(crate) sources: Policy,
}

impl Deref for ClusterWork {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

impl ClusterWork {
    pub(crate) fn cluster(&self) -> &str {
        self.work.subject()
    }

    /// The file that says until when playbooks may work.
    pub(crate) fn leave(&self) -> PathBuf {
        leave_file(&self.work)
    }

    /// What is kept of the cluster from run to run.
    pub(crate) fn cluster_directory(&self) -> PathBuf {
        self.layout.cluster(&self.namespace(), self.cluster())
    }
}
