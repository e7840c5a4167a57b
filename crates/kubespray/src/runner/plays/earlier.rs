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
    run::{Failure, FailureClass, Step},
};
use futures::future::join_all;
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

/// Ends the processes of an earlier runner between two tasks, and waits until nothing is at work on the hosts.
pub(super) async fn end(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Result<(), Failure> {
    let mut former = false;
    let mut remote_work = false;
    let records = Record::before(&executor.work.directory, step);
    for record in &records {
        if let Some(process) = record.process() {
            former = true;
            remote_work |= end_process(&process, step, context).await?;
        }
    }
    if remote_work || (former && context.interrupted) {
        quiesce(executor, step, context).await?;
    }
    records.iter().for_each(Record::forget);
    Ok(())
}

/// Whether modules of it may still be at work on hosts.
async fn end_process(
    former: &PlaybookRun,
    step: &Step,
    context: &StepContext,
) -> Result<bool, Failure> {
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
    Ok(match former.adopt().map_err(trouble)? {
        Adopted::Never => false,
        Adopted::Ended(outcome) => !outcome.tally.ended() && !outcome.tally.stopped,
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
            let outcome = handle.wait().await.map_err(trouble)?;
            !outcome.tally.ended() && !outcome.tally.stopped
        }
    })
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
