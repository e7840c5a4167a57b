//! How a cluster stands with its snapshots: what lies in the store, whether the last good one is young enough, and when the next one is
//! due. Pure.

use api::{
    Run,
    run::RunPhase,
    snapshots::{SnapshotState, SnapshotsStatus},
};
use controller::Status;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use runs::phase;
use snapshots::retention::is_past;

use super::Snapshots;
use crate::operation::SNAPSHOT;

/// How long after its time a snapshot may be taken, at most: a run may be at work then.
const LATE: SignedDuration = SignedDuration::from_hours(1);

/// How a cluster stands with its snapshots.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What lies in the store, if anybody has looked.
    pub store: Option<SnapshotsStatus>,
    /// Whether the last good one is as young as the schedule has it.
    pub backed_up: Status,
    /// The same in one word.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
}

impl Standing {
    /// That of a cluster with these settings and runs.
    pub fn of(
        settings: &Snapshots,
        store: Option<SnapshotsStatus>,
        runs: &[Run],
        now: Timestamp,
    ) -> Self {
        let last = store.as_ref().and_then(|store| last_good(store, now));
        let (backed_up, reason, message) = judge(settings, last.as_ref(), runs, now);
        Self {
            store,
            backed_up,
            reason,
            message,
        }
    }
}

/// The last good snapshot: its name and when it was taken. One of a time to come is not good: it would count until then.
pub fn last_good(store: &SnapshotsStatus, now: Timestamp) -> Option<(String, Timestamp)> {
    let good = store
        .kept
        .iter()
        .filter(|kept| kept.state == SnapshotState::Verified);
    let taken = good.filter_map(|kept| Some((kept.name.clone(), kept.taken_at.as_ref()?.0)));
    let taken = taken.filter(|(_, taken)| is_past(*taken, now));
    taken.max_by_key(|(_, taken)| *taken)
}

/// Why a snapshot is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Due {
    /// None has been taken yet, and the first one does not wait for its time.
    First,
    /// This was its time, and nobody has begun to take one since.
    At(Timestamp),
}

/// Whether a snapshot is due.
pub fn due(
    settings: &Snapshots,
    store: Option<&SnapshotsStatus>,
    runs: &[Run],
    now: Timestamp,
) -> Option<Due> {
    let schedule = settings.schedule.as_ref()?;
    let begun = newest(runs)
        .and_then(|run| run.metadata.creation_timestamp.as_ref())
        .map(|time| time.0)
        .filter(|begun| is_past(*begun, now));
    let taken = store.and_then(|store| last_good(store, now));
    let taken = taken.map(|(_, taken)| taken);
    let Some(last) = begun.max(taken) else {
        return Some(Due::First);
    };
    let due = schedule.last(now)?.timestamp();
    (last < due).then_some(Due::At(due))
}

/// The newest run that was to take one.
pub fn newest(runs: &[Run]) -> Option<&Run> {
    let mut newest = runs.iter().rev();
    newest.find(|run| run.spec.operation == SNAPSHOT.name)
}

fn judge(
    settings: &Snapshots,
    last: Option<&(String, Timestamp)>,
    runs: &[Run],
    now: Timestamp,
) -> (Status, &'static str, String) {
    let failed = newest(runs).filter(|run| phase(run) == RunPhase::Failed);
    let failed = failed.map(|run| {
        let name = run.name_any();
        format!("; run {name}, which was to take another, failed: windlass logs {name}")
    });
    let failed = failed.unwrap_or_default();
    let Some((name, taken)) = last else {
        let message = format!("no good snapshot lies in the store{failed}");
        return (Status::False, "NoSnapshot", message);
    };
    let told = format!("the last good snapshot is {name}");
    if let Some(missed) = overdue(settings, *taken, now) {
        let message = format!("{told}, and another was due at {missed}{failed}");
        return (Status::False, "SnapshotOverdue", message);
    }
    (Status::True, "SnapshotVerified", format!("{told}{failed}"))
}

/// The last time for which a snapshot is missing that should be there by now.
fn overdue(settings: &Snapshots, taken: Timestamp, now: Timestamp) -> Option<String> {
    let schedule = settings.schedule.as_ref()?;
    let due = schedule.last(now)?;
    let next = schedule.next(now)?;
    // No longer than until the next one is due.
    let between = next.timestamp().duration_since(due.timestamp());
    let late = LATE.min(between);
    let since = now.checked_sub(late).ok()?;
    let missed = schedule.last(since)?;
    (taken < missed.timestamp()).then(|| missed.to_string())
}

#[cfg(test)]
mod tests {
    use api::{cluster::ClusterSpec, snapshots::SnapshotStatus};
    use serde_json::json;

    use super::*;
    use crate::snapshots::settings;

