//! What of a list is missing: in the directory of a mirror, or where hosts are told to ask.

use futures::{StreamExt as _, stream};
use http::{StatusCode, header};
use registry::{Manifest, hex_digest};
use reqwest::{Client, Url};
use serde::Serialize;

use crate::{
    chain,
    client::{self, Refusal},
    fetch::Error,
    list::{Checksum, Endpoint, File, Image, List},
    store::{self, Standing, Store},
};

/// What is wrong with one file or image.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The file's address, or the image's name.
    pub what: String,
    /// How it stands.
    pub kind: Kind,
    /// What was seen, for people.
    pub message: String,
}

/// How something stands that is not simply there.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// It is not there.
    Missing,
    /// It is something else than it must be.
    Other,
    /// Who was asked does not answer, or answers with a failure.
    Unanswered,
    /// Nobody is told without a login, so that it may be there.
    Unproved,
}

impl Finding {
    /// Of what nobody can be asked about.
    pub fn unproved(what: &str, message: &str) -> Self {
        Self::new(what, Kind::Unproved, message)
    }

    fn new(what: &str, kind: Kind, message: impl Into<String>) -> Self {
        Self {
            what: what.to_owned(),
            kind,
            message: message.into(),
        }
    }

    /// Whether nothing is to be begun with it.
    pub fn is_fatal(&self) -> bool {
        self.kind != Kind::Unproved
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.message)
    }
}

/// How many are asked for side by side.
const PARALLEL: usize = 16;

/// What is wrong in the directory of a mirror. Reads all of what is wanted.
///
/// # Errors
///
/// A file cannot be read.
pub async fn directory(list: &List, store: &Store) -> Result<Vec<Finding>, Error> {
    let (list, store) = (list.clone(), store.clone());
    let root = store.root().to_owned();
    let found = tokio::task::spawn_blocking(move || in_directory(&list, &store)).await;
    let found = found.map_err(std::io::Error::other);
    Ok(found.map_err(store::Error::of(&root))??)
}

fn in_directory(list: &List, store: &Store) -> Result<Vec<Finding>, store::Error> {
    let noted = store.digests();
    let mut findings = Vec::new();
    for file in &list.files {
        let noted = || noted.get(file.place.as_str()).cloned();
        let checksum = file.checksum.clone().or_else(noted);
        let standing = store::standing(&store.file(&file.place), checksum.as_ref())?;
        findings.extend(told(&file.url, standing));
    }
    for image in &list.images {
        findings.extend(image_in(store, image)?);
    }
    Ok(findings)
}

fn told(what: &str, standing: Standing) -> Option<Finding> {
    match standing {
        Standing::Good(_) => None,
        Standing::Missing => Some(Finding::new(what, Kind::Missing, "it is not there")),
        Standing::Other => Some(Finding::new(
            what,
            Kind::Other,
            "it is something else than its checksum says",
        )),
    }
}

fn image_in(store: &Store, image: &Image) -> Result<Option<Finding>, store::Error> {
    let name = image.image.to_string();
    let finding = |kind, message: &str| Ok(Some(Finding::new(&name, kind, message)));
    let Some(hex) = store.pinned(&image.image) else {
        return finding(Kind::Missing, "it is not there");
    };
    if image
        .digest
        .as_ref()
        .is_some_and(|digest| *digest != format!("sha256:{hex}"))
    {
        return finding(Kind::Other, "it has another digest than is set");
    }
    let read = |hex: &str| Manifest::read(&store.manifest(hex)?).ok();
    let Some(manifest) = read(&hex) else {
        return finding(Kind::Other, "its manifest is not there, or another one");
    };
    let mut each = Vec::new();
    if manifest.is_index() {
        for architecture in &image.architectures {
            let of_platform = manifest.of_platform(architecture);
            let child = of_platform.and_then(|one| read(hex_digest(&one.digest)?));
            let Some(child) = child else {
                let message = format!("it is not there for {architecture}");
                return finding(Kind::Missing, &message);
            };
            each.push(child);
        }
    } else {
        each.push(manifest);
    }
    for blob in each.iter().flat_map(Manifest::blobs) {
        let hex = hex_digest(&blob.digest).unwrap_or_default();
        let wanted = Checksum::sha256(hex.to_owned());
        if !matches!(
            store::standing(&store.blob(hex), Some(&wanted))?,
            Standing::Good(_)
        ) {
            let message = format!("its part {} is not there, or is another one", blob.digest);
            return finding(Kind::Other, &message);
        }
    }
    Ok(None)
}

