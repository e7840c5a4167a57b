//! Brings playbooks: a git repository, a directory or an OCI image becomes a tree in the cache, named by its content and
//! never changed.
//!
//! Whoever names a source is not trusted with this machine: a [`Policy`] says which protocols, addresses and directories
//! are asked, and how much of the network, the disk, memory and time one tree may cost. Every connection passes one gate
//! (`network`), every tree another (`tree`), and the cache is bounded for each tenant (`cache`).

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::OFlag;
use sha2::{Digest, Sha256};
use walkdir::{DirEntry, WalkDir};

use crate::FileError;

mod cache;
mod git;
mod image;
mod network;
mod policy;
mod tree;

pub use cache::Hold;
pub use network::Refusal as NetworkRefusal;
pub use policy::{Bounds, Policy, Protocol, Room, Settings};
pub use tree::Refusal as TreeRefusal;

/// Where playbooks come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SourceRequest {
    /// A git repository and a tag, branch or commit of it.
    Git {
        /// The repository's address.
        url: String,
        /// The tag, branch or commit.
        reference: String,
        /// The commit that the reference must stand for, where that is known.
        commit: Option<String>,
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
    /// Keeps it there.
    pub hold: Hold,
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
    /// An archive or a repository cannot be read.
    #[error("unpack {place}")]
    Unpack {
        /// The source.
        place: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The tree has what no tree may have, or is too large.
    #[error("unpack {place}")]
    Refused {
        /// The source.
        place: String,
        /// Why.
        #[source]
        source: TreeRefusal,
    },
    /// A connection was refused or cut.
    #[error("bring {place}")]
    Network {
        /// The source.
        place: String,
        /// Why.
        #[source]
        source: NetworkRefusal,
    },
    /// It is not the address of a repository.
    #[error("{0:?} is not the address of a git repository")]
    Url(String),
    /// The protocol is not among those that are asked.
    #[error("{place} is to be brought by {protocol}, and sources come by {}", list(.allowed))]
    Protocol {
        /// The source.
        place: String,
        /// Its protocol.
        protocol: Protocol,
        /// Those that are.
        allowed: Vec<Protocol>,
    },
    /// The directory is not below those that sources lie in.
    #[error("{path} is not below {}", paths(.roots))]
    Outside {
        /// The directory as it was named.
        path: PathBuf,
        /// Those that sources lie in.
        roots: Vec<PathBuf>,
    },
    /// A tag stands for another commit than the release.
    #[error(
        "{reference} of {url} is commit {found}, and the release is commit {expected}: the tag was moved"
    )]
    Moved {
        /// The repository.
        url: String,
        /// The tag.
        reference: String,
        /// The commit of the release.
        expected: String,
        /// The commit that it is now.
        found: String,
    },
    /// It takes too long.
    #[error("bring {place} within {} s", .limit.as_secs())]
    Late {
        /// The source.
        place: String,
        /// How long it may take.
        limit: Duration,
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
            | Self::Refused { .. }
            | Self::Url(_)
            | Self::Protocol { .. }
            | Self::Outside { .. }
            | Self::Moved { .. } => true,
            Self::Unpack { source, .. } => source.kind() != io::ErrorKind::StorageFull,
            Self::Network { source, .. } => source.is_final(),
            Self::Registry { source, .. } => image::is_final(source),
            Self::File { .. } | Self::Git { .. } | Self::Late { .. } | Self::Join(_) => false,
        }
    }

    fn of_tree(place: &str, tree: &Path, error: tree::Error) -> Self {
        let place = place.to_owned();
        match error {
            tree::Error::Refused(source) => Self::Refused { place, source },
            tree::Error::Io(source) if source.kind() == io::ErrorKind::StorageFull => {
                Self::File(FileError::of(tree)(source))
            }
            tree::Error::Io(source) => Self::Unpack { place, source },
        }
    }
}

fn list(protocols: &[Protocol]) -> String {
    let names: Vec<&str> = protocols.iter().map(|protocol| protocol.name()).collect();
    names.join(", ")
}

fn paths(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(tree::shown).collect();
    shown.join(", ")
}

/// A tree that is no part of the cache yet.
struct Unpacked {
    /// Its directory.
    tree: PathBuf,
    /// What the name stood for.
    revision: String,
}

/// The playbooks of all tenants, in one directory.
#[derive(Clone, Debug)]
pub struct Sources {
    directory: PathBuf,
    policy: Policy,
}

