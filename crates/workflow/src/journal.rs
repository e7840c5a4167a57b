//! The journal: the append-only list of what happened, from which everything else is derived.
//!
//! Appending is synchronous on purpose. A record is one short write and one `fsync`, and code that cannot be cancelled
//! half-way is what makes "in the journal, then acted on" hold when a future is dropped.

mod file;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use api::run::{Record, RecordEvent};

pub use file::FileJournal;

/// Where the records of one run are kept.
pub trait JournalStore: Send {
    /// All records, oldest first.
    ///
    /// # Errors
    ///
    /// The records cannot be read, or are not what was written. That there are none is no error.
    fn load(&mut self) -> Result<Vec<Record>, JournalError>;

    /// Adds one record. When this returns, it survives a crash.
    ///
    /// # Errors
    ///
    /// The record cannot be kept, and nothing can be said of the end of the journal: an implementation may refuse all that
    /// follow.
    fn append(&mut self, record: &Record) -> Result<(), JournalError>;

    /// Puts these records in place of all others: a crash leaves the ones or the others, and never a mixture.
    ///
    /// # Errors
    ///
    /// The former records still stand, and more can be appended to them as long as [`JournalStore::append`] does not refuse.
    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError>;
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another runner holds it.
    #[error("open journal {}: another runner works on this run", .0.display())]
    Held(PathBuf),
    /// The file system refused.
    #[error("{operation} journal {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line is not what was written.
    #[error("read journal {} line {line}: {reason}; restore the file, or remove it to start the run over", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A record cannot be written as JSON.
    #[error("write a record as JSON")]
    Encode(#[source] serde_json::Error),
    /// An earlier append failed, so that the end of the file is not known.
    #[error("append to journal {}: an earlier append failed", .0.display())]
    Broken(PathBuf),
    /// The store refused, for a reason of its own.
    #[error("append to the journal: {0}")]
    Refused(String),
}

/// Two histories of one run that tell different stories.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// They differ.
    #[error("the journal on this machine and the Run's history differ at record {0}")]
    Diverged(u32),
    /// Records between them are lost.
    #[error(
        "records {from} to {to} are neither in the journal on this machine nor in the Run's history"
    )]
    Gap {
        /// The first lost record.
        from: u32,
        /// The last one.
        to: u32,
    },
}

/// Reconciles the journal with the copy in the Run's status: where both have a record it must be the same, and the
/// longer one wins. Either may begin with a checkpoint in place of its oldest records.
///
/// # Errors
///
/// They tell different stories of one record, or records between them are lost.
pub fn merge(local: &[Record], remote: &[Record]) -> Result<Vec<Record>, MergeError> {
    let end = local.last().map_or(0, |record| record.sequence);
    let known: HashMap<_, _> = local.iter().map(|known| (known.sequence, known)).collect();
    let differs = |record: &&Record| {
        let known = known.get(&record.sequence);
        // A checkpoint stands for its record without telling of it.
        known.is_some_and(|known| {
            !is_checkpoint(known) && !is_checkpoint(record) && !is_same(known, record)
        })
    };
    if let Some(record) = remote.iter().find(differs) {
        return Err(MergeError::Diverged(record.sequence));
    }
    let news = remote.iter().position(|record| record.sequence > end);
    let news = news.and_then(|at| remote.get(at..)).unwrap_or_default();
    let next = end.saturating_add(1);
    match news.first() {
        Some(first) if is_checkpoint(first) => Ok(remote.to_vec()),
        Some(first) if first.sequence > next => Err(MergeError::Gap {
            from: next,
            to: first.sequence - 1,
        }),
        _ => Ok([local, news].concat()),
    }
}

fn is_checkpoint(record: &Record) -> bool {
    record.event == RecordEvent::Checkpoint
}

/// Whether two records are one. A copy may say less, where the API took no more.
fn is_same(one: &Record, other: &Record) -> bool {
    let what = |record: &Record| {
        let Record {
            sequence,
            time,
            event,
            step,
            attempt,
            ..
        } = record.clone();
        (sequence, time, event, step, attempt)
    };
    what(one) == what(other)
}

/// A journal in memory: of what is kept elsewhere, for tests and dry runs. Its clones share the records, as runners of one machine share a file.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal(Arc<Mutex<Vec<Record>>>);

impl MemoryJournal {
    /// What was appended.
    pub fn records(&self) -> Vec<Record> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl JournalStore for MemoryJournal {
    fn load(&mut self) -> Result<Vec<Record>, JournalError> {
        Ok(self.records())
    }

    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(record.clone());
        Ok(())
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = records.to_vec();
        Ok(())
    }
}
