//! Where things lie in the data directory, beside the files of [`runs`].
//!
//! ```text
//! sources/<digest>/         playbooks, never modified
//! sandboxes/<digest>/       Python environments
//! clusters/<ns>/<name>/     facts/ credentials/ artifacts/ known_hosts
//! moved/<ns>/<name>-<uid>/  what was clusters/<ns>/<name>, of a cluster that is managed elsewhere now
//! runs/<ns>/<run>/          inventory/ vars.json ansible.cfg, and what every run has
//! ```

use std::{ops::Deref, path::PathBuf};

/// The data directory of one operator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Layout(runs::Layout);

impl Deref for Layout {
    type Target = runs::Layout;

    fn deref(&self) -> &runs::Layout {
        &self.0
    }
}

impl Layout {
    /// The layout below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(runs::Layout::new(root))
    }

    /// Playbook sources, by content.
    pub fn sources(&self) -> PathBuf {
        self.root().join("sources")
    }

    /// Python environments, by content.
    pub fn sandboxes(&self) -> PathBuf {
        self.root().join("sandboxes")
    }

    /// What is kept of a cluster from run to run: facts, credentials, artifacts, host keys.
    pub fn cluster(&self, namespace: &str, name: &str) -> PathBuf {
        self.root().join("clusters").join(namespace).join(name)
    }

    /// Where the files of a cluster that was moved to another API stay, for people.
    pub fn moved(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.root()
            .join("moved")
            .join(namespace)
            .join(format!("{name}-{uid}"))
    }
}
