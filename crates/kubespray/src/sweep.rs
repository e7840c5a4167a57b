//! Removes from the data directory what belongs to nothing any more: files of Runs and Clusters that are gone, and Python
//! environments that no Cluster used for long.
//!
//! What has no owner is marked, and goes when it had none for [`GRACE`]: an API that was restored, or reached under another
//! address by mistake, loses nothing at once. What a runner holds is left alone. The playbooks look after themselves.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use kube::core::DeserializeGuard;

use crate::{context::Stores, layout::Layout};

/// How long something is kept without an owner.
pub const GRACE: Duration = Duration::from_hours(24);
/// How long a Python environment is kept that no Cluster uses.
pub const UNUSED: Duration = Duration::from_hours(30 * 24);
/// How often the data directory is looked through.
const LOOK: Duration = Duration::from_hours(1);
/// The file that says since when a directory has had no owner: since it was made.
const MARK: &str = "without-owner";
/// How the directory of the users of an environment ends.
const USERS: &str = "users";

/// How the name ends of what is being removed: no object has such a name.
const REMOVED: &str = ".removed~";
/// How many runs the volume of a cluster's runner pods holds, as a Cluster keeps by default.
const KEPT: usize = 20;
/// How long.
const OLD: Duration = Duration::from_hours(90 * 24);

/// Objects by namespace and name.
pub type Names = BTreeSet<(String, String)>;

/// Who owns what lies in the data directory.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// The one namespace that is known of. None: all.
    pub namespace: Option<String>,
    /// Clusters.
    pub clusters: Names,
    /// Runs.
    pub runs: Names,
}

/// Sweeps now and then, for as long as it is polled.
pub(crate) async fn keep_swept(layout: Layout, stores: &Stores, namespace: Option<String>) {
    loop {
        if stores.clusters.wait_until_ready().await.is_err()
            || stores.runs.wait_until_ready().await.is_err()
        {
            return;
        }
        let owners = Owners {
            namespace: namespace.clone(),
            clusters: names(&stores.clusters.state()),
            runs: names(&stores.runs.state()),
        };
        let layout = layout.clone();
        let swept =
            tokio::task::spawn_blocking(move || sweep(&layout, &owners, SystemTime::now())).await;
        if let Err(error) = swept.map_err(io::Error::other).flatten() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the data directory was not swept"
            );
        }
        tokio::time::sleep(controller::backoff::jittered(LOOK)).await;
    }
}

fn names<K>(objects: &[std::sync::Arc<DeserializeGuard<K>>]) -> Names
where
    DeserializeGuard<K>: kube::Resource,
{
    let name = |object: &std::sync::Arc<DeserializeGuard<K>>| {
        let meta = kube::Resource::meta(&**object).clone();
        (
            meta.namespace.unwrap_or_default(),
            meta.name.unwrap_or_default(),
        )
    };
    objects.iter().map(name).collect()
}

/// Removes what has had no owner for long enough, and marks what has none.
///
/// # Errors
///
/// A directory cannot be read or written. What comes after it is swept the next time.
pub fn sweep(layout: &Layout, owners: &Owners, now: SystemTime) -> io::Result<()> {
    let of_namespace = |namespace: &str| {
        let only = owners.namespace.as_deref();
        only.is_none_or(|only| only == namespace)
    };
    let mut at_work = BTreeSet::new();
    for (namespace, name, path) in objects(&layout.root().join("runs"))? {
        let Some(held) = hold(&path.join(JOURNAL))? else {
            at_work.insert(namespace);
            continue;
        };
        if of_namespace(&namespace) {
            let known = owners.runs.contains(&(namespace, name));
            judge(&path, known, now)?;
        }
        drop(held);
    }
    for (namespace, name, path) in objects(&layout.root().join("clusters"))? {
        // Whose runner it is does not show once its Run is gone.
        if of_namespace(&namespace) && !at_work.contains(&namespace) {
            let known = owners.clusters.contains(&(namespace, name));
            judge(&path, known, now)?;
        }
    }
    // Who else would use them is not known.
    if owners.namespace.is_none() {
        environments(&layout.sandboxes(), owners, now)?;
    }
    Ok(())
}

