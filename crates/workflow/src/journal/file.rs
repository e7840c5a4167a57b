//! A journal in a file: one JSON object a line, each with a checksum chained to the one before.
//!
//! The last line may be torn by a crash in the middle of the write; it was never acted on, and is cut off. Anything else
//! that is not as it was written is an error: guessing there could execute a step twice.
//!
//! A journal that is compacted is written to a file beside it, which takes its name when it is whole. The lock is of the
//! file, not of the name, so whoever opened the name before looks again once it has the lock.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use api::run::{Record, RecordEvent};
use sha2::{Digest, Sha256};

use super::{JournalError, JournalStore};

const HEAD: &str = r#"{"checksum":""#;
const MIDDLE: &str = r#"","record":"#;
/// Bytes of SHA-256 that are kept: this guards against accidents, not against forgery.
const CHECKSUM_BYTES: usize = 8;

/// The journal of one run, held by one runner at a time.
#[derive(Debug)]
pub struct FileJournal {
    path: PathBuf,
    file: File,
    length: u64,
    checksum: String,
    broken: bool,
}

impl FileJournal {
    /// Opens or makes the file and locks it for as long as this value lives; the lock ends with the process too. A torn
    /// last line is removed, and what a compaction left that did not end.
    ///
    /// # Errors
    ///
    /// Another runner holds the file, it cannot be read or written, or a line but the last is not what was written.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        let file = locked(&path)?;
        match std::fs::remove_file(beside(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("clean up beside", &path)(error));
            }
            _ => {}
        }
        keep_name(&path).map_err(failed("keep", &path))?;
        let (length, checksum, broken) = (0, String::new(), false);
        let mut journal = Self {
            path,
            file,
            length,
            checksum,
            broken,
        };
        journal.load()?;
        Ok(journal)
    }

    /// The records of a journal that another process may be writing; nothing is locked or repaired.
    ///
    /// # Errors
    ///
    /// The file is not there or cannot be read, or a line but the last is not what was written.
    pub fn read(path: &Path) -> Result<Vec<Record>, JournalError> {
        let bytes = std::fs::read(path).map_err(failed("read", path))?;
        Ok(parse(path, &bytes)?.records)
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }
}

impl JournalStore for FileJournal {
    fn load(&mut self) -> Result<Vec<Record>, JournalError> {
        let mut bytes = Vec::new();
        let read = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.read_to_end(&mut bytes));
        read.map_err(failed("read", &self.path))?;
        let parsed = parse(&self.path, &bytes)?;
        if parsed.length < bytes.len() as u64 {
            let cut = self
                .file
                .set_len(parsed.length)
                .and_then(|()| self.file.sync_all());
            cut.map_err(failed("repair", &self.path))?;
            tracing::warn!(path = %self.path.display(), "removed the torn last line of the journal");
        }
        self.length = parsed.length;
        self.checksum = parsed.checksum;
        Ok(parsed.records)
    }

    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        if self.broken {
            return Err(JournalError::Broken(self.path.clone()));
        }
        let (line, checksum) = line(&self.checksum, record)?;
        if let Err(source) = self.write(&line) {
            self.broken = true;
            // Best effort: what is left of the line is torn, and is cut off at the next start.
            let _ = self.file.set_len(self.length);
            return Err(failed("append to", &self.path)(source));
        }
        self.length += line.len() as u64;
        self.checksum = checksum;
        Ok(())
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if self.broken {
            return Err(JournalError::Broken(self.path.clone()));
        }
        let (mut lines, mut checksum) = (String::new(), String::new());
        for record in records {
            let (next, chained) = line(&checksum, record)?;
            lines.push_str(&next);
            checksum = chained;
        }
        let new = beside(&self.path);
        let file = write_locked(&new, &lines).inspect_err(|_| {
            // Best effort: the next opening removes it too.
            let _ = std::fs::remove_file(&new);
        });
        let file = file.map_err(failed("write beside", &self.path))?;
        std::fs::rename(&new, &self.path).map_err(failed("compact", &self.path))?;
        self.file = file;
        self.length = lines.len() as u64;
        self.checksum = checksum;
        keep_name(&self.path).map_err(|source| {
            // A crash could bring the former file back, without what would be appended now.
            self.broken = true;
            failed("keep", &self.path)(source)
        })
    }
}

/// The file of that name, locked.
fn locked(path: &Path) -> Result<File, JournalError> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path);
        let file = file.map_err(failed("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Held(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed("lock", path)(source)),
        }
        // Otherwise its holder compacted it, or put it aside, between the opening and the lock.
        if is_named(&file, path).map_err(failed("look at", path))? {
            return Ok(file);
        }
    }
}

/// Whether it is this file that has the name.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let file = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((file.dev(), file.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where a compacted journal is written before it takes the name.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("compacted")
}

