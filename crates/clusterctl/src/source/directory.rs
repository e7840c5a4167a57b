//! A directory with releases, as clusterctl's local repositories are laid out: `LABEL/VERSION/FILE`.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{Files, SIGNATURE, Unfit, file_names, text};
use crate::{Provider, Version};

/// A directory with releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory(PathBuf);

/// A release that the directory does not give.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// No releases of a provider.
    #[error(
        "{path} cannot be listed, where the releases of {provider} would be; put them there, each into a directory of its version, or name the directory that has them"
    )]
    List {
        /// The provider.
        provider: Provider,
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A version that is not there.
    #[error(
        "{path} is no directory; {provider} has {there} there: choose one of them, or put the release into that directory"
    )]
    NoVersion {
        /// The provider.
        provider: Provider,
        /// The directory that would hold it.
        path: PathBuf,
        /// The versions that are there.
        there: String,
    },
    /// No version at all.
    #[error("{path} holds no release of {0}: put its files into {path}/VERSION", path = .1.display())]
    Empty(Provider, PathBuf),
    /// No file of components.
    #[error("{path} holds no components: {} are looked for", .names.join(", "))]
    NoComponents {
        /// The directory.
        path: PathBuf,
        /// The names that were looked for.
        names: Vec<String>,
    },
    /// A file that is not taken.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Unfit,
    },
}

impl Directory {
    /// The directory at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The versions of a provider, oldest first. What is no version is left out.
    ///
    /// # Errors
    ///
    /// A directory that cannot be listed.
    pub fn versions(&self, provider: &Provider) -> Result<Vec<Version>, DirectoryError> {
        let path = self.0.join(provider.manifest_label());
        let entries = fs::read_dir(&path).map_err(|source| DirectoryError::List {
            provider: provider.clone(),
            path,
            source,
        })?;
        let names = entries.flatten().filter(|entry| entry.path().is_dir());
        let mut versions: Vec<Version> = names
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        versions.sort();
        Ok(versions)
    }

    /// The newest version of a provider that is no prerelease, or else the newest one.
    ///
    /// # Errors
    ///
    /// A directory that cannot be listed or holds none.
    pub fn newest(&self, provider: &Provider) -> Result<Version, DirectoryError> {
        let versions = self.versions(provider)?;
        let released = versions.iter().rfind(|version| !version.is_prerelease());
        released.or(versions.last()).cloned().ok_or_else(|| {
            let path = self.0.join(provider.manifest_label());
            DirectoryError::Empty(provider.clone(), path)
        })
    }

    /// The files of a release.
    ///
    /// # Errors
    ///
    /// A version that is not there, and files that are not there or not taken.
    pub fn files(&self, provider: &Provider, version: &Version) -> Result<Files, DirectoryError> {
        let path = self
            .0
            .join(provider.manifest_label())
            .join(version.to_string());
        if !path.is_dir() {
            let there = self.versions(provider)?;
            let there: Vec<_> = there.iter().map(ToString::to_string).collect();
            return Err(DirectoryError::NoVersion {
                provider: provider.clone(),
                path,
                there: if there.is_empty() {
                    "nothing".to_owned()
                } else {
                    there.join(", ")
                },
            });
        }
        let names = file_names(provider);
        let components = names
            .iter()
            .map(|name| path.join(name))
            .find(|path| path.exists());
        let components = components.ok_or_else(|| DirectoryError::NoComponents {
            path: path.clone(),
            names,
        })?;
        let mut signature = components.clone().into_os_string();
        signature.push(SIGNATURE);
        let signature = PathBuf::from(signature);
        Ok(Files {
            metadata: read(&path.join("metadata.yaml"))?,
            components: read(&components)?,
            signature: signature
                .exists()
                .then(|| read_signature(&signature))
                .transpose()?,
        })
    }
}