/// Removes the oldest directories of runs beside this one, in a volume that the runners of one cluster share and no operator
/// sees.
pub(crate) fn sweep_beside(run: &Path, now: SystemTime) -> io::Result<()> {
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

/// Notes that a cluster uses the Python environment of that digest, and none of the others any more.
pub(crate) fn note_use(sandboxes: &Path, digest: &str, of: (&str, &str)) -> io::Result<()> {
    let (namespace, cluster) = of;
    // No namespace has a dot in its name.
    let user = format!("{namespace}.{cluster}");
    for (_, users) in used(sandboxes)? {
        if users != sandboxes.join(format!("{digest}.{USERS}")) {
            absent(fs::remove_file(users.join(&user)))?;
        }
    }
    let users = sandboxes.join(format!("{digest}.{USERS}"));
    fs::create_dir_all(&users)?;
    // Written anew, so that its time is that of the last use.
    fs::write(users.join(user), "used\n")
}

fn environments(sandboxes: &Path, owners: &Owners, now: SystemTime) -> io::Result<()> {
    for (digest, users) in used(sandboxes)? {
        let mut last = fs::metadata(&users)?.modified()?;
        let mut is_used = false;
        for user in entries(&users)? {
            last = last.max(user.metadata()?.modified()?);
            let name = user.file_name().to_string_lossy().into_owned();
            let owner = name.split_once('.');
            is_used |= owner.is_some_and(|(namespace, cluster)| {
                let owner = (namespace.to_owned(), cluster.to_owned());
                owners.clusters.contains(&owner)
            });
        }
        if is_used || !is_past(last, UNUSED, now) {
            continue;
        }
        let Some(held) = hold(&sandboxes.join(format!("{digest}.lock")))? else {
            continue;
        };
        remove(&sandboxes.join(&digest))?;
        remove(&users)?;
        drop(held);
    }
    Ok(())
}

/// Python environments whose use is noted, by digest, and where. What a person made by hand stays.
fn used(sandboxes: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let users = entries(sandboxes)?.into_iter().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let digest = name.strip_suffix(USERS)?.strip_suffix('.')?;
        Some((digest.to_owned(), entry.path()))
    });
    Ok(users.collect())
}

