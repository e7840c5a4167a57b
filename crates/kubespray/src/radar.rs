//! The drift radar: whether hosts are as the last run left them, without Ansible.
//!
//! One login to each host, in which a short script reads digests of what the playbooks wrote, versions, states of units, swap, the clock
//! and room on disks ([`answer`]). What it saw first after a run is what later looks are held against ([`compare`]), and stands in the
//! status of the ClusterNode, so that it outlives the operator. The operator looks by itself, in the background ([`book`]), and only where
//! a Cluster says so: otherwise it logs in to no host. Nothing is changed on a host, and what one says is data.

use api::{
    Duration, HostName, Run,
    cluster::ClusterSpec,
    run::{RunPhase, StepPhase},
};
use kube::ResourceExt;
use runs::{is_active, phase};

use crate::{
    action::APPROVE,
    inputs::Inputs,
    operation::{Leaves, Operation},
    problem::Problem,
};

pub mod answer;
pub mod book;
pub mod compare;

pub use book::RadarBook;

/// The condition that says whether hosts are as the last run left them.
pub const DRIFTED: &str = "Drifted";

/// How often hosts are looked at unless told otherwise, and the bounds of that.
const EVERY: Duration = Duration::from_seconds(300);
const SHORTEST: Duration = Duration::from_seconds(10);
const LONGEST: Duration = Duration::from_seconds(86_400);

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Watch {
    /// How often.
    pub every: std::time::Duration,
    /// The hosts, and how they are reached.
    pub inputs: Inputs,
    /// What they are to be like.
    pub mark: Mark,
}

/// The runs that wrote what is looked at and succeeded, newest first, back to the newest one that brought every host to what the spec says:
/// what was before it counts no more.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mark(pub Vec<Written>);

/// A run that wrote what is looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    /// Its name.
    pub run: String,
    /// Whether it brought every host to what the spec says, so that what had drifted before has not any more.
    pub whole: bool,
    /// The hosts that it left out.
    pub excluded: Vec<HostName>,
}

impl Mark {
    /// That of a cluster with these runs, oldest first. What leaves a cluster as it was writes nothing of it: a snapshot, a restart or what
    /// clears a spare host makes no edit the norm.
    pub fn of(runs: &[Run]) -> Self {
        let mut written = Vec::new();
        let newest = runs.iter().rev();
        for run in newest.filter(|run| Operation::leaves(run, Leaves::Cluster)) {
            if phase(run) != RunPhase::Succeeded {
                continue;
            }
            let excluded = run.status.iter().flat_map(|status| &status.excluded);
            let excluded = excluded.filter_map(|left_out| left_out.target.as_str().parse().ok());
            let run = Written {
                run: run.name_any(),
                whole: Operation::is_whole(run),
                excluded: excluded.collect(),
            };
            let is_all = run.whole && run.excluded.is_empty();
            written.push(run);
            if is_all {
                break;
            }
        }
        Self(written)
    }
}

/// What a spec says of the radar: how often it looks, if it does; `logs_in` says whether the operator has ssh.
pub(crate) fn resolve(
    spec: &ClusterSpec,
    logs_in: bool,
    problems: &mut Vec<Problem>,
) -> Option<std::time::Duration> {
    let every = spec.radar.as_ref()?.every.unwrap_or(EVERY);
    if !(SHORTEST..=LONGEST).contains(&every) {
        problems.push(Problem::new(
            "Cluster spec.radar.every",
            every,
            format!("hosts are looked at every {SHORTEST} to {LONGEST}"),
            format!("write for example {EVERY}, or take it out"),
        ));
    }
    if !logs_in {
        // The image of the operator has none unless it is told to: nothing in it can be logged in to, or logs in anywhere.
        problems.push(Problem::new(
            "Cluster spec.radar",
            every,
            "this operator has no ssh, with which the radar looks at hosts",
            "install it so that it has (values of the chart: radar.enabled; or deploy/manifests/radar.yaml); or take this out, and have \
             the playbooks run by spec.operations.converge.schedule",
        ));
    }
    Some(every.into())
}

