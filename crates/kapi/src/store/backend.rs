//! Where committed writes go: two methods, so that the engine can be changed.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;

use super::Edge;

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
    pub bytes: Bytes,
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
    /// The revision after which the log is complete.
    pub floor: u64,
    pub objects: Vec<Record>,
    /// Events in order of revision.
    pub log: Vec<Record>,
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
        Ok(Loaded {
            revision: 1,
            floor: 1,
            objects: Vec::new(),
            log: Vec::new(),
        })
    }

    fn commit(&mut self, _: &Batch) -> Result<(), BackendError> {
        Ok(())
    }
}
