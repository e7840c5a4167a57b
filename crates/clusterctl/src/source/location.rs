//! Where the files of a release are on the network, as an address says it. Pure: nothing is asked here.
//!
//! Two layouts are known, and no host is: a path `OWNER/REPOSITORY/releases` is laid out as GitHub does it, which servers within
//! companies do too; any other path holds a directory for each version.

use super::file_names;
use crate::{Provider, Version};

/// Where releases of a provider are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Up to the directories of versions, without a slash at its end.
    base: String,
    layout: Layout,
    /// The version that the address names.
    version: Option<Version>,
    /// The file of components that it names.
    file: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// `BASE/download/VERSION/FILE`, and `BASE/latest` leads to the newest one.
    Releases,
    /// `BASE/VERSION/FILE`.
    Directories,
}

/// Why an address is no place of releases, after "releases are at an address that".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLocation {
    /// Another protocol.
    #[error("begins with https://")]
    Protocol,
    /// A user before the host.
    #[error("holds no credentials, for whoever reads it reads them")]
    Credentials,
    /// Nothing behind the host.
    #[error("has a path behind its host")]
    NoPath,
    /// A query, which could hold credentials.
    #[error("has no ? and no #")]
    Query,
    /// A file without a version before it.
    #[error("names a file only behind the directory of its version, or latest")]
    FileWithoutVersion,
}

impl Location {
    /// What an address says: `https://HOST/OWNER/REPOSITORY/releases` or `https://HOST/PATH`, with or without `/VERSION/FILE` behind
    /// it, in which the version may be `latest`.
    ///
    /// # Errors
    ///
    /// An address that is none of releases.
    pub fn parse(url: &str) -> Result<Self, InvalidLocation> {
        let rest = url
            .strip_prefix("https://")
            .ok_or(InvalidLocation::Protocol)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(InvalidLocation::Credentials);
        }
        if rest.contains(['?', '#']) {
            return Err(InvalidLocation::Query);
        }
        let (host, path) = rest.split_once('/').ok_or(InvalidLocation::NoPath)?;
        let mut names: Vec<_> = path.split('/').filter(|name| !name.is_empty()).collect();
        if host.is_empty() || names.is_empty() {
            return Err(InvalidLocation::NoPath);
        }
        let file = names
            .pop_if(|name| is_file(name))
            .map(|name| (*name).to_owned());
        let version = names.pop_if(|name| *name == LATEST || name.parse::<Version>().is_ok());
        if file.is_some() && version.is_none() {
            return Err(InvalidLocation::FileWithoutVersion);
        }
        let layout = match names.as_slice() {
            [_, _, "releases"] => Layout::Releases,
            [_, _, "releases", "download"] => {
                names.pop();
                Layout::Releases
            }
            _ => Layout::Directories,
        };
        Ok(Self {
            base: format!("https://{host}/{}", names.join("/")),
            layout,
            version: version.and_then(|name| name.parse().ok()),
            file,
        })
    }

    /// The server, and its port if one is named.
    pub fn host(&self) -> &str {
        let rest = self.base.strip_prefix("https://").unwrap_or(&self.base);
        rest.split('/').next().unwrap_or(rest)
    }

    /// The version that the address names.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// What redirects to the newest release, if anything does.
    pub fn newest(&self) -> Option<String> {
        match self.layout {
            Layout::Releases => Some(format!("{}/{LATEST}", self.base)),
            Layout::Directories => None,
        }
    }

    /// Where `metadata.yaml` of a version is.
    pub fn metadata(&self, version: &Version) -> String {
        format!("{}/metadata.yaml", self.directory(version))
    }

    /// Where the components of a version are: the first of these that is there.
    pub fn components(&self, provider: &Provider, version: &Version) -> Vec<String> {
        let names = match &self.file {
            Some(file) => vec![file.clone()],
            None => file_names(provider),
        };
        let directory = self.directory(version);
        names
            .iter()
            .map(|name| format!("{directory}/{name}"))
            .collect()
    }

    fn directory(&self, version: &Version) -> String {
        match self.layout {
            Layout::Releases => format!("{}/download/{version}", self.base),
            Layout::Directories => format!("{}/{version}", self.base),
        }
    }
}

