//! The one gate that every tree of playbooks passes: within its bounds, with nothing in it that leads out.
//!
//! A git repository, a directory and an image are read each in its own way and written here alike, entry by entry. A link
//! is only noted as it comes, and made once all other entries are there: nothing is ever written through a link, and a
//! link is judged by where it leads in the finished tree, through whatever other links. What is neither file, directory nor
//! link is refused. Names are shown in errors without what could command a terminal.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::statvfs::statvfs;

use super::policy::Bounds;

/// Why a tree is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A path leads upwards, or is none.
    #[error("a path leads out of the tree: {0}")]
    Path(String),
    /// A name would command a terminal, or be read as another.
    #[error("a name has characters that nobody sees: {0}")]
    Name(String),
    /// A link leads out.
    #[error("a link leads out of the tree: {entry} -> {target}")]
    Link {
        /// The link.
        entry: String,
        /// Where it says it leads.
        target: String,
    },
    /// Links lead to each other.
    #[error("a link leads in a circle: {0}")]
    Circle(String),
    /// A hard link to what is not a file of the tree.
    #[error("a hard link leads out of the tree: {entry} -> {target}")]
    HardLink {
        /// The link.
        entry: String,
        /// Where it says it leads.
        target: String,
    },
    /// A device, a pipe, a socket.
    #[error("{0} is neither a file, a directory nor a link")]
    Kind(String),
    /// Two entries are of one name, or a file is above another.
    #[error("two entries are at one place: {0}")]
    Twice(String),
    /// A bound is passed.
    #[error("{what} more than {most}: {at}")]
    Bound {
        /// What is too much, with its verb.
        what: &'static str,
        /// The bound.
        most: u64,
        /// Where it was passed.
        at: String,
    },
}

/// A name or an address of a stranger, for people.
pub(super) fn shown(text: impl AsRef<OsStr>) -> String {
    api::text::plain(&text.as_ref().to_string_lossy(), 160)
}

/// Whether the work is still wanted. Blocking work cannot be dropped; it looks here.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted(Arc<AtomicBool>);

/// Says that work is not wanted any more when it is dropped.
pub(super) struct Asker(Wanted);

impl Asker {
    pub(super) fn new() -> (Self, Wanted) {
        let wanted = Wanted::default();
        (Self(wanted.clone()), wanted)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Wanted {
    /// Fails once nobody waits any more.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        Ok(())
    }
}

/// Why an entry was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Io(#[from] io::Error),
}

enum Kind {
    Directory,
    File,
    Link(PathBuf),
}

/// A tree that is being written.
pub(super) struct Writer {
    root: PathBuf,
    bounds: Bounds,
    reserve: u64,
    wanted: Wanted,
    entries: BTreeMap<PathBuf, Kind>,
    written: u64,
    looked: u64,
}

impl Writer {
    /// Begins a tree in a directory that is not there yet and that nobody else writes to.
    pub(super) fn new(
        root: &Path,
        bounds: Bounds,
        reserve: u64,
        wanted: Wanted,
    ) -> io::Result<Self> {
        fs::create_dir(root)?;
        Ok(Self {
            root: root.to_owned(),
            bounds,
            reserve,
            wanted,
            entries: BTreeMap::new(),
            written: 0,
            looked: 0,
        })
    }

    /// Adds a directory.
    pub(super) fn directory(&mut self, path: &Path) -> Result<(), Error> {
        if let Some(path) = self.admit(path)? {
            self.parents(&path)?;
            self.make_directory(&path)?;
        }
        Ok(())
    }

    /// Adds a file.
    pub(super) fn file(
        &mut self,
        path: &Path,
        program: bool,
        content: &mut dyn Read,
    ) -> Result<(), Error> {
        let Some(path) = self.admit(path)? else {
            return Ok(());
        };
        self.parents(&path)?;
        self.put(&path, Kind::File)?;
        let target = self.root.join(&path);
        let mut file = fs::File::create_new(&target)?;
        self.fill(&path, &mut file, content)?;
        let mode = if program { 0o755 } else { 0o644 };
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// Adds a symbolic link, which is made when the tree is finished.
    pub(super) fn link(&mut self, path: &Path, target: &Path) -> Result<(), Error> {
        let Some(path) = self.admit(path)? else {
            return Ok(());
        };
        self.parents(&path)?;
        if target.as_os_str().len() > self.bounds.path_bytes {
            return Err(bound(
                "the target of a link is",
                self.bounds.path_bytes as u64,
                &path,
            ));
        }
        self.put(&path, Kind::Link(target.to_owned()))
    }

    /// Adds a copy of a file that is there: what a hard link of an archive means. `Err` is what leads out by its form.
    pub(super) fn hard_link(
        &mut self,
        path: &Path,
        first: Result<&Path, impl AsRef<Path>>,
    ) -> Result<(), Error> {
        let leads_out = |target: &Path| Refusal::HardLink {
            entry: shown(path),
            target: shown(target),
        };
        let first = first.map_err(|target| leads_out(target.as_ref()))?;
        if !matches!(self.entries.get(first), Some(Kind::File)) {
            return Err(leads_out(first).into());
        }
        let mut file = fs::File::open(self.root.join(first))?;
        let program = file.metadata()?.permissions().mode() & 0o100 != 0;
        self.file(path, program, &mut file)
    }

    /// Whether there is such a file.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.entries.contains_key(path)
    }

