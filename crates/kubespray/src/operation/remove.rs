//! Remove: takes workers out of a cluster that is built, once their pods are elsewhere, and leaves its other hosts alone. Pure.
//!
//! A host that does not answer is removed all the same, and not reset: see [`Action::ForgetNodes`].

use api::{HostName, cluster::Approval, run::Plan};
use serde_json::json;

use super::REMOVE;
use crate::{
    action::Action,
    cluster::{
        compile,
        decision::{Decision, Situation, checkout, once},
        resolve::Resolved,
    },
    inputs::Inputs,
    playbooks::Checkout,
    problem::Problem,
};

/// Has the say about a built cluster with workers whose ClusterNodes are being deleted.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref()?;
    let leaving = leaving(before, &resolved.removal.leaving);
    if leaving.is_empty() {
        return None;
    }
    let checkout = match checkout(situation.observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    match compiled(before, &leaving, resolved, checkout) {
        Ok(plan) => once(situation, built, &REMOVE, plan),
        Err(problem) => Some(Decision::Stall(vec![problem])),
    }
}

/// The workers of a built cluster that somebody wants removed.
fn leaving(built: &Inputs, wanted: &[HostName]) -> Vec<HostName> {
    let hosts = built.hosts.iter().filter(|host| host.is_worker());
    let names = hosts.filter_map(|host| host.name.parse().ok());
    names.filter(|name| wanted.contains(name)).collect()
}

/// The plan that removes these hosts from the cluster.
fn compiled(
    before: &Inputs,
    leaving: &[HostName],
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    let playbook = checkout
        .remove
        .as_ref()
        .ok_or_else(|| no_playbook(leaving, resolved))?;
    let removal = &resolved.removal;
    let conduct = &removal.conduct;
    let forced: Vec<HostName> = leaving
        .iter()
        .filter(|name| removal.forced.contains(name))
        .cloned()
        .collect();
    let inputs = shrunk(before, leaving, !forced.is_empty(), resolved)?;
    let inventory = compile::compiled(&inputs)?;
    let first = inputs.group("kube_control_plane").iter().take(1).cloned();
    let mut steps = compile::beginning(conduct, first.collect());
    steps.extend(compile::draining(
        conduct,
        removal.drain_timeout,
        leaving,
        &forced,
    ));
    compile::leaving(playbook, conduct, &inventory, leaving, &mut steps)?;
    steps.push(compile::of_nodes(
        conduct,
        "forget/nodes",
        "Take the nodes out of the cluster",
        Action::ForgetNodes {
            forced: forced.clone(),
        },
        leaving,
    ));
    steps.push(compile::healthy(conduct, &inputs));
    if conduct.approval == Approval::Manual {
        let question = format!("remove {} from the cluster", compile::listed(leaving));
        steps.insert(0, compile::approval(question));
    }
    let reason = reason(leaving, &forced, before.members().len());
    compile::finish(&REMOVE, resolved.again.as_deref(), &inputs, reason, steps)
}

fn reason(leaving: &[HostName], forced: &[HostName], members: usize) -> String {
    let mut reason = format!(
        "somebody deleted the ClusterNode{} of {}: {} drained, reset and removed, and {} nodes stay",
        if leaving.len() == 1 { "" } else { "s" },
        compile::listed(leaving),
        if leaving.len() == 1 {
            "it is"
        } else {
            "they are"
        },
        members.saturating_sub(leaving.len()),
    );
    if !forced.is_empty() {
        reason.push_str(&format!(
            "; by force, so no PodDisruptionBudget is kept: {}",
            compile::listed(forced)
        ));
    }
    reason
}

/// What the cluster was built with, and which hosts leave it. How hosts are reached is as the spec says now.
fn shrunk(
    before: &Inputs,
    leaving: &[HostName],
    forced: bool,
    resolved: &Resolved,
) -> Result<Inputs, Problem> {
    let rest = Inputs {
        leaving: leaving.to_vec(),
        ..before.clone()
    };
    let inventory = compile::compiled(&rest.left())?.order().clone();
    let mut inputs = before.reached_as(&resolved.inputs);
    inputs.leaving = leaving.to_vec();
    inputs.inventory = inventory;
    let names: Vec<_> = leaving.iter().map(HostName::as_str).collect();
    inputs.operation_variables.extend([
        ("node".to_owned(), json!(names.join(","))),
        ("skip_confirmation".to_owned(), json!(true)),
        ("allow_ungraceful_removal".to_owned(), json!(forced)),
    ]);
    Ok(inputs)
}

fn no_playbook(leaving: &[HostName], resolved: &Resolved) -> Problem {
    Problem::new(
        "Cluster spec.kubespray.source",
        &resolved.inputs.source.origin,
        format!(
            "the playbooks have no remove-node.yml, which removes {}",
            compile::listed(leaving)
        ),
        format!(
            "add one as kubespray has it, or take the removal back: windlass node keep {}",
            leaving.first().map_or("NAME", HostName::as_str)
        ),
    )
}
