//! How a cloud stands with its backups: when the next one is due, and whether the last good one is young enough. Pure.

use api::{
    Run,
    openstack::{Backup, BackupState},
    run::RunPhase,
};
use controller::{Status, window::Recurrence};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use runs::phase;
use snapshots::retention::is_past;

use crate::{backup, subject::Observed, wish::Operation};

/// How long after its time a backup may be taken, at most: a run may be at work then.
const LATE: SignedDuration = SignedDuration::from_hours(1);

/// The newest run that was to take one.
pub fn newest(runs: &[Run]) -> Option<&Run> {
    let mut newest = runs.iter().rev();
    newest.find(|run| run.spec.operation == Operation::Backup.name())
}

/// Why a backup is due, if one is.
pub fn due(settings: &Backup, observed: &Observed) -> Option<String> {
    let schedule = schedule(settings)?;
    let now = observed.now;
    let begun = newest(&observed.runs)
        .and_then(|run| run.metadata.creation_timestamp.as_ref())
        .map(|time| time.0)
        .filter(|begun| is_past(*begun, now));
    let taken = last_good(observed).map(|(_, taken)| taken);
    let Some(last) = begun.max(taken) else {
        return Some("none has been taken yet".to_owned());
    };
    let due = schedule.last(now)?.timestamp();
    (last < due).then(|| format!("one was due at {due}"))
}

/// The last good backup: its name and when it was taken. One of a time to come is not good: it would count until then.
fn last_good(observed: &Observed) -> Option<(String, Timestamp)> {
    let kept = observed.backups.iter().flat_map(|seen| &seen.kept);
    let good = kept.filter(|kept| kept.state == BackupState::Verified);
    let taken = good.filter_map(|kept| Some((kept.name.clone(), kept.taken_at.as_ref()?.0)));
    let taken = taken.filter(|(_, taken)| is_past(*taken, observed.now));
    taken.max_by_key(|(_, taken)| *taken)
}

fn schedule(settings: &Backup) -> Option<Recurrence> {
    backup::schedule(settings).ok().flatten()
}

/// Whether the last good backup is as young as the schedule has it: in three words, the last for people.
pub fn judge(settings: &Backup, observed: &Observed) -> (Status, &'static str, String) {
    let failed = newest(&observed.runs).filter(|run| phase(run) == RunPhase::Failed);
    let failed = failed.map(|run| {
        let name = run.name_any();
        format!("; run {name}, which was to take another, failed: windlass logs {name}")
    });
    let failed = failed.unwrap_or_default();
    let Some((name, taken)) = last_good(observed) else {
        let message = format!("no good backup lies in the store{failed}");
        return (Status::False, "NoBackup", message);
    };
    let told = format!("the last good backup is {name}");
    if let Some(missed) = overdue(settings, taken, observed.now) {
        let message = format!("{told}, and another was due at {missed}{failed}");
        return (Status::False, "BackupOverdue", message);
    }
    (Status::True, "BackupVerified", format!("{told}{failed}"))
}

/// The last time for which a backup is missing that should be there by now.
fn overdue(settings: &Backup, taken: Timestamp, now: Timestamp) -> Option<String> {
    let schedule = schedule(settings)?;
    let due = schedule.last(now)?;
    let next = schedule.next(now)?;
    // No longer than until the next one is due.
    let between = next.timestamp().duration_since(due.timestamp());
    let since = now.checked_sub(LATE.min(between)).ok()?;
    let missed = schedule.last(since)?;
    (taken < missed.timestamp()).then(|| missed.to_string())
}
