//! The places where snapshots lie: a directory of this machine, or a bucket of an S3-compatible server.
//!
//! A store is of one cluster: it sees nothing beside what lies under its own prefix. What it answers is bounded, and what it took is read
//! back before anybody relies on it.

use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::Arc,
};

use api::run::FailureClass;
use futures::{Stream, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncWrite, AsyncWriteExt};

mod bucket;
mod directory;

pub use bucket::{Access, Bucket, Loopback, Settings};
pub use directory::Directory;

use crate::{
    Name,
    manifest::{self, Stored, Told},
    seal::{Counted, Spooled},
};

/// The most objects of a cluster that are listed.
pub const MOST: usize = 10_000;
/// How often a name that the list says is free may be taken, before it is told: each time a whole snapshot may have been sent.
const TRIES: usize = 3;
/// How many manifests are read at once.
const AT_ONCE: usize = 8;
/// How old what was not written to its end must be to be removed: it may be on its way.
const UNFINISHED: SignedDuration = SignedDuration::from_hours(24);
/// How much of a file is read at once.
const CHUNK: usize = 256 * 1024;

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
    /// There is something under a name that is to be given.
    #[error("the store has {0} already")]
    Taken(String),
    /// It answers with another object than the one that was written.
    #[error("the store answers with another object: {0}")]
    Altered(String),
    /// A file of this machine cannot be read or written.
    #[error("a file of this machine cannot be read or written")]
    Local(#[source] io::Error),
}

/// Who keeps what lies in a store, for what people are told to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Caller {
    /// The field that its settings stand in.
    pub field: &'static str,
    /// The command that tells what lies in the store.
    pub command: &'static str,
    /// What it calls what it keeps.
    pub noun: &'static str,
    /// How the codes begin that are of what it keeps.
    pub code: &'static str,
}

impl Error {
    /// What a step fails with for it.
    pub const fn class(&self) -> FailureClass {
        match self {
            Self::Unreachable(_) => FailureClass::Transient,
            Self::Altered(_) | Self::Local(_) => FailureClass::Permanent,
            Self::Full(_) | Self::Refused(_) | Self::Taken(_) => FailureClass::External,
            Self::Unusable(_) | Self::Missing(_) => FailureClass::Config,
        }
    }

    /// A code of it for machines, and what a person can do, in the words of the caller.
    pub fn advice(&self, caller: &Caller) -> (String, String) {
        let Caller {
            field,
            command,
            noun,
            code,
        } = caller;
        let of_store = |name: &str, remedy: String| (name.to_owned(), remedy);
        let of_kept = |what: &str, remedy: String| (format!("{code}{what}"), remedy);
        match self {
            Self::Unusable(_) => of_store(
                "StoreUnusable",
                format!(
                    "make the directory or the bucket, or correct {field}.store; then retry the run"
                ),
            ),
            Self::Refused(_) => of_store(
                "StoreRefused",
                format!(
                    "give the operator's user, or the credentials of {field}.store, the right to read, write, list and delete there; then retry the run"
                ),
            ),
            Self::Full(_) => of_store(
                "StoreFull",
                format!(
                    "free room in the store, and retry the run; or write a smaller {field}.keep, and ask again"
                ),
            ),
            Self::Missing(_) => of_kept("Missing", format!("see which there are: {command}")),
            Self::Unreachable(_) => of_store(
                "StoreUnreachable",
                format!(
                    "let this machine reach the endpoint of {field}.store, and trust its certificate (caSecretRef); then retry the run"
                ),
            ),
            Self::Taken(_) => of_kept(
                "NameTaken",
                "find out who else writes there; then retry the run, which takes another name"
                    .to_owned(),
            ),
            Self::Altered(_) => of_kept(
                "Altered",
                format!("find out who writes to the store; take another {noun}: {command}"),
            ),
            Self::Local(_) => of_store(
                "FileUnwritable",
                "see to the disk of the data directory, then retry the run".to_owned(),
            ),
        }
    }
}

