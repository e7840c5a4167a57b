//! The process of an earlier runner: found by its record, ended between two tasks, and waited for on the hosts.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ansible::{
    playbook::{self, Adopted, PlaybookRun, leftovers},
    write_private,
};
use api::{
    HostName,
    run::{Failure, FailureClass, RunnerIdentity, Step},
};
use futures::future::join_all;
use runs::runner::is_pod;
use serde::{Deserialize, Serialize};
use workflow::{StepContext, StepProgress};

use super::is_limited;
use crate::action;
use crate::runner::{
    executor::KubesprayExecutor,
    prepare,
    workspace::{disk, failure},
};

/// How long the modules of a killed playbook may go on before a person must look.
const QUIESCE: Duration = Duration::from_mins(10);

/// How the names of the files begin and end that say which processes a run started last.
const NAME: (&str, &str) = ("playbook", ".json");

/// Where a process is found again.
#[derive(Debug, Deserialize, Serialize)]
struct Current {
    id: String,
    work: PathBuf,
    events: PathBuf,
    log: PathBuf,
    home: PathBuf,
}

/// The file that says which process was started last: one for all plays, and one for each row of plays that are bound to the hosts
/// of their steps, which may be at work beside another row.
pub(super) struct Record(PathBuf);

impl Record {
    /// The one of the process that runs this step.
    pub(super) fn of(directory: &Path, step: &Step) -> Self {
        let row = step.batch.as_ref().filter(|_| is_limited(step));
        let row = row.map(|row| format!("-{}", row.replace('/', "__")));
        let (begin, end) = NAME;
        Self(directory.join(format!("{begin}{}{end}", row.unwrap_or_default())))
    }

    /// Those of all processes.
    fn all(directory: &Path) -> Vec<Self> {
        let (begin, end) = NAME;
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        files
            .filter(|file| {
                let name = file.file_name();
                name.to_str()
                    .is_some_and(|name| name.starts_with(begin) && name.ends_with(end))
            })
            .map(|file| Self(file.path()))
            .collect()
    }

    /// Those of processes that must be gone before this step starts one.
    fn before(directory: &Path, step: &Step) -> Vec<Self> {
        if is_limited(step) {
            let (begin, end) = NAME;
            let of_all_hosts = Self(directory.join(format!("{begin}{end}")));
            return vec![of_all_hosts, Self::of(directory, step)];
        }
        Self::all(directory)
    }

    /// Writes down where a process is found again. To be done before it starts.
    pub(super) fn write(&self, run: &PlaybookRun) -> Result<(), Failure> {
        let current = Current {
            id: run.id.clone(),
            work: run.work.clone(),
            events: run.events.clone(),
            log: run.log.clone(),
            home: run.home.clone(),
        };
        let bytes = serde_json::to_vec(&current)
            .map_err(|error| disk(&self.0, &std::io::Error::other(error)))?;
        write_private(&self.0, &bytes).map_err(|error| disk(&self.0, &error))
    }

    /// The process, if it may still be there.
    fn process(&self) -> Option<PlaybookRun> {
        let current: Current = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        Some(PlaybookRun {
            id: current.id,
            work: current.work,
            events: current.events,
            log: current.log,
            home: current.home,
            ..PlaybookRun::default()
        })
    }

    fn forget(&self) {
        // What is not there need not be removed.
        let _ = fs::remove_file(&self.0);
    }
}

/// Kills what the run started last, and waits until it is gone from this machine: for a runner that must end at once.
pub(crate) async fn end_now(directory: &Path) {
    let records = Record::all(directory).into_iter();
    let runs: Vec<_> = records.filter_map(|record| record.process()).collect();
    let ends = runs
        .into_iter()
        .map(|run| tokio::task::spawn_blocking(move || run.end_now()));
    for ended in join_all(ends).await {
        if let Ok(Err(error)) = ended {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a playbook was not killed"
            );
        }
    }
}

/// What the records tell of the processes of an earlier runner.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Former {
    /// There is no record.
    Unknown,
    /// All of them came to their ends, or were never started.
    Ended,
    /// One did not, so that modules of it may still be at work on hosts.
    Killed,
}