impl Sources {
    /// Playbooks that are brought under a policy and kept in a directory.
    pub fn new(directory: impl Into<PathBuf>, policy: Policy) -> Self {
        Self {
            directory: directory.into(),
            policy,
        }
    }

    /// Brings playbooks for a tenant into the cache, unless they are there.
    ///
    /// # Errors
    ///
    /// The policy refuses the place, it does not give the playbooks in time, they are not kubespray's, or the cache cannot be
    /// written.
    pub async fn fetch(&self, tenant: &str, request: &SourceRequest) -> Result<Checkout, Error> {
        // Whatever of it blocks and cannot be dropped ends by this.
        let (_asker, wanted) = tree::Asker::new();
        let fetching = self.bring(tenant, request, wanted);
        let limit = self.policy.time;
        let fetched = tokio::time::timeout(limit, fetching).await;
        fetched.unwrap_or_else(|_| {
            Err(Error::Late {
                place: place(request),
                limit,
            })
        })
    }

    /// Keeps a tree of the cache where it is, if it is there, for as long as what is given lives.
    ///
    /// # Errors
    ///
    /// The file that keeps it cannot be made or locked.
    pub fn hold(&self, digest: &str) -> Result<Hold, Error> {
        cache::hold(&self.directory, digest).map_err(Error::File)
    }

    async fn bring(
        &self,
        tenant: &str,
        request: &SourceRequest,
        wanted: tree::Wanted,
    ) -> Result<Checkout, Error> {
        let cache = self.clone();
        tokio::task::spawn_blocking(move || cache.cache().prepare(cache.policy.bounds.bytes))
            .await
            .map_err(Error::Join)??;
        let work = workplace(&self.directory)?;
        let (tree, revision) = match request {
            SourceRequest::Path(path) => {
                let tree = work.path().join("tree");
                let copy = Copy {
                    from: self.directory_of(path)?,
                    to: tree.clone(),
                    place: place(request),
                    policy: self.policy.clone(),
                };
                tokio::task::spawn_blocking(move || copy.copy(wanted))
                    .await
                    .map_err(Error::Join)??;
                (tree, None)
            }
            SourceRequest::Git {
                url,
                reference,
                commit,
            } => {
                let wish = git::Wish {
                    url,
                    reference,
                    commit: commit.as_deref(),
                };
                let unpacked = git::pull(&wish, &self.policy, work.path(), wanted).await?;
                (unpacked.tree, Some(unpacked.revision))
            }
            SourceRequest::Image(image) => {
                let unpacked = image::pull(image, &self.policy, work.path(), wanted).await?;
                (unpacked.tree, Some(unpacked.revision))
            }
        };
        let (sources, tenant, place) = (self.clone(), tenant.to_owned(), place(request));
        tokio::task::spawn_blocking(move || {
            // Removed when all is done.
            let _work = work;
            sources.store(&tenant, &tree, &place, revision)
        })
        .await
        .map_err(Error::Join)?
    }

    fn cache(&self) -> cache::Cache<'_> {
        cache::Cache {
            directory: &self.directory,
            room: self.policy.room,
        }
    }

    /// A directory that a source may name, without links on the way.
    fn directory_of(&self, path: &Path) -> Result<PathBuf, Error> {
        let Some(roots) = &self.policy.roots else {
            if path.is_dir() {
                return Ok(path.to_owned());
            }
            return Err(Error::NoDirectory(path.to_owned()));
        };
        let outside = || Error::Outside {
            path: path.to_owned(),
            roots: roots.clone(),
        };
        // Whether anything is there is told of what is below the roots alone.
        let absolute = std::path::absolute(path).map_err(FileError::of(path))?;
        let lexically = tree::clean(&absolute).map(|path| Path::new("/").join(path));
        let below = |path: &Path| {
            let real = |root: &PathBuf| fs::canonicalize(root).unwrap_or_else(|_| root.clone());
            let mut all = roots.iter();
            all.any(|root| path.starts_with(root) || path.starts_with(real(root)))
        };
        if !lexically.is_some_and(|path| below(&path)) {
            return Err(outside());
        }
        let real = fs::canonicalize(path).map_err(|_| Error::NoDirectory(path.to_owned()))?;
        if !below(&real) {
            return Err(outside());
        }
        if real.is_dir() {
            return Ok(real);
        }
        Err(Error::NoDirectory(path.to_owned()))
    }

    /// Moves a tree into the cache under its digest.
    fn store(
        &self,
        tenant: &str,
        tree: &Path,
        place: &str,
        revision: Option<String>,
    ) -> Result<Checkout, Error> {
        is_kubespray(tree, place)?;
        let digest = digest(tree)?;
        let hold = self.cache().hold(&digest)?;
        let path = self.directory.join(&digest);
        // What is there is used only as what it is named: a tree that was changed is brought again.
        if !path.is_dir() || self::digest(&path)? != digest {
            put(tree, &path)?;
        }
        self.cache().used(tenant, &digest, cache::size(&path))?;
        Ok(Checkout {
            path,
            digest,
            revision,
            hold,
        })
    }
}