impl Store {
    /// Writes a snapshot and its manifest, and reads both back. Nothing is ever written over: where there is something under the name,
    /// finished or not, the snapshot gets the next one that is free, and is told of under that.
    ///
    /// # Errors
    ///
    /// The store refuses, is full, does not answer, answers with another object, or has what its list does not tell; or the manifest would
    /// not be read again.
    pub async fn keep<M: Told>(&self, file: &File, mut manifest: M) -> Result<M, Error> {
        // Told before it is sent: what cannot be read again is no snapshot.
        M::read(manifest.name(), &manifest.write())
            .map_err(|why| Error::Altered(format!("{}: {why}", manifest.name().manifest())))?;
        let there = named(&self.list().await?);
        let first = manifest.name().clone();
        let names = first.and_next();
        let mut taken = Vec::new();
        for name in names.filter(|name| !there.contains(name)).take(TRIES) {
            manifest = manifest.named(name);
            match self.keep_as(file, &manifest).await {
                Ok(()) => return Ok(manifest),
                // Somebody was quicker.
                Err(Error::Taken(name)) => taken.push(name),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Taken(if taken.is_empty() {
            format!("{first} and all that come after it")
        } else {
            format!("{}, which its list did not tell,", taken.join(", "))
        }))
    }

    /// The same of a store that may be full: then `room` is made, which says how many snapshots went, and it is tried once more. What is kept
    /// no longer goes after a snapshot is written, which a full store would never come to.
    ///
    /// # Errors
    ///
    /// As of [`Self::keep`], and those of `room`. A full store from which nothing went is full.
    pub async fn keep_with_room<M: Told>(
        &self,
        file: &File,
        manifest: M,
        room: impl Future<Output = Result<usize, Error>>,
    ) -> Result<M, Error> {
        match self.keep(file, manifest.clone()).await {
            Err(full @ Error::Full(_)) => match room.await? {
                0 => Err(full),
                _ => self.keep(file, manifest).await,
            },
            kept => kept,
        }
    }

    async fn keep_as(&self, file: &File, manifest: &impl Told) -> Result<(), Error> {
        let object = manifest.object();
        self.put(&object, Content::File(file, manifest.stored().size))
            .await?;
        self.verify(&object, manifest.stored()).await?;
        let name = manifest.name().manifest();
        let bytes = manifest.write();
        if let Err(error) = self.put(&name, Content::Bytes(&bytes)).await {
            if matches!(error, Error::Taken(_)) {
                // Under the other's name it would be nobody's.
                self.remove(&object).await?;
            }
            return Err(error);
        }
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
    pub async fn manifest<M: Told>(&self, name: &Name) -> Result<M, Error> {
        let file = name.manifest();
        let bytes = self.small(&file).await?;
        M::read(name, &bytes).map_err(|why| Error::Altered(format!("{file}: {why}")))
    }

    /// Brings what is stored of a snapshot into an empty file, and holds it against the manifest.
    ///
    /// # Errors
    ///
    /// It is another one, the file cannot be written, or the store does not answer.
    pub async fn bring(&self, manifest: &impl Told, file: &File) -> Result<(), Error> {
        let file = file.try_clone().map_err(Error::Local)?;
        let mut file = tokio::fs::File::from_std(file);
        let object = manifest.object();
        let read = self
            .read(&object, manifest.stored().size, &mut file)
            .await?;
        held(&object, &read, manifest.stored())
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

    /// What lies in the store, and what is told of it.
    ///
    /// # Errors
    ///
    /// It refuses its list, or does not answer. A manifest that cannot be read is what was seen.
    pub async fn look<M: Told>(&self) -> Result<Seen<M>, Error> {
        let objects = self.list().await?;
        let names = listing(&objects).snapshots;
        let read = stream::iter(names).map(async |name| {
            let manifest = self.manifest(&name).await;
            (name, manifest)
        });
        let read = read.buffer_unordered(AT_ONCE).collect().await;
        Ok(Seen { objects, read })
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

/// What lies in a store, and what its manifests tell.
#[derive(Debug)]
pub struct Seen<M> {
    /// All that is listed.
    pub objects: Vec<Object>,
    /// Each snapshot with a manifest, and that where it can be read.
    pub read: Vec<(Name, Result<M, Error>)>,
}

impl<M: Told> Seen<M> {
    /// The manifests that can be read.
    pub fn good(&self) -> impl Iterator<Item = &M> {
        self.read.iter().filter_map(|(_, read)| read.as_ref().ok())
    }

    /// Whether there is an object of the size that a manifest tells.
    pub fn is_whole(&self, manifest: &M) -> bool {
        let object = manifest.object();
        let mut objects = self.objects.iter();
        let there = objects.find(|there| there.name == object);
        there.is_some_and(|there| there.size == manifest.stored().size)
    }

    /// The names of what has no manifest.
    pub fn unfinished(&self) -> impl Iterator<Item = Name> {
        listing(&self.objects).unfinished.into_keys()
    }

    /// The objects of what has none and is too old to be on its way, by snapshot. What tells no time, a run has not left.
    pub fn abandoned(&self, now: Timestamp) -> impl Iterator<Item = Vec<String>> {
        let before = now.checked_sub(UNFINISHED).ok();
        let unfinished = listing(&self.objects).unfinished.into_iter();
        unfinished
            .filter(move |(name, _)| name.time().is_some_and(|time| Some(time) < before))
            .map(|(_, objects)| objects)
    }
}

/// What lies in a store, by snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listing {
    /// Those with a manifest, which were verified when they were written.
    pub snapshots: Vec<Name>,
    /// Objects without one: what a run that was killed has left, or what is being written.
    pub unfinished: BTreeMap<Name, Vec<String>>,
}

/// What a list of objects says of snapshots. What has another name is nobody's business here. Pure.
pub fn listing(objects: &[Object]) -> Listing {
    let snapshots: Vec<Name> = objects
        .iter()
        // An empty one is none.
        .filter(|object| object.size > 0)
        .filter_map(|object| name_of(&object.name, MANIFEST))
        .collect();
    let mut unfinished = BTreeMap::<Name, Vec<String>>::new();
    for object in objects {
        if let Some(name) = snapshot_of(object)
            && !snapshots.contains(&name)
        {
            let objects = unfinished.entry(name).or_default();
            objects.push(object.name.clone());
        }
    }
    Listing {
        snapshots,
        unfinished,
    }
}

/// The names that are given already, to what is finished and to what is not. Pure.
fn named(objects: &[Object]) -> HashSet<Name> {
    objects.iter().filter_map(snapshot_of).collect()
}

/// The snapshot that an object is of, whole or not.
fn snapshot_of(object: &Object) -> Option<Name> {
    let whole = object.name.strip_suffix(PART).unwrap_or(&object.name);
    let endings = [".db", ".db.age", MANIFEST];
    endings.iter().find_map(|ending| name_of(whole, ending))
}

fn name_of(object: &str, ending: &str) -> Option<Name> {
    object.strip_suffix(ending)?.parse().ok()
}

/// How the name of a manifest ends.
const MANIFEST: &str = ".json";
/// How the name of a file ends that is not whole yet.
const PART: &str = ".part";

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
    /// A file, from its beginning, and its size.
    File(&'a File, u64),
    /// What is in memory.
    Bytes(&'a [u8]),
}

/// A file from its beginning. It is read by place and not by its cursor: a request that was given up may read it still.
pub(crate) fn chunks(file: &File) -> io::Result<impl Stream<Item = io::Result<Vec<u8>>> + use<>> {
    let file = Arc::new(file.try_clone()?);
    Ok(stream::try_unfold(0, move |place| {
        let file = Arc::clone(&file);
        async move {
            let read = move || -> io::Result<_> {
                let mut chunk = vec![0; CHUNK];
                let read = file.read_at(&mut chunk, place)?;
                chunk.truncate(read);
                Ok(chunk)
            };
            let chunk = tokio::task::spawn_blocking(read).await??;
            let next = place + chunk.len() as u64;
            Ok((!chunk.is_empty()).then_some((chunk, next)))
        }
    }))
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
    use std::pin::pin;

    use futures::TryStreamExt;

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
        let names = "a.db a.db.part a.json b.db.age b.json c.db c.json.part d.json e.db.age f.db \
                     f.db.part g.part readme";
        let names: Vec<_> = names.split(' ').chain(["x y.db"]).collect();
        let listed = listing(&objects(&names));
        let name = |text: &str| -> Name { text.parse().unwrap() };
        assert_eq!(listed.snapshots, ["a", "b", "d"].map(name));
        let unfinished: [(&str, &[&str]); 3] = [
            ("c", &["c.db", "c.json.part"]),
            ("e", &["e.db.age"]),
            ("f", &["f.db", "f.db.part"]),
        ];
        let owned = |objects: &[&str]| objects.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(
            listed.unfinished,
            BTreeMap::from(unfinished.map(|(of, objects)| (name(of), owned(objects))))
        );
    }

    #[tokio::test]
    async fn a_file_is_read_whole_while_another_request_reads_it() {
        let content: Vec<u8> = (0..=u8::MAX).cycle().take(CHUNK + 5).collect();
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &content).unwrap();
        let (mut given_up, mut again) =
            (pin!(chunks(&file).unwrap()), pin!(chunks(&file).unwrap()));
        let mut read = Vec::new();
        while let Some(chunk) = again.try_next().await.unwrap() {
            read.extend(chunk);
            given_up.try_next().await.unwrap();
        }
        assert!(read == content);
    }

    #[test]
    fn an_empty_manifest_is_none() {
        let mut objects = objects(&["a.db", "a.json"]);
        objects[1].size = 0;
        let listed = listing(&objects);
        assert_eq!(listed.snapshots, []);
        let objects = ["a.db", "a.json"].map(str::to_owned).to_vec();
        assert_eq!(listed.unfinished, [("a".parse().unwrap(), objects)].into());
    }
}