/// Marks a directory without an owner, or removes it when it has been marked for long; takes the mark from one that has one.
fn judge(path: &Path, known: bool, now: SystemTime) -> io::Result<()> {
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
fn remove(path: &Path) -> io::Result<()> {
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
struct Held {
    _lock: Option<File>,
}

/// Takes the lock of a file, if nobody has it; a file that is not there is held by nobody.
fn hold(path: &Path) -> io::Result<Option<Held>> {
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
fn objects(kind: &Path) -> io::Result<Vec<(String, String, PathBuf)>> {
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
fn entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether that much time has gone by; never of a time to come.
fn is_past(since: SystemTime, grace: Duration, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|gone| gone > grace)
}

fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The journal of a run, whose lock its runner has.
const JOURNAL: &str = "journal.jsonl";

#[cfg(test)]
mod tests {
    use workflow::FileJournal;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn names(of: &[(&str, &str)]) -> Names {
        let owned = |(namespace, name): &(&str, &str)| ((*namespace).into(), (*name).into());
        of.iter().map(owned).collect()
    }

    #[test]
    fn what_belongs_to_nothing_goes_after_a_grace_and_not_from_under_a_runner() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let run = |name| layout.run("demo", name);
        for name in ["kept", "gone", "back", "held"] {
            fs::create_dir_all(run(name).join("logs")).unwrap();
        }
        for cluster in ["kept", "gone"] {
            fs::create_dir_all(layout.cluster("demo", cluster)).unwrap();
        }
        fs::create_dir_all(layout.cluster("other", "gone")).unwrap();
        let held = FileJournal::open(run("held").join(JOURNAL)).unwrap();
        drop(FileJournal::open(run("gone").join(JOURNAL)).unwrap());
        let mut owners = Owners {
            clusters: names(&[("demo", "kept")]),
            runs: names(&[("demo", "kept")]),
            ..Owners::default()
        };

        let start = SystemTime::now();
        let after = |time: Duration| start + time;
        sweep(&layout, &owners, start).unwrap();
        owners.runs = names(&[("demo", "kept"), ("demo", "back")]);
        sweep(&layout, &owners, after(GRACE.saturating_sub(MINUTE))).unwrap();
        assert!(run("gone").exists(), "the grace is not over");
        owners.runs = names(&[("demo", "kept")]);
        sweep(&layout, &owners, after(GRACE + MINUTE)).unwrap();
        assert!(!run("gone").exists());
        assert!(run("kept").exists());
        assert!(run("back").exists(), "it had an owner in the meantime");
        assert!(run("held").exists());
        assert!(!layout.cluster("other", "gone").exists());
        let cluster = layout.cluster("demo", "gone");
        assert!(cluster.exists(), "a runner of the namespace is at work");

        drop(held);
        sweep(&layout, &owners, after(GRACE + MINUTE)).unwrap();
        sweep(&layout, &owners, after(3 * GRACE)).unwrap();
        assert!(!run("held").exists());
        assert!(!cluster.exists());
        assert!(layout.cluster("demo", "kept").exists());
        assert_eq!(entries(&root.path().join("runs/demo")).unwrap().len(), 1);
    }

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

    #[test]
    fn an_operator_of_one_namespace_leaves_the_others_alone() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        for namespace in ["mine", "theirs"] {
            fs::create_dir_all(layout.run(namespace, "gone")).unwrap();
            fs::create_dir_all(layout.cluster(namespace, "gone")).unwrap();
        }
        note_use(&layout.sandboxes(), "a", ("theirs", "gone")).unwrap();
        let owners = Owners {
            namespace: Some("mine".into()),
            ..Owners::default()
        };
        let start = SystemTime::now();
        sweep(&layout, &owners, start).unwrap();
        sweep(&layout, &owners, start + 2 * UNUSED).unwrap();
        assert!(!layout.run("mine", "gone").exists());
        assert!(!layout.cluster("mine", "gone").exists());
        assert!(layout.run("theirs", "gone").exists());
        assert!(layout.cluster("theirs", "gone").exists());
        assert_eq!(used(&layout.sandboxes()).unwrap().len(), 1);
    }

    #[test]
    fn an_environment_goes_when_no_cluster_used_it_for_long() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let sandboxes = layout.sandboxes();
        let made = |digest: &str| {
            let path = sandboxes.join(digest);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let [left, used_now, by_hand, at_work] = ["left", "now", "hand", "work"].map(made);
        // Two releases after each other; the first is left.
        note_use(&sandboxes, "left", ("demo", "first")).unwrap();
        note_use(&sandboxes, "now", ("demo", "first")).unwrap();
        note_use(&sandboxes, "work", ("demo", "gone")).unwrap();
        let lock = File::create(sandboxes.join("work.lock")).unwrap();
        lock.lock().unwrap();
        let owners = Owners {
            clusters: names(&[("demo", "first")]),
            ..Owners::default()
        };
        let start = SystemTime::now();
        sweep(&layout, &owners, start + UNUSED - MINUTE).unwrap();
        assert!(left.exists(), "it was used not long ago");
        sweep(&layout, &owners, start + UNUSED + MINUTE).unwrap();
        assert!(!left.exists());
        assert!(used_now.exists() && by_hand.exists());
        assert!(at_work.exists(), "somebody makes or verifies it");
        drop(lock);
        sweep(&layout, &owners, start + UNUSED + MINUTE).unwrap();
        assert!(!at_work.exists());
    }
}
