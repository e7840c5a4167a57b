//! The copy of the journal in the Run's status, and the Events of its edges.
//!
//! Written on every edge, and at most every two seconds for progress; tried again for as long as the API is away, while
//! the work goes on. A status that the API refuses is written shorter, and says so: how the run stands must be seen, and the
//! runner must come to its end. An Event is published before the record that it tells of is mirrored: what the status holds has been
//! told, so a new runner knows where to go on, and an Event that is told twice has the same name and appears once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use api::{
    Run,
    run::{Exclusion, Failure, Record, RecordEvent, RunStatus},
    text::cut,
};
use controller::{Events, Occurrence, Severity, lease::Proof};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use workflow::{
    FileJournal, JournalStore, Observer, State, StepProgress,
    status::{Live, derive},
};

use super::error::Error;
use crate::{Words, Work, calls::is_too_large};

/// The field manager of the status of Runs.
pub const FIELD_MANAGER: &str = "windlass-runner";

/// Progress is written at most that often.
const THROTTLE: Duration = Duration::from_secs(2);
/// The wait after the first try that fails.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The longest wait between two tries to reach the API.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How often the last status is tried where the API refuses even the least of it: rights may come back within half a minute.
const LAST_TRIES: u32 = 9;

/// How much of each text, and of each list of targets, a short status keeps.
const WORDS: usize = 120;
const TARGETS: usize = 16;

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
    pub(crate) fn start(
        work: Arc<Work>,
        words: Words,
        journal: &mut FileJournal,
        proof: Proof,
    ) -> Result<(Self, Tell), Error> {
        let records = journal.load().map_err(Error::Journal)?;
        let state = State::replay(&work.plan, &records).map_err(Error::Illegal)?;
        let snapshot = Snapshot {
            state: Arc::new(state),
            steps: HashMap::new(),
            last: false,
        };
        let (sender, receiver) = watch::channel(snapshot);
        let sender = Arc::new(sender);
        let task = tokio::spawn(follow(work, words, proof, receiver));
        let tell = Tell {
            sender: Arc::clone(&sender),
        };
        Ok((Self { sender, task }, tell))
    }

    /// Writes the last state and waits until the API has it, has no such Run any more, or takes it in no form.
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

async fn follow(
    work: Arc<Work>,
    words: Words,
    proof: Proof,
    mut receiver: watch::Receiver<Snapshot>,
) {
    let mut mirrored = last_sequence(work.run.status.as_ref());
    let mut told = mirrored;
    let mut written: Option<RunStatus> = None;
    let mut next_progress = Instant::now();
    let mut tries = Tries::default();
    let mut awaited = HashSet::new();
    loop {
        let snapshot = receiver.borrow_and_update().clone();
        let sequence = snapshot.state.next_sequence().saturating_sub(1);
        let steps = snapshot.steps.values();
        let awaits = steps.filter_map(|step| step.awaits.clone()).collect();
        // Somebody acts on what steps wait for.
        let edge = sequence > mirrored || snapshot.last || written.is_none() || awaits != awaited;
        if !edge && Instant::now() < next_progress {
            tokio::select! {
                () = tokio::time::sleep_until(next_progress) => {}
                _ = receiver.changed() => {}
            }
            continue;
        }
        let live = Live {
            steps: snapshot.steps.clone(),
            runner: Some(work.identity.clone()),
            now: Timestamp::now(),
        };
        let status = derive(&work.plan, &snapshot.state, &live);
        // Another runner may write by now.
        if !proof.holds() {
            return;
        }
        if written.as_ref() != Some(&status) {
            let before = told;
            let done = match tell(&work, words, &snapshot, &mut told).await {
                Ok(()) => write(&work, &status, &tries).await,
                Err(error) => Err(error),
            };
            if told > before {
                // It got further: an API that answers now and then is not one that is away.
                tries.failed = 0;
            }
            match done {
                Ok(()) => {
                    mirrored = sequence;
                    awaited = awaits;
                    written = Some(status);
                    next_progress = Instant::now() + THROTTLE;
                    tries.failed = 0;
                }
                Err(kube::Error::Api(answer)) if answer.code == 404 => return,
                // What comes next is the newest, not what was refused.
                Err(error) => match tries.after(&error, snapshot.last) {
                    Some(wait) => {
                        tokio::time::sleep(controller::backoff::jittered(wait)).await;
                        continue;
                    }
                    None => return,
                },
            }
        }
        if snapshot.last || receiver.changed().await.is_err() {
            return;
        }
    }
}