    /// Judges and makes the links: the tree is complete.
    pub(super) fn finish(self) -> Result<(), Error> {
        for (path, kind) in &self.entries {
            if let Kind::Link(_) = kind {
                self.follow(path)?;
            }
        }
        for (path, kind) in &self.entries {
            if let Kind::Link(target) = kind {
                std::os::unix::fs::symlink(target, self.root.join(path))?;
            }
        }
        Ok(())
    }

    /// Where a link leads, name by name, through other links: every place on the way is in the tree.
    fn follow(&self, link: &Path) -> Result<(), Refusal> {
        // As many as the kernel follows.
        const MOST: usize = 40;
        let mut followed = 0_usize;
        let mut place = PathBuf::new();
        let mut ahead: Vec<PathBuf> = names(link);
        let leads_out = || Refusal::Link {
            entry: shown(link),
            target: match self.entries.get(link) {
                Some(Kind::Link(target)) => shown(target),
                _ => String::new(),
            },
        };
        while let Some(name) = ahead.pop() {
            if name.as_os_str() == ".." {
                if !place.pop() {
                    return Err(leads_out());
                }
                continue;
            }
            place.push(&name);
            let Some(Kind::Link(target)) = self.entries.get(&place) else {
                continue;
            };
            followed = followed.saturating_add(1);
            if followed > MOST {
                return Err(Refusal::Circle(shown(link)));
            }
            if target.is_absolute() {
                return Err(leads_out());
            }
            place.pop();
            ahead.extend(names(target));
        }
        Ok(())
    }

    /// A path that may be in a tree; none: of what git and Python keep for themselves.
    fn admit(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        self.wanted.check()?;
        let mut kept = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) if name == ".git" || name == "__pycache__" => {
                    return Ok(None);
                }
                Component::Normal(name) => {
                    if !api::text::is_plain(&name.to_string_lossy()) {
                        return Err(Refusal::Name(shown(path)).into());
                    }
                    kept.push(name);
                }
                Component::CurDir => {}
                _ => return Err(Refusal::Path(shown(path)).into()),
            }
        }
        if kept.as_os_str().is_empty() {
            return Err(Refusal::Path(shown(path)).into());
        }
        if kept.as_os_str().len() > self.bounds.path_bytes {
            return Err(bound("a path is", self.bounds.path_bytes as u64, &kept));
        }
        if kept.components().count() > self.bounds.depth {
            return Err(bound(
                "directories in directories are",
                self.bounds.depth as u64,
                &kept,
            ));
        }
        Ok(Some(kept))
    }

    fn parents(&mut self, path: &Path) -> Result<(), Error> {
        let mut above: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_owned).collect();
        above.pop();
        for directory in above.into_iter().rev() {
            self.make_directory(&directory)?;
        }
        Ok(())
    }

    fn make_directory(&mut self, path: &Path) -> Result<(), Error> {
        match self.entries.get(path) {
            Some(Kind::Directory) => Ok(()),
            Some(_) => Err(Refusal::Twice(shown(path)).into()),
            None => {
                self.put(path, Kind::Directory)?;
                fs::create_dir(self.root.join(path))?;
                Ok(())
            }
        }
    }

    fn put(&mut self, path: &Path, kind: Kind) -> Result<(), Error> {
        if self.entries.len() >= self.bounds.entries {
            return Err(bound("entries are", self.bounds.entries as u64, path));
        }
        if self.entries.insert(path.to_owned(), kind).is_some() {
            return Err(Refusal::Twice(shown(path)).into());
        }
        Ok(())
    }

    fn fill(
        &mut self,
        path: &Path,
        file: &mut fs::File,
        content: &mut dyn Read,
    ) -> Result<(), Error> {
        let mut buffer = vec![0; 1 << 16];
        let mut length = 0_u64;
        loop {
            self.wanted.check()?;
            let read = content.read(&mut buffer)?;
            let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else {
                return Ok(());
            };
            length = length.saturating_add(part.len() as u64);
            self.written = self.written.saturating_add(part.len() as u64);
            if length > self.bounds.file_bytes {
                return Err(bound(
                    "the bytes of a file are",
                    self.bounds.file_bytes,
                    path,
                ));
            }
            if self.written > self.bounds.bytes {
                return Err(bound("the bytes of all files are", self.bounds.bytes, path));
            }
            if self.written.saturating_sub(self.looked) > LOOK {
                self.looked = self.written;
                has_room(&self.root, self.reserve)?;
            }
            io::Write::write_all(file, part)?;
        }
    }
}

pub(super) fn bound(what: &'static str, most: u64, path: &Path) -> Error {
    Error::Refused(Refusal::Bound {
        what,
        most,
        at: shown(path),
    })
}

/// How much is written between two looks at the volume.
const LOOK: u64 = 16 << 20;

/// Fails where less is free on a volume than must stay free.
pub(super) fn has_room(path: &Path, reserve: u64) -> io::Result<()> {
    let volume = statvfs(path)?;
    let free = volume
        .blocks_available()
        .saturating_mul(volume.fragment_size());
    if free < reserve {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{free} bytes are free, and {reserve} must stay free"),
        ));
    }
    Ok(())
}

/// The names of a path, the last first.
fn names(path: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = path
        .components()
        .filter(|component| !matches!(component, Component::CurDir))
        .map(|component| PathBuf::from(component.as_os_str()))
        .collect();
    names.reverse();
    names
}

/// A path of an archive from its root, without detours; none: it leads above the root.
pub(super) fn clean(path: &Path) -> Option<PathBuf> {
    path.components()
        .filter(|component| !matches!(component, Component::RootDir | Component::CurDir))
        .map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect()
}

/// A path of bytes.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
pub(super) mod tests;
