//! Room on the disk of the data directory: a run is held before there is none, and goes on by itself when there is some.
//!
//! A runner that cannot append to its journal can only die, and what an engine cannot write it loses. So the free space is
//! looked at all the time: below `LOW` the run pauses at its next task boundary. A disk that fills faster than that is
//! met by a reserve: a file of the run that is given up then, so that the journal and the API can still say why.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use api::run::{Failure, FailureClass};
use nix::sys::statvfs::statvfs;
use tokio::sync::watch;
use workflow::Steering;

use crate::Work;

/// A run is held when less than this is free: what one play of a hundred hosts writes, with room for a log of the database.
const LOW: u64 = 16 * MEBIBYTE;
/// A held run goes on when this is free, so that it is not held again at once.
const ENOUGH: u64 = 2 * LOW;
/// What is given up when the disk is low: many times what the records and the status of a run are.
const RESERVE: usize = 1024 * 1024;
/// How often the disk is looked at.
const LOOK: Duration = Duration::from_secs(1);
const MEBIBYTE: u64 = 1024 * 1024;

/// What people want, and that the run is held while the disk is low.
pub(crate) fn follow(
    work: &Work,
    mut wanted: watch::Receiver<Steering>,
) -> watch::Receiver<Steering> {
    let root = work.layout.root().to_owned();
    let reserve = Reserve(work.directory.join("reserve"));
    let mut held = look(&root, &reserve, None);
    let first = with(&wanted.borrow_and_update(), held.as_ref());
    let (sender, receiver) = watch::channel(first);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK) => held = look(&root, &reserve, held),
                () = sender.closed() => return reserve.give_up(),
            }
            let now = with(&wanted.borrow(), held.as_ref());
            sender.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
        }
    });
    receiver
}

/// The failure of a step, told as what it comes from where the disk is full.
pub fn explain(path: &Path, failure: Failure) -> Failure {
    if failure.class == FailureClass::Config || free(path).is_none_or(|free| free >= LOW) {
        return failure;
    }
    Failure {
        class: FailureClass::External,
        code: "DiskFull".to_owned(),
        message: format!(
            "the disk of the data directory is full: {}",
            failure.message
        ),
        remedy: Some(
            "free room on the disk of the data directory, then retry the run if it does not go on"
                .to_owned(),
        ),
        ..failure
    }
}

fn with(wanted: &Steering, held: Option<&String>) -> Steering {
    Steering {
        held: held.cloned(),
        ..wanted.clone()
    }
}

/// Why the run must be held now, given why it is held already. The words stay the same for as long as it is.
fn look(root: &Path, reserve: &Reserve, held: Option<String>) -> Option<String> {
    // A file system that cannot be asked cannot hold a run up either.
    let free = free(root)?;
    if free >= if held.is_some() { ENOUGH } else { LOW } {
        reserve.keep();
        return None;
    }
    reserve.give_up();
    Some(held.unwrap_or_else(|| {
        tracing::warn!(path = %root.display(), free, "the disk is nearly full: the run is held");
        format!(
            "the disk of {} is nearly full: {} MiB are free; make {} MiB free and the run goes on by itself",
            root.display(),
            free / MEBIBYTE,
            ENOUGH / MEBIBYTE
        )
    }))
}

/// What is free for this process.
fn free(path: &Path) -> Option<u64> {
    let found = statvfs(path).ok()?;
    Some(found.blocks_available() * found.fragment_size())
}

/// Room that is kept for the last words.
struct Reserve(PathBuf);

impl Reserve {
    fn keep(&self) {
        if fs::metadata(&self.0).is_ok_and(|metadata| metadata.len() >= RESERVE as u64) {
            return;
        }
        let filling = vec![b'-'; RESERVE];
        let written = fs::File::create(&self.0).and_then(|mut file| file.write_all(&filling));
        if let Err(error) = written {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "no room for a reserve"
            );
        }
    }

    fn give_up(&self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the reserve was not given up"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_kept_while_there_is_room_and_given_up_once() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve(directory.path().join("reserve"));
        assert_eq!(look(directory.path(), &reserve, None), None);
        assert_eq!(fs::metadata(&reserve.0).unwrap().len(), RESERVE as u64);
        reserve.give_up();
        reserve.give_up();
        assert!(!reserve.0.exists());
    }
}
