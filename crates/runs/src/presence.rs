//! Whether a run needs a runner, and whether it has one.

use api::{
    Run,
    run::{RequestAction, RunPhase},
};
use kube::Resource;

use crate::{control::open_requests, is_active, obstacle::Obstacle, phase};

/// Whether a run needs a runner. A failed one does again when a person asked for something that takes it up.
pub fn needs_runner(run: &Run) -> bool {
    let asked = open_requests(run)
        .iter()
        .any(|request| matches!(request.action, RequestAction::Retry | RequestAction::Skip));
    let phase = phase(run);
    (is_active(phase) || (phase == RunPhase::Failed && asked))
        && run.meta().deletion_timestamp.is_none()
}

/// How the runner of a run stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Presence {
    /// There is none; tells why the last one died, if it did.
    Absent(Option<Obstacle>),
    /// It has been asked for, and nothing is known to stand in its way.
    Coming,
    /// It has been asked for, and does not come to work.
    Blocked {
        /// Why.
        obstacle: Obstacle,
        /// Whether it would be asked for otherwise by now.
        outdated: bool,
    },
    /// It is at work.
    AtWork,
}
