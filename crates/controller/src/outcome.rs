//! How a pass over one object ended.

use std::time::Duration;

use kube::runtime::controller::Action;

use crate::backoff::jittered;

/// The wait of an object that needs nothing: a safety net for a lost watch event, not a poll.
const AT_REST: Duration = Duration::from_mins(50);

/// How a pass ended. Waiting is a value, never an error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome<A> {
    /// Everything that was to be written is written.
    Applied(A),
    /// Something must happen first.
    Waiting {
        /// What was written on the way.
        applied: A,
        /// When to look again.
        until: Until,
    },
}

/// When a waiting object is looked at again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Until {
    /// When something that is watched changes: a spec, a run.
    Changed,
    /// After that time at the latest.
    Elapsed(Duration),
}

impl<A> Outcome<A> {
    /// The same, looked at again after this time at the latest if it waits.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        match self {
            Self::Applied(applied) => Self::Applied(applied),
            Self::Waiting { applied, until } => Self::Waiting {
                applied,
                until: Until::Elapsed(match until {
                    Until::Changed => limit,
                    Until::Elapsed(wait) => wait.min(limit),
                }),
            },
        }
    }

    /// What was written.
    pub const fn applied(&self) -> &A {
        match self {
            Self::Applied(applied) | Self::Waiting { applied, .. } => applied,
        }
    }

    /// What the queue should do.
    pub fn action(&self) -> Action {
        match self {
            Self::Applied(_) => Action::requeue(jittered(AT_REST)),
            Self::Waiting {
                until: Until::Changed,
                ..
            } => Action::await_change(),
            Self::Waiting {
                until: Until::Elapsed(wait),
                ..
            } => Action::requeue(*wait),
        }
    }
}
