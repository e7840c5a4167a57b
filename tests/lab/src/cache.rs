//! The cache outside the checkout: directories named by what they were made from, complete or absent.

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// `$WINDLASS_CACHE`, else `$XDG_CACHE_HOME/windlass`, else `~/.cache/windlass`.
pub fn dir() -> PathBuf {
    let given = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    given("WINDLASS_CACHE")
        .or_else(|| given("XDG_CACHE_HOME").map(|path| path.join("windlass")))
        .unwrap_or_else(|| {
            given("HOME")
                .unwrap_or_else(|| "/root".into())
                .join(".cache/windlass")
        })
}

/// The first 16 hex digits of the SHA-256 over the parts: a name for what is made from them.
pub fn key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize()[..8])
}

/// The directory `area/key` of the cache, made by `build` where it is missing.
///
/// `build` gets an empty directory that is renamed into place when it succeeds, and removed when it does
/// not. Several processes wait for the one that builds. What other keys left in `area` is kept.
///
/// # Errors
///
/// Those of `build`, and of the file system.
pub fn ensure(area: &str, key: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    close(&dir())?;
    let area = dir().join(area);
    let target = area.join(key);
    if target.is_dir() {
        return Ok(target);
    }
    fs::create_dir_all(&area).with_context(|| format!("make {}", area.display()))?;
    let lock = File::create(area.join(format!("{key}.lock"))).context("make the cache's lock")?;
    lock.lock().context("wait for the cache's lock")?;
    if target.is_dir() {
        return Ok(target);
    }
    let making = area.join(format!("{key}.partial"));
    remove(&making)?;
    fs::create_dir(&making).with_context(|| format!("make {}", making.display()))?;
    match build(&making) {
        Ok(()) => fs::rename(&making, &target).context("publish in the cache")?,
        Err(error) => {
            remove(&making)?;
            return Err(error);
        }
    }
    Ok(target)
}

/// Makes a directory that is its owner's alone: Windlass' sandboxes lie in the cache too, and it refuses to keep them where
/// others may look.
fn close(path: &Path) -> Result<()> {
    const PRIVATE: u32 = 0o700;
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(PRIVATE)))
        .with_context(|| format!("make {}", path.display()))
}

/// Removes a directory and what is in it; one that is not there is fine.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
