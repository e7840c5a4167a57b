//! Removes from the data directory what belongs to nothing any more: files of Runs that are gone, and by the same rules what a
//! domain keeps of its own objects.
//!
//! What has no owner is marked, and goes when it had none for [`GRACE`]: an API that was restored, or reached under another
//! address by mistake, loses nothing at once. What a runner holds is left alone.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::Layout;

/// How long something is kept without an owner.
pub const GRACE: Duration = Duration::from_hours(24);
/// The file that says since when a directory has had no owner: since it was made.
const MARK: &str = "without-owner";
/// How the name ends of what is being removed: no object has such a name.
const REMOVED: &str = ".removed~";

/// How many runs the volume of a subject's runner pods holds.
const KEPT: usize = 20;
/// How long.
const OLD: Duration = Duration::from_hours(90 * 24);

/// Objects by namespace and name.
pub type Names = BTreeSet<(String, String)>;

/// Removes the files of runs that have had no Run for long enough, and marks those that have none: of one namespace, or of all.
/// Gives the namespaces in which a runner is at work.
///
/// # Errors
///
/// A directory cannot be read or written. What comes after it is swept the next time.
pub fn sweep(
    layout: &Layout,
    namespace: Option<&str>,
    runs: &Names,
    now: SystemTime,
) -> io::Result<BTreeSet<String>> {
    let mut at_work = BTreeSet::new();
    for (of, name, path) in objects(&layout.root().join("runs"))? {
        let Some(held) = hold(&path.join(JOURNAL))? else {
            at_work.insert(of);
            continue;
        };
        if namespace.is_none_or(|only| only == of) {
            judge(&path, runs.contains(&(of, name)), now)?;
        }
        drop(held);
    }
    Ok(at_work)
}

/// Removes the oldest directories of runs beside this one, in a volume that the runners of one subject share and no operator
/// sees.
///
/// # Errors
///
/// As [`sweep`].
pub fn sweep_beside(run: &Path, now: SystemTime) -> io::Result<()> {
    let mut runs = Vec::new();
    for entry in entries(run.parent().unwrap_or(run))? {
        if entry.file_type()?.is_dir() && entry.path() != run {
            runs.push((last_used(&entry.path())?, entry.path()));
        }
    }
    runs.sort();
    let newest = runs.iter().rev().enumerate();
    for (place, (used, path)) in newest {
        if (place + 1 < KEPT && !is_past(*used, OLD, now)) || hold(&path.join(JOURNAL))?.is_none() {
            continue;
        }
        remove(path)?;
    }
    Ok(())
}

/// When a runner was at work in the directory of a run.
fn last_used(run: &Path) -> io::Result<SystemTime> {
    match fs::metadata(run.join(JOURNAL)) {
        Ok(journal) => journal.modified(),
        Err(_) => fs::metadata(run)?.modified(),
    }
}

/// Marks a directory without an owner, or removes it when it has been marked for long; takes the mark from one that has one.
///
/// # Errors
///
/// As [`sweep`].
pub fn judge(path: &Path, known: bool, now: SystemTime) -> io::Result<()> {
    let mark = path.join(MARK);
    if known {
        return absent(fs::remove_file(mark));
    }
    match fs::metadata(&mark).and_then(|mark| mark.modified()) {
        Ok(since) if is_past(since, GRACE, now) => remove(path),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::write(mark, ""),
        Err(error) => Err(error),
    }
}

/// Under another name first: what is half removed must not look whole.
///
/// # Errors
///
/// As [`sweep`].
pub fn remove(path: &Path) -> io::Result<()> {
    let mut gone = path.as_os_str().to_owned();
    gone.push(REMOVED);
    let gone = PathBuf::from(gone);
    absent(fs::remove_dir_all(&gone))?;
    absent(fs::rename(path, &gone))?;
    absent(fs::remove_dir_all(&gone))?;
    tracing::info!(path = %path.display(), "removed what belongs to nothing any more");
    Ok(())
}

/// Nobody else's for as long as it lives: the lock of a file, or that there is no such file.
pub struct Held {
    _lock: Option<File>,
}

/// Takes the lock of a file, if nobody has it; a file that is not there is held by nobody.
///
/// # Errors
///
/// As [`sweep`].
pub fn hold(path: &Path) -> io::Result<Option<Held>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(Held { _lock: None }));
        }
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(Held { _lock: Some(file) })),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// The directories of objects below one of a kind: namespace, name and path.
///
/// # Errors
///
/// As [`sweep`].
pub fn objects(kind: &Path) -> io::Result<Vec<(String, String, PathBuf)>> {
    let mut found = Vec::new();
    for namespace in entries(kind)? {
        if !namespace.file_type()?.is_dir() {
            continue;
        }
        for object in entries(&namespace.path())? {
            if object.file_type()?.is_dir() {
                let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
                found.push((name(&namespace), name(&object), object.path()));
            }
        }
    }
    Ok(found)
}

/// What a directory holds; nothing, where it is not there.
///
/// # Errors
///
/// As [`sweep`].
pub fn entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether that much time has gone by; never of a time to come.
pub fn is_past(since: SystemTime, grace: Duration, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|gone| gone > grace)
}

/// What was to be removed may be gone already.
///
/// # Errors
///
/// As [`sweep`].
pub fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The journal of a run, whose lock its runner has.
pub const JOURNAL: &str = "journal.jsonl";

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn the_volume_of_runner_pods_keeps_the_newest_runs() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let now = SystemTime::now();
        let run = |number: u32| layout.run("demo", &format!("first-create-{number}"));
        let aged = |number: u32, age: Duration| {
            fs::create_dir_all(run(number)).unwrap();
            let journal = File::create(run(number).join(JOURNAL)).unwrap();
            journal.set_modified(now - age).unwrap();
            journal
        };
        for number in 1..=30 {
            aged(number, (100 - number) * MINUTE);
        }
        let held = aged(31, 2 * OLD);
        held.lock().unwrap();
        aged(32, 2 * OLD);
        aged(33, 3 * OLD);
        sweep_beside(&run(33), now).unwrap();
        let left = |number: &u32| run(*number).exists();
        let left: Vec<_> = (1..=33).filter(left).collect();
        assert_eq!(left, (12..=31).chain([33]).collect::<Vec<_>>());
    }
}
