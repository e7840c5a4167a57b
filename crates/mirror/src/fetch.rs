//! Fills a mirror. What is there and is what it must be is kept, what has begun to come goes on, and nothing has its final name
//! before it was looked at.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::{StatusCode, header};
use registry::{Descriptor, Manifest, hex_digest, hex_of};
use reqwest::{Client, Response, Url};
use tokio::io::AsyncWriteExt as _;

use crate::{
    chain,
    client::{self, Refusal, Repository, shown},
    list::{Checksum, Endpoint, File, Image, ImageName, List},
    store::{self, Standing, Store},
};

/// How a mirror is filled.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of a mirror that everything comes from, instead of where it is from.
    pub from: Option<Url>,
    /// How many files and images come side by side, from 1.
    pub parallel: usize,
    /// Counts the bytes that come.
    pub came: Arc<AtomicU64>,
}

/// What came of one file or image.
#[derive(Debug)]
pub struct Fetched {
    /// The file's address, or the image's name.
    pub what: String,
    /// What came of it.
    pub outcome: Result<Outcome, Error>,
}

/// What came of a file or image that is there now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was there.
    Kept,
    /// It came, so many bytes of it now.
    Brought(u64),
}

/// Why something did not come.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not where it should be.
    #[error("it is not there: {0} answers 404")]
    Missing(String),
    /// A server answers something else.
    #[error("{0} answers {1}")]
    Status(String, u16),
    /// Nothing is given without a login.
    #[error("{0} wants a login")]
    Login(String),
    /// A server is not reached, or gives up.
    #[error("{place}: {reason}")]
    Network {
        /// Where.
        place: String,
        /// What happened.
        reason: String,
    },
    /// It is not what it must be.
    #[error("{place} gives something else: it has {found}, and the release says {wanted}")]
    Checksum {
        /// From where it came.
        place: String,
        /// What it must be.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// More comes than may.
    #[error("{0} gives more than {1} bytes")]
    TooLong(String, u64),
    /// An image is not for a processor.
    #[error("it is not for {0}: ask for other architectures, or set another image")]
    NoPlatform(String),
    /// An image cannot be read.
    #[error("{0}")]
    Image(String),
    /// The mirror cannot be written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The disk got full with another.
    #[error("it was not tried: the disk is full")]
    NotTried,
}

impl Error {
    fn may_pass(&self) -> bool {
        match self {
            Self::Network { .. } => true,
            Self::Status(_, code) => *code >= 500 || *code == 429,
            _ => false,
        }
    }

    /// Whether the mirror's disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_full())
    }
}

/// How often something is asked for whose server gives up.
const ATTEMPTS: u32 = 5;
/// The largest file: Kubernetes' largest have 0.2 GB, images of accelerators some.
const LARGEST: u64 = 16 << 30;

/// Fetches what is wanted into a mirror. `progress` hears of each that is done.
///
/// # Errors
///
/// There is no client for the network. What did not come is told with each.
pub async fn fetch(
    list: &List,
    store: &Store,
    options: &Options,
    progress: &(dyn Fn(&Fetched) + Sync),
) -> Result<Vec<Fetched>, Error> {
    let client = client::files().map_err(|error| Error::Network {
        place: "this machine".to_owned(),
        reason: chain(&error),
    })?;
    let work = Work {
        store,
        client,
        options,
        blobs: Mutex::default(),
        digests: Mutex::new(store.digests()),
    };
    let files = list.files.iter().map(Wanted::File);
    let images = list.images.iter().map(Wanted::Image);
    let all: Vec<Wanted<'_>> = files.chain(images).collect();
    let mut coming = stream::iter(all.iter().enumerate())
        .map(|(index, wanted)| {
            let work = &work;
            async move { (index, work.bring(*wanted).await) }
        })
        .buffer_unordered(options.parallel.max(1));
    let mut done: Vec<Option<Fetched>> = all.iter().map(|_| None).collect();
    while let Some((index, outcome)) = coming.next().await {
        let full = outcome.as_ref().is_err_and(Error::is_full);
        let what = all.get(index).map(Wanted::what).unwrap_or_default();
        let fetched = Fetched { what, outcome };
        progress(&fetched);
        if let Some(place) = done.get_mut(index) {
            *place = Some(fetched);
        }
        if full {
            break;
        }
    }
    drop(coming);
    let told = done.into_iter().zip(&all).map(|(fetched, wanted)| {
        fetched.unwrap_or_else(|| Fetched {
            what: wanted.what(),
            outcome: Err(Error::NotTried),
        })
    });
    Ok(told.collect())
}