/// How much of a status is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Amount {
    /// All of it.
    #[default]
    Whole,
    /// What the history says in words is cut short.
    Short,
    /// How the run stands; the rest stays as it was.
    Least,
}

/// The tries to write a status.
#[derive(Debug, Default)]
struct Tries {
    /// What is refused for what it says is refused again: it is not tried whole a second time.
    amount: Amount,
    /// Why the API refused more than that, if it did.
    refusal: Option<String>,
    /// How many failed since one succeeded.
    failed: u32,
}

impl Tries {
    /// How long to wait before the next try; none: the API takes it in no form, and the run must come to its end.
    fn after(&mut self, error: &kube::Error, last: bool) -> Option<Duration> {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            amount = ?self.amount,
            "the Run's status was not written, trying again"
        );
        let wait = FIRST_WAIT * 2_u32.saturating_pow(self.failed.min(16));
        self.failed = self.failed.saturating_add(1);
        let refusal = Refusal::of(error);
        if let Some(Refusal::Content(said)) = &refusal {
            self.refusal = Some(said.clone());
            let before = self.amount;
            self.amount = match before {
                Amount::Whole => Amount::Short,
                Amount::Short | Amount::Least => Amount::Least,
            };
            if before != Amount::Least {
                return Some(FIRST_WAIT);
            }
        }
        let is_vain = refusal.is_some() && last && self.failed >= LAST_TRIES;
        (!is_vain).then_some(wait.min(LONGEST_WAIT))
    }
}

/// What the API has against a write. Anything else passes by itself.
enum Refusal {
    /// What it says, or how much.
    Content(String),
    /// Who writes it, or when.
    Rights,
}

impl Refusal {
    fn of(error: &kube::Error) -> Option<Self> {
        let kube::Error::Api(answer) = error else {
            return None;
        };
        match answer.code {
            400 | 422 => Some(Self::Content(answer.message.clone())),
            _ if is_too_large(answer) => Some(Self::Content(answer.message.clone())),
            401 | 403 | 405 => Some(Self::Rights),
            _ => None,
        }
    }
}

/// Publishes the Events of what was recorded since the record that was `told` last, and goes on there when it is called again. One
/// that the API refuses keeps nothing from the status.
async fn tell(
    work: &Work,
    words: Words,
    snapshot: &Snapshot,
    told: &mut u32,
) -> Result<(), kube::Error> {
    let events = Events::new(work.client.clone(), "runner");
    let regarding = regarding(work);
    let since = *told;
    let records = snapshot.state.records().iter();
    for record in records.filter(|record| record.sequence > since) {
        let of_record = occurrence(work, words, record);
        for occurrence in of_record.into_iter().chain(remedied(work, record)) {
            match events.publish(&regarding, &occurrence).await {
                Err(error) if Refusal::of(&error).is_some() => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "an Event was not published"
                    );
                }
                published => published?,
            }
        }
        *told = record.sequence;
    }
    Ok(())
}

async fn write(work: &Work, status: &RunStatus, tries: &Tries) -> Result<(), kube::Error> {
    let name = work.run.name_any();
    let api = Api::<Run>::namespaced(work.client.clone(), &work.namespace());
    let status = match tries.amount {
        Amount::Whole => status.clone(),
        Amount::Short => short(status.clone()),
        Amount::Least => {
            let patch = Patch::Merge(json!({"status": least(status, tries.refusal.as_deref())}));
            let parameters = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            return api.patch_status(&name, &parameters, &patch).await.map(drop);
        }
    };
    let body = json!({
        "apiVersion": Run::api_version(&()),
        "kind": Run::kind(&()),
        "metadata": {"name": name},
        "status": status,
    });
    api.patch_status(
        &name,
        &PatchParams::apply(FIELD_MANAGER).force(),
        &Patch::Apply(&body),
    )
    .await
    .map(drop)
}

/// The status with few words: what happened stays, from which another runner would go on.
fn short(mut status: RunStatus) -> RunStatus {
    let cut_failure = |failure: &mut Failure| {
        cut(&mut failure.message, WORDS);
        failure.remedy = None;
        failure.targets.truncate(TARGETS);
    };
    for record in &mut status.history {
        record
            .detail
            .iter_mut()
            .for_each(|detail| cut(detail, WORDS));
        record.failure.iter_mut().for_each(cut_failure);
        for excluded in &mut record.excluded {
            cut(&mut excluded.reason, WORDS);
        }
    }
    for step in &mut status.steps {
        step.failure.iter_mut().for_each(cut_failure);
        step.activity = None;
    }
    for excluded in &mut status.excluded {
        cut(&mut excluded.reason, WORDS);
    }
    status
}

