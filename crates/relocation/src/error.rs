//! Why a move cannot go on.

use std::path::PathBuf;

use controller::problem::Problem;

/// Why a move cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was written: each of these must be mended first.
    #[error("nothing was moved and nothing was changed:\n  {}", lines(.0))]
    Refused(Vec<Problem>),
    /// What stands in the way, and what to do; the same command goes on from there.
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
    /// An API cannot be used at all.
    #[error("{why}")]
    Unusable {
        /// Why, and what to do.
        why: &'static str,
        /// What it answered.
        source: Box<kube::Error>,
    },
    /// The kubeconfig of the other side cannot be read.
    #[error("failed to read the kubeconfig {file} (--to-kubeconfig)")]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: kube::config::KubeconfigError,
    },
    /// The API of the other side cannot be used.
    #[error(
        "the API there ({server}, of --to-kubeconfig {file}) cannot be used; nothing was changed"
    )]
    There {
        /// Where it is.
        server: String,
        /// The kubeconfig that says so.
        file: PathBuf,
        /// Why not.
        source: Box<Self>,
    },
    /// The Lease of a root could not be taken.
    #[error("failed to take the Lease of {root}")]
    Lease {
        /// The root, as KIND/NAME.
        root: String,
        /// Why not.
        source: controller::lease::Error,
    },
    /// A domain could not say what it brings along.
    #[error("failed to collect what {domain} brings along")]
    Domain {
        /// The domain.
        domain: &'static str,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
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
