//! The places where snapshots lie: a directory of this machine, or a bucket of an S3-compatible server.
//!
//! A store is of one cluster: it sees nothing beside what lies under its own prefix. What it answers is bounded, and what it took is read
//! back before anybody relies on it.

use std::{io, path::Path};

use tokio::io::{AsyncWrite, AsyncWriteExt};

mod bucket;
mod directory;

pub use bucket::{Access, Bucket, Settings};
pub use directory::Directory;

use crate::{
    Manifest, Name,
    manifest::{self, Stored},
    seal::{Counted, Spooled},
};

/// The most objects of a cluster that are listed.
pub const MOST: usize = 10_000;

/// Where the snapshots of one cluster lie.
#[derive(Debug)]
pub enum Store {
    /// A directory.
    Directory(Directory),
    /// A bucket.
    Bucket(Box<Bucket>),
}

/// What lies in a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Object {
    /// Its name, without a prefix.
    pub name: String,
    /// Its size, in bytes.
    pub size: u64,
}

/// Why a store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The place is not there, or is no place of the kind.
    #[error("the store cannot be used: {0}")]
    Unusable(String),
    /// It does not let anybody in, or not do that.
    #[error("the store refuses it: {0}")]
    Refused(String),
    /// It has no room.
    #[error("the store is full: {0}")]
    Full(String),
    /// It has no such object.
    #[error("the store has no {0}")]
    Missing(String),
    /// It does not answer, or not to the end.
    #[error("the store does not answer: {0}")]
    Unreachable(String),
    /// It answers with another object than the one that was written.
    #[error("the store answers with another object: {0}")]
    Altered(String),
    /// A file of this machine cannot be read or written.
    #[error("a file of this machine cannot be read or written")]
    Local(#[source] io::Error),
}

impl Error {
    /// A code of it for machines, and what a person can do.
    pub const fn advice(&self) -> (&'static str, &'static str) {
        match self {
            Self::Unusable(_) => (
                "StoreUnusable",
                "make the directory or the bucket, or correct spec.etcd.snapshots.store; then retry the run",
            ),
            Self::Refused(_) => (
                "StoreRefused",
                "give the operator's user, or the credentials of spec.etcd.snapshots.store, the right to read, write, list and delete there; then retry the run",
            ),
            Self::Full(_) => (
                "StoreFull",
                "free room in the store or write a smaller spec.etcd.snapshots.keep; then retry the run",
            ),
            Self::Missing(_) => (
                "SnapshotMissing",
                "see which there are: windlass snapshots list",
            ),
            Self::Unreachable(_) => (
                "StoreUnreachable",
                "let this machine reach the endpoint of spec.etcd.snapshots.store, and trust its certificate (caSecretRef); then retry the run",
            ),
            Self::Altered(_) => (
                "SnapshotAltered",
                "find out who writes to the store; take another snapshot: windlass snapshots list",
            ),
            Self::Local(_) => (
                "FileUnwritable",
                "see to the disk of the data directory, then retry the run",
            ),
        }
    }
}

impl Store {
    /// Writes a snapshot and its manifest, and reads both back.
    ///
    /// # Errors
    ///
    /// The store refuses, is full, does not answer, or answers with another object.
    pub async fn keep(&self, file: &Path, manifest: &Manifest) -> Result<(), Error> {
        let object = manifest.object();
        self.put(&object, Content::File(file, manifest.stored.size))
            .await?;
        self.verify(&object, &manifest.stored).await?;
        let name = manifest.name.manifest();
        let bytes = manifest.write();
        self.put(&name, Content::Bytes(&bytes)).await?;
        if self.small(&name).await? == bytes {
            return Ok(());
        }
        Err(Error::Altered(format!("{name} is not what was written")))
    }

    /// The manifest of a snapshot.
    ///
    /// # Errors
    ///
    /// There is none, it cannot be read, or the store does not answer.
    pub async fn manifest(&self, name: &Name) -> Result<Manifest, Error> {
        let file = name.manifest();
        let bytes = self.small(&file).await?;
        Manifest::read(name, &bytes).map_err(|why| Error::Altered(format!("{file}: {why}")))
    }

    /// Brings what is stored of a snapshot into a file for its owner alone, and holds it against the manifest.
    ///
    /// # Errors
    ///
    /// It is another one, the file cannot be written, or the store does not answer.
    pub async fn bring(&self, manifest: &Manifest, file: &Path) -> Result<(), Error> {
        let created = crate::seal::private(file).map_err(Error::Local)?;
        let mut created = tokio::fs::File::from_std(created);
        let object = manifest.object();
        let read = self
            .read(&object, manifest.stored.size, &mut created)
            .await?;
        created.sync_all().await.map_err(Error::Local)?;
        held(&object, &read, &manifest.stored)
    }

    /// Holds what lies in the store against what was written.
    async fn verify(&self, object: &str, stored: &Stored) -> Result<(), Error> {
        let read = self
            .read(object, stored.size, &mut tokio::io::sink())
            .await?;
        held(object, &read, stored)
    }

