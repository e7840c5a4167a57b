//! Releases as artefacts of registries: what an address says. Pure: nothing is asked here.
//!
//! # Source
//! cluster-api-operator, `internal/controller/oci_source.go`: the form of the address, and the names of files.

use crate::{Provider, Version};

/// An artefact: `[http://]REGISTRY/PATH[:TAG][@DIGEST]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Artefact {
    /// The registry's host and port.
    pub registry: String,
    /// The repository there.
    pub repository: String,
    /// Its tag, where one is named.
    pub tag: Option<String>,
    /// Its digest, where one is named.
    pub digest: Option<String>,
    /// Whether the registry is asked by http.
    pub clear: bool,
}

/// Why a text names no artefact.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "an artefact is REGISTRY/PATH, with :TAG or @sha256:DIGEST or both, and http:// before it where there is no TLS"
)]
pub struct InvalidArtefact;

impl Artefact {
    /// What an address says.
    ///
    /// # Errors
    ///
    /// It names no artefact.
    pub fn parse(address: &str) -> Result<Self, InvalidArtefact> {
        let (clear, rest) = match address.strip_prefix("http://") {
            Some(rest) => (true, rest),
            None => (false, address),
        };
        let (registry, path) = rest.split_once('/').ok_or(InvalidArtefact)?;
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (path, None),
        };
        let (path, tag) = match path.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (path, None),
        };
        let is_it = is_registry(registry)
            && is_repository(path)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        is_it.then_some(()).ok_or(InvalidArtefact)?;
        Ok(Self {
            registry: registry.to_owned(),
            repository: path.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
            clear,
        })
    }

    /// The version that its tag is, if it is one.
    pub fn version(&self) -> Option<Version> {
        self.tag.as_ref()?.parse().ok()
    }

    /// What the registry is asked for: the digest, or else the tag, or else the version.
    pub fn reference(&self, version: Option<&Version>) -> Option<String> {
        let named = self.digest.clone().or_else(|| self.tag.clone());
        named.or_else(|| version.map(ToString::to_string))
    }

    /// The version that the names of its files tell, where nothing else does.
    pub fn version_of<'a>(
        provider: &Provider,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Option<Version> {
        let begins = format!(
            "{}-{}-",
            provider.provider_type().stored_word(),
            provider.name()
        );
        names.find_map(|name| {
            let version = name.strip_prefix(&begins)?.strip_suffix(METADATA)?;
            version.strip_suffix('-')?.parse().ok()
        })
    }
}

const METADATA: &str = "metadata.yaml";

/// `NAME[:PORT]`, or an address of IPv6 in brackets, as an authority of a URL without a user.
fn is_registry(text: &str) -> bool {
    let authority = text.parse::<http::uri::Authority>();
    let host_is_one = |host: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        !host.is_empty() && (host.starts_with('[') || host.bytes().all(plain))
    };
    authority.is_ok_and(|authority| {
        let port_is_one = !text.ends_with(':') && authority.port_u16() != Some(0);
        !text.contains('@') && host_is_one(authority.host()) && port_is_one
    })
}

fn is_repository(path: &str) -> bool {
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-')
    };
    let is_part = |part: &str| {
        !part.is_empty() && !part.bytes().all(|byte| byte == b'.') && part.bytes().all(plain)
    };
    path.split('/').all(is_part)
}

fn is_tag(tag: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=128).contains(&tag.len()) && tag.bytes().all(plain) && !tag.starts_with(['.', '-'])
}

fn is_digest(digest: &str) -> bool {
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderType;

    #[test]
    fn an_address_names_an_artefact_or_is_refused() {
        let hex = "a".repeat(64);
        let text = format!("r.example:5000/a/b_c.d:v2.1.0@sha256:{hex}");
        let artefact = Artefact::parse(&text).unwrap();
        assert_eq!(artefact.registry, "r.example:5000");
        assert_eq!(artefact.repository, "a/b_c.d");
        assert_eq!(artefact.version(), "v2.1.0".parse().ok());
        let version: Version = "v3.0.0".parse().unwrap();
        assert_eq!(
            artefact.reference(Some(&version)),
            Some(format!("sha256:{hex}"))
        );
        let plain = Artefact::parse("http://[::1]:5000/aws").unwrap();
        assert!(plain.clear);
        assert_eq!(plain.reference(Some(&version)).as_deref(), Some("v3.0.0"));
        assert_eq!(plain.reference(None), None);
        let tagged = Artefact::parse("r.example/aws:latest").unwrap();
        assert_eq!(tagged.version(), None);
        assert_eq!(tagged.reference(Some(&version)).as_deref(), Some("latest"));
        for bad in [
            "r.example",
            "r.example/",
            "/a",
            "r.example/A",
            "r.example/../a",
            "r.example/a//b",
            "r.example/a:",
            "r.example/a:-x",
            "r.example/a@sha256:12",
            "r.example/a?b",
            "user:secret@r.example/a",
            "r.example:0/a",
            "r.example:/a",
            "https://r.example/a",
            "a b/c",
        ] {
            assert_eq!(Artefact::parse(bad), Err(InvalidArtefact), "{bad}");
        }
    }

    #[test]
    fn a_version_is_found_in_the_names_of_files() {
        let provider = Provider::new(ProviderType::Infrastructure, "aws").unwrap();
        let version = |names: &[&str]| Artefact::version_of(&provider, names.iter().copied());
        let names = ["README", "infrastructure-aws-v2.1.0-metadata.yaml"];
        assert_eq!(version(&names), "v2.1.0".parse().ok());
        assert_eq!(version(&["metadata.yaml"]), None);
        assert_eq!(version(&["infrastructure-aws-metadata.yaml"]), None);
    }
}
