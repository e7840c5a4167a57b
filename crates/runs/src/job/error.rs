//! Why a Job could not be made.

use api::Run;

/// Why a Job could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the subject says of its runner does not give a pod.
    #[error("make a Job of the {kind}'s spec.runner")]
    Template {
        /// The kind of the subject.
        kind: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The subject asks for a pod that the operator does not allow.
    #[error("make a Job of what is not allowed: {0}")]
    NotAllowed(String),
    /// The API refused, or did not answer.
    #[error("{operation}")]
    Api {
        /// What was tried.
        operation: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Error {
    pub(super) fn template(run: &Run) -> impl FnOnce(serde_json::Error) -> Self + use<> {
        let kind = run.spec.subject.kind.clone();
        move |source| Self::Template { kind, source }
    }

    pub(super) fn api(operation: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api {
            operation,
            source: Box::new(source),
        }
    }
}
