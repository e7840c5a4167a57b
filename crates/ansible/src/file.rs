//! Why a file of ours cannot be used.

use std::{
    io,
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
