//! Puts files into a registry, as one artefact whose layers have their names as titles.
//!
//! # Source
//! The image specification of the Open Container Initiative, "Guidelines for Artifact Usage".

use std::{collections::BTreeMap, time::Duration};

use http::HeaderValue;
use oci_client::{
    Client, Reference,
    client::{ClientConfig, ClientProtocol, Config, ImageLayer},
    errors::OciDistributionError,
    manifest::OciImageManifest,
    secrets::RegistryAuth,
};

use crate::{
    Login, hex_of,
    manifest::{MANIFEST, TITLE},
};

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(15);
/// How long the registry may be silent.
const SILENCE: Duration = Duration::from_mins(1);
/// What the artefact is.
const KIND: &str = "application/vnd.windlass.provider.v1";
/// What each file is.
const FILE: &str = "application/yaml";
/// The configuration of what has none.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Where it is put.
#[derive(Debug)]
pub struct Target {
    /// The registry's host and port.
    pub registry: String,
    /// The repository there.
    pub repository: String,
    /// The tag.
    pub tag: String,
    /// Whether the registry is asked by http.
    pub clear: bool,
    /// Who puts it there.
    pub login: Option<Login>,
}

/// A file of an artefact.
#[derive(Debug)]
pub struct File {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub content: Vec<u8>,
}

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A token that only gets others.
    #[error(
        "OCI_REFRESH_TOKEN does not publish; set OCI_USERNAME and OCI_PASSWORD, or OCI_ACCESS_TOKEN"
    )]
    Refresh,
    /// What would be published cannot be written.
    #[error("the manifest cannot be written")]
    Manifest(#[source] serde_json::Error),
    /// The registry refuses, or is not reached.
    #[error("the registry does not take it")]
    Registry(#[source] Box<OciDistributionError>),
}

/// Publishes files; gives the digest of the artefact.
///
/// # Errors
///
/// The registry does not take them.
pub async fn publish(
    target: &Target,
    files: impl IntoIterator<Item = File>,
) -> Result<String, Error> {
    let login = match target.login.clone() {
        None => RegistryAuth::Anonymous,
        Some(Login::Password { user, password }) => RegistryAuth::Basic(user, password),
        Some(Login::Access(token)) => RegistryAuth::Bearer(token),
        Some(Login::Refresh(_)) => return Err(Error::Refresh),
    };
    let layer = |File { name, content }| {
        let titled = BTreeMap::from([(TITLE.to_owned(), name)]);
        ImageLayer::new(content, FILE.to_owned(), Some(titled))
    };
    let layers: Vec<_> = files.into_iter().map(layer).collect();
    let config = Config::new(b"{}".to_vec(), EMPTY.to_owned(), None);
    let mut manifest = OciImageManifest::build(&layers, &config, None);
    manifest.media_type = Some(MANIFEST.to_owned());
    manifest.artifact_type = Some(KIND.to_owned());
    let bytes = serde_json::to_vec(&manifest).map_err(Error::Manifest)?;
    let digest = format!("sha256:{}", hex_of(&bytes));
    let client = client(target.clear);
    let reference = Reference::with_tag(
        target.registry.clone(),
        target.repository.clone(),
        target.tag.clone(),
    );
    let registry = reference.resolve_registry();
    client.store_auth_if_needed(registry, &login).await;
    let refused = |error| Error::Registry(Box::new(error));
    let blobs = layers.into_iter().map(|layer| layer.data);
    for blob in blobs.chain([config.data]) {
        let of_blob = format!("sha256:{}", hex_of(&blob));
        let pushed = client.push_blob(&reference, blob, &of_blob).await;
        pushed.map_err(refused)?;
    }
    let kind = HeaderValue::from_static(MANIFEST);
    let pushed = client.push_manifest_raw(&reference, bytes, kind).await;
    pushed.map_err(refused)?;
    Ok(digest)
}

fn client(clear: bool) -> Client {
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::new(ClientConfig {
        protocol: if clear {
            ClientProtocol::Http
        } else {
            ClientProtocol::Https
        },
        connect_timeout: Some(CONNECTING),
        read_timeout: Some(SILENCE),
        user_agent: concat!("windlass/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    })
}
