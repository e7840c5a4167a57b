//! Converging on request: the playbooks once more over a cluster that is built. Pure.
//!
//! It is asked for by the annotation [`request::CONVERGE`]; [`asked`] says how that is answered.

use std::collections::BTreeSet;

use api::{
    Cluster, Run,
    run::{Plan, RunPhase},
};
use kube::ResourceExt;
use runs::phase;

use super::{
    CONVERGE,
    asked::{self, Asked},
};
use crate::{
    cluster::{
        built::{Built, built_by, built_with, differing_sources, of_built},
        compile,
        decision::{Decision, NewRun, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    playbooks::Checkout,
    problem::Problem,
    request, variables,
};

/// How it is asked for.
pub const ASKED: Asked = Asked {
    operation: &CONVERGE,
    annotation: request::CONVERGE,
    length: asked::LENGTH,
    answered: |status| status.converge.as_ref(),
    place: |status| &mut status.converge,
    wrong: |_| None,
    refusal: |_, _, built| refusal(built),
    unbuilt: "its creation runs the same playbooks",
};

/// Has the say about a cluster that is built.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster,
        wanted,
        observed,
        built,
    } = *situation;
    Some(maintain(cluster, built?, wanted.ok()?, observed))
}

/// What to do about a cluster that is built.
fn maintain(
    cluster: &Cluster,
    built: &Built,
    resolved: &Resolved,
    observed: &Observed,
) -> Decision {
    let wanted = ASKED.wanted(cluster, &observed.runs);
    if let Some(request) = wanted.filter(|_| built.beyond_converge.is_empty()) {
        return start(cluster, resolved, observed, request);
    }
    match of_built(observed) {
        // A failed one of another operation was for what nobody asks for any more.
        Some(run) if phase(run) == RunPhase::Failed && run.spec.operation == CONVERGE.name => {
            Decision::Maintain(Box::new(built.clone()), Box::new(run.clone()))
        }
        _ => Decision::Keep(Box::new(built.clone())),
    }
}

fn start(cluster: &Cluster, resolved: &Resolved, observed: &Observed, request: String) -> Decision {
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return decision,
    };
    match compiled(&cluster.name_any(), resolved, checkout, &request) {
        Ok(plan) => Decision::Start(Box::new(NewRun {
            request: Some(request),
            ..new_run(cluster, observed, &CONVERGE, plan)
        })),
        Err(problem) => Decision::Stall(vec![problem]),
    }
}

/// The plan that carries the same playbook over the whole built cluster once more.
fn compiled(
    cluster: &str,
    resolved: &Resolved,
    checkout: &Checkout,
    request: &str,
) -> Result<Plan, Problem> {
    let inputs = &resolved.inputs;
    let steps = compile::building(cluster, resolved, checkout)?;
    let reason = format!(
        "somebody asked for it: kubespray {} brings all {} hosts{} back to the spec",
        inputs.kubespray,
        inputs.hosts.len(),
        compile::with_kubernetes(inputs),
    );
    compile::finish(&CONVERGE, Some(request), inputs, reason, steps)
}

/// Why a cluster that stays as it is is not converged.
fn refusal(built: &Built) -> Option<String> {
    if let Some(waiting) = comes_first(built) {
        return Some(format!(
            "{waiting}; ask again when that has ended, or let it start now: windlass maintain"
        ));
    }
    (!built.beyond_converge.is_empty()).then(|| {
        format!(
            "converging does not change what a cluster is made of, and the spec also asks for {}",
            built.beyond_converge.join("; ")
        )
    })
}

/// What a request to converge waits for, and that for a maintenance window.
fn comes_first(built: &Built) -> Option<String> {
    let waiting = built.waiting.as_ref()?;
    (!built.beyond_converge.is_empty()).then(|| waiting.told())
}

/// What the playbooks would be given that is not what the cluster was built with, if that is known. Names only: values may be
/// secret.
pub fn changes(runs: &[Run], resolved: &Resolved) -> Vec<String> {
    let Some(before) = built_by(runs).and_then(built_with) else {
        return Vec::new();
    };
    let wanted = &resolved.inputs;
    let names: BTreeSet<_> = before
        .variables
        .keys()
        .chain(wanted.variables.keys())
        .collect();
    let variables = names
        .into_iter()
        .filter(|name| before.variables.get(*name) != wanted.variables.get(*name))
        .map(|name| format!("spec.nodes.all.deploy.extraVars: {name}"));
    let hosts = wanted
        .hosts
        .iter()
        .filter(|host| {
            let mut built = before.hosts.iter();
            built.any(|built| {
                built.name == host.name
                    && (&built.variables, &built.extra_vars_secret_ref)
                        != (&host.variables, &host.extra_vars_secret_ref)
            })
        })
        .map(|host| format!("ClusterNode {} spec.inventory", host.name));
    let secrets = variables::changed(&before.revisions, &wanted.revisions)
        .map(|name| format!("Secret {name}"));
    let sources = differing_sources(&before, wanted);
    variables
        .chain(sources)
        .chain(hosts)
        .chain(secrets)
        .collect()
}
