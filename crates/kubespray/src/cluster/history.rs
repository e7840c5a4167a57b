//! Which of a cluster's runs stay, beside what [`runs::history`] keeps of every subject.
//!
//! The reconciler reads old runs: what the cluster was built with, which request was carried out, which number comes next. So
//! what it could miss stays, whatever the limits say.

use std::collections::BTreeSet;

use api::{Cluster, Duration, Run, cluster::RunHistory, run::RunPhase};
use jiff::SignedDuration;
use kube::{Resource, ResourceExt};
use runs::{
    history::{self, Limits},
    phase,
};

use crate::{
    cluster::{built::built_by, observe::Observed},
    operation::{Operation, Order, asked, recover, renew, upgrade},
    snapshots::standing,
};

/// How many runs are kept that left the cluster alone: snapshots, each of which lies in the store.
const QUIET: usize = 5;

/// The runs that are to go, oldest first.
pub fn surplus<'a>(cluster: &Cluster, observed: &'a Observed) -> Vec<&'a Run> {
    // The end of the cluster takes them along.
    if cluster.meta().deletion_timestamp.is_some() {
        return Vec::new();
    }
    let runs = &observed.runs;
    let (limits, kept) = (limits(cluster), kept(cluster, runs));
    // By their number they would push everything else out.
    let (quiet, others): (Vec<&Run>, Vec<&Run>) =
        runs.iter().partition(|run| Operation::is_quiet(run));
    let few = Limits {
        count: QUIET.min(limits.count),
        ..limits
    };
    let mut surplus = history::surplus(&quiet, &few, &kept, observed.now);
    surplus.extend(history::surplus(&others, &limits, &kept, observed.now));
    surplus
}

/// Those of the spec.
fn limits(cluster: &Cluster) -> Limits {
    let RunHistory { limit, max_age } = cluster.spec.run_history.clone().unwrap_or_default();
    let age = |age: Duration| i64::try_from(age.seconds()).unwrap_or(i64::MAX);
    let default = Limits::default();
    Limits {
        count: limit.map_or(default.count, usize::from),
        age: max_age.map_or(default.age, |max| SignedDuration::from_secs(age(max))),
    }
}

/// Runs that stay whatever the limits say.
fn kept(cluster: &Cluster, runs: &[Run]) -> BTreeSet<String> {
    let orders =
        |run: &Run| Operation::of(run).is_some_and(|operation| operation.order != Order::Takes);
    let created = |run: &&Run| orders(run) && phase(run) == RunPhase::Succeeded;
    let of_runs = [
        runs.iter().rev().find(created),
        built_by(runs),
        upgrade::begun_run(runs.iter()).map(|(run, _)| run),
        recover::begun(runs.iter()),
        renew::newest(runs),
        standing::newest(runs),
    ];
    let status = cluster.status.as_ref();
    let last = status.and_then(|status| status.last_operation.as_ref()?.run.clone());
    let answered = asked::all().filter_map(|asked| {
        let answer = (asked.answered)(status?)?;
        answer.run.clone()
    });
    let of_runs = of_runs.into_iter().flatten().map(ResourceExt::name_any);
    let stopped = stopped(runs).map(ResourceExt::name_any);
    of_runs.chain(last).chain(answered).chain(stopped).collect()
}

