//! The directory of a mirror. What has its final name in it came whole, and was what it must be.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use registry::hex_digest;

use crate::list::{Checksum, ImageName, Place};

/// The directory of a mirror.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// A file of a mirror cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("use {path}")]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl Error {
    pub(crate) fn of(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self {
            path: path.clone(),
            source,
        }
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

/// How a file stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// It is not there.
    Missing,
    /// It is something else than it must be.
    Other,
    /// It is there, with so many bytes.
    Good(u64),
}

impl Store {
    /// The mirror in a directory.
    ///
    /// # Errors
    ///
    /// The directory is not there.
    pub fn open(root: &Path) -> Result<Self, Error> {
        // Links in it are followed no further than here.
        let root = fs::canonicalize(root).map_err(Error::of(root))?;
        Ok(Self { root })
    }

    /// The same, which is made if it is not there, and is this process' alone while the file that is returned is open.
    ///
    /// # Errors
    ///
    /// The directory cannot be made, or another process fills it.
    pub fn make(root: &Path) -> Result<(Self, fs::File), Error> {
        directory(root)?;
        let store = Self::open(root)?;
        let lock = store.root.join("lock");
        let opened = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .custom_flags(NO_LINK)
            .open(&lock);
        let file = opened.map_err(Error::of(&lock))?;
        file.try_lock().map_err(|error| Error {
            path: lock,
            source: io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("another process is at work in this mirror ({error})"),
            ),
        })?;
        Ok((store, file))
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn file(&self, place: &Place) -> PathBuf {
        self.root.join("files").join(place.path())
    }

    pub(crate) fn blob(&self, hex: &str) -> PathBuf {
        self.root.join("registry/blobs").join(hex)
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.root.join("registry/manifests")
    }

    fn tag(&self, image: &ImageName) -> PathBuf {
        self.manifests().join(&image.repository).join(&image.tag)
    }

    /// Where what is to be a file grows.
    pub(crate) fn partial(&self, name: &str) -> PathBuf {
        self.root.join("partial").join(name)
    }

    /// The digest that an image has here, as `sha256:HEX`; none: it is not here.
    pub fn digest(&self, image: &ImageName) -> Option<String> {
        Some(format!("sha256:{}", self.pinned(image)?))
    }

    /// The digest that an image has here, in hex.
    pub(crate) fn pinned(&self, image: &ImageName) -> Option<String> {
        self.tagged(&image.repository, &image.tag)
    }

    /// The digest that a tag of a repository has, in hex. Both were looked at: they are names.
    pub(crate) fn tagged(&self, repository: &str, tag: &str) -> Option<String> {
        let path = self.manifests().join(repository).join(tag);
        let digest = format!("sha256:{}", small_text(&path)?.trim());
        hex_digest(&digest).map(str::to_owned)
    }

    pub(crate) fn pin(&self, image: &ImageName, hex: &str) -> Result<(), Error> {
        self.put(&self.tag(image), hex.as_bytes())
    }

    /// Makes the directory of a file, which lies in this one: whoever carried it may have left links in it.
    pub(crate) fn make_room(&self, path: &Path) -> Result<(), Error> {
        let parent = path.parent().unwrap_or(&self.root);
        let mut above = self.root.clone();
        let below = parent.strip_prefix(&self.root).unwrap_or(parent);
        for part in below.components() {
            above.push(part);
            let is_link = fs::symlink_metadata(&above).is_ok_and(|found| found.is_symlink());
            if is_link {
                return Err(Error::of(&above)(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is a link, and a mirror has none: remove it",
                )));
            }
        }
        directory(parent)
    }

    /// Puts a small file in its place, whole.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let failed = Error::of(path);
        let parent = path.parent().unwrap_or(&self.root);
        self.make_room(path)?;
        let mut file = tempfile::Builder::new()
            .prefix(".windlass-")
            .permissions(fs::Permissions::from_mode(0o644))
            .tempfile_in(parent)
            .map_err(&failed)?;
        file.write_all(bytes).map_err(&failed)?;
        file.as_file().sync_all().map_err(&failed)?;
        file.persist(path)
            .map(drop)
            .map_err(|error| failed(error.error))
    }

    /// Gives what grew its final name.
    pub(crate) fn finish(&self, partial: &Path, path: &Path) -> Result<(), Error> {
        self.make_room(path)?;
        let file = fs::File::open(partial).map_err(Error::of(partial))?;
        file.sync_all().map_err(Error::of(partial))?;
        fs::rename(partial, path).map_err(Error::of(path))
    }

    /// What was seen of files that nobody says a checksum of.
    pub(crate) fn digests(&self) -> BTreeMap<String, Checksum> {
        let text = small_text(&self.root.join(DIGESTS)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) fn note(&self, digests: &BTreeMap<String, Checksum>) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(digests).unwrap_or_default();
        self.put(&self.root.join(DIGESTS), text.as_bytes())
    }

    /// A blob as text, if it is there, not large, and what its name says.
    pub(crate) fn manifest(&self, hex: &str) -> Option<Vec<u8>> {
        let bytes = small(&self.blob(hex), MANIFEST)?;
        let mut sum = Checksum::sha256(hex.to_owned()).sum();
        sum.update(&bytes);
        (sum.finish() == Checksum::sha256(hex.to_owned())).then_some(bytes)
    }
}

/// A file is opened, and not where a link leads.
pub(crate) const NO_LINK: i32 = nix::fcntl::OFlag::O_NOFOLLOW.bits();

/// The largest manifest, as registries take it.
pub(crate) const MANIFEST: u64 = registry::LARGEST_MANIFEST;
const DIGESTS: &str = "digests.json";

/// How a file stands to what it must be. Reads all of it.
pub(crate) fn standing(path: &Path, checksum: Option<&Checksum>) -> Result<Standing, Error> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(Standing::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Standing::Missing),
        Err(error) => return Err(Error::of(path)(error)),
    }
    let (found, bytes) = sum(path, checksum)?;
    let good = checksum.is_none_or(|checksum| *checksum == found);
    Ok(if good {
        Standing::Good(bytes)
    } else {
        Standing::Other
    })
}

/// The sum of a file by the algorithm of another sum, and its bytes.
pub(crate) fn sum(path: &Path, like: Option<&Checksum>) -> Result<(Checksum, u64), Error> {
    let failed = Error::of(path);
    let mut file = fs::File::open(path).map_err(&failed)?;
    let mut sum = like
        .cloned()
        .unwrap_or_else(|| Checksum::sha256(String::new()))
        .sum();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0_u64;
    loop {
        let count = file.read(&mut buffer).map_err(&failed)?;
        let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else {
            return Ok((sum.finish(), bytes));
        };
        sum.update(part);
        bytes = bytes.saturating_add(part.len() as u64);
    }
}

/// What is served is read by anybody; others do not write it.
pub(crate) fn directory(path: &Path) -> Result<(), Error> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path);
    made.map_err(Error::of(path))
}

fn small(path: &Path, most: u64) -> Option<Vec<u8>> {
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

fn small_text(path: &Path) -> Option<String> {
    String::from_utf8(small(path, MANIFEST)?).ok()
}
