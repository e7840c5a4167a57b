//! One client at a time of each release, among the processes of a machine.
//!
//! Between machines the Lease of whom a release belongs to decides. On one machine a runner can die and leave its Helm at work, so
//! the program itself holds the lock too: as its standard input, which is not read. Whoever waits for it waits until both are gone.

use std::{
    fs::{self, File},
    io,
    path::Path,
    process::Stdio,
};

use crate::program::Place;

/// A release that nobody else of this machine works on.
#[derive(Debug)]
pub struct Held {
    namespace: String,
    release: String,
    file: File,
}

/// Waits until nobody else works on a release. `directory` holds the files of the locks.
///
/// # Errors
///
/// The file cannot be made or locked.
pub async fn hold(directory: &Path, place: Place<'_>) -> io::Result<Held> {
    let directory = directory.to_owned();
    let (namespace, release) = (place.namespace.to_owned(), place.release.to_owned());
    let locked = tokio::task::spawn_blocking(move || {
        fs::create_dir_all(&directory)?;
        // Both are names of Kubernetes, which have no slash and no dot in front.
        let file = File::create(directory.join(format!("{namespace}_{release}.lock")))?;
        file.lock()?;
        io::Result::Ok(Held {
            namespace,
            release,
            file,
        })
    });
    locked.await.map_err(io::Error::other)?
}

impl Held {
    /// Where the release is.
    pub fn place(&self) -> Place<'_> {
        Place {
            namespace: &self.namespace,
            release: &self.release,
        }
    }

    /// What keeps the lock as long as a program has it as its input.
    pub(crate) fn input(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }
}
