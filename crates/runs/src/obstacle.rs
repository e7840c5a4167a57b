//! Why a runner does not come to its work.

/// Why a runner does not come to work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Obstacle {
    /// What it is.
    pub kind: Kind,
    /// What stands in the way, in the words of Kubernetes, and what to do.
    pub message: String,
}

/// What keeps a runner from its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Kubernetes refuses the pod, as by Pod Security or a quota.
    NotCreated,
    /// No node takes the pod.
    Unschedulable,
    /// The pod does not start on its node, as without its image.
    NotStarted,
    /// It was at work and ended before its time, as for want of memory.
    Died,
    /// The pod was told to end, and its node does not say that it has: it may still work.
    Lost,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::NotCreated,
        Self::Unschedulable,
        Self::NotStarted,
        Self::Died,
        Self::Lost,
    ];

    /// The reason of a condition that tells of it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotCreated => "RunnerNotCreated",
            Self::Unschedulable => "RunnerUnschedulable",
            Self::NotStarted => "RunnerNotStarted",
            Self::Died => "RunnerDied",
            Self::Lost => "RunnerLost",
        }
    }
}

/// What Windlass says at last, when it ends for an error, as `log` has it.
pub fn last_words(log: &str) -> Option<&str> {
    log.lines()
        .rev()
        .find_map(|line| line.strip_prefix("windlass: "))
}
