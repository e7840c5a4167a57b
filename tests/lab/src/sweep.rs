//! Removing what a dead lab cannot remove itself: its directory and its empty control groups.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache;

/// The file in a directory that its owner holds locked.
pub(crate) const LOCK: &str = "lock";

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