/// Whatever it is: one of another kind, as gpg's, is of no use to whoever asks for one, and in nobody else's way.
fn read_signature(path: &Path) -> Result<String, DirectoryError> {
    let read = || {
        let mut bytes = Vec::new();
        let file = fs::File::open(path)?;
        file.take(LONGEST_SIGNATURE).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    let bytes = read().map_err(|error| DirectoryError::File {
        path: path.to_owned(),
        source: Unfit::Read(error),
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// In bytes. One of the kind that is known has a hundred.
const LONGEST_SIGNATURE: u64 = 4096;

fn read(path: &Path) -> Result<String, DirectoryError> {
    let read = || text(fs::File::open(path).map_err(Unfit::Read)?);
    read().map_err(|source| DirectoryError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderType;

    fn docker() -> Provider {
        Provider::new(ProviderType::Infrastructure, "docker").unwrap()
    }

    fn write(directory: &Path, file: &str, text: &[u8]) {
        let path = directory.join("infrastructure-docker").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn releases_are_found_as_clusterctl_lays_them_out() {
        let home = tempfile::tempdir().unwrap();
        for version in ["v1.9.0", "v1.10.0", "v1.11.0-rc.1"] {
            write(
                home.path(),
                &format!("{version}/metadata.yaml"),
                version.as_bytes(),
            );
        }
        write(
            home.path(),
            "v1.10.0/infrastructure-components-development.yaml",
            b"known",
        );
        write(home.path(), "v1.9.0/components.yaml", b"plain");
        write(home.path(), "v1.9.0/components.yaml.sig", b"signature");
        write(home.path(), "latest/components.yaml", b"no version");
        write(home.path(), "v1.12.0", b"no directory");
        let directory = Directory::new(home.path());
        let versions: Vec<_> = directory
            .versions(&docker())
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(versions, ["v1.9.0", "v1.10.0", "v1.11.0-rc.1"]);
        let newest = directory.newest(&docker()).unwrap();
        assert_eq!(newest.to_string(), "v1.10.0");
        let files = directory.files(&docker(), &newest).unwrap();
        assert_eq!(
            (files.metadata.as_str(), files.components.as_str()),
            ("v1.10.0", "known")
        );
        assert_eq!(files.signature, None);
        let files = directory
            .files(&docker(), &"v1.9.0".parse().unwrap())
            .unwrap();
        assert_eq!(files.components, "plain");
        assert_eq!(files.signature.as_deref(), Some("signature"));
        // One that is no text, as gpg's.
        write(home.path(), "v1.9.0/components.yaml.sig", b"\x89\x01\xff");
        let files = directory.files(&docker(), &"v1.9.0".parse().unwrap());
        assert_eq!(files.unwrap().components, "plain");
    }

    #[test]
    fn what_is_not_there_or_too_much_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::new(home.path());
        let told = |version: &str| {
            directory
                .files(&docker(), &version.parse().unwrap())
                .unwrap_err()
                .to_string()
        };
        assert!(told("v1.0.0").contains(
            "cannot be listed, where the releases of InfrastructureProvider docker would be"
        ));
        write(home.path(), "v1.0.0/other", b"");
        assert!(told("v1.0.0").contains("holds no components: infrastructure-components.yaml, infrastructure-components-development.yaml, components.yaml"));
        assert!(told("v2.0.0").contains("InfrastructureProvider docker has v1.0.0 there"));
        write(home.path(), "v1.0.0/components.yaml", b"a: 1");
        assert!(told("v1.0.0").contains("metadata.yaml: it cannot be read"));
        write(home.path(), "v1.0.0/metadata.yaml", b"\xff");
        assert!(told("v1.0.0").contains("metadata.yaml: it is no text in UTF-8"));
        write(home.path(), "v1.0.0/metadata.yaml", b"a: 1");
        let path = home
            .path()
            .join("infrastructure-docker/v1.0.0/components.yaml");
        fs::File::create(path)
            .unwrap()
            .set_len(super::super::LARGEST + 1)
            .unwrap();
        assert!(told("v1.0.0").contains("components.yaml: it has more than 33554432 bytes"));
    }
}
