//! Why a release was not brought.

use std::{io, net::IpAddr, time::Duration};

use clusterctl::{
    MetadataError,
    source::{ConfigMapError, Unfit},
};

use crate::signature::Unsigned;

/// Why a release was not brought, said so that it fits behind the field and its value.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No version is given, and nobody says which is the newest.
    #[error("no version is given, and nothing there says which is the newest")]
    NoVersion,
    /// An address that nothing is brought from.
    #[error("{host} is {address}, which {what}")]
    Address {
        /// The host.
        host: String,
        /// What it stands for.
        address: IpAddr,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A host without an address.
    #[error("{0} has no address")]
    Nowhere(String, #[source] io::Error),
    /// A redirect that is not followed.
    #[error(
        "it leads to {0}, and redirects are followed by https alone, without user and password"
    )]
    Led(String),
    /// Redirect after redirect.
    #[error("it leads on more than {0} times")]
    Redirects(usize),
    /// A registry without TLS at an address that nobody let in.
    #[error(
        "{0} would be asked in the clear, which is for addresses that the operator is started with"
    )]
    Clear(String),
    /// A registry that does not have it.
    #[error("the registry has no {0}")]
    Absent(String),
    /// A registry that wants to know who asks.
    #[error("the registry does not give {0} to who asks")]
    Login(String),
    /// Anything else that a registry does.
    #[error("the registry does not give {0}: {1}")]
    Registry(String, String),
    /// An artefact without the file.
    #[error("the artefact has {there}, and no {}", .names.join(", no "))]
    NoFile {
        /// What it has.
        there: String,
        /// What one of it would be called.
        names: Vec<String>,
    },
    /// Files that are not there.
    #[error("there is no {}", .0.join(", no "))]
    Missing(Vec<String>),
    /// Another answer than the file.
    #[error("{0} is answered by status {1}")]
    Status(String, u16),
    /// A server that wants no more requests for a while.
    #[error("{host} wants no more requests for {} s", .pause.as_secs())]
    Limited {
        /// The server.
        host: String,
        /// For how long.
        pause: Duration,
    },
    /// No answer, or half of one.
    #[error("{0} is not answered in full")]
    Answer(String, #[source] reqwest::Error),
    /// A file that is too much, or no text.
    #[error("{0} is not taken")]
    Unfit(String, #[source] Unfit),
    /// A file that is packed in a way that is not known.
    #[error("{0} comes packed as {1:?}, and gzip alone is known")]
    Encoding(String, String),
    /// A release that does not come to an end.
    #[error("the release did not come within {} s", .0.as_secs())]
    Late(Duration),
    /// Its metadata does not have its version.
    #[error("{0} is not taken")]
    Metadata(String, #[source] MetadataError),
    /// Other components than those that somebody insists on.
    #[error("its components have the digest sha256:{found}, and sha256:{pinned} is insisted on")]
    Digest {
        /// Theirs.
        found: String,
        /// The one that is wanted.
        pinned: String,
    },
    /// Components that are not signed by the key that somebody insists on.
    #[error(transparent)]
    Unsigned(Unsigned),
    /// A release that fits into no ConfigMap.
    #[error("it cannot be kept")]
    Keep(#[source] ConfigMapError),
    /// Certificates that are none.
    #[error("the authorities that the operator trusts cannot be used")]
    Client(#[source] reqwest::Error),
}

impl FetchError {
    /// What to do.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoVersion => "give spec.version",
            Self::Address { .. } => {
                "name a public server, have the operator started with --provider-address for this one, or load the release into a ConfigMap"
            }
            Self::Clear(_) => {
                "take http:// away where the registry has TLS, or have the operator started with --provider-address for it"
            }
            Self::Login(_) => {
                "put OCI_USERNAME and OCI_PASSWORD, or OCI_ACCESS_TOKEN, or OCI_REFRESH_TOKEN, into the Secret of spec.configSecret; it is asked for again"
            }
            Self::NoFile { .. } => {
                "have the artefact published anew, with these names as titles of its files"
            }
            Self::Led(_) | Self::Redirects(_) => "name the address that it leads to in the end",
            Self::Absent(_) | Self::Missing(_) => {
                "mend spec.version or the address; it is asked for again"
            }
            Self::Status(..)
            | Self::Registry(..)
            | Self::Answer(..)
            | Self::Late(_)
            | Self::Nowhere(..) => {
                "it is asked for again; mend the server or the address, or load the release into a ConfigMap"
            }
            Self::Limited { .. } => {
                "it is asked again then, and by nobody before; to ask nobody, load the release into a ConfigMap: windlass providers preload"
            }
            Self::Unfit(..) | Self::Encoding(..) => {
                "see to what the server gives there; it is asked for again"
            }
            Self::Metadata(..) => {
                "have the release mended, which is asked for again, or load it into a ConfigMap with other metadata"
            }
            Self::Digest { .. } => {
                "find out who changed the release, and mend it or the annotation; it is asked for again"
            }
            Self::Unsigned(Unsigned::Missing) => {
                "have the signature published beside the file of components, as FILE.sig; it is asked for again, but where a ConfigMap keeps the release \
                 without one: windlass providers preload --key replaces that"
            }
            Self::Unsigned(_) => {
                "find out who changed the release, or who signs it, and mend it or the annotation; it is asked for again"
            }
            Self::Keep(_) => "have a smaller release made",
            Self::Client(_) => {
                "start the operator with certificates in PEM as --provider-authorities"
            }
        }
    }
}
