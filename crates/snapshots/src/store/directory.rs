//! A directory of this machine.

use std::{
    io,
    path::{Path, PathBuf},
    pin::pin,
};

use futures::TryStreamExt;
use tokio::{
    fs::{self, OpenOptions},
    io::{AsyncReadExt, AsyncWriteExt},
};

use super::{Content, Error, MOST, Object, PART, Taken, chunks};

/// A directory with the snapshots of one cluster.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory of a cluster below one that must be there: what is not mounted is not made on another disk.
    ///
    /// # Errors
    ///
    /// It is not there, or cannot be made below.
    pub async fn open(root: &Path, below: &str) -> Result<Self, Error> {
        let there = fs::metadata(root).await;
        let there = there.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::Unusable(format!("there is no directory {}", root.display()))
            }
            _ => failed(root, &error),
        })?;
        if !there.is_dir() {
            return Err(Error::Unusable(format!(
                "{} is no directory",
                root.display()
            )));
        }
        let path = root.join(below);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .await
            .map_err(|error| failed(&path, &error))?;
        Ok(Self { path })
    }

    pub(super) fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// Writes an object under a name that is free. Who makes the part has the name, before it writes: that is what every file system, a
    /// share of the network too, grants to one alone. The object is there as a whole or not at all, and all that one who is killed leaves
    /// is the part.
    pub(super) async fn put(&self, name: &str, content: Content<'_>) -> Result<(), Error> {
        let path = self.path.join(name);
        let part = self.path.join(format!("{name}{PART}"));
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::Taken(name.to_owned()),
            _ => failed(&path, &error),
        };
        let mut options = OpenOptions::new();
        // What lies there under the name, a link too, is not written through.
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&part).await.map_err(refused)?;
        let write = async {
            if fs::try_exists(&path).await? {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            match content {
                Content::Bytes(bytes) => file.write_all(bytes).await?,
                Content::File(from, _) => {
                    let mut from = pin!(chunks(from)?);
                    while let Some(chunk) = from.try_next().await? {
                        file.write_all(&chunk).await?;
                    }
                }
            }
            file.sync_all().await?;
            self.name(&part, &path).await
        };
        let written: io::Result<()> = write.await;
        // A second name of what is written, or what a full disk needs first: room.
        let _ = fs::remove_file(&part).await;
        written.map_err(refused)
    }

    /// Gives a part its name, which nothing else has.
    async fn name(&self, part: &Path, path: &Path) -> io::Result<()> {
        match fs::hard_link(part, path).await {
            // A share that knows no links: there the part alone keeps others from the name.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
                ) =>
            {
                fs::rename(part, path).await?;
            }
            linked => linked?,
        }
        // The name is kept when the directory is.
        let kept = async { fs::File::open(&self.path).await?.sync_all().await };
        let kept: io::Result<()> = kept.await;
        if kept.is_err() {
            let _ = fs::remove_file(path).await;
        }
        kept
    }

    pub(super) async fn read(&self, name: &str, taken: &mut Taken<'_>) -> Result<(), Error> {
        let path = self.path.join(name);
        let file = fs::File::open(&path).await;
        let mut file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Missing(name.to_owned()),
            _ => failed(&path, &error),
        })?;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let read = file.read(&mut buffer).await;
            let read = read.map_err(|error| failed(&path, &error))?;
            match buffer.get(..read).filter(|bytes| !bytes.is_empty()) {
                Some(bytes) if taken.take(bytes).await? => {}
                _ => return Ok(()),
            }
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<Object>, Error> {
        let failed = |error: io::Error| failed(&self.path, &error);
        let mut entries = fs::read_dir(&self.path).await.map_err(failed)?;
        let mut objects = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let metadata = entry.metadata().await.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if metadata.is_file() {
                objects.push(Object {
                    name,
                    size: metadata.len(),
                });
            }
            if objects.len() > MOST {
                break;
            }
        }
        Ok(objects)
    }

    /// Removes an object, and what one who was killed has written of it.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        for name in [name, &format!("{name}{PART}")] {
            let path = self.path.join(name);
            match fs::remove_file(&path).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let told = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::Refused(told),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Error::Full(told)
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => Error::Unusable(told),
        _ => Error::Unreachable(told),
    }
}
