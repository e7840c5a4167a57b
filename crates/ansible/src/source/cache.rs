//! The trees that are kept, by content, and who uses them.
//!
//! ```text
//! <digest>/                 a tree
//! .uses/<tenant>/<digest>   its size; when the tenant used it last is the file's time
//! .locks/<digest>           held shared by whoever reads the tree
//! .fetch-*/                 a tree that is being brought
//! ```
//!
//! A tree is one however many tenants use it, and counts for each of them. A tenant beyond their share loses what they used
//! longest ago; where all trees together are too much, the tenant with the most loses. A tree that nobody counts for is
//! removed, but never one that is read. What is removed and needed again is brought again.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{policy::Room, tree};
use crate::FileError;

/// A tree is not removed while this is there.
#[derive(Clone, Debug)]
pub struct Hold {
    _file: Arc<fs::File>,
    path: PathBuf,
}

impl PartialEq for Hold {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Hold {}

/// What was left by a fetch that was killed is removed after as long.
const LEFT_OVER: Duration = Duration::from_hours(24);

/// What nobody used for as long is removed.
const UNUSED: Duration = Duration::from_hours(24 * 30);

/// What a tree counts at least, so that nobody fills the directory with small ones.
const LEAST: u64 = 1 << 20;

/// The directory of all trees.
pub(super) struct Cache<'a> {
    pub(super) directory: &'a Path,
    pub(super) room: Room,
}

/// What a tenant used, when, and how large it is.
struct Use {
    mark: PathBuf,
    tenant: PathBuf,
    digest: String,
    last: SystemTime,
    bytes: u64,
}

