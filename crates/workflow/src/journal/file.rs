//! A journal in a file: one JSON object a line, each with a checksum chained to the one before.
//!
//! The last line may be torn by a crash in the middle of the write; it was never acted on, and is cut off. Anything else
//! that is not as it was written is an error: guessing there could execute a step twice.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use api::run::Record;
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
    /// last line is removed.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path);
        let file = file.map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Held(path)),
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(directory.unwrap_or(Path::new(".")));
        directory
            .and_then(|directory| directory.sync_all())
            .map_err(failed("keep", &path))?;
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
        let json = serde_json::to_string(record).map_err(JournalError::Encode)?;
        let checksum = chained(&self.checksum, &json);
        let line = format!("{HEAD}{checksum}{MIDDLE}{json}}}\n");
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
        if record.sequence as usize != index + 1 {
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
    use api::run::RecordEvent;

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
}
