//! Reset of one host: removes what an earlier life, or a join that failed, left on a host that is no part of the cluster. Pure.
//!
//! It is asked for by the annotation [`RESET_HOST`] of its ClusterNode, whose value begins with the name of the host, written once
//! more by who knows what is lost; each value is answered once, which the status of the ClusterNode remembers. A host that is part of
//! the cluster is removed or replaced instead.

use api::{ClusterNode, HostName, node::Role, run::Plan};
use kube::ResourceExt;
use serde_json::json;

use super::RESET_HOST;
use crate::{
    action::{Action, MemberChange, QUORUM, Turn},
    cluster::{
        compile::{self, Asks},
        decision::{Decision, NewRun, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::Problem,
    request,
};

/// How much of a request is remembered.
const LENGTH: usize = 128;

/// Has the say about a built cluster one of whose ClusterNodes asks for its host to be reset.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let before = situation.built?.inputs.as_ref()?;
    let resolved = situation.wanted.ok()?;
    // The playbooks are of another release.
    if before.kubespray != resolved.inputs.kubespray {
        return None;
    }
    let mut asked = open(observed);
    let (name, asked) = asked.find(|(name, asked)| refused(name, asked, before).is_none())?;
    let host = resolved.inputs.host(&name)?;
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    Some(
        match compiled(before, (&name, host), &asked, resolved, checkout) {
            Ok(plan) => Decision::Start(Box::new(NewRun {
                request: Some(asked),
                ..new_run(cluster, observed, &RESET_HOST, plan)
            })),
            Err(problem) => Decision::Stall(vec![problem]),
        },
    )
}

/// What a ClusterNode asks for.
pub fn asked(node: &ClusterNode) -> Option<String> {
    let value = node.annotations().get(request::RESET_HOST)?;
    Some(value.chars().take(LENGTH).collect())
}

/// The requests that no answer is known to, with their hosts.
fn open(observed: &Observed) -> impl Iterator<Item = (HostName, String)> {
    observed.nodes.iter().filter_map(|node| {
        let name: HostName = node.name_any().parse().ok()?;
        let asked = asked(node)?;
        let answered = node
            .status
            .as_ref()
            .and_then(|status| status.reset.as_ref());
        let carries = observed.runs.iter().any(|run| {
            run.annotations().get(request::RESET_HOST) == Some(&asked)
                && Inputs::removes(&run.spec.plan.inputs, name.as_str())
        });
        (answered != Some(&asked) && !carries).then_some((name, asked))
    })
}

/// The requests that are refused, with the reason.
pub fn refusals(observed: &Observed, before: &Inputs) -> Vec<(HostName, String)> {
    let open = open(observed);
    let refused = open.filter_map(|(name, asked)| {
        let why = refused(&name, &asked, before)?;
        Some((name, why))
    });
    refused.collect()
}

/// Why a host is not reset.
fn refused(name: &HostName, asked: &str, before: &Inputs) -> Option<String> {
    if asked.split_whitespace().next() != Some(name.as_str()) {
        return Some(format!(
            "the annotation {} must begin with the name of the host, by who knows that all of Kubernetes on it is lost: windlass node reset \
             {name} --confirm {name}",
            request::RESET_HOST
        ));
    }
    let host = before.host(name)?;
    Some(format!(
        "{name} is {} of the cluster, and is not reset beneath it: windlass node remove {name}, or windlass node replace {name} --by NAME",
        host.part()
    ))
}

/// The plan that resets one host.
fn compiled(
    before: &Inputs,
    (name, host): (&HostName, &Host),
    asked: &str,
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    let conduct = &resolved.removal.conduct;
    let inputs = beside(before, name, host, resolved);
    let inventory = compile::compiled(&inputs)?;
    let alone = std::slice::from_ref(name);
    let mut steps = compile::beginning(conduct, vec![name.clone()]);
    let change = host.has(Role::Etcd).then(|| MemberChange {
        host: name.clone(),
        member: member(&inputs, name),
        turn: Turn::Leaves,
    });
    if let Some(change) = change {
        // A join that failed may have left a member that never started.
        let members = before.group("etcd");
        steps.push(compile::quorum(conduct, QUORUM, &change, members));
        steps.push(compile::take_out(conduct, &change, members));
    }
    compile::leaving(&checkout.reset, conduct, &inventory, alone, &mut steps)?;
    compile::unproved(&inputs, &mut steps);
    for placed in &mut steps {
        if placed.hosts.as_slice() == alone {
            placed.step.gate = Some(compile::gate(conduct));
        }
    }
    let forget = Action::ForgetNodes { forced: Vec::new() };
    let title = "Take what is left of the node out of the cluster";
    steps.push(compile::of_nodes(
        conduct,
        "forget/nodes",
        title,
        forget,
        alone,
    ));
    let asks = Asks::Person(conduct, format!("reset {name}"));
    let reason = format!(
        "somebody asked for it: {name} is no part of the cluster, and what is left of Kubernetes on it is removed; the other hosts are not \
         worked on; if {name} is declared then, it joins"
    );
    compile::finish(&RESET_HOST, Some(asked), &inputs, reason, asks, steps)
}

/// The name in etcd that the host would have.
fn member(inputs: &Inputs, name: &HostName) -> String {
    let compiled = compile::compiled(inputs).ok();
    let names = compiled.map(|compiled| compiled.order().etcd_member_names.clone());
    let known = names.and_then(|names| names.get(name.as_str()).cloned());
    known.unwrap_or_else(|| name.to_string())
}

/// What the cluster was built with, and the host beside it.
fn beside(before: &Inputs, name: &HostName, host: &Host, resolved: &Resolved) -> Inputs {
    let mut inputs = before.reached_as(&resolved.inputs);
    inputs.hosts.push(host.clone());
    inputs.leaving = vec![name.clone()];
    inputs.operation_variables.clear();
    inputs.operation_variables.extend([
        ("reset_confirmation".to_owned(), json!("yes")),
        ("skip_confirmation".to_owned(), json!(true)),
    ]);
    inputs.on_the_way()
}