/// What is wrong where hosts are told to ask. Nothing of a file is read.
///
/// # Errors
///
/// There is no client for the network.
pub async fn asked(list: &List) -> Result<Vec<Finding>, Error> {
    let client = client::files().map_err(|error| Error::Network {
        place: "this machine".to_owned(),
        reason: chain(&error),
    })?;
    // Each owns what it asks for: the compiler cannot tell otherwise that it may go from thread to thread.
    let files = list.files.iter().flat_map(|file| {
        let places = file.asked.iter();
        places.map(|at| (file.clone(), at.clone()))
    });
    let files = stream::iter(files.collect::<Vec<_>>())
        .map(|(file, at)| {
            let client = client.clone();
            async move { file_at(&client, &file, &at).await }
        })
        .buffered(PARALLEL)
        .collect::<Vec<_>>();
    let images = list.images.iter().flat_map(|image| {
        let rows = image.asked.iter();
        rows.map(|row| (image.clone(), row.clone()))
    });
    let images = stream::iter(images.collect::<Vec<_>>())
        .map(|(image, row)| async move { image_at(&image, &row).await })
        .buffered(PARALLEL)
        .collect::<Vec<_>>();
    let (files, images) = futures::join!(files, images);
    Ok(files.into_iter().chain(images).flatten().collect())
}

async fn file_at(client: &Client, file: &File, at: &str) -> Option<Finding> {
    let Ok(url) = Url::parse(at) else {
        let name = format!("{} ({})", file.name, file.place);
        let message = "what hosts will ask for is no address";
        return Some(Finding::new(&name, Kind::Missing, message));
    };
    let shown = client::shown(&url);
    let finding = |kind, message: String| Some(Finding::new(&shown, kind, message));
    let mut answer = client.head(url.clone()).send().await;
    if let Ok(response) = &answer
        && matches!(
            response.status(),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        )
    {
        let first = client.get(url).header(header::RANGE, "bytes=0-0");
        answer = first.send().await;
    }
    match answer.map(|response| response.status()) {
        Ok(status) if status.is_success() => None,
        Ok(StatusCode::NOT_FOUND | StatusCode::GONE) => {
            finding(Kind::Missing, "it is not there".to_owned())
        }
        Ok(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            finding(Kind::Unproved, "its server wants a login".to_owned())
        }
        Ok(status) => finding(Kind::Unanswered, format!("its server answers {status}")),
        Err(error) => finding(Kind::Unanswered, chain(&error.without_url())),
    }
}

/// An image is there when one of the registries has all of it.
async fn image_at(image: &Image, row: &[Endpoint]) -> Option<Finding> {
    let mut last = None;
    for endpoint in row {
        match image_in_registry(image, endpoint).await {
            Ok(()) => return None,
            Err((kind, message)) => {
                let message = format!("{message} at {}", endpoint.registry);
                last = Some(Finding::new(&image.image.to_string(), kind, message));
            }
        }
    }
    last
}

async fn image_in_registry(image: &Image, endpoint: &Endpoint) -> Result<(), (Kind, String)> {
    let repository =
        client::repository(endpoint).map_err(|error| (Kind::Unanswered, chain(&error)))?;
    let refused = |refusal: Refusal| match refusal {
        Refusal::Missing => (Kind::Missing, "it is not there".to_owned()),
        Refusal::Login => (Kind::Unproved, "a login is wanted".to_owned()),
        Refusal::Unsent(reason) | Refusal::Other(reason) => (Kind::Unanswered, reason),
    };
    let read = |bytes: &[u8]| Manifest::read(bytes).map_err(|why| (Kind::Other, why));
    let what = image.digest.as_deref().unwrap_or(&image.image.tag);
    let (bytes, _) = repository.manifest(what).await.map_err(refused)?;
    let manifest = read(&bytes)?;
    let mut each = Vec::new();
    if manifest.is_index() {
        for architecture in &image.architectures {
            let missing = (Kind::Missing, format!("it is not there for {architecture}"));
            let of_platform = manifest
                .of_platform(architecture)
                .ok_or_else(|| missing.clone())?;
            let child = repository.manifest(&of_platform.digest).await;
            let (bytes, _) = child.map_err(|refusal| match refusal {
                Refusal::Missing => missing,
                other => refused(other),
            })?;
            each.push(read(&bytes)?);
        }
    } else {
        each.push(manifest);
    }
    for blob in each.iter().flat_map(Manifest::blobs) {
        if !repository.has_blob(&blob.digest).await.map_err(refused)? {
            return Err((
                Kind::Missing,
                format!("its part {} is not there", blob.digest),
            ));
        }
    }
    Ok(())
}
