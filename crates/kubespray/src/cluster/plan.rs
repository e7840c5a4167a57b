//! What to do about a cluster, and why: every decision, pure and total.

use api::{
    Cluster, KubernetesVersion, KubesprayVersion, Run,
    run::{Plan, RunPhase},
};
use jiff::SignedDuration;
use kube::{Resource, ResourceExt};
use runs::{is_active, object, phase};

use crate::{
    cluster::{observe::Observed, resolve::Resolved},
    health::Expected,
    inputs::Inputs,
    operation::{self, Leaves, Operation, Situation, converge},
    problem::Problem,
    variables,
};

/// What to do.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Nothing, until somebody changes something.
    Stall(Vec<Problem>),
    /// Wait for the playbooks; says why they are not there if that is known.
    AwaitPlaybooks(Option<String>),
    /// Wait for hosts.
    AwaitHosts {
        /// What is missing, for people.
        missing: Vec<String>,
        /// When the wait ends by itself.
        recheck: Option<SignedDuration>,
    },
    /// Store a new run.
    Start(Box<NewRun>),
    /// Let a run go on, or stand as it ended.
    Follow(Box<Run>),
    /// End a run at the next place where it may, for a newer plan.
    Supersede(Box<Run>, String),
    /// The cluster is built.
    Keep(Box<Built>),
    /// The cluster is built; let an operation on it go on, or stand as it failed.
    Maintain(Box<Built>, Box<Run>),
    /// End a run for good, because its cluster is being deleted.
    Cancel(Box<Run>),
    /// Forget the cluster.
    Forget,
}

/// A built cluster.
#[derive(Clone, Debug)]
pub struct Built {
    /// What is expected of it.
    pub expected: Expected,
    /// The Kubernetes version that it was built with.
    pub kubernetes: Option<KubernetesVersion>,
    /// The kubespray release that built it.
    pub kubespray: KubesprayVersion,
    /// Its last run, if it is still there.
    pub run: Option<Run>,
    /// What the spec asks for and is not carried out.
    pub not_carried_out: Vec<String>,
    /// What of it, and what else, must be taken back before the cluster can converge.
    pub beyond_converge: Vec<String>,
}

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its name.
    pub name: String,
    /// What it does.
    pub operation: &'static Operation,
    /// The cluster's generation.
    pub generation: i64,
    /// Its plan.
    pub plan: Plan,
    /// The request to converge that it answers.
    pub request: Option<String>,
}

/// Decides.
pub fn plan(
    cluster: &Cluster,
    wanted: Result<&Resolved, &[Problem]>,
    observed: &Observed,
) -> Decision {
    let situation = Situation {
        cluster,
        wanted,
        observed,
    };
    if let Some(decision) = at_work(&situation) {
        return decision;
    }
    let mut said = operation::ALL.iter();
    let decision = said.find_map(|operation| (operation.decide)(&situation));
    decision.unwrap_or_else(|| Decision::Stall(wanted.err().unwrap_or_default().to_vec()))
}

/// An operation on a cluster that is built comes to its end, or a person's word, before another one is begun.
fn at_work(situation: &Situation<'_>) -> Option<Decision> {
    let run = of_built(situation.observed).filter(|run| is_active(phase(run)))?;
    if situation.cluster.meta().deletion_timestamp.is_some() {
        return None;
    }
    let built = as_built(situation, situation.wanted.ok()?)?;
    Some(Decision::Maintain(Box::new(built), Box::new(run.clone())))
}

/// The last run, if its operation is one of built clusters.
pub fn of_built(observed: &Observed) -> Option<&Run> {
    let of_built = |run: &&Run| Operation::of(run).is_some_and(|operation| operation.of_built);
    observed.runs.last().filter(of_built)
}

/// The cluster as it was built, if it is.
pub fn as_built(situation: &Situation<'_>, resolved: &Resolved) -> Option<Built> {
    let Situation {
        cluster, observed, ..
    } = situation;
    let run = built_by(&observed.runs);
    // The Secret is evidence too: runs may be deleted to save room.
    let stored = converge::is_built(cluster);
    let of_built = |run: &Run| Operation::of(run).is_some_and(|operation| operation.of_built);
    let is_built = run.is_some() || (stored && observed.runs.iter().all(of_built));
    is_built.then(|| built(cluster, run, resolved, observed))
}

