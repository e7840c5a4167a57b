//! Files that are ours alone, and why one cannot be used.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// A file or directory cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("use {path}")]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Says which file an error is about.
    pub(crate) fn of(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self {
            path: path.clone(),
            source,
        }
    }
}

/// Writes a file that only its owner reads. One that somebody else made first is not written into.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}
