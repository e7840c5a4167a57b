//! Brings playbooks: a git repository, a directory or an OCI image becomes a tree in the cache, named by its content and
//! never changed.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Stdio,
};

use sha2::{Digest, Sha256};
use walkdir::{DirEntry, WalkDir};

use crate::FileError;

mod image;

/// Where playbooks come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SourceRequest {
    /// A git repository and a tag, branch or commit of it.
    Git {
        /// The repository's address.
        url: String,
        /// The tag, branch or commit.
        reference: String,
    },
    /// A directory of this machine.
    Path(PathBuf),
    /// An OCI image.
    Image(String),
}

/// Playbooks in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkout {
    /// The directory.
    pub path: PathBuf,
    /// The SHA-256 of its content, in hex.
    pub digest: String,
    /// What the name stood for: the commit of a git reference, the manifest's digest of an image.
    pub revision: Option<String>,
}

/// Why playbooks cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such directory.
    #[error("{0} is not a directory")]
    NoDirectory(PathBuf),
    /// It is something else.
    #[error("{place} is not kubespray: it has no {missing}")]
    NotKubespray {
        /// The source.
        place: String,
        /// What was looked for.
        missing: &'static str,
    },
    /// git cannot be started.
    #[error("start git, which must be installed")]
    NoGit(#[source] io::Error),
    /// git could not fetch.
    #[error("fetch {reference} from {url}: {reason}")]
    Git {
        /// The repository.
        url: String,
        /// The tag, branch or commit.
        reference: String,
        /// What git said.
        reason: String,
    },
    /// The repository has no such tag, branch or commit.
    #[error("{url} has no tag, branch or commit {reference:?}")]
    NoReference {
        /// The repository.
        url: String,
        /// The tag, branch or commit.
        reference: String,
    },
    /// It is not the name of an image.
    #[error("{image:?} is not the name of an image")]
    ImageName {
        /// What was given.
        image: String,
        /// Why.
        #[source]
        source: oci_client::ParseError,
    },
    /// The registry did not give the image.
    #[error("pull image {image}")]
    Registry {
        /// The image.
        image: String,
        /// Why.
        #[source]
        source: Box<oci_client::errors::OciDistributionError>,
    },
    /// A layer of an image cannot be unpacked.
    #[error("unpack image {image}")]
    Layer {
        /// The image.
        image: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A task of ours failed.
    #[error("wait for the copy")]
    Join(#[source] tokio::task::JoinError),
}

impl Error {
    /// Whether the same request fails again until somebody changes something, as opposed to what may pass by itself.
    pub fn is_final(&self) -> bool {
        match self {
            Self::NoDirectory(_)
            | Self::NotKubespray { .. }
            | Self::NoGit(_)
            | Self::NoReference { .. }
            | Self::ImageName { .. }
            | Self::Layer { .. } => true,
            Self::Registry { source, .. } => image::is_final(source),
            Self::File { .. } | Self::Git { .. } | Self::Join(_) => false,
        }
    }
}

/// Brings the playbooks into the cache, unless they are there.
pub async fn fetch(request: &SourceRequest, cache: &Path) -> Result<Checkout, Error> {
    make_directory(cache)?;
    match request {
        SourceRequest::Path(path) => {
            if !path.is_dir() {
                return Err(Error::NoDirectory(path.clone()));
            }
            let place = path.display().to_string();
            store(path.clone(), place, None, cache.to_owned()).await
        }
        SourceRequest::Git { url, reference } => {
            let work = workplace(cache)?;
            let revision = clone(url, reference, work.path()).await?;
            let place = format!("{reference} of {url}");
            store(
                work.path().to_owned(),
                place,
                Some(revision),
                cache.to_owned(),
            )
            .await
        }
        SourceRequest::Image(image) => {
            let work = workplace(cache)?;
            let unpacked = image::pull(image, work.path()).await?;
            let place = format!("image {image}");
            store(
                unpacked.tree,
                place,
                Some(unpacked.digest),
                cache.to_owned(),
            )
            .await
        }
    }
}

/// A directory that is gone when it is dropped.
fn workplace(cache: &Path) -> Result<tempfile::TempDir, Error> {
    tempfile::Builder::new()
        .prefix(".fetch-")
        .tempdir_in(cache)
        .map_err(FileError::of(cache))
        .map_err(Error::File)
}

/// Copies a tree into the cache under its digest.
async fn store(
    tree: PathBuf,
    place: String,
    revision: Option<String>,
    cache: PathBuf,
) -> Result<Checkout, Error> {
    tokio::task::spawn_blocking(move || {
        is_kubespray(&tree, &place)?;
        let digest = digest(&tree)?;
        let path = cache.join(&digest);
        // What is there is used only as what it is named: a tree that was changed is copied again.
        if !path.is_dir() || self::digest(&path)? != digest {
            copy(&tree, &path, &cache)?;
        }
        Ok(Checkout {
            path,
            digest,
            revision,
        })
    })
    .await
    .map_err(Error::Join)?
}

fn is_kubespray(tree: &Path, place: &str) -> Result<(), Error> {
    for missing in ["cluster.yml", "roles", "requirements.txt"] {
        if !tree.join(missing).exists() {
            return Err(Error::NotKubespray {
                place: place.to_owned(),
                missing,
            });
        }
    }
    Ok(())
}

async fn clone(url: &str, reference: &str, directory: &Path) -> Result<String, Error> {
    let git = async |arguments: &[&str]| {
        let output = tokio::process::Command::new("git")
            .arg("-C")
            .arg(directory)
            .args(arguments)
            .env("GIT_TERMINAL_PROMPT", "0")
            // Its words are read below.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(Error::NoGit)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let mut lines = said.lines().filter(|line| !line.trim().is_empty());
        // What follows the first complaint is advice.
        let reason = lines
            .clone()
            .find(|line| line.starts_with("fatal: "))
            .or_else(|| lines.next_back())
            .unwrap_or("git failed");
        if ["couldn't find remote ref", "not our ref"]
            .iter()
            .any(|words| reason.contains(words))
        {
            return Err(Error::NoReference {
                url: url.to_owned(),
                reference: reference.to_owned(),
            });
        }
        Err(Error::Git {
            url: url.to_owned(),
            reference: reference.to_owned(),
            reason: reason.trim().to_owned(),
        })
    };
    git(&["init", "--quiet"]).await?;
    // `--` keeps an address or a reference that begins with a dash from being an option.
    git(&["fetch", "--quiet", "--depth", "1", "--", url, reference]).await?;
    git(&[
        "-c",
        "advice.detachedHead=false",
        "checkout",
        "--quiet",
        "FETCH_HEAD",
    ])
    .await?;
    git(&["rev-parse", "FETCH_HEAD^{commit}"]).await
}

/// The files of a tree that count: everything but git's own and what Python leaves behind.
fn entries(tree: &Path) -> impl Iterator<Item = Result<DirEntry, Error>> {
    let counts = |entry: &DirEntry| {
        let name = entry.file_name();
        name != OsStr::new(".git") && name != OsStr::new("__pycache__")
    };
    let root = tree.to_owned();
    WalkDir::new(tree)
        .min_depth(1)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(counts)
        .map(move |entry| {
            entry.map_err(|error| {
                let path = error.path().unwrap_or(&root).to_owned();
                Error::File(FileError::of(&path)(error.into()))
            })
        })
}

/// The SHA-256 of a tree: names, kinds, whether files can be executed, and contents.
pub fn digest(tree: &Path) -> Result<String, Error> {
    let mut hash = Sha256::new();
    for entry in entries(tree) {
        let entry = entry?;
        let failed = FileError::of(entry.path());
        let name = entry
            .path()
            .strip_prefix(tree)
            .unwrap_or(entry.path())
            .as_os_str()
            .as_bytes();
        hash.update(name);
        let kind = entry.file_type();
        if kind.is_symlink() {
            hash.update(b"\0link\0");
            hash.update(
                fs::read_link(entry.path())
                    .map_err(&failed)?
                    .as_os_str()
                    .as_bytes(),
            );
        } else if kind.is_file() {
            let metadata = entry.metadata().map_err(|error| failed(error.into()))?;
            let program = metadata.permissions().mode() & 0o100 != 0;
            hash.update(if program { b"\0prog\0" } else { b"\0file\0" });
            hash.update(metadata.len().to_le_bytes());
            let mut file = fs::File::open(entry.path()).map_err(&failed)?;
            let mut buffer = vec![0; 1 << 16];
            loop {
                let read = file.read(&mut buffer).map_err(&failed)?;
                let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else {
                    break;
                };
                hash.update(part);
            }
        }
        hash.update(b"\0");
    }
    Ok(hex::encode(hash.finalize()))
}

fn copy(tree: &Path, target: &Path, cache: &Path) -> Result<(), Error> {
    let work = tempfile::Builder::new()
        .prefix(".copy-")
        .tempdir_in(cache)
        .map_err(FileError::of(cache))?;
    for entry in entries(tree) {
        let entry = entry?;
        let from = entry.path();
        let to = work.path().join(from.strip_prefix(tree).unwrap_or(from));
        let kind = entry.file_type();
        if kind.is_dir() {
            fs::create_dir(&to).map_err(FileError::of(&to))?;
        } else if kind.is_symlink() {
            let link = fs::read_link(from).map_err(FileError::of(from))?;
            std::os::unix::fs::symlink(link, &to).map_err(FileError::of(&to))?;
        } else {
            fs::copy(from, &to).map_err(FileError::of(from))?;
        }
    }
    if fs::rename(work.path(), target).is_ok() {
        return Ok(());
    }
    // Another fetch of the same tree was faster: it stays, since somebody may be reading it.
    if target.is_dir() && digest(target)? == digest(work.path())? {
        return Ok(());
    }
    let changed = work.path().with_extension("changed");
    fs::rename(target, &changed).map_err(FileError::of(target))?;
    fs::rename(work.path(), target).map_err(FileError::of(target))?;
    fs::remove_dir_all(&changed).map_err(FileError::of(&changed))?;
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(FileError::of(path))?;
    Ok(())
}
