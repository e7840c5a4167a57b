//! Scale: makes new workers part of a cluster that is built, and leaves its other hosts alone. Pure.
//!
//! The new hosts are given what the cluster was built with, whatever the spec asks for since: to carry that out is the part of other
//! operations, which are told of it as before.

use api::{
    HostName,
    cluster::Approval,
    run::{Plan, RunPhase},
};
use runs::phase;

use super::{CONVERGE, SCALE, upgrade};
use crate::{
    cluster::{
        built::of_built,
        compile,
        decision::{Decision, Situation, checkout, once},
        resolve::Resolved,
    },
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::Problem,
};

/// Has the say about a built cluster with hosts that can join it.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref()?;
    let new = joining(before, &resolved.inputs);
    if new.is_empty() {
        return None;
    }
    // A host that joins has one version, and the cluster has two.
    if upgrade::begun(&situation.observed.runs).is_some() {
        return None;
    }
    match of_built(situation.observed) {
        // What converging has left broken waits for a person, and this one for that.
        Some(run) if phase(run) == RunPhase::Failed && run.spec.operation == CONVERGE.name => None,
        _ => {
            let checkout = match checkout(situation.observed) {
                Ok(checkout) => checkout,
                Err(decision) => return Some(decision),
            };
            match compiled(before, &new, resolved, checkout) {
                Ok(plan) => once(situation, built, &SCALE, plan),
                Err(problem) => Some(Decision::Stall(vec![problem])),
            }
        }
    }
}

/// The hosts that can be made part of a cluster with these inputs: declared since, and workers alone.
pub fn joining<'a>(built: &Inputs, wanted: &'a Inputs) -> Vec<&'a Host> {
    if built.kubespray != wanted.kubespray {
        return Vec::new();
    }
    let is_part = |host: &&Host| built.hosts.iter().any(|built| built.name == host.name);
    let hosts = wanted.hosts.iter();
    hosts
        .filter(|host| host.is_worker() && !is_part(host))
        .collect()
}

/// The plan that makes these hosts part of the cluster.
fn compiled(
    before: &Inputs,
    new: &[&Host],
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    let names: Vec<HostName> = new.iter().flat_map(|host| host.name.parse()).collect();
    let playbook = checkout
        .scale
        .as_ref()
        .ok_or_else(|| no_playbook(&names, resolved))?;
    let inputs = grown(before, new, &resolved.inputs)?;
    let inventory = compile::compiled(&inputs)?;
    let conduct = &resolved.scale;
    let mut steps = compile::beginning(conduct, inventory.hosts().cloned().collect());
    compile::joining(playbook, conduct, &inventory, &names, &mut steps)?;
    steps.push(compile::healthy(conduct, &inputs));
    if conduct.approval == Approval::Manual {
        let question = format!("make {} part of the cluster", compile::listed(&names));
        steps.insert(0, compile::approval(question));
    }
    let reason = format!(
        "{} {} no part of the cluster yet: kubespray {} makes {} of it{}, and only reads the facts of the {} hosts that are",
        compile::listed(&names),
        if new.len() == 1 { "is" } else { "are" },
        inputs.kubespray,
        if new.len() == 1 {
            "a worker"
        } else {
            "workers"
        },
        compile::with_kubernetes(&inputs),
        before.hosts.len(),
    );
    compile::finish(&SCALE, resolved.again.as_deref(), &inputs, reason, steps)
}

/// What the cluster was built with, and the new hosts at the end of it. How hosts are reached is as the spec says now.
fn grown(before: &Inputs, new: &[&Host], wanted: &Inputs) -> Result<Inputs, Problem> {
    let mut grown = before.reached_as(wanted);
    grown.hosts.extend(new.iter().map(|host| (*host).clone()));
    for name in grown.variable_secrets() {
        if let Some(revision) = wanted.revisions.get(&name) {
            let revisions = &mut grown.revisions;
            revisions.entry(name).or_insert_with(|| revision.clone());
        }
    }
    grown.inventory = compile::compiled(&grown)?.order().clone();
    Ok(grown)
}

fn no_playbook(new: &[HostName], resolved: &Resolved) -> Problem {
    Problem::new(
        "Cluster spec.kubespray.source",
        &resolved.inputs.source.origin,
        format!(
            "its playbooks have no scale.yml, and {} cannot join without it",
            compile::listed(new)
        ),
        "name playbooks that have it, as kubespray's do, or take the ClusterNodes back",
    )
}