fn is_file(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| {
        extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml")
    })
}

const LATEST: &str = "latest";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProviderType, catalogue::catalogue};

    fn docker() -> Provider {
        Provider::new(ProviderType::Infrastructure, "docker").unwrap()
    }

    #[test]
    fn each_form_of_an_address_leads_to_the_files_of_a_version() {
        let version = "v1.14.2".parse().unwrap();
        let named = "https://git.example/org/capd/releases/download/v1.14.2/my-components.yaml";
        let plain = "https://files.example:8443/a/b/v1.14.2/my-components.yaml";
        for (url, first, newest) in [
            (
                "https://git.example/org/capd/releases",
                "https://git.example/org/capd/releases/download/v1.14.2/infrastructure-components.yaml",
                true,
            ),
            (
                "https://git.example/org/capd/releases/",
                "https://git.example/org/capd/releases/download/v1.14.2/infrastructure-components.yaml",
                true,
            ),
            (
                "https://git.example/org/capd/releases/latest/my-components.yaml",
                named,
                true,
            ),
            (
                "https://git.example/org/capd/releases/v1.13.0/my-components.yaml",
                named,
                true,
            ),
            (
                "https://git.example/org/capd/releases/download/v1.13.0/my-components.yaml",
                named,
                true,
            ),
            (
                "https://files.example:8443/a/b/v1.13.0/my-components.yaml",
                plain,
                false,
            ),
            (
                "https://files.example:8443/a/b/latest/my-components.yaml",
                plain,
                false,
            ),
            (
                "https://files.example:8443/a/b",
                "https://files.example:8443/a/b/v1.14.2/infrastructure-components.yaml",
                false,
            ),
        ] {
            let location = Location::parse(url).unwrap();
            let components = location.components(&docker(), &version);
            assert_eq!(components.first().map(String::as_str), Some(first), "{url}");
            assert_eq!(location.newest().is_some(), newest, "{url}");
            let metadata = location.metadata(&version);
            let (directory, _) = first.rsplit_once('/').unwrap();
            assert_eq!(metadata, format!("{directory}/metadata.yaml"), "{url}");
            let version = location.version().map(ToString::to_string);
            assert_eq!(version.is_some(), url.contains("v1.13.0"), "{url}");
        }
    }

    #[test]
    fn an_address_that_is_none_of_releases_is_refused() {
        for (url, why) in [
            ("http://a/b", InvalidLocation::Protocol),
            ("https://a", InvalidLocation::NoPath),
            ("https:///b", InvalidLocation::NoPath),
            ("https://a//", InvalidLocation::NoPath),
            ("https://a/b?token=c", InvalidLocation::Query),
            ("https://bot:token@a/b", InvalidLocation::Credentials),
            ("https://token@a/b?c", InvalidLocation::Credentials),
            (
                "https://a/b/components.yaml",
                InvalidLocation::FileWithoutVersion,
            ),
        ] {
            assert_eq!(Location::parse(url), Err(why), "{url}");
        }
        assert!(Location::parse("https://a/b@c/d").is_ok());
    }

    #[test]
    fn every_provider_that_is_known_has_a_location() {
        for entry in catalogue() {
            let location = Location::parse(&entry.url).unwrap();
            let version = "v1.0.0".parse().unwrap();
            assert_eq!(location.components(&entry.provider, &version).len(), 1);
        }
    }

    #[test]
    fn addresses_survive_fuzzing() {
        let corpus = [
            "https://git.example/org/capd/releases/download/v1.14.2/my-components.yaml",
            "https://files.example:8443/a/b/latest/c.yml",
        ];
        fuzz::text("addresses of releases", &corpus, |url| {
            if let Ok(location) = Location::parse(url) {
                let version = "v1.14.2".parse().expect("a version");
                let metadata = location.metadata(&version);
                assert!(metadata.starts_with("https://"), "{metadata}");
            }
        });
    }
}
