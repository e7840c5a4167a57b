//! The copy of the journal in the Run's status, and the Events of its edges.
//!
//! Written on every edge, and at most every two seconds for progress; tried again for as long as the API is away, while
//! the work goes on. An Event is published before the record that it tells of is mirrored: what the status holds has been
//! told, so a new runner knows where to go on, and an Event that is told twice has the same name and appears once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{
    Cluster, Run,
    run::{Record, RecordEvent, RunStatus},
};
use controller::{Events, Occurrence, Severity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use workflow::{
    FileJournal, JournalStore, Observer, State, StepProgress,
    status::{Live, derive},
};

use super::{Error, FIELD_MANAGER, Job};
use crate::cluster::{compile, report::left_out};

/// Progress is written at most that often.
const THROTTLE: Duration = Duration::from_secs(2);
/// The longest wait between two tries to reach the API.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Snapshot {
    state: Arc<State>,
    steps: HashMap<String, StepProgress>,
    last: bool,
}

/// The task that writes the copy.
pub(crate) struct Mirror {
    sender: Arc<watch::Sender<Snapshot>>,
    task: JoinHandle<()>,
}

/// What the workflow's loop tells.
pub(crate) struct Tell {
    sender: Arc<watch::Sender<Snapshot>>,
}

impl Mirror {
    /// Starts to mirror from where the journal stands.
    pub(crate) fn start(job: Arc<Job>, journal: &mut FileJournal) -> Result<(Self, Tell), Error> {
        let records = journal.load().map_err(Error::Journal)?;
        let state = State::replay(&job.plan, &records).map_err(Error::Illegal)?;
        let snapshot = Snapshot {
            state: Arc::new(state),
            steps: HashMap::new(),
            last: false,
        };
        let (sender, receiver) = watch::channel(snapshot);
        let sender = Arc::new(sender);
        let task = tokio::spawn(follow(job, receiver));
        let tell = Tell {
            sender: Arc::clone(&sender),
        };
        Ok((Self { sender, task }, tell))
    }

    /// Writes the last state and waits until the API has it, or has no such Run any more.
    pub(crate) async fn finish(self, state: State) {
        self.sender.send_modify(|snapshot| {
            snapshot.state = Arc::new(state);
            snapshot.steps.clear();
            snapshot.last = true;
        });
        if let Err(error) = self.task.await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the mirror of the journal ended early"
            );
        }
    }
}

impl Observer for Tell {
    fn recorded(&mut self, record: &Record, state: &State) {
        tracing::info!(event = ?record.event, step = record.step, detail = record.detail, "recorded");
        self.sender.send_modify(|snapshot| {
            snapshot.state = Arc::new(state.clone());
            if let Some(step) = &record.step
                && record.event != RecordEvent::StepStarted
            {
                snapshot.steps.remove(step);
            }
        });
    }

    fn progressed(&mut self, step: &str, progress: &StepProgress) {
        self.sender.send_modify(|snapshot| {
            snapshot.steps.insert(step.to_owned(), progress.clone());
        });
    }
}

