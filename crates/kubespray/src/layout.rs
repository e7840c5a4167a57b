//! Where things lie in the data directory.
//!
//! ```text
//! sources/<digest>/         playbooks, never modified
//! sandboxes/<digest>/       Python environments
//! clusters/<ns>/<name>/     facts/ credentials/ artifacts/ known_hosts
//! moved/<ns>/<name>-<uid>/  what was clusters/<ns>/<name>, of a cluster that is managed elsewhere now
//! runs/<ns>/<run>/          journal.jsonl lock runner.json inventory/ vars.json ansible.cfg logs/
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

    /// Playbook sources, by content.
    pub fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// Python environments, by content.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// What is kept of a cluster from run to run: facts, credentials, artifacts, host keys.
    pub fn cluster(&self, namespace: &str, name: &str) -> PathBuf {
        self.root.join("clusters").join(namespace).join(name)
    }

    /// Where the files of a cluster that was moved to another API stay, for people.
    pub fn moved(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.root
            .join("moved")
            .join(namespace)
            .join(format!("{name}-{uid}"))
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
