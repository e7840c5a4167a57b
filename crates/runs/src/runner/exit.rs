//! How a runner ends.

/// How a runner ended, as an exit code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// The run succeeded.
    Succeeded,
    /// A step failed for good.
    Failed,
    /// A person or a newer plan ended it.
    Ended,
    /// Another runner works on it.
    Busy,
    /// The subject belongs to a newer run.
    Fenced,
    /// Its pod was told to end; another one goes on.
    Stopped,
}

impl Exit {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::Failed => 1,
            Self::Ended => 3,
            Self::Busy => 75,
            Self::Fenced => 77,
            // As of a process that ended by SIGTERM.
            Self::Stopped => 143,
        }
    }
}