    async fn put(&self, name: &str, content: Content<'_>) -> Result<(), Error> {
        match self {
            Self::Directory(directory) => directory.put(name, content).await,
            Self::Bucket(bucket) => bucket.put(name, content).await,
        }
    }

    /// An object, as far as one byte beyond its size, and its digest.
    async fn read(
        &self,
        name: &str,
        size: u64,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<(u64, String), Error> {
        let mut taken = Taken {
            sink,
            counted: Counted::of(io::sink()),
            left: size.saturating_add(1),
        };
        match self {
            Self::Directory(directory) => directory.read(name, &mut taken).await?,
            Self::Bucket(bucket) => bucket.read(name, &mut taken).await?,
        }
        taken.sink.flush().await.map_err(Error::Local)?;
        Ok(taken.counted.end())
    }

    async fn small(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let (size, _) = self.read(name, manifest::LARGEST, &mut bytes).await?;
        if size > manifest::LARGEST {
            let largest = manifest::LARGEST;
            return Err(Error::Altered(format!(
                "{name} has more than {largest} bytes"
            )));
        }
        Ok(bytes)
    }

    /// What lies in the store, by name: as many objects as are listed.
    ///
    /// # Errors
    ///
    /// It refuses, or does not answer.
    pub async fn list(&self) -> Result<Vec<Object>, Error> {
        let mut listed = match self {
            Self::Directory(directory) => directory.list().await?,
            Self::Bucket(bucket) => bucket.list().await?,
        };
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        listed.truncate(MOST);
        Ok(listed)
    }

    /// Removes an object; one that is not there is as good as removed.
    ///
    /// # Errors
    ///
    /// The store refuses, or does not answer.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        match self {
            Self::Directory(directory) => directory.remove(name).await,
            Self::Bucket(bucket) => bucket.remove(name).await,
        }
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        match self {
            Self::Directory(directory) => directory.place(),
            Self::Bucket(bucket) => bucket.place(),
        }
    }
}

/// What lies in a store, by snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listing {
    /// Those with a manifest, which were verified when they were written.
    pub snapshots: Vec<Name>,
    /// Objects without one: what a run that was killed has left, or what is being written.
    pub unfinished: Vec<(Name, String)>,
}

/// What a list of objects says of snapshots. What has another name is nobody's business here. Pure.
pub fn listing(objects: &[Object]) -> Listing {
    let named = |object: &Object, ending: &str| -> Option<Name> {
        object.name.strip_suffix(ending)?.parse().ok()
    };
    let snapshots: Vec<Name> = objects
        .iter()
        .filter_map(|object| named(object, ".json"))
        .collect();
    let files = objects.iter().filter_map(|object| {
        let name = named(object, ".db").or_else(|| named(object, ".db.age"))?;
        Some((name, object.name.clone()))
    });
    let unfinished = files
        .filter(|(name, _)| !snapshots.contains(name))
        .collect();
    Listing {
        snapshots,
        unfinished,
    }
}

impl From<&Spooled> for Stored {
    fn from(spooled: &Spooled) -> Self {
        Self {
            size: spooled.stored_size,
            digest: spooled.stored_digest.clone(),
            sealed: spooled.stored_digest != spooled.digest,
        }
    }
}

/// What is written.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// A file, and its size.
    File(&'a Path, u64),
    /// What is in memory.
    Bytes(&'a [u8]),
}

/// What takes an object that is read.
pub(crate) struct Taken<'a> {
    sink: &'a mut (dyn AsyncWrite + Send + Unpin),
    counted: Counted<io::Sink>,
    left: u64,
}

impl Taken<'_> {
    /// Takes what comes next; false: it is more than is wanted.
    pub(crate) async fn take(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let bytes = bytes.get(..most.min(bytes.len())).unwrap_or(bytes);
        self.left = self
            .left
            .saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        io::Write::write_all(&mut self.counted, bytes).map_err(Error::Local)?;
        self.sink.write_all(bytes).await.map_err(Error::Local)?;
        Ok(self.left > 0)
    }
}

fn held(name: &str, (size, digest): &(u64, String), stored: &Stored) -> Result<(), Error> {
    if *size != stored.size {
        let how = if *size > stored.size { "more" } else { "fewer" };
        return Err(Error::Altered(format!(
            "{name} has {how} than the {} bytes that were written",
            stored.size
        )));
    }
    if *digest != stored.digest {
        return Err(Error::Altered(format!(
            "{name} has the digest {digest}, and {} was written",
            stored.digest
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(names: &[&str]) -> Vec<Object> {
        let object = |name: &&str| Object {
            name: (*name).to_owned(),
            size: 1,
        };
        names.iter().map(object).collect()
    }

    #[test]
    fn snapshots_are_those_with_a_manifest() {
        let listed = listing(&objects(&[
            "a.db", "a.json", "b.db.age", "b.json", "c.db", "d.json", "e.db.age", "readme",
            "x y.db",
        ]));
        let name = |text: &str| -> Name { text.parse().unwrap() };
        assert_eq!(listed.snapshots, ["a", "b", "d"].map(name));
        assert_eq!(
            listed.unfinished,
            [
                (name("c"), "c.db".to_owned()),
                (name("e"), "e.db.age".to_owned())
            ]
        );
    }
}
