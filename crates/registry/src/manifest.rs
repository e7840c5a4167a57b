//! What registries say that something is made of. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::hex_digest;

const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What manifests may be.
pub(crate) const ACCEPTED: &[&str] = &[
    INDEXES[0],
    INDEXES[1],
    MANIFEST,
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// How many parts a manifest may name: real ones have some dozens.
const DESCRIPTORS: usize = 512;
/// The largest part, in bytes.
const LARGEST: u64 = 16 << 30;
/// The annotation with the name of the file that a part is.
pub(crate) const TITLE: &str = "org.opencontainers.image.title";

/// What a manifest says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    media_type: Option<String>,
    /// Those of an index, one for each platform.
    #[serde(default)]
    pub manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// What a manifest says of another file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its digest, by SHA-256.
    pub digest: String,
    /// Its size, in bytes, as is said.
    pub size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

impl Descriptor {
    /// The name of the file that it is, in an artefact.
    pub fn title(&self) -> Option<&str> {
        Some(self.annotations.as_ref()?.get(TITLE)?)
    }
}

impl Manifest {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// Why it is none, or none that is taken.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("its manifest cannot be read: {error}"))?;
        let all = manifest.manifests.iter().chain(manifest.blobs());
        if let Some(other) = all
            .map(|one| &one.digest)
            .find(|digest| hex_digest(digest).is_none())
        {
            let other = api::text::plain(other, 80);
            return Err(format!(
                "its manifest names {other:?}, which is no digest by SHA-256"
            ));
        }
        let all = || manifest.manifests.iter().chain(manifest.blobs());
        if all().count() > DESCRIPTORS {
            return Err(format!("its manifest names more than {DESCRIPTORS} parts"));
        }
        if let Some(large) = all().find(|one| one.size > LARGEST) {
            return Err(format!(
                "its part {} is said to have {} bytes: more than {} GiB are not fetched",
                large.digest,
                large.size,
                LARGEST >> 30
            ));
        }
        if manifest.manifests.is_empty() && manifest.config.is_none() {
            return Err("its manifest is of a kind that is not used any more".to_owned());
        }
        Ok(manifest)
    }

    /// The kind that a registry says it has.
    pub fn kind(&self) -> &str {
        let implied = if self.is_index() {
            INDEXES[0]
        } else {
            MANIFEST
        };
        let said = self.media_type.as_deref();
        said.filter(|said| ACCEPTED.contains(said))
            .unwrap_or(implied)
    }

    /// Whether it names other manifests.
    pub fn is_index(&self) -> bool {
        !self.manifests.is_empty()
    }

    /// Configuration and layers.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        self.config.iter().chain(&self.layers)
    }

    /// The manifest of an index for Linux on a processor.
    pub fn of_platform(&self, architecture: &str) -> Option<&Descriptor> {
        self.manifests.iter().find(|one| {
            let platform = one.platform.clone().unwrap_or_default();
            platform.os == "linux" && platform.architecture == architecture
        })
    }
}
