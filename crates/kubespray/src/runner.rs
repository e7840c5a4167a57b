//! The engine of kubespray's runs: what the steps of a plan do on this machine and on the hosts.

use std::{sync::Arc, time::SystemTime};

use ansible::{playbook::Leave, source::Policy};
use api::run::RunSpec;
use controller::lease::Proof;
use runs::{Engine, Words, Work, engine::EngineError, runner};

use crate::{
    inputs::{self, Inputs},
    layout::Layout,
};

mod adopt;
pub(crate) mod carried;
mod dispatch;
mod drain;
mod etcd;
mod executor;
mod gate;
mod hook;
mod identity;
mod plays;
mod prepare;
mod proof;
mod secrets;
mod servers;
mod snapshots;
mod source;
mod steps;
mod toolbox;
mod work;
mod workspace;

pub use work::{EVENTS, FORMER_EVENTS};
pub(crate) use workspace::failure;

use work::{ClusterWork, leave_file};

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
        inputs::digest(&spec.operation, &spec.plan)
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
