//! Why a runner cannot work.

use std::path::PathBuf;

use workflow::journal::JournalError;

use crate::engine::EngineError;

/// Why a runner could not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("read the kubeconfig")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    /// The API's address cannot be inferred.
    #[error("find the API")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// No client could be made.
    #[error("make a client")]
    Client(#[source] Box<kube::Error>),
    /// There is no such Run.
    #[error("find Run {0}")]
    NoRun(String),
    /// The journal cannot be used.
    #[error("keep the journal")]
    Journal(#[source] JournalError),
    /// The plan cannot be executed.
    #[error("check the plan")]
    Plan(#[source] workflow::plan::PlanError),
    /// The engine cannot execute the run.
    #[error("prepare the run")]
    Engine(#[source] EngineError),
    /// No engine of this program executes runs of that kind.
    #[error(
        "execute a run of {kind}.{group}: this program has no engine for it; use the release that planned the run"
    )]
    NoEngine {
        /// The kind of its subject.
        kind: String,
        /// The group of that.
        group: String,
    },
    /// The run's files cannot be written.
    #[error("prepare {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The journals on this machine and in the API differ.
    #[error("reconcile the journal with the Run's history")]
    Merge(#[source] workflow::journal::MergeError),
    /// The run could not go on.
    #[error("execute the plan")]
    Run(#[source] workflow::RunError),
    /// The journal tells what cannot have happened.
    #[error("replay the journal")]
    Illegal(#[source] workflow::state::IllegalTransition),
    /// The Lease of the subject was lost to another holder.
    #[error("hold the subject's lease")]
    Lease(#[source] controller::lease::Error),
}
