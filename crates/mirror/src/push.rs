//! Brings the images of a mirror into a registry.
//!
//! An index names the manifests of all platforms, of which a mirror has those that are wanted. Registries refuse an index whose
//! manifests they do not have, so that such a one is pushed with those alone, and has another digest there.

use oci_client::{
    Client, Reference,
    client::{ClientConfig, ClientProtocol},
    secrets::RegistryAuth,
};
use registry::{Manifest, hex_digest, hex_of};
use serde_json::Value;
use tokio_util::io::ReaderStream;

use crate::{
    chain, check, client,
    list::{Image, List},
    store::{self, Store},
};

/// Where images are pushed to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The registry's host and port.
    pub registry: String,
    /// What comes before the names of images there. Empty: nothing.
    pub prefix: String,
    /// Whether it is spoken to by http. One on this machine always is.
    pub clear: bool,
    /// Who pushes, by name and password.
    pub login: Option<(String, String)>,
}

/// Why an image was not pushed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mirror does not have all of it.
    #[error("the mirror does not have all of it: fetch it first")]
    Incomplete,
    /// What the mirror has is something else than it must be.
    #[error("{0}")]
    Other(String),
    /// The registry refuses, or is not reached.
    #[error("{0}")]
    Refused(String),
}

/// Pushes an image; gives the digest that it has there.
///
/// # Errors
///
/// The mirror does not have all of it, or the registry does not take it.
pub async fn push(image: &Image, store: &Store, target: &Target) -> Result<String, Error> {
    // Whoever carried the mirror may have changed it.
    let alone = List {
        files: Vec::new(),
        images: vec![image.clone()],
    };
    let found = check::directory(&alone, store).await;
    let found = found.map_err(|error| Error::Other(chain(&error)))?;
    match found.first() {
        Some(finding) if finding.kind == check::Kind::Missing => return Err(Error::Incomplete),
        Some(finding) => return Err(Error::Other(finding.message.clone())),
        None => {}
    }
    let registry = Registry::of(image, target).await;
    let hex = store.pinned(&image.image).ok_or(Error::Incomplete)?;
    let bytes = store.manifest(&hex).ok_or(Error::Incomplete)?;
    let manifest = Manifest::read(&bytes).map_err(Error::Refused)?;
    if !manifest.is_index() {
        blobs(&registry, store, &manifest).await?;
        return put(&registry, &image.image.tag, bytes, manifest.kind()).await;
    }
    let mut here = Vec::new();
    for child in &manifest.manifests {
        let Some(bytes) = hex_digest(&child.digest).and_then(|hex| store.manifest(hex)) else {
            continue;
        };
        let of_child = Manifest::read(&bytes).map_err(Error::Refused)?;
        blobs(&registry, store, &of_child).await?;
        put(&registry, &child.digest, bytes, of_child.kind()).await?;
        here.push(child.digest.as_str());
    }
    if here.is_empty() {
        return Err(Error::Incomplete);
    }
    let bytes = if here.len() == manifest.manifests.len() {
        bytes
    } else {
        only(&bytes, &here)?
    };
    put(&registry, &image.image.tag, bytes, manifest.kind()).await
}

/// A repository that is pushed to.
struct Registry {
    client: Client,
    host: String,
    repository: String,
}

impl Registry {
    async fn of(image: &Image, target: &Target) -> Self {
        client::provide();
        let clear = target.clear || client::is_loopback(&target.registry);
        let config = ClientConfig {
            protocol: if clear {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            connect_timeout: Some(client::CONNECTING),
            read_timeout: Some(client::SILENCE),
            user_agent: client::AGENT,
            ..ClientConfig::default()
        };
        let prefix = target.prefix.trim_matches('/');
        let name = &image.image.repository;
        let registry = Self {
            client: Client::new(config),
            host: target.registry.clone(),
            repository: if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}/{name}")
            },
        };
        let login = match target.login.clone() {
            Some((user, password)) => RegistryAuth::Basic(user, password),
            None => RegistryAuth::Anonymous,
        };
        let reference = registry.reference(&image.image.tag);
        let asked = reference.resolve_registry();
        registry.client.store_auth_if_needed(asked, &login).await;
        registry
    }

    /// What the registry calls something of the repository: a tag, or a digest.
    fn reference(&self, what: &str) -> Reference {
        let (registry, repository) = (self.host.clone(), self.repository.clone());
        if hex_digest(what).is_some() {
            Reference::with_digest(registry, repository, what.to_owned())
        } else {
            Reference::with_tag(registry, repository, what.to_owned())
        }
    }
}

/// An index with some of its manifests.
fn only(index: &[u8], digests: &[&str]) -> Result<Vec<u8>, Error> {
    let unreadable = |error: serde_json::Error| Error::Refused(error.to_string());
    let mut index: Value = serde_json::from_slice(index).map_err(unreadable)?;
    if let Some(manifests) = index["manifests"].as_array_mut() {
        manifests.retain(|one| {
            one["digest"]
                .as_str()
                .is_some_and(|one| digests.contains(&one))
        });
    }
    serde_json::to_vec(&index).map_err(unreadable)
}

async fn blobs(registry: &Registry, store: &Store, manifest: &Manifest) -> Result<(), Error> {
    for blob in manifest.blobs() {
        let reference = registry.reference(&blob.digest);
        let there = registry.client.blob_exists(&reference, &blob.digest).await;
        if there.is_ok_and(|there| there) {
            continue;
        }
        let path = store.blob(hex_digest(&blob.digest).unwrap_or_default());
        let mut options = tokio::fs::OpenOptions::new();
        let options = options.read(true).custom_flags(store::NO_LINK);
        let file = options.open(&path).await;
        let file = file.map_err(|_| Error::Incomplete)?;
        let stream = ReaderStream::with_capacity(file, 1 << 20);
        let stream = futures::TryStreamExt::map_err(stream, |error| {
            oci_client::errors::OciDistributionError::IoError(error)
        });
        registry
            .client
            .push_blob_stream(&reference, stream, &blob.digest, Some(blob.size))
            .await
            .map_err(|error| Error::Refused(chain(&error)))?;
    }
    Ok(())
}

async fn put(registry: &Registry, what: &str, bytes: Vec<u8>, kind: &str) -> Result<String, Error> {
    let digest = format!("sha256:{}", hex_of(&bytes));
    let kind =
        http::HeaderValue::from_str(kind).map_err(|error| Error::Refused(error.to_string()))?;
    let reference = registry.reference(what);
    let pushed = registry
        .client
        .push_manifest_raw(&reference, bytes, kind)
        .await;
    pushed.map_err(|error| Error::Refused(chain(&error)))?;
    Ok(digest)
}
