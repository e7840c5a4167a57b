//! Where committed writes go: two methods, so that the engine can be changed.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use super::{Edge, Key, packed::Packed};

/// A durable place for objects. Called by one thread at a time.
pub(crate) trait Backend: Send {
    /// Everything that was committed.
    fn load(&mut self) -> Result<Loaded, BackendError>;

    /// Makes the batch durable, all of it or nothing.
    fn commit(&mut self, batch: &Batch) -> Result<(), BackendError>;
}

/// One version of one object.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub revision: u64,
    pub edge: Edge,
    /// The revision of the version before, which this one makes superfluous.
    pub replaces: Option<u64>,
    pub object: Packed,
}

/// Writes that become durable together, in order of revision.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The revision of the last record.
    pub revision: u64,
    pub records: Vec<Record>,
}

/// What a backend holds.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub revision: u64,
    /// The revision after which every revision is in the history.
    pub floor: u64,
    /// The last version of each object, and all since `floor`, in order of revision.
    pub history: Vec<Record>,
    pub superseded: Vec<Superseded>,
}

impl Loaded {
    /// Nothing yet. The first revision is 1, because clients take 0 for "any".
    pub fn empty() -> Self {
        Self {
            revision: 1,
            floor: 1,
            history: Vec::new(),
            superseded: Vec::new(),
        }
    }

    /// Finds out what was replaced by what, from records in order of revision.
    pub fn replay(mut history: Vec<Record>) -> Self {
        let Some(last) = history.last() else {
            return Self::empty();
        };
        let revision = last.revision;
        // Every revision is one record, so the first gap from the end is where trimming has been.
        let floor = history
            .iter()
            .rev()
            .zip((0..=revision).rev())
            .take_while(|(record, expected)| record.revision == *expected)
            .last()
            .map_or(revision, |(_, first)| first.saturating_sub(1));
        let mut latest: HashMap<(Arc<str>, Key), u64> = HashMap::new();
        for record in &mut history {
            let key = Key {
                namespace: record.namespace.clone(),
                name: record.name.clone(),
            };
            let place = (record.kind.clone(), key);
            record.replaces = if record.edge == Edge::Deleted {
                latest.remove(&place)
            } else {
                latest.insert(place, record.revision)
            };
        }
        let superseded = history.iter().flat_map(Superseded::by).collect();
        Self {
            revision,
            floor,
            history,
            superseded,
        }
    }
}

/// A version that is only kept for watches from before it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub revision: u64,
    /// The revision that replaced it; a deletion is superfluous from its own on.
    pub since: u64,
}

impl Superseded {
    /// What a record makes superfluous.
    pub fn by(record: &Record) -> impl Iterator<Item = Self> + use<> {
        let since = record.revision;
        let itself = (record.edge == Edge::Deleted).then_some(since);
        record
            .replaces
            .into_iter()
            .chain(itself)
            .map(move |revision| Self { revision, since })
    }
}

/// Why a backend cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error("the disk is full")]
    Full,
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Corrupt(String),
    #[error("{} cannot be read as a database ({reason}): restore it from a backup, or move it away to start anew", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} holds no valid key ({reason}): without it the Secrets in the database cannot be read; restore the file", path.display())]
    Key { path: PathBuf, reason: String },
}

/// Forgets everything when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Memory;

impl Backend for Memory {
    fn load(&mut self) -> Result<Loaded, BackendError> {
        Ok(Loaded::empty())
    }

    fn commit(&mut self, _: &Batch) -> Result<(), BackendError> {
        Ok(())
    }
}
