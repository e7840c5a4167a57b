//! SQLite: one file, write-ahead log, synced at every commit.
//!
//! One table that is only appended to: every revision is a row, and the state is the last row of each object. So a
//! write costs one row without an index, about half of what a table of objects beside a log of events costs. Rows that
//! were replaced and that no watch may ask for any more are deleted in passing.

use std::{collections::VecDeque, path::Path, sync::Arc};

use rusqlite::{Connection, ErrorCode, Row, params};

use super::{
    Edge,
    backend::{Backend, BackendError, Batch, Loaded, Record, Superseded},
    packed::Packed,
    seal::Sealer,
};

/// The tables were never made.
const NO_FORMAT: i64 = 0;

/// Counts up when what is written cannot be read by an older version: since 2, objects are compressed.
const FORMAT: i64 = 2;

pub(crate) struct Sqlite {
    connection: Connection,
    sealer: Sealer,
    /// Versions that were replaced, oldest first.
    superseded: VecDeque<Superseded>,
    commits_since_trim: u32,
}

impl Sqlite {
    /// Opens or makes the database and the key of its Secrets. A file that is no sound database is left as it is.
    pub fn open(path: &Path, key: &Path) -> Result<Self, BackendError> {
        let unreadable = |reason: String| BackendError::Unreadable {
            path: path.to_path_buf(),
            reason,
        };
        let connection = Connection::open(path).map_err(|e| unreadable(e.to_string()))?;
        let format = format_of(&connection).map_err(|error| unreadable(error.to_string()))?;
        if !(NO_FORMAT..=FORMAT).contains(&format) {
            return Err(unreadable(format!(
                "its format is {format} and this windlass knows {FORMAT}: use the windlass that wrote it"
            )));
        }
        let fresh = format == NO_FORMAT;
        // The tables come before the key, so a key without it means that the file was cut off or that its
        // write-ahead log is gone. SQLite itself takes a file of less than a page for an empty database.
        if fresh && key.exists() {
            return Err(unreadable(
                "it holds nothing, though its key is there".into(),
            ));
        }
        prepare(&connection).map_err(|error| unreadable(error.to_string()))?;
        let health: String = connection
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|error| unreadable(error.to_string()))?;
        if health != "ok" {
            return Err(unreadable(health));
        }
        restrict(path).map_err(|error| unreadable(error.to_string()))?;
        Ok(Self {
            connection,
            sealer: Sealer::open(key, fresh)?,
            superseded: VecDeque::new(),
            commits_since_trim: 0,
        })
    }

    fn record(&self, row: &Row<'_>) -> Result<Record, BackendError> {
        let read = || -> rusqlite::Result<_> {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, i64>(3)?,
                row.get::<_, i64>(4)?,
                row.get::<_, Vec<u8>>(5)?,
            ))
        };
        let (kind, namespace, name, revision, edge, data) = read().map_err(failed)?;
        let place = place(&kind, &namespace, &name);
        let bytes = if sealed(&kind) {
            self.sealer.unseal(&place, &data)?
        } else {
            data
        };
        let object = Packed::stored(&bytes)
            .map_err(|error| BackendError::Corrupt(format!("{place}: {error}")))?;
        Ok(Record {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            revision: u64::try_from(revision).unwrap_or_default(),
            edge: match edge {
                0 => Edge::Added,
                1 => Edge::Modified,
                _ => Edge::Deleted,
            },
            replaces: None,
            object,
        })
    }

    fn records(&self, query: &str) -> Result<Vec<Record>, BackendError> {
        let mut statement = self.connection.prepare(query).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut records = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            records.push(self.record(row)?);
        }
        Ok(records)
    }
}

impl Sqlite {
    fn run(&self, statement: &str) -> Result<(), BackendError> {
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        statement.execute([]).map(drop).map_err(failed)
    }

    /// Does the work of a transaction that has begun. Returns how many superseded versions are gone.
    fn write(&self, batch: &Batch) -> Result<usize, BackendError> {
        let mut put = self
            .connection
            .prepare_cached(
                "INSERT INTO history (revision, kind, namespace, name, edge, data) VALUES (?, ?, ?, ?, ?, ?)",
            )
            .map_err(failed)?;
        for record in &batch.records {
            let sealed_bytes;
            let data: &[u8] = if sealed(&record.kind) {
                let place = place(&record.kind, &record.namespace, &record.name);
                sealed_bytes = self.sealer.seal(&place, record.object.as_bytes())?;
                &sealed_bytes
            } else {
                record.object.as_bytes()
            };
            let (kind, namespace, name) = (&*record.kind, &*record.namespace, &*record.name);
            let (revision, edge) = (signed(record.revision), number_of(record.edge));
            put.execute(params![revision, kind, namespace, name, edge, data])
                .map_err(failed)?;
        }
        let trimmed = if self.commits_since_trim + 1 >= TRIM_EVERY {
            self.trim(batch.revision)?
        } else {
            0
        };
        self.run("COMMIT")?;
        Ok(trimmed)
    }

    /// Deletes the versions that no watch may ask for any more. Returns how many entries of the queue are done with.
    fn trim(&self, revision: u64) -> Result<usize, BackendError> {
        let oldest = revision.saturating_sub(LOG_EVENTS);
        let mut delete = self
            .connection
            .prepare_cached("DELETE FROM history WHERE revision = ?")
            .map_err(failed)?;
        let mut done = 0;
        let old = |entry: &&Superseded| entry.since <= oldest;
        for entry in self.superseded.iter().take_while(old) {
            delete.execute([signed(entry.revision)]).map_err(failed)?;
            done += 1;
        }
        Ok(done)
    }
}