impl Former {
    /// Whether hosts are to be asked what is at work on them before a step begins that was begun before.
    fn may_have_left(self, identity: &RunnerIdentity) -> bool {
        match self {
            Self::Ended | Self::Killed => true,
            // Records go with the volume of a pod, but not what it started on hosts. Elsewhere they outlive every runner: without one
            // nothing was started.
            Self::Unknown => is_pod(identity),
        }
    }
}

/// Ends the processes of an earlier runner between two tasks, and waits until nothing is at work on the hosts.
pub(super) async fn end(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Result<(), Failure> {
    let mut former = Former::Unknown;
    let records = Record::before(&executor.work.directory, step);
    for record in &records {
        if let Some(process) = record.process() {
            former = former.max(end_process(&process, step, context).await?);
        }
    }
    let begun = context.interrupted && former.may_have_left(&executor.work.identity);
    if begun || former == Former::Killed {
        quiesce(executor, step, context).await?;
    }
    records.iter().for_each(Record::forget);
    Ok(())
}

async fn end_process(
    former: &PlaybookRun,
    step: &Step,
    context: &StepContext,
) -> Result<Former, Failure> {
    let trouble = |error: playbook::Error| {
        failure(
            FailureClass::Transient,
            "FormerPlaybook",
            format!(
                "the playbook of an earlier runner was not ended: {}",
                crate::chain(&error)
            ),
            None,
        )
    };
    let outcome = match former.adopt().map_err(trouble)? {
        Adopted::Never => return Ok(Former::Ended),
        Adopted::Ended(outcome) => outcome,
        Adopted::Running(mut handle) => {
            tell(
                step,
                context,
                "ending the playbook of an earlier runner at its next task",
            )
            .await;
            handle
                .resume()
                .and_then(|()| handle.stop())
                .map_err(trouble)?;
            handle.wait().await.map_err(trouble)?
        }
    };
    let ended = outcome.tally.ended() || outcome.tally.stopped;
    Ok(if ended { Former::Ended } else { Former::Killed })
}

async fn quiesce(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Result<(), Failure> {
    let left_out = |name: &HostName| {
        context
            .excluded
            .iter()
            .any(|left_out| left_out.target == *name)
    };
    let hosts = action::hosts_of(executor.work.plan.plan(), step);
    let hosts: Vec<_> = hosts.into_iter().filter(|name| !left_out(name)).collect();
    let options = prepare::options(executor).await?;
    tell(
        step,
        context,
        "waiting for what is still at work on the hosts",
    )
    .await;
    let left = leftovers(&prepare::targets(executor, &hosts), &options, QUIESCE).await;
    // A host that does not answer is the play's matter.
    let busy: Vec<_> = left
        .iter()
        .filter(|leftover| !leftover.processes.is_empty())
        .map(ToString::to_string)
        .collect();
    if busy.is_empty() {
        return Ok(());
    }
    Err(failure(
        FailureClass::External,
        "StillAtWork",
        format!("an earlier Ansible is still at work on {}", busy.join(", ")),
        Some("wait for it or end it on the hosts, then retry the run"),
    ))
}

async fn tell(step: &Step, context: &StepContext, task: &str) {
    let progress = StepProgress {
        activity: Some(task.to_owned()),
        ..StepProgress::default()
    };
    // A runner that has ended takes no reports; the next report finds out.
    let _ = context.reporter.progress(&step.id, progress).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_has_no_record_asks_the_hosts_all_the_same() {
        let runner = |pid| RunnerIdentity {
            id: "a".to_owned(),
            pid,
        };
        let (pod, process) = (runner(None), runner(Some(7)));
        for (former, in_pod, beside) in [
            (Former::Unknown, true, false),
            (Former::Ended, true, true),
            (Former::Killed, true, true),
        ] {
            assert_eq!(former.may_have_left(&pod), in_pod, "{former:?}");
            assert_eq!(former.may_have_left(&process), beside, "{former:?}");
        }
    }

    #[test]
    fn of_several_processes_the_worst_counts() {
        let all = [Former::Ended, Former::Killed, Former::Ended];
        let worst = all.into_iter().fold(Former::Unknown, Former::max);
        assert_eq!(worst, Former::Killed);
    }
}
