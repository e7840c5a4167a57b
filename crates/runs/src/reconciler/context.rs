//! What the passes over Runs share.

use kube::Client;

use super::starts::Starts;
use crate::{
    control,
    launcher::{self, Launcher},
    subject::Subjects,
};

/// What the passes share.
pub struct Context<S> {
    pub(super) client: Client,
    pub(super) launcher: Launcher,
    pub(super) subjects: S,
    pub(super) starts: Starts,
}

impl<S: Subjects> Context<S> {
    /// Of the runs of these subjects, whose runners come from `launcher`.
    pub fn new(client: Client, launcher: Launcher, subjects: S) -> Self {
        Self {
            client,
            launcher,
            subjects,
            starts: Starts::default(),
        }
    }

    /// The runners.
    pub const fn launcher(&self) -> &Launcher {
        &self.launcher
    }
}

/// Why a pass failed. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused the status, or did not answer.
    #[error("write the status of a Run")]
    Status(#[source] Box<kube::Error>),
    /// A runner could not be had.
    #[error("provide a runner")]
    Runner(#[source] launcher::Error),
    /// A run that is a step of it could not be made.
    #[error("make the child of a Run")]
    Made(#[source] Box<kube::Error>),
    /// The runs that are steps of it could not be found.
    #[error("find the children of a Run")]
    Children(#[source] Box<kube::Error>),
    /// A run that is a step of it could not be cancelled.
    #[error("cancel the child of a Run")]
    Child(#[source] control::Error),
}
