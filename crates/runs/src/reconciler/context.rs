//! What the passes over Runs share.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use controller::BackOff;
use kube::Client;

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
    /// Deaths of runners in a row, by run.
    deaths: BackOff,
    /// When the next runner of a run may start, so that one that dies at once does not spin.
    starts: Mutex<HashMap<String, Instant>>,
}

impl<S: Subjects> Context<S> {
    /// Of the runs of these subjects, whose runners come from `launcher`.
    pub fn new(client: Client, launcher: Launcher, subjects: S) -> Self {
        Self {
            client,
            launcher,
            subjects,
            deaths: BackOff::default(),
            starts: Mutex::default(),
        }
    }

    /// The runners.
    pub const fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// How long a run must wait for its next runner; none: it may start, which is noted.
    pub(super) fn runner_due(&self, run: &str) -> Option<Duration> {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(next) = starts.get(run).filter(|next| **next > now) {
            return Some(next.saturating_duration_since(now));
        }
        let first = !starts.contains_key(run);
        let wait = self.deaths.failed(run);
        // One death is bad luck and costs nothing; from the second on each costs more.
        starts.insert(run.to_owned(), if first { now } else { now + wait });
        None
    }

    /// Notes that a run needs no runner.
    pub(super) fn runner_rests(&self, run: &str) {
        self.starts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(run);
        self.deaths.reset(run);
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