#[derive(Clone, Copy)]
enum Wanted<'a> {
    File(&'a File),
    Image(&'a Image),
}

impl Wanted<'_> {
    fn what(&self) -> String {
        match self {
            Self::File(file) => file.url.clone(),
            Self::Image(image) => image.image.to_string(),
        }
    }
}

struct Work<'a> {
    store: &'a Store,
    client: Client,
    options: &'a Options,
    /// Who brings a blob holds its lock: images share layers.
    blobs: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    digests: Mutex<std::collections::BTreeMap<String, Checksum>>,
}

impl Work<'_> {
    async fn bring(&self, wanted: Wanted<'_>) -> Result<Outcome, Error> {
        let mut attempt = 1;
        loop {
            let outcome = match wanted {
                Wanted::File(file) => self.file(file).await,
                Wanted::Image(image) => self.image(image).await,
            };
            match outcome {
                Err(error) if error.may_pass() && attempt < ATTEMPTS => {
                    let reason = &error as &dyn std::error::Error;
                    tracing::debug!(what = wanted.what(), reason, "it is asked for again");
                    tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn file(&self, file: &File) -> Result<Outcome, Error> {
        let path = self.store.file(&file.place);
        let noted = || {
            let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
            digests.get(file.place.as_str()).cloned()
        };
        let checksum = file.checksum.clone().or_else(noted);
        if let Standing::Good(_) = standing(&path, checksum.as_ref()).await?
            && checksum.is_some()
        {
            return Ok(Outcome::Kept);
        }
        let url = self.url(file)?;
        let partial = self.store.partial(&hex_of(file.place.as_str().as_bytes()));
        self.store.make_room(&partial)?;
        // Two parts of what nobody knows the sum of may be of two files.
        let resume = file.checksum.is_some();
        let bytes = self.download(&url, &partial, resume).await?;
        let (found, _) = summed(&partial, checksum.as_ref()).await?;
        if let Some(wanted) = &checksum
            && found != *wanted
        {
            remove(&partial).await?;
            return Err(Error::Checksum {
                place: shown(&url),
                wanted: wanted.to_string(),
                found: found.to_string(),
            });
        }
        self.store.finish(&partial, &path)?;
        if file.checksum.is_none() {
            let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
            digests.insert(file.place.to_string(), found);
            self.store.note(&digests)?;
        }
        Ok(Outcome::Brought(bytes))
    }

    fn url(&self, file: &File) -> Result<Url, Error> {
        let text = match &self.options.from {
            Some(from) => format!("{}/{}", from.as_str().trim_end_matches('/'), file.place),
            None => file.url.clone(),
        };
        Url::parse(&text).map_err(|error| Error::Network {
            place: api::text::plain(&text, 200),
            reason: error.to_string(),
        })
    }

    /// Has a file grow until its server has no more. How many bytes came now.
    async fn download(&self, url: &Url, partial: &Path, resume: bool) -> Result<u64, Error> {
        let have = if resume { length(partial).await } else { 0 };
        let mut request = self.client.get(url.clone());
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
        }
        let response = request.send().await.map_err(|error| network(url, error))?;
        self.receive(response, partial, have, LARGEST, &shown(url))
            .await
    }

    /// Has a file grow by what its server answers. How many bytes came now.
    async fn receive(
        &self,
        response: Response,
        partial: &Path,
        have: u64,
        most: u64,
        place: &str,
    ) -> Result<u64, Error> {
        let place = || place.to_owned();
        match response.status() {
            StatusCode::OK => {
                self.grow(partial, bodies(response), 0, most, &place())
                    .await
            }
            StatusCode::PARTIAL_CONTENT if begins_at(&response, have) => {
                self.grow(partial, bodies(response), have, most, &place())
                    .await
            }
            // It has all of it, or another file has taken its place: what it must be decides.
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 && is_all(&response, have) => Ok(0),
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                remove(partial).await?;
                Err(Error::Network {
                    place: place(),
                    reason: "it does not go on where it ended".to_owned(),
                })
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::Missing(place())),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Error::Login(place())),
            status => Err(Error::Status(place(), status.as_u16())),
        }
    }

    async fn image(&self, image: &Image) -> Result<Outcome, Error> {
        let name = &image.image;
        let registry = match &self.options.from {
            Some(from) => {
                let host = from.host_str().unwrap_or_default();
                from.port()
                    .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
            }
            None => name.registry.clone(),
        };
        let by_http = self
            .options
            .from
            .as_ref()
            .map(|from| from.scheme() == "http");
        let repository = client::repository(&Endpoint {
            clear: by_http.unwrap_or_else(|| client::is_loopback(&registry)),
            registry,
            unverified: false,
            repository: name.repository.clone(),
        });
        let repository = repository.map_err(|error| Error::Network {
            place: "this machine".to_owned(),
            reason: chain(&error),
        })?;
        // What was seen first stays what the tag means here.
        let pinned = self.store.pinned(name).map(|hex| format!("sha256:{hex}"));
        let digest = image.digest.clone().or(pinned.clone());
        let what = digest.clone().unwrap_or_else(|| name.tag.clone());
        let mut brought = 0;
        let (bytes, digest) = self
            .manifest(&repository, image, &what, &mut brought)
            .await?;
        let manifest = Manifest::read(&bytes).map_err(Error::Image)?;
        if manifest.is_index() {
            for architecture in &image.architectures {
                let of_platform = manifest
                    .of_platform(architecture)
                    .ok_or_else(|| Error::NoPlatform(architecture.clone()))?;
                let what = &of_platform.digest;
                let (child, _) = self
                    .manifest(&repository, image, what, &mut brought)
                    .await?;
                let child = Manifest::read(&child).map_err(Error::Image)?;
                self.blobs(&repository, name, &child, &mut brought).await?;
            }
        } else {
            self.blobs(&repository, name, &manifest, &mut brought)
                .await?;
        }
        if pinned.as_ref() != Some(&digest) {
            let hex = digest.trim_start_matches("sha256:");
            self.store.pin(name, hex)?;
        } else if brought == 0 {
            return Ok(Outcome::Kept);
        }
        Ok(Outcome::Brought(brought))
    }

    /// A manifest, from here if it is here.
    async fn manifest(
        &self,
        repository: &Repository,
        image: &Image,
        what: &str,
        brought: &mut u64,
    ) -> Result<(Vec<u8>, String), Error> {
        if let Some(bytes) = hex_digest(what).and_then(|hex| self.store.manifest(hex)) {
            return Ok((bytes, what.to_owned()));
        }
        let pulled = repository.manifest(what).await;
        let (bytes, digest) =
            pulled.map_err(|refusal| refused(&image.image.to_string(), refusal))?;
        self.store.put(&self.store.blob(&hex_of(&bytes)), &bytes)?;
        *brought = brought.saturating_add(bytes.len() as u64);
        Ok((bytes, digest))
    }

    async fn blobs(
        &self,
        repository: &Repository,
        image: &ImageName,
        manifest: &Manifest,
        brought: &mut u64,
    ) -> Result<(), Error> {
        for blob in manifest.blobs() {
            let place = format!("{} of {image}", blob.digest);
            *brought = brought.saturating_add(self.blob(repository, blob, place).await?);
        }
        Ok(())
    }

    async fn blob(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        place: String,
    ) -> Result<u64, Error> {
        let hex = hex_digest(&blob.digest).unwrap_or_default().to_owned();
        let lock = {
            let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(blobs.entry(hex.clone()).or_default())
        };
        let _held = lock.lock().await;
        let path = self.store.blob(&hex);
        let wanted = Checksum::sha256(hex.clone());
        if let Standing::Good(_) = standing(&path, Some(&wanted)).await? {
            return Ok(0);
        }
        let partial = self.store.partial(&hex);
        self.store.make_room(&partial)?;
        let mut have = length(&partial).await;
        if have > blob.size {
            remove(&partial).await?;
            have = 0;
        }
        let mut bytes = 0;
        if have < blob.size || have == 0 {
            let answer = repository.blob(&blob.digest, have).await;
            let response = answer.map_err(|refusal| refused(&place, refusal))?;
            bytes = self
                .receive(response, &partial, have, blob.size, &place)
                .await?;
        }
        let (found, _) = summed(&partial, Some(&wanted)).await?;
        if found != wanted {
            remove(&partial).await?;
            return Err(Error::Checksum {
                place,
                wanted: wanted.to_string(),
                found: found.to_string(),
            });
        }
        self.store.finish(&partial, &path)?;
        Ok(bytes)
    }

    /// Appends what comes at an offset of a file. Every byte that was promised has come, or it fails.
    async fn grow(
        &self,
        partial: &Path,
        mut stream: impl Stream<Item = io::Result<bytes::Bytes>> + Unpin,
        at: u64,
        most: u64,
        place: &str,
    ) -> Result<u64, Error> {
        let failed = store::Error::of(partial);
        let mut file = tokio::fs::OpenOptions::new()
            .custom_flags(store::NO_LINK)
            .create(true)
            .append(at > 0)
            .write(true)
            .truncate(at == 0)
            .open(partial)
            .await
            .map_err(&failed)?;
        let mut bytes = 0_u64;
        let ended = loop {
            match stream.try_next().await {
                Ok(None) => break Ok(bytes),
                Err(error) => {
                    break Err(Error::Network {
                        place: place.to_owned(),
                        reason: chain(&error),
                    });
                }
                Ok(Some(part)) => {
                    bytes = bytes.saturating_add(part.len() as u64);
                    self.options
                        .came
                        .fetch_add(part.len() as u64, Ordering::Relaxed);
                    if at.saturating_add(bytes) > most {
                        drop(file);
                        remove(partial).await?;
                        return Err(Error::TooLong(place.to_owned(), most));
                    }
                    file.write_all(&part).await.map_err(&failed)?;
                }
            }
        };
        file.flush().await.map_err(&failed)?;
        ended
    }
}

