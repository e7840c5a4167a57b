//! Removing what a dead lab cannot remove itself: its directory and its empty control groups.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache;

/// The file in a directory that its owner holds locked.
pub(crate) const LOCK: &str = "lock";

/// Locks a new directory. Its lock is there only when it is held: another start would take the directory for one of the dead.
pub(crate) fn lock(directory: &Path) -> Result<File> {
    let new = directory.join("lock.new");
    let lock = File::create(&new).context("make the lock")?;
    lock.lock().context("take the lock")?;
    fs::rename(&new, directory.join(LOCK)).context("show the lock")?;
    Ok(lock)
}

/// Removes the labs below `labs` whose owner is gone. One that is alive holds its lock.
pub(crate) fn dead(labs: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(labs) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let directory = entry.path();
        let Ok(lock) = File::open(directory.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            remove(&directory)?;
        }
    }
    Ok(())
}

/// Removes a lab's directory and control groups. Its processes are gone. The lock goes last, for a later start to find by
/// it what this one leaves when it is killed.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    if let Some(name) = directory.file_name() {
        for group in groups(&control_group(&name.to_string_lossy())) {
            remove_group(&group);
        }
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cache::remove(&entry.path())?;
        }
    }
    cache::remove(directory).context("remove what a lab left")
}

/// The name of a lab's control group, in every hierarchy.
pub(crate) fn control_group(lab: &str) -> String {
    format!("windlass-{lab}")
}

/// Where groups of this name are: one hierarchy (version 2), or one for each controller.
pub(crate) fn groups(name: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    std::iter::once(root.to_owned())
        .chain(hierarchies)
        .map(|hierarchy| hierarchy.join(name))
        .filter(|group| group.is_dir())
        .collect()
}

/// Children first; a group whose last process is just ending is busy for a moment and tried again.
fn remove_group(group: &Path) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
    loop {
        for entry in walkdir::WalkDir::new(group)
            .contents_first(true)
            .into_iter()
            .flatten()
        {
            if entry.file_type().is_dir() {
                let _ = fs::remove_dir(entry.path());
            }
        }
        if !group.exists() || std::time::Instant::now() > deadline {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_directory_that_is_being_made_is_none_of_a_dead_lab() {
        let labs = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        let mut locks = Vec::new();
        let kept = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    dead(labs.path()).unwrap();
                }
            });
            let kept = (0..500).all(|number| {
                let directory = labs.path().join(format!("lab-{number}"));
                let made = fs::create_dir(&directory).context("make a directory");
                let held = made.and_then(|()| lock(&directory));
                locks.extend(held);
                directory.join(LOCK).exists()
            });
            done.store(true, Ordering::Relaxed);
            kept
        });
        assert!(kept, "one was removed: {}", locks.len());
        locks.clear();
        dead(labs.path()).unwrap();
        assert_eq!(fs::read_dir(labs.path()).unwrap().count(), 0);
    }
}
