//! The drift radar: whether hosts are as the last run left them, without Ansible.
//!
//! One login to each host, in which a short script reads digests of what the playbooks wrote, versions, states of units, swap, the clock
//! and room on disks ([`answer`]). What it saw first after a run is what later looks are held against ([`compare`]), and stands in the
//! status of the ClusterNode, so that it outlives the operator. The operator looks by itself, in the background ([`book`]), and only where
//! a Cluster says so: otherwise it logs in to no host. Nothing is changed on a host, and what one says is data.

use api::{Duration, HostName, Run, cluster::ClusterSpec, run::RunPhase};
use kube::ResourceExt;
use runs::{is_active, phase};

use crate::{inputs::Inputs, operation::Operation, problem::Problem};

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
    pub mark: Option<Mark>,
}

/// The last run that changed hosts and succeeded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mark {
    /// Its name.
    pub run: String,
    /// Whether it brought every host to what the spec says, so that what had drifted before has not any more.
    pub whole: bool,
    /// The hosts that it left out.
    pub excluded: Vec<HostName>,
}

impl Mark {
    /// That of a cluster with these runs, oldest first.
    pub fn of(runs: &[Run]) -> Option<Self> {
        let mut newest = runs.iter().rev();
        let run = newest.find(|run| {
            let known = Operation::of(run).is_some_and(|operation| !operation.quiet);
            known && phase(run) == RunPhase::Succeeded
        })?;
        let excluded = run.status.iter().flat_map(|status| &status.excluded);
        Some(Self {
            run: run.name_any(),
            whole: matches!(&*run.spec.operation, "Create" | "Converge" | "Upgrade"),
            excluded: excluded
                .filter_map(|left_out| left_out.target.as_str().parse().ok())
                .collect(),
        })
    }
}

/// What a spec says of the radar: how often it looks, if it does.
pub(crate) fn resolve(
    spec: &ClusterSpec,
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
    Some(every.into())
}

/// Whether a run is at work that changes hosts: what is seen meanwhile is no drift.
pub fn is_at_work(run: &Run) -> bool {
    is_active(phase(run)) && !Operation::is_quiet(run)
}

/// The hosts that have something to be looked at.
pub(crate) fn hosts(inputs: &Inputs) -> Vec<HostName> {
    let hosts = inputs.hosts.iter();
    let names = hosts.filter_map(|host| host.name.parse().ok());
    names
        .filter(|name| !inputs.leaving.contains(name))
        .collect()
}
