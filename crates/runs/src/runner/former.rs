//! Which Run the directory of a run is of: a deleted Run may leave its directory to another one of the same name.

use std::{fs, path::Path};

use api::Run;
use kube::ResourceExt;
use workflow::FileJournal;

use super::error::Error;

/// The journal of a run.
pub(crate) const JOURNAL: &str = "journal.jsonl";
/// The Run as it was fetched last.
const COPY: &str = "run.json";

/// The Run as an earlier runner knew it.
pub(crate) fn known(directory: &Path) -> Option<Run> {
    let bytes = fs::read(directory.join(COPY)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Keeps the Run for a time when the API is away. It is a convenience: a disk that is full must not end the run.
pub(crate) fn keep(directory: &Path, run: &Run) {
    // What is there stays whole, whatever happens to the new one.
    let new = directory.join("run.json.new");
    let written = serde_json::to_vec(run)
        .map_err(std::io::Error::from)
        .and_then(|json| fs::write(&new, json))
        .and_then(|()| fs::rename(&new, directory.join(COPY)));
    if let Err(error) = written {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the copy of the Run was not kept"
        );
    }
}

/// Puts the journal of another Run of the same name out of the way: it would say that all is done already.
pub(crate) fn set_aside(
    journal: FileJournal,
    directory: &Path,
    run: &Run,
) -> Result<FileJournal, Error> {
    let Some(former) = known(directory).filter(|former| former.uid() != run.uid()) else {
        return Ok(journal);
    };
    tracing::warn!(
        former = former.uid(),
        run = run.uid(),
        "the journal is of a Run that is gone, beginning anew"
    );
    drop(journal);
    let path = directory.join(JOURNAL);
    let aside = directory.join(format!(
        "journal-{}.jsonl",
        former.uid().unwrap_or_default()
    ));
    fs::rename(&path, aside).map_err(|source| Error::File {
        path: path.clone(),
        source,
    })?;
    FileJournal::open(path).map_err(Error::Journal)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use api::run::RecordEvent;
    use serde_json::json;
    use workflow::{JournalStore, journal::JournalError};

    use super::*;

    fn run(uid: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "first-create-1", "uid": uid},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"}, "operation": "Create", "generation": 1,
                "plan": {"digest": "d", "steps": []},
            },
        }))
        .unwrap()
    }

    /// A process that another test starts has the lock of a dropped journal until it is a program of its own.
    fn open(path: &Path) -> FileJournal {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match FileJournal::open(path) {
                Err(JournalError::Held(_)) if Instant::now() < deadline => std::thread::yield_now(),
                opened => return opened.unwrap(),
            }
        }
    }

    #[test]
    fn the_journal_of_a_deleted_run_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(JOURNAL);
        let began: api::run::Record = serde_json::from_value(
            json!({"sequence": 1, "time": "2026-01-01T00:00:00Z", "event": "RunStarted"}),
        )
        .unwrap();
        assert_eq!(began.event, RecordEvent::RunStarted);
        for (uid, kept) in [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 0)] {
            let journal = open(&path);
            let mut journal = set_aside(journal, directory.path(), &run(uid)).unwrap();
            keep(directory.path(), &run(uid));
            assert_eq!(journal.load().unwrap().len(), kept, "{uid}");
            if kept == 0 {
                journal.append(&began).unwrap();
            }
        }
    }
}
