//! Secrets at rest: sealed with AES-256-GCM, the key in a file of its own beside the database.
//!
//! This protects a copy of the database alone (a backup, an attached file), not somebody who can read the directory.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use aes_gcm::{
    Aes256Gcm, Key, Nonce,
    aead::{Aead, KeyInit, Payload},
};

use super::backend::BackendError;

/// Seals and opens values; bound to the place of the object, so that sealed values cannot be swapped.
pub(crate) struct Sealer(Aes256Gcm);

impl Sealer {
    /// Reads the key, or makes it when `fresh`. A key that should be there and is not is an error: a new one would hide
    /// the loss until the first Secret is read.
    pub fn open(path: &Path, fresh: bool) -> Result<Self, BackendError> {
        let failed = |reason: String| BackendError::Key {
            path: path.to_path_buf(),
            reason,
        };
        if fresh && !path.exists() {
            write_key(path, &rand::random::<[u8; KEY]>()).map_err(|e| failed(e.to_string()))?;
        }
        let mut key = Vec::new();
        OpenOptions::new()
            .read(true)
            .open(path)
            .and_then(|mut file| file.read_to_end(&mut key))
            .map_err(|error| failed(error.to_string()))?;
        if key.len() != KEY {
            return Err(failed(format!("{} bytes instead of {KEY}", key.len())));
        }
        Ok(Self(Aes256Gcm::new(Key::<Aes256Gcm>::from_slice(&key))))
    }

    pub fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, BackendError> {
        let nonce: [u8; NONCE] = rand::random();
        let payload = Payload {
            msg: plain,
            aad: place.as_bytes(),
        };
        let sealed = self
            .0
            .encrypt(Nonce::from_slice(&nonce), payload)
            .map_err(|_| BackendError::Failed("a Secret could not be encrypted".into()))?;
        Ok([PREFIX, &nonce, &sealed].concat())
    }

    /// Opens a sealed value; one without the prefix is returned as it is.
    pub fn unseal(&self, place: &str, stored: &[u8]) -> Result<Vec<u8>, BackendError> {
        let Some(rest) = stored.strip_prefix(PREFIX) else {
            return Ok(stored.to_vec());
        };
        let wrong = || {
            BackendError::Corrupt(format!(
                "{place} cannot be decrypted: is the key file the one of this database?"
            ))
        };
        let (nonce, sealed) = rest.split_at_checked(NONCE).ok_or_else(wrong)?;
        let payload = Payload {
            msg: sealed,
            aad: place.as_bytes(),
        };
        self.0
            .decrypt(Nonce::from_slice(nonce), payload)
            .map_err(|_| wrong())
    }
}

fn write_key(path: &Path, key: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(key)?;
    file.sync_all()?;
    path.parent()
        .map_or(Ok(()), |parent| std::fs::File::open(parent)?.sync_all())
}

/// Names the format and version of the envelope.
const PREFIX: &[u8] = b"kapi:aesgcm:v1:";
const KEY: usize = 32;
const NONCE: usize = 12;