/// The newest run of each wish, where that failed or was cancelled: it is why nothing is begun anew.
fn stopped(runs: &[Run]) -> impl Iterator<Item = &Run> {
    let mut wishes = BTreeSet::new();
    let newest = runs.iter().rev().filter(move |run| {
        let wish = run.spec.plan.wish.as_ref();
        wish.is_some_and(|wish| wishes.insert((run.spec.operation.clone(), wish.clone())))
    });
    newest.filter(|run| matches!(phase(run), RunPhase::Failed | RunPhase::Cancelled))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::playbooks::Playbooks;

    const NOW: &str = "2026-06-01T00:00:00Z";

    fn run(number: usize, operation: &str, phase: &str, ended: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": format!("c-run-{number}"), "uid": number.to_string()},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "c"}, "operation": operation, "generation": 1,
                "plan": {"digest": "d", "steps": []},
            },
            "status": {"phase": phase, "finishedAt": ended},
        }))
        .unwrap()
    }

    fn removed(spec: &Value, status: &Value, runs: Vec<Run>) -> Vec<usize> {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "c"},
            "spec": {"runHistory": spec}, "status": status,
        }))
        .unwrap();
        let observed = Observed {
            runs,
            ..Observed::empty(NOW.parse().unwrap(), Playbooks::Unwanted)
        };
        let names = surplus(&cluster, &observed).into_iter();
        names
            .map(|run| run.name_any().rsplit_once('-').unwrap().1.parse().unwrap())
            .collect()
    }

    fn converges(count: usize) -> Vec<Run> {
        (1..=count)
            .map(|number| run(number, "Converge", "Succeeded", "2026-05-30T00:00:00Z"))
            .collect()
    }

    #[test]
    fn the_oldest_ended_runs_go_when_there_are_too_many() {
        let none = json!({});
        assert_eq!(removed(&none, &none, converges(20)), [0; 0]);
        assert_eq!(removed(&none, &none, converges(23)), [1, 2, 3]);
        assert_eq!(
            removed(&json!({"limit": 2}), &none, converges(5)),
            [1, 2, 3]
        );
        assert_eq!(removed(&json!({"limit": 1}), &none, converges(1)), [0; 0]);
    }

    #[test]
    fn old_runs_go_and_the_newest_stays() {
        let mut runs = converges(3);
        runs.insert(0, run(0, "Converge", "Cancelled", "2026-01-01T00:00:00Z"));
        let none = json!({});
        assert_eq!(removed(&none, &none, runs.clone()), [0]);
        assert_eq!(
            removed(&json!({"maxAge": "1d"}), &none, runs.clone()),
            [0, 1, 2]
        );
        assert_eq!(removed(&json!({"maxAge": "1y"}), &none, runs), [0; 0]);
    }

    #[test]
    fn what_the_operator_or_a_person_would_miss_stays() {
        let old = "2020-01-01T00:00:00Z";
        let mut asked = run(4, "Converge", "Failed", old);
        asked.spec.control =
            serde_json::from_value(json!({"requests": [{"id": "1", "action": "Retry"}]})).unwrap();
        let mut runs = vec![
            run(1, "Create", "Failed", old),
            run(2, "Create", "Succeeded", old),
            run(3, "Converge", "Paused", old),
            asked,
            run(5, "Converge", "Failed", old),
            run(6, "Converge", "Cancelled", old),
            run(7, "Converge", "Succeeded", old),
            run(8, "Converge", "Cancelled", old),
            run(9, "Converge", "Cancelled", old),
            run(10, "Converge", "Superseded", old),
        ];
        for phase in ["Pending", "Running", "Waiting"] {
            runs.insert(0, run(0, "Create", phase, old));
        }
        let status = json!({
            "lastOperation": {"type": "Converge", "state": "Cancelled", "run": "c-run-8"},
            "converge": {"request": "r", "run": "c-run-9"},
        });
        let least = json!({"limit": 1, "maxAge": "0s"});
        assert_eq!(removed(&least, &status, runs), [1, 6]);
    }

    #[test]
    fn a_run_that_is_the_answer_to_a_request_stays_whatever_was_asked_for() {
        for asked in asked::all() {
            let mut cluster = Cluster::new("c", api::cluster::ClusterSpec::default());
            let status = cluster.status.get_or_insert_default();
            *(asked.place)(status) = Some(api::cluster::ConvergeRequest {
                request: "1".to_owned(),
                run: Some("c-run-9".to_owned()),
                refused: None,
            });
            let kept = kept(&cluster, &[]);
            assert_eq!(kept, ["c-run-9".to_owned()].into(), "{}", asked.annotation);
        }
    }

    #[test]
    fn the_end_of_a_cluster_needs_its_runs() {
        let mut cluster = Cluster::new("c", api::cluster::ClusterSpec::default());
        cluster.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let observed = Observed {
            runs: converges(30),
            ..Observed::empty(NOW.parse().unwrap(), Playbooks::Unwanted)
        };
        assert_eq!(surplus(&cluster, &observed).len(), 0);
    }
}