/// A source for people.
fn place(request: &SourceRequest) -> String {
    match request {
        SourceRequest::Git { url, reference, .. } => {
            format!("{} of {}", tree::shown(reference), tree::shown(url))
        }
        SourceRequest::Path(path) => tree::shown(path),
        SourceRequest::Image(image) => format!("image {}", tree::shown(image)),
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

/// A directory of this machine that becomes a tree.
struct Copy {
    from: PathBuf,
    to: PathBuf,
    place: String,
    policy: Policy,
}

impl Copy {
    fn copy(&self, wanted: tree::Wanted) -> Result<(), Error> {
        let reserve = self.policy.room.reserve;
        let mut writer = tree::Writer::new(&self.to, self.policy.bounds, reserve, wanted)
            .map_err(FileError::of(&self.to))?;
        let refused = |error| Error::of_tree(&self.place, &self.to, error);
        for entry in entries(&self.from) {
            let entry = entry?;
            self.add(&entry, &mut writer).map_err(refused)?;
        }
        writer.finish().map_err(refused)
    }

    fn add(&self, entry: &DirEntry, writer: &mut tree::Writer) -> Result<(), tree::Error> {
        let from = entry.path();
        let path = from.strip_prefix(&self.from).unwrap_or(from);
        let kind = entry.file_type();
        if kind.is_dir() {
            return writer.directory(path);
        }
        if kind.is_symlink() {
            return writer.link(path, &fs::read_link(from)?);
        }
        let other = || tree::Error::Refused(TreeRefusal::Kind(tree::shown(path)));
        if !kind.is_file() {
            return Err(other());
        }
        // What it was a moment ago may be a pipe or a link by now.
        let mut file = fs::OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(from)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(other());
        }
        let program = metadata.permissions().mode() & 0o100 != 0;
        writer.file(path, program, &mut file)
    }
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
///
/// No two trees are written alike before they are hashed: each entry, in the order of the walk, is a byte for its kind, its path,
/// and for a link where it leads, for a file the SHA-256 of its content. A path and a link have their length before them, in
/// eight bytes, so that nothing in one is taken for what follows it.
///
/// # Errors
///
/// An entry of the tree cannot be read.
pub fn digest(tree: &Path) -> Result<String, Error> {
    let mut hash = Sha256::new();
    for entry in entries(tree) {
        let entry = entry?;
        let path = entry.path();
        let failed = FileError::of(path);
        let name = path.strip_prefix(tree).unwrap_or(path);
        let kind = entry.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(path).map_err(failed)?;
            add_text(&mut hash, b'l', name);
            add_text(&mut hash, b'>', &target);
        } else if kind.is_file() {
            let (program, content) = content(path).map_err(failed)?;
            add_text(&mut hash, if program { b'x' } else { b'f' }, name);
            hash.update(content);
        } else {
            add_text(&mut hash, b'd', name);
        }
    }
    Ok(hex::encode(hash.finalize()))
}

fn add_text(hash: &mut Sha256, tag: u8, text: &Path) {
    let text = text.as_os_str().as_bytes();
    hash.update([tag]);
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// Whether a file can be executed, and the SHA-256 of what is in it.
fn content(path: &Path) -> io::Result<(bool, [u8; 32])> {
    let mut file = fs::File::open(path)?;
    let program = file.metadata()?.permissions().mode() & 0o100 != 0;
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash)?;
    Ok((program, hash.finalize().into()))
}

/// Moves a tree to where it stays.
fn put(tree: &Path, target: &Path) -> Result<(), Error> {
    if fs::rename(tree, target).is_ok() {
        return Ok(());
    }
    // Another fetch of the same tree was faster: it stays, since somebody may be reading it.
    if target.is_dir() && digest(target)? == digest(tree)? {
        return Ok(());
    }
    let changed = tree.with_extension("changed");
    fs::rename(target, &changed).map_err(FileError::of(target))?;
    fs::rename(tree, target).map_err(FileError::of(target))?;
    Ok(())
}
