//! Files and directories that are ours alone, and why one cannot be used.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

/// A file or directory cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("use {path}")]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Says which file an error is about.
    pub(crate) fn of(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self {
            path: path.clone(),
            source,
        }
    }
}

/// Writes a file that only its owner reads. One that somebody else made first is not written into, and who reads meanwhile finds
/// what was there or what is new, whole.
///
/// # Errors
///
/// The file cannot be written or put in its place.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, 0o600)
}

/// Puts a file in its place, whole.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    // Hidden, so that Ansible does not take what a killed process left for a part of an inventory.
    let mut file = tempfile::Builder::new()
        .prefix(".windlass-")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// How the name of a directory begins that is made by chance.
pub const CHANCE_PREFIX: &str = "windlass-";

/// A directory that is ours alone, below one where everybody may make some, as `/tmp` is. A name that follows from anything could be
/// taken by another user first, and for ever; so it is made by chance, and `record`, a link in a directory of ours, leads to it. Who
/// asks again with the same record gets the same directory, unless it is gone or not ours any more.
///
/// # Errors
///
/// Nothing can be made there, or the record cannot be.
pub fn chance_directory(record: &Path, parent: &Path) -> io::Result<PathBuf> {
    loop {
        if let Some(path) = recorded_directory(record).filter(|path| path.parent() == Some(parent))
        {
            return Ok(path);
        }
        remove_record(record)?;
        let path = parent.join(format!("{CHANCE_PREFIX}{:016x}", rand::random::<u64>()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        match symlink(&path, record) {
            Ok(()) => return Ok(path),
            Err(error) => {
                fs::remove_dir(&path)?;
                // Somebody of ours was faster: theirs is used.
                if error.kind() != io::ErrorKind::AlreadyExists {
                    return Err(error);
                }
            }
        }
    }
}

/// The directory that a record leads to, if it is there and ours alone.
pub fn recorded_directory(record: &Path) -> Option<PathBuf> {
    const OTHERS: u32 = 0o077;
    let path = fs::read_link(record).ok()?;
    let found = fs::symlink_metadata(&path).ok()?;
    let is_ours = found.is_dir()
        && found.uid() == geteuid().as_raw()
        && found.permissions().mode() & OTHERS == 0;
    if !is_ours {
        tracing::warn!(
            path = %path.display(),
            "what was a directory of ours is a link, a file, open to others or another user's: it is not used any more"
        );
    }
    is_ours.then_some(path)
}

/// Removes a directory that was made by chance, with all that is in it, and its record.
///
/// # Errors
///
/// It cannot be removed. That there is none is no error, and what is not ours is left alone.
pub fn remove_recorded(record: &Path) -> io::Result<()> {
    if let Some(path) = recorded_directory(record) {
        fs::remove_dir_all(path)?;
    }
    remove_record(record)
}

fn remove_record(record: &Path) -> io::Result<()> {
    match fs::remove_file(record) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    /// Puts something where a directory was; the second is another one.
    type Take = fn(&Path, &Path);

    #[test]
    fn a_directory_that_another_user_took_is_left_and_another_one_is_made() {
        let own = tempfile::tempdir().unwrap();
        let shared = tempfile::tempdir().unwrap();
        let record = own.path().join("record");
        let first = chance_directory(&record, shared.path()).unwrap();
        assert_eq!(fs::metadata(&first).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(chance_directory(&record, shared.path()).unwrap(), first);

        let takes: [(&str, Take); 5] = [
            ("gone", |_, _| {}),
            ("a file", |path, _| fs::write(path, "").unwrap()),
            ("a link", |path, other| symlink(other, path).unwrap()),
            ("open", |path, _| {
                fs::create_dir(path).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            }),
            ("another user's", |path, _| {
                fs::DirBuilder::new().mode(0o700).create(path).unwrap();
                // Whoever is not root has nobody's directory to give away.
                if geteuid().is_root() {
                    chown(path, Some(65_534), None).unwrap();
                } else {
                    fs::remove_dir(path).unwrap();
                }
            }),
        ];
        let mut taken = first;
        for (name, take) in takes {
            fs::remove_dir(&taken).unwrap();
            take(&taken, own.path());
            let next = chance_directory(&record, shared.path()).unwrap();
            assert_ne!(next, taken, "{name}");
            assert_eq!(recorded_directory(&record).as_ref(), Some(&next), "{name}");
            taken = next;
        }
        // Another place is another directory.
        let elsewhere = tempfile::tempdir().unwrap();
        let moved = chance_directory(&record, elsewhere.path()).unwrap();
        assert_eq!(moved.parent(), Some(elsewhere.path()));
        fs::write(moved.join("key"), "secret").unwrap();
        remove_recorded(&record).unwrap();
        assert!(!moved.exists() && fs::symlink_metadata(&record).is_err());
        remove_recorded(&record).unwrap();
    }
}