    fn hourly(schedule: Option<&str>) -> Snapshots {
        let mut written = json!({"store": {"directory": "/srv"}});
        if let Some(schedule) = schedule {
            written["schedule"] = json!(schedule);
        }
        let spec: ClusterSpec =
            serde_json::from_value(json!({"etcd": {"snapshots": written}})).unwrap();
        settings::resolve(&spec, false, &mut Vec::new()).unwrap()
    }

    fn time(text: &str) -> Timestamp {
        format!("2026-11-25T{text}:00Z").parse().unwrap()
    }

    fn store(kept: &[(&str, SnapshotState)]) -> SnapshotsStatus {
        let kept = kept.iter().map(|(at, state)| SnapshotStatus {
            name: format!("s-{at}"),
            state: *state,
            taken_at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time(
                at,
            ))),
            size: None,
            revision: None,
            keys: None,
            etcd_version: None,
            digest: None,
        });
        SnapshotsStatus {
            place: "/srv".into(),
            seen_at: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time("00:00")),
            count: 1,
            kept: kept.collect(),
            drill: None,
        }
    }

    fn run(operation: &str, at: &str, phase: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "c-snapshot-1", "creationTimestamp": time(at).to_string()},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "c"}, "operation": operation, "generation": 1,
                "plan": {"digest": "d", "steps": []},
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn one_is_due_when_its_time_came_since_the_last_was_begun() {
        let six = hourly(Some("0 */6 * * *"));
        let verified = |at| store(&[(at, SnapshotState::Verified)]);
        for (taken, begun, now, expected) in [
            (None, None, "03:00", Some("")),
            (Some("05:59"), None, "06:00", Some("06:00")),
            (Some("06:00"), None, "11:59", None),
            (Some("06:00"), None, "13:00", Some("12:00")),
            // One that failed is not begun again before the next time.
            (Some("00:00"), Some("06:00"), "11:59", None),
            (None, Some("06:01"), "11:59", None),
            (None, Some("05:00"), "06:30", Some("06:00")),
            // What is of a time to come holds nothing up.
            (Some("23:00"), None, "13:00", Some("")),
            (Some("23:00"), Some("05:00"), "13:00", Some("12:00")),
        ] {
            let store = taken.map(verified);
            let mut runs = vec![run("Converge", "12:30", "Succeeded")];
            runs.extend(begun.map(|at| run("Snapshot", at, "Failed")));
            let due = due(&six, store.as_ref(), &runs, time(now));
            let expected = expected.map(|at| match at {
                "" => Due::First,
                at => Due::At(time(at)),
            });
            assert_eq!(due, expected, "{taken:?} {begun:?} {now}");
        }
        assert_eq!(due(&hourly(None), None, &[], time("03:00")), None);
    }

    #[test]
    fn a_cluster_is_backed_up_while_the_last_good_one_is_as_young_as_the_schedule_has_it() {
        use SnapshotState::{Altered, OtherCluster, Unfinished, Verified};
        let six = hourly(Some("0 */6 * * *"));
        let ten = hourly(Some("*/10 * * * *"));
        let never = hourly(None);
        for (settings, kept, now, reason) in [
            (&six, &[][..], "06:00", "NoSnapshot"),
            (&never, &[], "06:00", "NoSnapshot"),
            (&never, &[("00:00", Verified)], "23:00", "SnapshotVerified"),
            (&six, &[("06:00", Verified)], "11:59", "SnapshotVerified"),
            (&six, &[("06:00", Verified)], "12:59", "SnapshotVerified"),
            (&six, &[("06:00", Verified)], "13:00", "SnapshotOverdue"),
            (&six, &[("12:05", Verified)], "13:00", "SnapshotVerified"),
            (&ten, &[("06:00", Verified)], "06:19", "SnapshotVerified"),
            (&ten, &[("06:00", Verified)], "06:20", "SnapshotOverdue"),
            // One of a time to come is none.
            (&never, &[("23:00", Verified)], "13:00", "NoSnapshot"),
            (
                &six,
                &[("23:00", Verified), ("06:00", Verified)],
                "13:00",
                "SnapshotOverdue",
            ),
            (
                &six,
                &[
                    ("12:01", Altered),
                    ("12:02", Unfinished),
                    ("12:03", OtherCluster),
                    ("06:00", Verified),
                ],
                "13:00",
                "SnapshotOverdue",
            ),
        ] {
            let standing = Standing::of(settings, Some(store(kept)), &[], time(now));
            assert_eq!(standing.reason, reason, "{kept:?} {now}");
            let good = standing.backed_up == Status::True;
            assert_eq!(good, reason == "SnapshotVerified");
        }
        let failed = [run("Snapshot", "12:00", "Failed")];
        let kept = store(&[("06:00", Verified)]);
        let standing = Standing::of(&six, Some(kept), &failed, time("12:10"));
        assert_eq!(standing.reason, "SnapshotVerified");
        assert!(
            standing.message.contains("c-snapshot-1"),
            "{}",
            standing.message
        );
    }
}