async fn follow(job: Arc<Job>, mut receiver: watch::Receiver<Snapshot>) {
    let mut mirrored = last_sequence(job.run.status.as_ref());
    let mut written: Option<RunStatus> = None;
    let mut next_progress = Instant::now();
    loop {
        let snapshot = receiver.borrow_and_update().clone();
        let sequence = snapshot.state.next_sequence().saturating_sub(1);
        let edge = sequence > mirrored || snapshot.last || written.is_none();
        if !edge && Instant::now() < next_progress {
            tokio::select! {
                () = tokio::time::sleep_until(next_progress) => {}
                _ = receiver.changed() => {}
            }
            continue;
        }
        let status = derive(
            &job.plan,
            &snapshot.state,
            &Live {
                steps: snapshot.steps.clone(),
                runner: Some(job.identity.clone()),
                now: Timestamp::now(),
            },
        );
        if written.as_ref() != Some(&status) {
            if write(&job, &snapshot, mirrored, &status).await == Fate::Gone {
                return;
            }
            mirrored = sequence;
            written = Some(status);
            next_progress = Instant::now() + THROTTLE;
        }
        if snapshot.last || receiver.changed().await.is_err() {
            return;
        }
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Fate {
    Written,
    Gone,
}

async fn write(job: &Job, snapshot: &Snapshot, mirrored: u32, status: &RunStatus) -> Fate {
    let mut wait = Duration::from_millis(200);
    loop {
        match try_write(job, snapshot, mirrored, status).await {
            Ok(()) => return Fate::Written,
            Err(kube::Error::Api(answer)) if answer.code == 404 => return Fate::Gone,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the Run's status was not written, trying again"
                );
            }
        }
        tokio::time::sleep(controller::backoff::jittered(wait)).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

async fn try_write(
    job: &Job,
    snapshot: &Snapshot,
    mirrored: u32,
    status: &RunStatus,
) -> Result<(), kube::Error> {
    let news: Vec<_> = snapshot
        .state
        .records()
        .iter()
        .filter(|record| record.sequence > mirrored)
        .collect();
    let events = Events::new(job.client.clone(), "runner");
    let regarding = regarding(job);
    for record in news {
        if let Some(occurrence) = occurrence(job, record) {
            events.publish(&regarding, &occurrence).await?;
        }
    }
    let name = job.run.name_any();
    let body = json!({
        "apiVersion": Run::api_version(&()),
        "kind": Run::kind(&()),
        "metadata": {"name": name},
        "status": status,
    });
    Api::<Run>::namespaced(job.client.clone(), &job.namespace())
        .patch_status(
            &name,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&body),
        )
        .await
        .map(drop)
}

fn last_sequence(status: Option<&RunStatus>) -> u32 {
    status
        .and_then(|status| status.history.last())
        .map_or(0, |record| record.sequence)
}

/// Events of a run are told on its cluster, where people look.
fn regarding(job: &Job) -> ObjectReference {
    let owner = job.run.owner_references().first().cloned();
    ObjectReference {
        api_version: Some(Cluster::api_version(&()).into_owned()),
        kind: Some(Cluster::kind(&()).into_owned()),
        name: Some(job.cluster().to_owned()),
        namespace: Some(job.namespace()),
        uid: owner.map(|owner| owner.uid),
        ..ObjectReference::default()
    }
}

/// The Event of a record, if it is worth one.
fn occurrence(job: &Job, record: &Record) -> Option<Occurrence> {
    let step = record.step.clone().unwrap_or_default();
    let plan = job.plan.step(&step);
    let title = plan.map(|step| step.title.clone()).unwrap_or_default();
    let detail = record.detail.clone().unwrap_or_default();
    let with = |text: String| {
        if detail.is_empty() {
            text
        } else {
            format!("{text}: {detail}")
        }
    };
    let excluded = excluded_note(
        record,
        plan.map_or(0, |step| job.plan.plan().hosts(step).count()),
    );
    let (severity, note) = match record.event {
        RecordEvent::StepStarted => (Severity::Normal, format!("{step}: {title}")),
        RecordEvent::StepSucceeded if step == compile::PROBE => match excluded {
            Some(note) => (Severity::Warning, note),
            None => (Severity::Normal, with(format!("{step} is done"))),
        },
        RecordEvent::StepSucceeded => match excluded {
            Some(note) => (Severity::Warning, note),
            None => (Severity::Normal, with(format!("{step} is done"))),
        },
        RecordEvent::StepFailed => (Severity::Warning, failure_note(record, &step)),
        RecordEvent::StepWaiting => (
            Severity::Normal,
            with(format!("{step} waits for an approval")),
        ),
        RecordEvent::StepInterrupted => (Severity::Normal, with(format!("{step} was interrupted"))),
        RecordEvent::RunPaused => (Severity::Normal, with("the run is paused".to_owned())),
        RecordEvent::RunResumed => (Severity::Normal, with("the run goes on".to_owned())),
        RecordEvent::StepApproved
        | RecordEvent::StepRetried
        | RecordEvent::StepSkipped
        | RecordEvent::RequestRefused => {
            let by = record.by.clone().unwrap_or_else(|| "nobody".to_owned());
            (Severity::Normal, with(format!("{step}, asked by {by}")))
        }
        // The cluster's own Events tell of these; a checkpoint stands for what was told.
        RecordEvent::Checkpoint
        | RecordEvent::RunStarted
        | RecordEvent::RunSucceeded
        | RecordEvent::RunFailed
        | RecordEvent::RunCancelled
        | RecordEvent::RunSuperseded => return None,
    };
    let reason = if excluded_note(record, 1).is_some() && record.event == RecordEvent::StepSucceeded
    {
        "HostsExcluded".to_owned()
    } else {
        format!("{:?}", record.event)
    };
    Some(Occurrence {
        severity,
        reason,
        note,
        edge: format!("{}/{}", job.run.uid().unwrap_or_default(), record.sequence),
    })
}

/// For example `1 of 4 nodes does not answer: worker-2: connection timed out`.
fn excluded_note(record: &Record, total: usize) -> Option<String> {
    let count = record.excluded.len();
    if count == 0 {
        return None;
    }
    let verb = if count == 1 { "does" } else { "do" };
    let hosts = left_out(&record.excluded);
    Some(format!(
        "{count} of {total} nodes {verb} not answer: {hosts}"
    ))
}

fn failure_note(record: &Record, step: &str) -> String {
    match &record.failure {
        Some(failure) => match &failure.remedy {
            Some(remedy) => format!("{step}: {}; {remedy}", failure.message),
            None => format!("{step}: {}", failure.message),
        },
        None => format!("{step} failed"),
    }
}
