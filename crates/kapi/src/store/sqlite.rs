//! SQLite: one file, write-ahead log, synced at every commit.

use std::{path::Path, sync::Arc};

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use super::{
    Edge,
    backend::{Backend, BackendError, Batch, Loaded, Record},
    seal::Sealer,
};

pub(crate) struct Sqlite {
    connection: Connection,
    sealer: Sealer,
    /// Commits since the log was trimmed.
    untrimmed: u32,
}

impl Sqlite {
    /// Opens or makes the database and the key of its Secrets. A file that is no sound database is left as it is.
    pub fn open(path: &Path, key: &Path) -> Result<Self, BackendError> {
        let unreadable = |reason: String| BackendError::Unreadable {
            path: path.to_path_buf(),
            reason,
        };
        let connection = Connection::open(path).map_err(|e| unreadable(e.to_string()))?;
        let fresh = !has_revision(&connection).map_err(|error| unreadable(error.to_string()))?;
        // The first commit comes before the key, so a key without it means that the file was cut off or that its
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
            untrimmed: 0,
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
        let bytes = if sealed(&kind) {
            self.sealer
                .unseal(&place(&kind, &namespace, &name), &data)?
        } else {
            data
        };
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
            bytes: bytes.into(),
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

    fn number(&self, query: &str) -> Result<Option<u64>, BackendError> {
        let found: Option<Option<i64>> = self
            .connection
            .query_row(query, [], |row| row.get(0))
            .optional()
            .map_err(failed)?;
        Ok(found
            .flatten()
            .and_then(|number| u64::try_from(number).ok()))
    }
}

impl Backend for Sqlite {
    fn load(&mut self) -> Result<Loaded, BackendError> {
        let revision = self
            .number("SELECT value FROM meta WHERE name = 'revision'")?
            .unwrap_or(1);
        let floor = self
            .number("SELECT min(revision) FROM log")?
            .map_or(revision, |first| first.saturating_sub(1));
        Ok(Loaded {
            revision,
            floor,
            objects: self.records("SELECT kind, namespace, name, revision, 0, data FROM obj")?,
            log: self.records(
                "SELECT kind, namespace, name, revision, edge, data FROM log ORDER BY revision",
            )?,
        })
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), BackendError> {
        let transaction = self.connection.transaction().map_err(failed)?;
        {
            let mut put = transaction
                .prepare_cached(
                    "INSERT INTO obj (kind, namespace, name, revision, data) VALUES (?, ?, ?, ?, ?) \
                     ON CONFLICT (kind, namespace, name) DO UPDATE SET revision = excluded.revision, data = excluded.data",
                )
                .map_err(failed)?;
            let mut remove = transaction
                .prepare_cached("DELETE FROM obj WHERE kind = ? AND namespace = ? AND name = ?")
                .map_err(failed)?;
            let mut log = transaction
                .prepare_cached(
                    "INSERT INTO log (revision, kind, namespace, name, edge, data) VALUES (?, ?, ?, ?, ?, ?)",
                )
                .map_err(failed)?;
            for record in &batch.records {
                let sealed_bytes;
                let data: &[u8] = if sealed(&record.kind) {
                    let place = place(&record.kind, &record.namespace, &record.name);
                    sealed_bytes = self.sealer.seal(&place, &record.bytes)?;
                    &sealed_bytes
                } else {
                    &record.bytes
                };
                let (kind, namespace, name) = (&*record.kind, &*record.namespace, &*record.name);
                let revision = signed(record.revision);
                let edge = match record.edge {
                    Edge::Added => 0,
                    Edge::Modified => 1,
                    Edge::Deleted => 2,
                };
                if record.edge == Edge::Deleted {
                    remove.execute(params![kind, namespace, name])
                } else {
                    put.execute(params![kind, namespace, name, revision, data])
                }
                .and_then(|_| log.execute(params![revision, kind, namespace, name, edge, data]))
                .map_err(failed)?;
            }
            transaction
                .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('revision', ?)")
                .and_then(|mut meta| meta.execute([signed(batch.revision)]))
                .map_err(failed)?;
            self.untrimmed += 1;
            if self.untrimmed >= TRIM_EVERY {
                self.untrimmed = 0;
                transaction
                    .execute(
                        "DELETE FROM log WHERE revision <= ?",
                        [signed(batch.revision.saturating_sub(LOG_EVENTS))],
                    )
                    .map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }
}

/// Whether anything was ever committed. Reads only.
fn has_revision(connection: &Connection) -> rusqlite::Result<bool> {
    let tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'meta'";
    let made: i64 = connection.query_row(tables, [], |row| row.get(0))?;
    if made == 0 {
        return Ok(false);
    }
    let revision = "SELECT count(*) FROM meta WHERE name = 'revision'";
    connection
        .query_row(revision, [], |row| row.get::<_, i64>(0))
        .map(|rows| rows > 0)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        "BEGIN; CREATE TABLE IF NOT EXISTS obj (kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, \
         revision INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (kind, namespace, name)); \
         CREATE TABLE IF NOT EXISTS log (revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, \
         name TEXT NOT NULL, edge INTEGER NOT NULL, data BLOB NOT NULL); \
         CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL); \
         INSERT OR IGNORE INTO meta (name, value) VALUES ('revision', 1); COMMIT;",
    )
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