/// A new file with this content, locked before it can be found.
fn write_locked(path: &Path, content: &str) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .open(path)?;
    file.try_lock()?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    Ok(file)
}

/// Sees to it that the name of a file survives a crash.
fn keep_name(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// A record as a line that follows this checksum, and its own checksum.
fn line(previous: &str, record: &Record) -> Result<(String, String), JournalError> {
    let json = serde_json::to_string(record).map_err(JournalError::Encode)?;
    let checksum = chained(previous, &json);
    Ok((format!("{HEAD}{checksum}{MIDDLE}{json}}}\n"), checksum))
}

struct Parsed {
    records: Vec<Record>,
    length: u64,
    checksum: String,
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Parsed, JournalError> {
    let mut parsed = Parsed {
        records: Vec::new(),
        length: 0,
        checksum: String::new(),
    };
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let last = parsed.length + line.len() as u64 == bytes.len() as u64;
        // A block that a crash kept from the disk reads as zeros, even when the end of the line made it.
        if !line.ends_with(b"\n") || (last && line.contains(&0)) {
            break;
        }
        let corrupt = |reason: &str| JournalError::Corrupt {
            path: path.to_owned(),
            line: index + 1,
            reason: reason.to_owned(),
        };
        let text = str::from_utf8(line).map_err(|_| corrupt("it is not UTF-8"))?;
        let (checksum, json) = fields(text).ok_or_else(|| corrupt("it is no journal record"))?;
        if checksum != chained(&parsed.checksum, json) {
            return Err(corrupt(
                "its checksum is wrong, or a line before it is missing",
            ));
        }
        let record: Record =
            serde_json::from_str(json).map_err(|error| corrupt(&error.to_string()))?;
        let follows = match parsed.records.last() {
            Some(before) => before.sequence.checked_add(1) == Some(record.sequence),
            None => record.sequence == 1 || record.event == RecordEvent::Checkpoint,
        };
        if !follows {
            return Err(corrupt("its number does not follow"));
        }
        parsed.records.push(record);
        parsed.length += line.len() as u64;
        checksum.clone_into(&mut parsed.checksum);
    }
    Ok(parsed)
}

fn fields(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix(HEAD)?.strip_suffix("}\n")?;
    rest.split_once(MIDDLE)
}

fn chained(previous: &str, json: &str) -> String {
    let digest = Sha256::new()
        .chain_update(previous)
        .chain_update(json)
        .finalize();
    hex::encode(digest.get(..CHECKSUM_BYTES).unwrap_or(&digest))
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        control::record,
        journal::{MergeError, merge},
    };

    fn numbered(sequence: u32) -> Record {
        Record {
            sequence,
            ..record(RecordEvent::RequestRefused)
        }
    }

    fn written(path: &Path, count: u32) -> Vec<Record> {
        let mut journal = FileJournal::open(path).unwrap();
        (1..=count).for_each(|sequence| journal.append(&numbered(sequence)).unwrap());
        journal.load().unwrap()
    }

    #[test]
    fn a_journal_torn_at_any_byte_keeps_its_whole_lines_and_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.jsonl");
        written(&path, 3);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let lines = u32::try_from(whole[..length].split(|b| *b == b'\n').count() - 1).unwrap();
            let mut journal = FileJournal::open(&path).unwrap();
            assert_eq!(
                journal.load().unwrap(),
                (1..=lines).map(numbered).collect::<Vec<_>>()
            );
            journal.append(&numbered(lines + 1)).unwrap();
            assert_eq!(FileJournal::read(&path).unwrap().len(), lines as usize + 1);
        }
    }

    #[test]
    fn corruption_before_the_end_names_file_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.jsonl");
        written(&path, 3);
        let whole = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        let flipped = whole.replacen("\"sequence\":2", "\"sequence\":7", 1);
        for (text, line) in [
            (flipped, 2),
            (format!("{}{}", lines[0], lines[2]), 2),
            (format!("x\n{whole}"), 1),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = FileJournal::open(&path).unwrap_err();
            assert!(
                matches!(&error, JournalError::Corrupt { path: p, line: l, .. } if *p == path && *l == line),
                "{error}"
            );
        }
    }

    fn checkpoint(sequence: u32) -> Record {
        Record {
            sequence,
            checkpoint: Some(Box::default()),
            ..record(RecordEvent::Checkpoint)
        }
    }

    /// A compaction writes beside the journal and then takes its name: a crash leaves the one or the other.
    #[test]
    fn a_compaction_that_is_killed_at_any_byte_leaves_the_former_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.jsonl");
        let former = written(&path, 3);
        let compacted = [checkpoint(2), numbered(3)];
        let other = directory.path().join("other.jsonl");
        let mut journal = FileJournal::open(&other).unwrap();
        journal.replace(&compacted).unwrap();
        let whole = std::fs::read(&other).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(beside(&path), &whole[..length]).unwrap();
            let mut journal = FileJournal::open(&path).unwrap();
            assert_eq!(journal.load().unwrap(), former);
            assert!(!beside(&path).exists());
        }
        // Killed when it had the name: the compacted one, which goes on.
        drop(journal);
        std::fs::rename(&other, &path).unwrap();
        let mut journal = FileJournal::open(&path).unwrap();
        assert_eq!(journal.load().unwrap(), compacted);
        journal.append(&numbered(4)).unwrap();
        drop(journal);
        let read = FileJournal::read(&path).unwrap();
        assert_eq!(read, [checkpoint(2), numbered(3), numbered(4)]);
    }

    #[test]
    fn a_compacted_journal_is_held_as_before_and_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.jsonl");
        written(&path, 3);
        let mut journal = FileJournal::open(&path).unwrap();
        for end in 4..8 {
            journal.append(&numbered(end)).unwrap();
            journal
                .replace(&[checkpoint(end - 1), numbered(end)])
                .unwrap();
            assert!(matches!(
                FileJournal::open(&path),
                Err(JournalError::Held(_))
            ));
            assert_eq!(journal.load().unwrap().len(), 2);
        }
        // What cannot be written leaves the journal as it is.
        std::fs::create_dir(beside(&path)).unwrap();
        journal.replace(&[checkpoint(7)]).unwrap_err();
        journal.append(&numbered(8)).unwrap();
        assert_eq!(FileJournal::read(&path).unwrap().len(), 3);
    }

    /// One that has opened the file just before it lost its name must not take the lock for that of the journal.
    #[test]
    fn the_lock_of_a_file_that_lost_its_name_is_not_that_of_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.jsonl");
        let former = directory.path().join("former");
        written(&path, 2);
        std::fs::rename(&path, &former).unwrap();
        let stale = locked(&former).unwrap();
        assert!(is_named(&stale, &former).unwrap());
        assert!(!is_named(&stale, &path).unwrap(), "nothing has the name");
        written(&path, 1);
        assert!(
            !is_named(&stale, &path).unwrap(),
            "another one has the name"
        );
    }

    #[test]
    fn two_runners_never_hold_one_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.jsonl");
        let first = FileJournal::open(&path).unwrap();
        assert!(matches!(
            FileJournal::open(&path),
            Err(JournalError::Held(_))
        ));
        drop(first);
        assert!(FileJournal::open(&path).is_ok());
    }

    #[test]
    fn the_longer_of_two_histories_wins_if_they_agree() {
        let records =
            |range: std::ops::RangeInclusive<u32>| range.map(numbered).collect::<Vec<_>>();
        let other = Record {
            step: Some("a".into()),
            ..numbered(2)
        };
        assert_eq!(merge(&records(1..=2), &records(1..=4)), Ok(records(1..=4)));
        assert_eq!(merge(&records(1..=4), &records(1..=2)), Ok(records(1..=4)));
        assert_eq!(merge(&records(1..=4), &records(3..=5)), Ok(records(1..=5)));
        assert_eq!(
            merge(&records(1..=3), &[other]),
            Err(MergeError::Diverged(2))
        );
        assert_eq!(
            merge(&records(1..=2), &records(4..=5)),
            Err(MergeError::Gap { from: 3, to: 3 })
        );
    }

    #[test]
    fn a_history_that_begins_with_a_checkpoint_fills_any_gap() {
        let records =
            |range: std::ops::RangeInclusive<u32>| range.map(numbered).collect::<Vec<_>>();
        let short = |at, to| [vec![checkpoint(at)], records(at + 1..=to)].concat();
        // The journal is lost, or ends before the checkpoint of the copy.
        assert_eq!(merge(&[], &short(8, 9)), Ok(short(8, 9)));
        assert_eq!(merge(&records(1..=3), &short(8, 9)), Ok(short(8, 9)));
        assert_eq!(merge(&records(1..=3), &short(4, 5)), Ok(short(4, 5)));
        // The journal is the longer one, compacted or not.
        assert_eq!(merge(&short(8, 9), &records(1..=8)), Ok(short(8, 9)));
        assert_eq!(merge(&records(1..=9), &short(6, 7)), Ok(records(1..=9)));
        // The copy is the longer one.
        assert_eq!(merge(&short(8, 9), &short(5, 11)), Ok(short(8, 11)));
        assert_eq!(merge(&records(1..=9), &short(6, 10)), Ok(records(1..=10)));
        let other = Record {
            step: Some("a".into()),
            ..numbered(9)
        };
        assert_eq!(
            merge(&short(8, 9), &[checkpoint(7), numbered(8), other]),
            Err(MergeError::Diverged(9))
        );
    }
}
