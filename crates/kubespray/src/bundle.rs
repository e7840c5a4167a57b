//! A run as one file, which people attach to an issue: what was planned, what it was given, what happened, and what was said.
//!
//! It is a tar archive with gzip, so that everybody can look into one without Windlass. Its first entry names every other one with
//! its length and digest, its last one is the digest of the first: what was cut or altered since is refused by name. That guards
//! against accidents and careless editing, not against forgery, for which it would have to be signed.
//!
//! Nothing secret is in it. What Secrets hold never lay in the files that it is made of; should one of an earlier release have it, it
//! is masked once more. Values of variables whose names say that they may be secret are digests, with a key that is made for the
//! bundle and thrown away: equal values are seen to be equal, and none can be guessed.

mod read;
mod redact;
mod replay;
mod write;

use serde::{Deserialize, Serialize};

pub use read::{Bundle, BundleError};
pub use redact::Redaction;
pub use replay::{Moment, ReplayError};
pub use write::{Gathered, gather, write};

/// The form of bundles that this Windlass writes and reads.
const FORMAT: u32 = 1;
/// The entry that names all others.
const MANIFEST: &str = "manifest.json";
/// The entry with its digest.
const END: &str = "manifest.sha256";
/// The Run.
const RUN: &str = "run.json";
/// Its records, one a line.
const JOURNAL: &str = "journal.jsonl";
/// The Events that were told of it.
const TOLD: &str = "told.json";

/// What is in a bundle.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Its form.
    pub format: u32,
    /// The Windlass that made it.
    pub windlass: String,
    /// The namespace of the run.
    pub namespace: String,
    /// The run.
    pub run: String,
    /// When it was made.
    pub made_at: String,
    /// Its entries.
    pub files: Vec<Entry>,
    /// What is not in it, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// One entry.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// Its name.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of it, in hex.
    pub sha256: String,
}

fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