/// How the run stands, and why no more is told.
fn least(status: &RunStatus, refusal: Option<&str>) -> Value {
    let mut why = refusal.unwrap_or("it gave no reason").to_owned();
    cut(&mut why, 512);
    let mut message = status.message.clone().unwrap_or_default();
    cut(&mut message, 512);
    let message =
        format!("{message}; the API refused the whole status, the runner's log has it: {why}");
    let mut conditions = status.conditions.clone();
    for condition in &mut conditions {
        condition.message.clone_from(&message);
    }
    json!({
        "phase": status.phase, "progress": status.progress, "finishedAt": status.finished_at,
        "message": message, "conditions": conditions,
    })
}

fn last_sequence(status: Option<&RunStatus>) -> u32 {
    status
        .and_then(|status| status.history.last())
        .map_or(0, |record| record.sequence)
}

/// Events of a run are told on its subject, where people look.
fn regarding(work: &Work) -> ObjectReference {
    let subject = &work.run.spec.subject;
    let mut owners = work.run.owner_references().iter();
    let owner = owners.find(|owner| owner.kind == subject.kind && owner.name == subject.name);
    ObjectReference {
        api_version: owner.map(|owner| owner.api_version.clone()),
        kind: Some(subject.kind.clone()),
        name: Some(subject.name.clone()),
        namespace: Some(work.namespace()),
        uid: owner
            .map(|owner| owner.uid.clone())
            .or_else(|| subject.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The Event of a record, if it is worth one.
fn occurrence(work: &Work, words: Words, record: &Record) -> Option<Occurrence> {
    let step = record.step.clone().unwrap_or_default();
    let plan = work.plan.step(&step);
    let title = plan.map(|step| step.title.clone()).unwrap_or_default();
    let detail = record.detail.clone().unwrap_or_default();
    let with = |text: String| {
        if detail.is_empty() {
            text
        } else {
            format!("{text}: {detail}")
        }
    };
    let total = plan.map_or(0, |step| work.plan.plan().targets(step).count());
    let excluded = excluded_note(words, record, total);
    let (severity, note) = match record.event {
        RecordEvent::StepStarted => (Severity::Normal, format!("{step}: {title}")),
        RecordEvent::StepSucceeded => match excluded.clone() {
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
    let reason = if excluded.is_some() && record.event == RecordEvent::StepSucceeded {
        words.excluded.to_owned()
    } else {
        format!("{:?}", record.event)
    };
    Some(Occurrence {
        severity,
        reason,
        note,
        edge: format!("{}/{}", work.run.uid().unwrap_or_default(), record.sequence),
    })
}

/// The Events of what was done by itself about a failure.
fn remedied(work: &Work, record: &Record) -> Vec<Occurrence> {
    let step = record.step.as_deref().unwrap_or_default();
    let applied = record.remedies.iter().enumerate();
    let occurrences = applied.map(|(place, applied)| Occurrence {
        severity: Severity::Normal,
        reason: REMEDY_APPLIED.to_owned(),
        note: format!("{step}: {applied}"),
        edge: format!(
            "{}/{}/{place}",
            work.run.uid().unwrap_or_default(),
            record.sequence
        ),
    });
    occurrences.collect()
}

/// For example `1 of 4 nodes does not answer: worker-2: connection timed out`.
fn excluded_note(words: Words, record: &Record, total: usize) -> Option<String> {
    let count = record.excluded.len();
    if count == 0 {
        return None;
    }
    let verb = if count == 1 { "does" } else { "do" };
    let (targets, which) = (words.targets, left_out(&record.excluded));
    Some(format!(
        "{count} of {total} {targets} {verb} not answer: {which}"
    ))
}

/// Targets that were left out and why, as people are told: the first few, and how many more.
pub fn left_out(excluded: &[Exclusion]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = excluded
        .iter()
        .take(SHOWN)
        .map(|excluded| format!("{}: {}", excluded.target, excluded.reason))
        .collect();
    let shown = shown.join(", ");
    match excluded.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn failure_note(record: &Record, step: &str) -> String {
    match &record.failure {
        Some(failure) => match &failure.remedy {
            Some(remedy) => format!("{step}: {}: {}; {remedy}", failure.code, failure.message),
            None => format!("{step}: {}: {}", failure.code, failure.message),
        },
        None => format!("{step} failed"),
    }
}

/// The reason of an Event of a remedy.
const REMEDY_APPLIED: &str = "RemedyApplied";

#[cfg(test)]
mod tests;
