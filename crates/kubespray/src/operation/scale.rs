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

use super::SCALE;
use crate::{
    cluster::{
        built::{Built, of_built},
        compile,
        decision::{Decision, Situation, checkout, new_run},
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
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref()?;
    let new = joining(before, &resolved.inputs);
    if new.is_empty() {
        return None;
    }
    match of_built(situation.observed) {
        // What another operation has left broken waits for a person, and this one for that.
        Some(run) if phase(run) == RunPhase::Failed && run.spec.operation != SCALE.name => None,
        _ => {
            let checkout = match checkout(situation.observed) {
                Ok(checkout) => checkout,
                Err(decision) => return Some(decision),
            };
            match compiled(before, &new, resolved, checkout) {
                Ok(plan) => scale(situation, built, plan),
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

/// What becomes of this plan.
fn scale(situation: &Situation<'_>, built: &Built, plan: Plan) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let last = of_built(observed).filter(|run| run.spec.plan.digest == plan.digest);
    match last.map(|run| (run, phase(run))) {
        Some((run, RunPhase::Failed)) => {
            let (built, run) = (built.clone(), run.clone());
            Some(Decision::Maintain(Box::new(built), Box::new(run)))
        }
        // It is not begun anew by itself: somebody did not want it.
        Some((_, RunPhase::Cancelled)) => None,
        _ => {
            let new = new_run(cluster, observed, &SCALE, plan);
            Some(Decision::Start(Box::new(new)))
        }
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
