//! Removes from the data directory what belongs to nothing any more: beside the files of Runs those of Clusters that are gone, and
//! Python environments that no Cluster used for long. The playbooks look after themselves.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use api::{Cluster, Run};
use kube::{core::DeserializeGuard, runtime::reflector::Store};
use runs::sweep::{Names, entries, hold, is_past, judge, objects, remove};

use crate::{layout::Layout, sandbox_users::used};

/// How long a Python environment is kept that no Cluster uses.
pub const UNUSED: Duration = Duration::from_hours(30 * 24);
/// How often the data directory is looked through.
const LOOK: Duration = Duration::from_hours(1);
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
pub(crate) async fn keep_swept(
    layout: Layout,
    clusters: Store<DeserializeGuard<Cluster>>,
    runs: Store<DeserializeGuard<Run>>,
    namespace: Option<String>,
) {
    loop {
        if clusters.wait_until_ready().await.is_err() || runs.wait_until_ready().await.is_err() {
            return;
        }
        let owners = Owners {
            namespace: namespace.clone(),
            clusters: names(&clusters.state()),
            runs: names(&runs.state()),
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
    let only = owners.namespace.as_deref();
    let at_work = runs::sweep::sweep(layout, only, &owners.runs, now)?;
    for (namespace, name, path) in objects(&layout.root().join("clusters"))? {
        // Whose runner it is does not show once its Run is gone.
        if only.is_none_or(|only| only == namespace) && !at_work.contains(&namespace) {
            let known = owners.clusters.contains(&(namespace, name));
            judge(&path, known, now)?;
        }
    }
    // Who else would use them is not known.
    if only.is_none() {
        environments(&layout.sandboxes(), owners, now)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use runs::sweep::{GRACE, JOURNAL};
    use workflow::FileJournal;

    use super::*;
    use crate::sandbox_users::note_use;

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