impl Cache<'_> {
    /// Makes the directory, and looks whether the volume has room for a tree.
    pub(super) fn prepare(&self, bytes: u64) -> Result<(), FileError> {
        let failed = FileError::of(self.directory);
        fs::create_dir_all(self.directory).map_err(&failed)?;
        self.remove_left_overs();
        let wanted = self.room.reserve.saturating_add(bytes);
        if tree::has_room(self.directory, wanted).is_err() {
            // What nobody reads makes room, if that is enough.
            self.prune(self.room.total / 4);
        }
        tree::has_room(self.directory, self.room.reserve).map_err(failed)
    }

    /// Takes hold of a tree, whether it is there or not yet.
    pub(super) fn hold(&self, digest: &str) -> Result<Hold, FileError> {
        hold(self.directory, digest)
    }

    /// Notes that a tenant uses a tree, and lets go of what is too much.
    pub(super) fn used(&self, tenant: &str, digest: &str, bytes: u64) -> Result<(), FileError> {
        let directory = self.uses().join(name_of(tenant));
        fs::create_dir_all(&directory).map_err(FileError::of(&directory))?;
        let mark = directory.join(digest);
        let failed = FileError::of(&mark);
        // Written anew, it has the time of now.
        let mut file = fs::File::create(&mark).map_err(&failed)?;
        write!(file, "{}", bytes.max(LEAST)).map_err(&failed)?;
        drop(file);
        self.prune(self.room.total);
        Ok(())
    }

    fn uses(&self) -> PathBuf {
        self.directory.join(".uses")
    }

    /// Lets go of what is beyond the shares, then of what is beyond the total. What cannot be removed now is tried again
    /// with the next tree.
    fn prune(&self, total: u64) {
        let mut uses = self.list();
        uses.sort_by_key(|one| one.last);
        let mut tenants: Vec<PathBuf> = uses.iter().map(|one| one.tenant.clone()).collect();
        tenants.sort();
        tenants.dedup();
        for tenant in &tenants {
            while bytes_of(&uses, tenant) > self.room.share {
                if !self.forget_oldest(&mut uses, tenant) {
                    break;
                }
            }
        }
        let is_old = |one: &Use| one.last.elapsed().is_ok_and(|age| age > UNUSED);
        for old in uses.extract_if(.., |one| is_old(one) && !self.is_held(&one.digest)) {
            // Tried again with the next tree.
            let _ = fs::remove_file(old.mark);
        }
        self.remove_unused(&uses);
        while distinct(&uses) > total {
            let Some(largest) = tenants.iter().max_by_key(|tenant| bytes_of(&uses, tenant)) else {
                break;
            };
            let largest = largest.clone();
            if !self.forget_oldest(&mut uses, &largest) {
                tenants.retain(|tenant| *tenant != largest);
                continue;
            }
            self.remove_unused(&uses);
        }
    }

    /// Forgets what a tenant used longest ago of all that nobody reads; whether there was such.
    fn forget_oldest(&self, uses: &mut Vec<Use>, tenant: &Path) -> bool {
        let found = uses
            .iter()
            .position(|one| one.tenant == tenant && !self.is_held(&one.digest));
        let Some(found) = found else { return false };
        let gone = uses.remove(found);
        fs::remove_file(gone.mark).is_ok()
    }

    /// Removes trees that nobody counts for and nobody reads.
    fn remove_unused(&self, uses: &[Use]) {
        for digest in self.trees() {
            if uses.iter().any(|one| one.digest == digest) {
                continue;
            }
            let Some(lock) = self.alone(&digest) else {
                continue;
            };
            let path = self.directory.join(&digest);
            // Under another name first: half a tree is none.
            let gone = self.directory.join(format!(".gone-{digest}"));
            if fs::rename(&path, &gone).is_ok()
                && let Err(error) = fs::remove_dir_all(&gone)
            {
                tracing::warn!(path = %gone.display(), %error, "playbooks were not removed");
            }
            let _ = fs::remove_file(lock_file(self.directory, &digest));
            drop(lock);
        }
    }

    fn trees(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory).into_iter().flatten();
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_digest(name))
            .collect()
    }

    fn list(&self) -> Vec<Use> {
        walkdir::WalkDir::new(self.uses())
            .min_depth(2)
            .max_depth(2)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let bytes = fs::read_to_string(entry.path()).ok()?.parse().unwrap_or(0);
                Some(Use {
                    mark: entry.path().to_owned(),
                    tenant: entry.path().parent()?.to_owned(),
                    digest: entry.file_name().to_str()?.to_owned(),
                    last: entry.metadata().ok()?.modified().ok()?,
                    bytes,
                })
            })
            .collect()
    }

    fn is_held(&self, digest: &str) -> bool {
        self.alone(digest).is_none()
    }

    /// The lock of a tree that nobody reads.
    fn alone(&self, digest: &str) -> Option<fs::File> {
        let path = lock_file(self.directory, digest);
        fs::create_dir_all(path.parent()?).ok()?;
        let file = fs::File::create(&path).ok()?;
        file.try_lock().ok()?;
        // Otherwise somebody removed the tree, and another one holds a new one by this name.
        is_same(&file, &path).then_some(file)
    }

    fn remove_left_overs(&self) {
        let entries = fs::read_dir(self.directory).into_iter().flatten();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_work = [".fetch-", ".copy-", ".gone-"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            let age = entry.metadata().and_then(|metadata| metadata.modified());
            let age = age.ok().and_then(|time| time.elapsed().ok());
            if is_work && age.is_some_and(|age| age > LEFT_OVER) {
                // Tried again with the next tree.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Takes hold of a tree of a cache.
pub(super) fn hold(directory: &Path, digest: &str) -> Result<Hold, FileError> {
    let path = lock_file(directory, digest);
    let failed = FileError::of(&path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(&failed)?;
    }
    loop {
        let file = fs::File::create(&path).map_err(&failed)?;
        file.lock_shared().map_err(&failed)?;
        // Who removed the tree removed this file with it: another one counts by now.
        if is_same(&file, &path) {
            return Ok(Hold {
                _file: Arc::new(file),
                path,
            });
        }
    }
}

fn is_same(file: &fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(held), Ok(there)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (held.dev(), held.ino()) == (there.dev(), there.ino())
}

fn lock_file(directory: &Path, digest: &str) -> PathBuf {
    directory.join(".locks").join(digest)
}

fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A tenant as the name of a directory.
fn name_of(tenant: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    format!("t-{}", tenant.chars().map(plain).collect::<String>())
}

fn bytes_of(uses: &[Use], tenant: &Path) -> u64 {
    let of_tenant = uses.iter().filter(|one| one.tenant == tenant);
    of_tenant.fold(0, |sum, one| sum.saturating_add(one.bytes))
}

/// The bytes of all trees, each counted once.
fn distinct(uses: &[Use]) -> u64 {
    let trees: std::collections::BTreeMap<&str, u64> = uses
        .iter()
        .map(|one| (one.digest.as_str(), one.bytes))
        .collect();
    trees
        .values()
        .fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// The bytes of a tree.
pub(super) fn size(tree: &Path) -> u64 {
    walkdir::WalkDir::new(tree)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        // Small files take a block each.
        .map(|metadata| metadata.len().next_multiple_of(4096))
        .fold(0, u64::saturating_add)
}
