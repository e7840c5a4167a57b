//! Scale: makes new workers part of a cluster that is built, and leaves its other hosts alone. Pure.
//!
//! The new hosts are given what the cluster was built with, whatever the spec asks for since: to carry that out is the part of other
//! operations, which are told of it as before.

use api::{
    Cluster, HostName,
    cluster::Approval,
    run::{Plan, RunPhase},
};
use runs::phase;

use super::SCALE;
use crate::{
    cluster::{
        built::{Built, as_built, of_built},
        compile,
        decision::{Decision, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::Problem,
};

/// How many hosts a reason names.
const NAMED: usize = 5;

/// Has the say about a built cluster with hosts that can join it.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let resolved = situation.wanted.ok()?;
    let built = as_built(cluster, observed, resolved)?;
    let new = joining(built.inputs.as_ref()?, &resolved.inputs);
    if new.is_empty() {
        return None;
    }
    match of_built(observed) {
        // What another operation has left broken waits for a person, and this one for that.
        Some(run) if phase(run) == RunPhase::Failed && run.spec.operation != SCALE.name => None,
        _ => scale(cluster, built, &new, resolved, observed),
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

fn scale(
    cluster: &Cluster,
    built: Built,
    new: &[&Host],
    resolved: &Resolved,
    observed: &Observed,
) -> Option<Decision> {
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    let plan = built
        .inputs
        .as_ref()
        .map(|before| compiled(before, new, resolved, checkout))?;
    let plan = match plan {
        Ok(plan) => plan,
        Err(problem) => return Some(Decision::Stall(vec![problem])),
    };
    let last = of_built(observed).filter(|run| run.spec.plan.digest == plan.digest);
    match last.map(|run| (run, phase(run))) {
        Some((run, RunPhase::Failed)) => {
            Some(Decision::Maintain(Box::new(built), Box::new(run.clone())))
        }
        // It is not begun anew by itself: somebody did not want it.
        Some((_, RunPhase::Cancelled)) => None,
        _ => Some(Decision::Start(Box::new(new_run(
            cluster, observed, &SCALE, plan,
        )))),
    }
}

/// The plan that makes these hosts part of the cluster.
fn compiled(
    before: &Inputs,
    new: &[&Host],
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    let playbook = checkout
        .scale
        .as_ref()
        .ok_or_else(|| no_playbook(new, resolved))?;
    let inputs = grown(before, new, &resolved.inputs)?;
    let inventory = compile::compiled(&inputs)?;
    let conduct = &resolved.scale;
    let mut steps = compile::beginning(conduct, &inventory);
    let names: Vec<HostName> = new.iter().flat_map(|host| host.name.parse()).collect();
    compile::joining(playbook, conduct, &inventory, &names, &mut steps)?;
    steps.push(compile::healthy(conduct, &inputs));
    if conduct.approval == Approval::Manual {
        let question = format!("make {} part of the cluster", listed(new));
        steps.insert(0, compile::approval(question));
    }
    let reason = format!(
        "{} {} no part of the cluster yet: kubespray {} makes {} of it{}, and only reads the facts of the {} hosts that are",
        listed(new),
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
    let mut grown = Inputs {
        source: wanted.source.clone(),
        ssh: wanted.ssh.clone(),
        forks: wanted.forks,
        ansible: wanted.ansible.clone(),
        renew: wanted.renew,
        ..before.clone()
    };
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

fn no_playbook(new: &[&Host], resolved: &Resolved) -> Problem {
    Problem::new(
        "Cluster spec.kubespray.source",
        &resolved.inputs.source.origin,
        format!(
            "its playbooks have no scale.yml, and {} cannot join without it",
            listed(new)
        ),
        "name playbooks that have it, as kubespray's do, or take the ClusterNodes back",
    )
}

fn listed(hosts: &[&Host]) -> String {
    let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
    match names.split_at_checked(NAMED) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more hosts", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}
