//! Reads a bundle, which anybody may have sent: nothing is unpacked to a disk, and everything has a bound.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use api::{Run, run::Record};
use flate2::read::GzDecoder;

use super::{END, FORMAT, JOURNAL, MANIFEST, Manifest, RUN, digest};
use crate::{
    explain::Kept,
    runner::{EVENTS, FORMER_EVENTS},
};

/// What all entries may take together, in bytes.
const MOST: u64 = 512 * 1024 * 1024;
/// The longest manifest.
const MANIFEST_LIMIT: u64 = 4 * 1024 * 1024;

/// What is parsed takes many times its length: an API stores no longer object, and no run tells so much.
const PARSED: [(&str, u64); 2] = [(RUN, 8 * 1024 * 1024), (JOURNAL, 32 * 1024 * 1024)];

/// A bundle whose every entry is as it was written.
#[derive(Debug)]
pub struct Bundle {
    /// What is in it.
    pub manifest: Manifest,
    /// The Run, as it stood when the bundle was made.
    pub run: Run,
    /// What happened.
    pub records: Vec<Record>,
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

/// Why a file is no bundle, or not as it was written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It is something else.
    #[error("it is no bundle of a run: {0}; windlass bundle makes one")]
    NotABundle(String),
    /// It ends before its end.
    #[error("it was cut: its entry {0} is not there or not whole; have it sent again")]
    Cut(String),
    /// An entry is not what was written.
    #[error("its entry {0} was altered since it was made; have it made again by windlass bundle")]
    Altered(String),
    /// It holds more than was written.
    #[error(
        "it has an entry {0} that its manifest does not name; have it made again by windlass bundle"
    )]
    Unexpected(String),
    /// It takes too much.
    #[error("its entry {0} takes more than a bundle may, {MOST} bytes in all")]
    TooLarge(String),
    /// Another Windlass made it.
    #[error(
        "it has the form {found}, and this Windlass reads form {FORMAT}: use the Windlass that made it, {windlass}"
    )]
    Format {
        /// Its form.
        found: u32,
        /// Who made it.
        windlass: String,
    },
    /// It is as it was written, and that is no run.
    #[error("its entry {path} cannot be read")]
    Content {
        /// The entry.
        path: &'static str,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

impl Bundle {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// It is none, or it was cut or altered.
    pub fn read(source: impl Read) -> Result<Self, BundleError> {
        let mut archive = tar::Archive::new(GzDecoder::new(source).take(MOST + MANIFEST_LIMIT));
        let mut entries = archive.entries().map_err(|error| none(&error))?;
        let (path, listed) = match entries.next() {
            Some(entry) => whole(entry.map_err(|error| none(&error))?, MANIFEST_LIMIT)?,
            None => return Err(BundleError::NotABundle("it is empty".to_owned())),
        };
        if path != MANIFEST {
            let first = format!("its first entry is {path}, not {MANIFEST}");
            return Err(BundleError::NotABundle(first));
        }
        let manifest = manifest(&listed)?;
        let mut files = BTreeMap::new();
        let mut expected = manifest.files.iter();
        let mut left = MOST;
        let mut ended = false;
        for entry in entries {
            let next = expected.as_slice().first();
            let awaited = next.map_or(END, |next| next.path.as_str());
            let entry = entry.map_err(|_| BundleError::Cut(awaited.to_owned()))?;
            let (path, bytes) = whole(entry, left)?;
            left = left.saturating_sub(bytes.len() as u64);
            if ended {
                return Err(BundleError::Unexpected(path));
            }
            match expected.next() {
                Some(named) if named.path == path => {
                    if digest(&bytes) != named.sha256 || bytes.len() as u64 != named.bytes {
                        return Err(BundleError::Altered(path));
                    }
                    files.insert(path, bytes);
                }
                None if path == END => {
                    if bytes != digest(&listed).as_bytes() {
                        return Err(BundleError::Altered(MANIFEST.to_owned()));
                    }
                    ended = true;
                }
                Some(named) if path == END => return Err(BundleError::Cut(named.path.clone())),
                _ => return Err(BundleError::Unexpected(path)),
            }
        }
        // Behind the last entry stands the sum of all bytes.
        let rest = io::copy(&mut archive.into_inner(), &mut io::sink());
        if rest.is_err() && ended {
            return Err(BundleError::Cut(END.to_owned()));
        }
        if !ended {
            let missing = expected.next().map_or(END, |next| next.path.as_str());
            return Err(BundleError::Cut(missing.to_owned()));
        }
        Self::of(manifest, files)
    }

    fn of(manifest: Manifest, files: BTreeMap<String, Vec<u8>>) -> Result<Self, BundleError> {
        let of = |path| files.get(path).map(Vec::as_slice).unwrap_or_default();
        let unread = |path| move |source| BundleError::Content { path, source };
        let run = serde_json::from_slice(of(RUN)).map_err(unread(RUN))?;
        let lines = of(JOURNAL).split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        let records: Result<Vec<Record>, _> = lines.map(serde_json::from_slice).collect();
        Ok(Self {
            run,
            records: records.map_err(unread(JOURNAL))?,
            manifest,
            files,
        })
    }

    /// What an entry holds; nothing: there is none.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// What the tasks did, one event a line.
    pub(super) fn events(&self) -> impl io::BufRead + '_ {
        let of = |path| self.file(path).unwrap_or_default();
        of(FORMER_EVENTS).chain(of(EVENTS))
    }
}

impl Kept for Bundle {
    fn events_since(&self, _since: f64) -> io::Result<impl io::BufRead> {
        Ok(self.events())
    }

    fn log(&self, step: &str) -> String {
        let path = format!("logs/{}.log", step.replace('/', "__"));
        String::from_utf8_lossy(self.file(&path).unwrap_or_default()).into_owned()
    }
}

fn none(error: &io::Error) -> BundleError {
    BundleError::NotABundle(error.to_string())
}

fn manifest(listed: &[u8]) -> Result<Manifest, BundleError> {
    let read = serde_json::from_slice::<Manifest>(listed);
    let manifest = read.map_err(|source| BundleError::Content {
        path: MANIFEST,
        source,
    })?;
    if manifest.format != FORMAT {
        return Err(BundleError::Format {
            found: manifest.format,
            windlass: api::text::plain(&manifest.windlass, 64),
        });
    }
    Ok(manifest)
}

/// The name of an entry and all of it, if it is a file.
fn whole(
    mut entry: tar::Entry<'_, impl Read>,
    left: u64,
) -> Result<(String, Vec<u8>), BundleError> {
    let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    let path = api::text::plain(&path, 256);
    if !entry.header().entry_type().is_file() {
        return Err(BundleError::Unexpected(path));
    }
    let size = entry.size();
    let parsed = PARSED.iter().find(|(parsed, _)| *parsed == path);
    if size > parsed.map_or(left, |(_, most)| left.min(*most)) {
        return Err(BundleError::TooLarge(path));
    }
    let mut bytes = Vec::new();
    match entry.read_to_end(&mut bytes) {
        Ok(read) if read as u64 == size => Ok((path, bytes)),
        _ => Err(BundleError::Cut(path)),
    }
}
