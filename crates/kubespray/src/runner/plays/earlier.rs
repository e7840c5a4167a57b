//! The process of an earlier runner: found by its record, ended between two tasks, and waited for on the hosts.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ansible::playbook::{self, Adopted, PlaybookRun, leftovers};
use api::{
    HostName,
    run::{Failure, FailureClass, Step},
};
use serde::{Deserialize, Serialize};
use workflow::{StepContext, StepProgress};

use crate::action;
use crate::runner::{
    executor::KubesprayExecutor,
    prepare,
    workspace::{disk, failure},
};

/// How long the modules of a killed playbook may go on before a person must look.
const QUIESCE: Duration = Duration::from_mins(10);

/// The file that says which process a run started last.
const CURRENT: &str = "playbook.json";

/// Where a process is found again.
#[derive(Debug, Deserialize, Serialize)]
struct Current {
    id: String,
    work: PathBuf,
    events: PathBuf,
    log: PathBuf,
    home: PathBuf,
}

/// Writes down where a process is found again. To be done before it starts.
pub(super) fn record(directory: &Path, run: &PlaybookRun) -> Result<(), Failure> {
    let current = Current {
        id: run.id.clone(),
        work: run.work.clone(),
        events: run.events.clone(),
        log: run.log.clone(),
        home: run.home.clone(),
    };
    let path = directory.join(CURRENT);
    let bytes =
        serde_json::to_vec(&current).map_err(|error| disk(&path, &std::io::Error::other(error)))?;
    fs::write(&path, bytes).map_err(|error| disk(&path, &error))
}

/// The process that the run started last, if it may still be there.
fn last(file: &Path) -> Option<PlaybookRun> {
    let current: Current = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some(PlaybookRun {
        id: current.id,
        work: current.work,
        events: current.events,
        log: current.log,
        home: current.home,
        ..PlaybookRun::default()
    })
}

/// Kills what the run started last, and waits until it is gone from this machine: for a runner that must end at once.
pub(crate) async fn end_now(directory: &Path) {
    let Some(run) = last(&directory.join(CURRENT)) else {
        return;
    };
    let ended = tokio::task::spawn_blocking(move || run.end_now()).await;
    if let Ok(Err(error)) = ended {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a playbook was not killed"
        );
    }
}

/// Ends the process of an earlier runner between two tasks, and waits until nothing is at work on the hosts.
pub(super) async fn end(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Result<(), Failure> {
    let file = executor.work.directory.join(CURRENT);
    let Some(former) = last(&file) else {
        return Ok(());
    };
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
    let adopted = former.adopt().map_err(trouble)?;
    let remote_work = match adopted {
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
    };
    if remote_work || context.interrupted {
        quiesce(executor, step, context).await?;
    }
    // What is not there need not be removed.
    let _ = fs::remove_file(&file);
    Ok(())
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
