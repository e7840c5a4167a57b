//! Where the files of runs lie in the data directory.
//!
//! ```text
//! runs/<ns>/<run>/          journal.jsonl lock runner.json run.json logs/
//! ```

use std::path::{Path, PathBuf};

/// The data directory of one operator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The data directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The files of one run.
    pub fn run(&self, namespace: &str, name: &str) -> PathBuf {
        self.root.join("runs").join(namespace).join(name)
    }

    /// The log of one step of a run.
    pub fn step_log(&self, namespace: &str, run: &str, step: &str) -> PathBuf {
        self.run(namespace, run)
            .join("logs")
            .join(format!("{}.log", step.replace('/', "__")))
    }
}
