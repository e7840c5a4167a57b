//! Why a move of Cluster API objects cannot go on.

use controller::problem::Problem;

/// Why a move cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was written: each of these must be mended first.
    #[error("nothing was moved and nothing was changed:\n  {}", lines(.0))]
    Refused(Vec<Problem>),
    /// What stands in the way, and what to do.
    #[error("{0}")]
    Stopped(String),
    /// An API refused, or did not answer.
    #[error("failed to {action}")]
    Api {
        /// What was tried, and on which side.
        action: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// A move ended before its point of no return.
    #[error("the move was stopped, and {left}")]
    Undone {
        /// How both sides were left, and what to do.
        left: String,
        /// What stopped it.
        source: Box<Self>,
    },
    /// A side could not say which rights one has.
    #[error("failed to ask for one's rights")]
    Rights(#[source] Box<relocation::Error>),
}

/// What a part of a move comes to.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn api(action: impl Into<String>, source: kube::Error) -> Self {
        Self::Api {
            action: action.into(),
            source: Box::new(source),
        }
    }

    /// Whether an API answered one of these.
    pub(crate) fn has_code(&self, codes: &[u16]) -> bool {
        let Self::Api { source, .. } = self else {
            return false;
        };
        matches!(&**source, kube::Error::Api(status) if codes.contains(&status.code))
    }

    /// Whether the same request may well succeed in a moment: nobody answered, or somebody who could not.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => status.code == 429 || status.code >= 500,
                kube::Error::HyperError(_) | kube::Error::Service(_) => true,
                _ => false,
            },
            _ => false,
        }
    }
}

/// Goes on if it is so, and else says what stands in the way.
pub(crate) fn ensure(is_so: bool, obstacle: impl FnOnce() -> String) -> Result<()> {
    if is_so {
        Ok(())
    } else {
        Err(Error::Stopped(obstacle()))
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n  ")
}