impl Backend for Sqlite {
    fn load(&mut self) -> Result<Loaded, BackendError> {
        let records = self.records(
            "SELECT kind, namespace, name, revision, edge, data FROM history ORDER BY revision",
        )?;
        let loaded = Loaded::replay(records);
        self.superseded = loaded.superseded.clone().into();
        Ok(loaded)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), BackendError> {
        self.run("BEGIN")?;
        let trimmed = match self.write(batch) {
            Ok(trimmed) => trimmed,
            Err(error) => {
                // Some errors have rolled it back already.
                let _ = self.run("ROLLBACK");
                return Err(error);
            }
        };
        self.superseded.drain(..trimmed);
        self.superseded
            .extend(batch.records.iter().flat_map(Superseded::by));
        self.commits_since_trim = (self.commits_since_trim + 1) % TRIM_EVERY;
        Ok(())
    }
}

/// How the tables are laid out. Reads only.
fn format_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    // Nobody else may write here in any case, and then no commit has to ask for locks.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(&format!(
        "BEGIN; CREATE TABLE IF NOT EXISTS history (revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, \
         namespace TEXT NOT NULL, name TEXT NOT NULL, edge INTEGER NOT NULL, data BLOB NOT NULL); \
         PRAGMA user_version = {FORMAT}; COMMIT;"
    ))
}

fn restrict(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

fn sealed(kind: &str) -> bool {
    kind == "secrets"
}

fn place(kind: &str, namespace: &str, name: &str) -> Arc<str> {
    format!("{kind}/{namespace}/{name}").into()
}

fn number_of(edge: Edge) -> i64 {
    match edge {
        Edge::Added => 0,
        Edge::Modified => 1,
        Edge::Deleted => 2,
    }
}

fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[expect(clippy::needless_pass_by_value, reason = "shaped for map_err")]
fn failed(error: rusqlite::Error) -> BackendError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => BackendError::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            BackendError::Corrupt(error.to_string())
        }
        _ => BackendError::Failed(error.to_string()),
    }
}

/// Events kept on disk, so that a watch goes on after a restart.
const LOG_EVENTS: u64 = 4096;
/// Commits between two trimmings of the log.
const TRIM_EVERY: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(records: impl Iterator<Item = (u64, &'static str, Edge, Option<u64>)>) -> Batch {
        let records: Vec<Record> = records
            .map(|(revision, name, edge, replaces)| Record {
                kind: "configmaps".into(),
                namespace: "default".into(),
                name: name.into(),
                revision,
                edge,
                replaces,
                object: Packed::stored(b"{}").unwrap(),
            })
            .collect();
        Batch {
            revision: records.last().unwrap().revision,
            records,
        }
    }

    /// Of thousands of versions only those are kept that are the last of their object, or that a watch may ask for.
    #[test]
    fn what_no_watch_may_ask_for_is_trimmed() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let path = |name| directory.path().join(name);
            Sqlite::open(&path("state.db"), &path("secrets.key")).unwrap()
        };
        let mut backend = open();
        assert_eq!(backend.load().unwrap().revision, 1);
        let first = [
            (2, "kept", Edge::Added, None),
            (3, "gone", Edge::Added, None),
            (4, "gone", Edge::Deleted, Some(3)),
            (5, "busy", Edge::Added, None),
        ];
        backend.commit(&batch(first.into_iter())).unwrap();
        let mut revision = 5;
        let mut write = |backend: &mut Sqlite, commits: u32| {
            for _ in 0..commits {
                let versions = (revision + 1..=revision + 32)
                    .map(|revision| (revision, "busy", Edge::Modified, Some(revision - 1)));
                backend.commit(&batch(versions)).unwrap();
                revision += 32;
            }
            revision
        };
        // Half before and half after a restart, which has to find out again what was replaced.
        write(&mut backend, TRIM_EVERY / 2);
        drop(backend);
        let mut backend = open();
        backend.load().unwrap();
        let last = write(&mut backend, TRIM_EVERY);
        drop(backend);

        let loaded = open().load().unwrap();
        assert_eq!(loaded.revision, last);
        assert!(loaded.floor <= last - LOG_EVENTS, "{}", loaded.floor);
        assert!(loaded.floor > 5, "{}", loaded.floor);
        let old: Vec<(u64, &str)> = loaded
            .history
            .iter()
            .filter(|record| record.revision <= loaded.floor)
            .map(|record| (record.revision, &*record.name))
            .collect();
        assert_eq!(old, [(2, "kept")]);
        let since = u64::try_from(loaded.history.len() - old.len()).unwrap();
        assert_eq!(since, last - loaded.floor, "no gap since the floor");
    }

    #[test]
    fn a_commit_that_does_not_fit_is_undone_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let mut backend = Sqlite::open(&path("state.db"), &path("secrets.key")).unwrap();
        backend.load().unwrap();
        let pages = |backend: &Sqlite, most: u32| {
            let set = |_: &Row<'_>| Ok(());
            let pragma = format!("PRAGMA max_page_count = {most}");
            backend.connection.query_row(&pragma, [], set).unwrap();
        };
        let versions = |from: u64, to: u64| {
            batch((from..=to).map(|revision| (revision, "one", Edge::Modified, None)))
        };
        pages(&backend, 4);
        let error = backend.commit(&versions(2, 2000)).unwrap_err();
        assert!(matches!(error, BackendError::Full), "{error}");
        pages(&backend, 1000);
        backend.commit(&versions(2, 3)).unwrap();
        assert_eq!(backend.load().unwrap().revision, 3);
    }
}