/// Whether a run is at work that changes hosts: what is seen meanwhile is no drift. One that waits for an approval has changed none.
pub fn is_at_work(run: &Run) -> bool {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let waits_to_begin = phase(run) == RunPhase::Waiting
        && steps
            .clone()
            .any(|step| step.id == APPROVE && step.phase != StepPhase::Succeeded);
    is_active(phase(run)) && !Operation::is_quiet(run) && !waits_to_begin
}

/// The hosts that have something to be looked at.
pub(crate) fn hosts(inputs: &Inputs) -> Vec<HostName> {
    let hosts = inputs.hosts.iter();
    let names = hosts.filter_map(|host| host.name.parse().ok());
    names
        .filter(|name| !inputs.leaving.contains(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use api::run::Plan;
    use serde_json::{from_value, json};

    use super::*;

    /// What the mark of runs is made of, by operation, phase and the hosts that they left out, oldest first.
    fn mark(runs: &[(&str, &str, &[&str])]) -> Vec<(String, bool, usize)> {
        let runs = runs
            .iter()
            .zip(1..)
            .map(|((operation, phase, excluded), at)| {
                let excluded = excluded.iter();
                let excluded: Vec<_> = excluded
                    .map(|host| json!({"target": host, "reason": "Unreachable"}))
                    .collect();
                let run = json!({
                    "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": format!("r-{at}")},
                    "spec": {
                        "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "c"},
                        "operation": operation, "generation": 1, "plan": Plan::default(),
                    },
                    "status": {"phase": phase, "excluded": excluded},
                });
                from_value(run).unwrap()
            });
        let runs: Vec<Run> = runs.collect();
        let written = Mark::of(&runs).0.into_iter();
        let told = written.map(|it| (it.run, it.whole, it.excluded.len()));
        told.collect()
    }

    #[test]
    fn a_run_that_waits_for_its_approval_changes_no_host_yet() {
        let at_work = |phase: &str, approval: &str| {
            let run = json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
                "spec": {
                    "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "c"},
                    "operation": "Converge", "generation": 1, "plan": Plan::default(),
                },
                "status": {"phase": phase, "steps": [{"id": APPROVE, "phase": approval}]},
            });
            is_at_work(&from_value(run).unwrap())
        };
        assert!(!at_work("Waiting", "Waiting"));
        assert!(at_work("Waiting", "Succeeded"));
        assert!(at_work("Running", "Succeeded"));
        assert!(!at_work("Succeeded", "Succeeded"));
    }

    #[test]
    fn only_runs_that_write_what_is_looked_at_and_succeeded_are_the_measure() {
        let create = ("Create", "Succeeded", &[][..]);
        let others = ["Toolbox", "ResetHost", "Renew", "Snapshot", "Drill"];
        for other in others {
            let runs = [create, (other, "Succeeded", &[])];
            assert_eq!(mark(&runs), [("r-1".to_owned(), true, 0)], "{other}");
        }
        assert_eq!(mark(&[create, ("Scale", "Failed", &[])]).len(), 1);
        let writing = ["Scale", "Remove", "Replace", "Recover", "Component"];
        for other in writing {
            let runs = [create, (other, "Succeeded", &[])];
            assert_eq!(mark(&runs)[0], ("r-2".to_owned(), false, 0), "{other}");
        }
        assert_eq!(mark(&[]), []);
    }

    #[test]
    fn they_are_told_back_to_one_of_all_hosts() {
        let runs: [(&str, &str, &[&str]); 4] = [
            ("Create", "Succeeded", &[]),
            ("Upgrade", "Succeeded", &[]),
            ("Converge", "Succeeded", &["a"]),
            ("Scale", "Succeeded", &[]),
        ];
        let expected = [("r-4", false, 0), ("r-3", true, 1), ("r-2", true, 0)];
        let expected = expected.map(|(run, whole, excluded)| (run.to_owned(), whole, excluded));
        assert_eq!(mark(&runs), expected);
    }

    #[test]
    fn an_operator_without_ssh_has_no_radar_and_says_why() {
        let spec = from_value(json!({"radar": {}})).unwrap();
        for (logs_in, count) in [(true, 0), (false, 1)] {
            let mut problems = Vec::new();
            resolve(&spec, logs_in, &mut problems);
            assert_eq!(problems.len(), count, "{problems:?}");
        }
    }
}