fn built(cluster: &Cluster, run: Option<&Run>, resolved: &Resolved, observed: &Observed) -> Built {
    let before = run.and_then(|run| Inputs::from_map(&run.spec.plan.inputs).ok());
    let inputs = before.as_ref().unwrap_or(&resolved.inputs);
    let mut not_carried_out = beyond_converge(inputs, &resolved.inputs);
    let mut beyond_converge = not_carried_out.clone();
    let built_with = before.as_ref().map(|before| before.kubespray);
    let status = cluster.status.as_ref();
    beyond_converge.extend(another_release(
        built_with.or_else(|| status.and_then(|status| status.kubespray_version)),
        resolved.inputs.kubespray,
    ));
    if inputs.variables != resolved.inputs.variables {
        not_carried_out.push(
            "changed variables (spec.nodes.all.deploy.extraVars): windlass converge carries them out"
                .to_owned(),
        );
    }
    not_carried_out.extend(
        converge::differing_sources(inputs, &resolved.inputs)
            .map(|field| format!("another {field}: windlass converge carries it out")),
    );
    not_carried_out.extend(
        variables::changed(&inputs.revisions, &resolved.inputs.revisions)
            .map(|name| format!("a changed Secret {name}: windlass converge carries it out")),
    );
    Built {
        expected: Expected {
            nodes: inputs.members(),
            renew: resolved.inputs.renew.into(),
        },
        kubernetes: inputs.kubernetes,
        kubespray: inputs.kubespray,
        run: observed.runs.last().cloned(),
        not_carried_out,
        beyond_converge,
    }
}

/// The run that built the cluster as it is.
pub fn built_by<'a>(
    runs: impl IntoIterator<Item = &'a Run, IntoIter: DoubleEndedIterator>,
) -> Option<&'a Run> {
    let builds = |run: &&Run| Operation::leaves(run, Leaves::Cluster);
    let mut newest = runs.into_iter().rev().filter(builds);
    newest.find(|run| phase(run) == RunPhase::Succeeded)
}

/// A run under a name that none of the cluster's runs has had, as far as they and the status remember.
pub fn new_run(
    cluster: &Cluster,
    observed: &Observed,
    operation: &'static Operation,
    plan: Plan,
) -> NewRun {
    let status = cluster.status.as_ref();
    let last = status.and_then(|status| status.last_operation.as_ref()?.run.clone());
    let names = observed.runs.iter().map(ResourceExt::name_any).chain(last);
    NewRun {
        name: object::next_name(&cluster.name_any(), operation.name, names),
        operation,
        generation: relocation::mark::generation(cluster.meta()),
        plan,
        request: None,
    }
}

/// What differs between the wish and what was built, and running the playbooks once more is not the way to it.
fn beyond_converge(built: &Inputs, wanted: &Inputs) -> Vec<String> {
    let mut differences = Vec::new();
    if let (Some(before), Some(after)) = (built.kubernetes, wanted.kubernetes)
        && before != after
    {
        differences.push(format!(
            "the move from Kubernetes {before} to {after}: upgrades are not carried out yet"
        ));
    }
    let names =
        |inputs: &Inputs| -> Vec<_> { inputs.hosts.iter().map(|host| host.name.clone()).collect() };
    let (before, after) = (names(built), names(wanted));
    for name in after.iter().filter(|name| !before.contains(name)) {
        differences.push(format!(
            "host {name}: adding hosts to a built cluster is not carried out yet"
        ));
    }
    for name in before.iter().filter(|name| !after.contains(name)) {
        differences.push(format!(
            "the removal of host {name}: it is still part of the cluster, removing hosts is not carried out yet"
        ));
    }
    differences
}

/// A release that is the newest one by default may change with Windlass: that must not become an upgrade by surprise.
fn another_release(built: Option<KubesprayVersion>, wanted: KubesprayVersion) -> Option<String> {
    let built = built.filter(|built| *built != wanted)?;
    Some(format!(
        "kubespray {wanted}, and {built} built the cluster: upgrades are not carried out yet, write spec.kubespray.version: {built}"
    ))
}
