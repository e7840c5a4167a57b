//! Which of a cluster's runs have been kept long enough, and their removal.
//!
//! The reconciler reads old runs: what the cluster was built with, which request was carried out, which number comes next. So
//! what it could miss stays, whatever the limits say.

use api::{Cluster, Duration, Run, cluster::RunHistory, run::RunPhase};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use runs::{control::open_requests, is_active, phase};

use crate::{
    cluster::{observe::Observed, plan::built_by},
    context::{Context, Error},
    operation::Operation,
};

/// How many runs are kept where the spec does not say.
const LIMIT: u16 = 20;
/// How long they are kept where the spec does not say.
const MAX_AGE: Duration = Duration::from_seconds(90 * 24 * 60 * 60);

/// The runs that are to go, oldest first.
pub fn surplus<'a>(cluster: &Cluster, observed: &'a Observed) -> Vec<&'a Run> {
    // The end of the cluster takes them along.
    if cluster.meta().deletion_timestamp.is_some() {
        return Vec::new();
    }
    let RunHistory { limit, max_age } = cluster.spec.run_history.clone().unwrap_or_default();
    let limit = usize::from(limit.unwrap_or(LIMIT));
    let max_age = max_age.unwrap_or(MAX_AGE).seconds();
    let max_age = SignedDuration::from_secs(i64::try_from(max_age).unwrap_or(i64::MAX));
    let runs = &observed.runs;
    let ended = runs.iter().filter(|run| !is_active(phase(run))).count();
    let kept = kept(cluster, runs);
    let mut beyond = ended.saturating_sub(limit);
    let goes = |run: &&Run| {
        if is_active(phase(run)) || is_to_go_on(run) || kept.contains(&run.name_any()) {
            return false;
        }
        let old = ended_at(run).is_some_and(|end| observed.now.duration_since(end) > max_age);
        let surplus = beyond > 0;
        beyond = beyond.saturating_sub(1);
        surplus || old
    };
    runs.iter().filter(goes).collect()
}

/// Removes them: each only as it was seen, for somebody may have asked something of it since.
///
/// # Errors
///
/// The API refuses or does not answer. That one is gone or was changed is no error.
pub async fn prune(surplus: &[&Run], context: &Context) -> Result<(), Error> {
    for run in surplus {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: run.uid(),
                resource_version: run.resource_version(),
            }),
            ..DeleteParams::background()
        };
        let namespace = run.namespace().unwrap_or_default();
        let api = Api::<Run>::namespaced(context.client.clone(), &namespace);
        match api.delete(&run.name_any(), &parameters).await {
            // Gone, or changed: the next pass sees it.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(source) => {
                return Err(Error::api("remove a run that was kept long enough", source));
            }
            Ok(_) => tracing::info!(
                run = run.name_any(),
                "removed a run that was kept long enough"
            ),
        }
    }
    Ok(())
}

/// Runs that stay whatever the limits say.
fn kept(cluster: &Cluster, runs: &[Run]) -> Vec<String> {
    let failed = |run: &&Run| phase(run) == RunPhase::Failed;
    let succeeded = |run: &&Run| phase(run) == RunPhase::Succeeded;
    let orders = |run: &Run| Operation::of(run).is_some_and(|operation| operation.orders);
    let created = |run: &&Run| orders(run) && succeeded(run);
    let of_runs = [
        runs.last(),
        runs.iter().rev().find(failed),
        runs.iter().rev().find(succeeded),
        runs.iter().rev().find(created),
        built_by(runs),
    ];
    let status = cluster.status.as_ref();
    let named = [
        status.and_then(|status| status.last_operation.as_ref()?.run.clone()),
        status.and_then(|status| status.converge.as_ref()?.run.clone()),
    ];
    let of_runs = of_runs.into_iter().flatten().map(ResourceExt::name_any);
    of_runs.chain(named.into_iter().flatten()).collect()
}

/// Whether a person asked for something that nobody answered yet, or it is about to go anyway.
fn is_to_go_on(run: &Run) -> bool {
    run.meta().deletion_timestamp.is_some() || !open_requests(run).is_empty()
}

fn ended_at(run: &Run) -> Option<Timestamp> {
    let ended = run.status.as_ref()?.finished_at.as_ref()?;
    Some(ended.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{host_keys::HostKeys, playbooks::Playbooks, secret::SshKey};

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
            now: NOW.parse().unwrap(),
            older_cluster: None,
            nodes: Vec::new(),
            unreadable: Vec::new(),
            runs,
            key: SshKey::NotReferred,
            host_keys: HostKeys::NotReferred,
            playbooks: Playbooks::Unwanted,
            variables: crate::variables::Sight::default(),
            health: None,
            pods: None,
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
    fn the_end_of_a_cluster_needs_its_runs() {
        let mut cluster = Cluster::new("c", api::cluster::ClusterSpec::default());
        cluster.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let observed = Observed {
            now: NOW.parse().unwrap(),
            older_cluster: None,
            nodes: Vec::new(),
            unreadable: Vec::new(),
            runs: converges(30),
            key: SshKey::NotReferred,
            host_keys: HostKeys::NotReferred,
            playbooks: Playbooks::Unwanted,
            variables: crate::variables::Sight::default(),
            health: None,
            pods: None,
        };
        assert_eq!(surplus(&cluster, &observed).len(), 0);
    }
}
