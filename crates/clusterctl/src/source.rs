//! Where the files of a release come from.
//!
//! Whatever the source, what comes of it is [`Files`]: text of a bounded size. Nothing of it is believed before [`Metadata`] and
//! [`Components`](crate::Components) have read it.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

use crate::{Metadata, MetadataError, Provider, catalogue};

mod artefact;
mod config_map;
mod directory;
mod location;

pub use artefact::{Artefact, InvalidArtefact};
pub use config_map::{ConfigMapError, config_map, config_map_labels, read_config_map};
pub use directory::{Directory, DirectoryError};
pub use location::{InvalidLocation, Location};

/// The files of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `metadata.yaml`.
    pub metadata: String,
    /// The file of components.
    pub components: String,
    /// The detached signature of the latter, where there is one, and somebody asks for it.
    pub signature: Option<String>,
}

impl Files {
    /// What `metadata.yaml` says.
    ///
    /// # Errors
    ///
    /// A file that is none.
    pub fn metadata(&self) -> Result<Metadata, MetadataError> {
        Metadata::parse(&self.metadata)
    }
}

/// What the name of a file has behind it that is the signature of another one.
pub const SIGNATURE: &str = ".sig";

/// The largest file of a release, in bytes. The largest that is known, of Azure's provider, has some 4 MiB.
pub const LARGEST: u64 = 32 << 20;

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It could not be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It goes on and on.
    #[error(
        "it has more than {LARGEST} bytes, which no file of a provider has; check where it comes from"
    )]
    Large,
    /// It is no text.
    #[error("it is no text in UTF-8; check where it comes from")]
    Text,
}

/// The text of bytes that came from elsewhere.
///
/// # Errors
///
/// Bytes that are too many or no text.
pub fn plain_text(bytes: &[u8]) -> Result<String, Unfit> {
    text(bytes)
}

/// The text of bytes that were compressed by gzip. No more is unpacked than a file may have.
///
/// # Errors
///
/// Bytes that cannot be unpacked, and what is too much or no text.
pub fn unpacked_text(bytes: &[u8]) -> Result<String, Unfit> {
    text(MultiGzDecoder::new(bytes))
}

/// What the file of components may be called: as is recommended, as its releases have it where they are known, the plainest.
fn file_names(provider: &Provider) -> Vec<String> {
    let mut names = vec![provider.provider_type().components_file()];
    let known = catalogue::entry(provider).and_then(|entry| entry.url.rsplit('/').next());
    names.extend(
        known
            .filter(|known| *known != names.concat())
            .map(str::to_owned),
    );
    names.push("components.yaml".to_owned());
    names
}

/// The text that a reader gives, if it is not too much.
fn text(reader: impl Read) -> Result<String, Unfit> {
    let mut bytes = Vec::new();
    reader
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(Unfit::Read)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= LARGEST) {
        String::from_utf8(bytes).map_err(|_| Unfit::Text)
    } else {
        Err(Unfit::Large)
    }
}