fn refused(place: &str, refusal: Refusal) -> Error {
    let place = place.to_owned();
    match refusal {
        Refusal::Missing => Error::Missing(place),
        Refusal::Login => Error::Login(place),
        Refusal::Unsent(reason) | Refusal::Other(reason) => Error::Network { place, reason },
    }
}

fn bodies(response: Response) -> impl Stream<Item = io::Result<bytes::Bytes>> + Unpin {
    Box::pin(response.bytes_stream().map_err(io::Error::other))
}

fn content_range(response: &Response) -> Option<&str> {
    response.headers().get(header::CONTENT_RANGE)?.to_str().ok()
}

fn begins_at(response: &Response, at: u64) -> bool {
    content_range(response).is_some_and(|range| range.starts_with(&format!("bytes {at}-")))
}

/// Whether a server that has no more says that this is all there is.
fn is_all(response: &Response, have: u64) -> bool {
    content_range(response) == Some(&format!("bytes */{have}"))
}

fn network(url: &Url, error: reqwest::Error) -> Error {
    Error::Network {
        place: shown(url),
        reason: chain(&error.without_url()),
    }
}

async fn length(path: &Path) -> u64 {
    let metadata = tokio::fs::symlink_metadata(path).await;
    metadata.map_or(0, |metadata| {
        if metadata.is_file() {
            metadata.len()
        } else {
            0
        }
    })
}

async fn remove(path: &Path) -> Result<(), Error> {
    match tokio::fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(store::Error::of(path)(error).into())
        }
        _ => Ok(()),
    }
}

async fn standing(path: &Path, checksum: Option<&Checksum>) -> Result<Standing, Error> {
    let (at, checksum) = (path.to_owned(), checksum.cloned());
    let found = tokio::task::spawn_blocking(move || store::standing(&at, checksum.as_ref())).await;
    let found = found
        .map_err(io::Error::other)
        .map_err(store::Error::of(path))?;
    Ok(found?)
}

async fn summed(path: &Path, like: Option<&Checksum>) -> Result<(Checksum, u64), Error> {
    let (at, like) = (path.to_owned(), like.cloned());
    let found = tokio::task::spawn_blocking(move || store::sum(&at, like.as_ref())).await;
    let found = found
        .map_err(io::Error::other)
        .map_err(store::Error::of(path))?;
    Ok(found?)
}
