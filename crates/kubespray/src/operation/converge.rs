//! Converging on request: the playbooks once more over a cluster that is built. Pure.
//!
//! A request is a value of the annotation [`request::CONVERGE`]. It is answered once: by a Run, which carries the value, or by a
//! refusal; the answer is kept in the status. The Run is stored first, so that after a crash between the two it is the
//! answer, and no request is lost or carried out twice.

use std::collections::BTreeSet;

use api::{
    Cluster, Run,
    cluster::ConvergeRequest,
    run::{Plan, RunPhase},
};
use kube::{Resource, ResourceExt};
use runs::{is_active, phase};

use super::CONVERGE;
use crate::{
    cluster::{
        built::{Built, built_by, built_with, differing_sources, is_built, of_built},
        compile,
        decision::{Decision, NewRun, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    playbooks::Checkout,
    problem::Problem,
    request, variables,
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

/// How much of a request is remembered.
const LENGTH: usize = 128;

/// The request that the annotations carry.
pub fn request(cluster: &Cluster) -> Option<String> {
    let value = cluster.annotations().get(request::CONVERGE)?;
    Some(value.chars().take(LENGTH).collect())
}

/// What to do about a cluster that is built.
fn maintain(
    cluster: &Cluster,
    built: &Built,
    resolved: &Resolved,
    observed: &Observed,
) -> Decision {
    let carried_out = |request: &String| observed.runs.iter().any(|run| is_for(run, request));
    let open = open(cluster).filter(|request| !carried_out(request));
    if let Some(request) = open.filter(|_| built.beyond_converge.is_empty()) {
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

/// The answer to an open request, if the decision is one.
pub fn answer(cluster: &Cluster, decision: &Decision) -> Option<ConvergeRequest> {
    let request = open(cluster)?;
    let run = |name: String| ConvergeRequest {
        request: request.clone(),
        run: Some(name),
        refused: None,
    };
    let refused = |why: String| {
        let why = api::text::lines(&why, 2048);
        ConvergeRequest {
            request: request.clone(),
            run: None,
            refused: Some(why),
        }
    };
    match decision {
        Decision::Start(new)
            if new.operation.name == CONVERGE.name && new.request.as_ref() == Some(&request) =>
        {
            Some(run(new.name.clone()))
        }
        Decision::Maintain(_, at_work) if is_for(at_work, &request) => {
            Some(run(at_work.name_any()))
        }
        Decision::Maintain(_, at_work) if is_active(phase(at_work)) => Some(refused(format!(
            "run {} is under way: ask again when it has ended",
            at_work.name_any()
        ))),
        Decision::Keep(built) if comes_first(built).is_some() => Some(refused(format!(
            "{}; ask again when that has ended, or let it start now: windlass maintain",
            comes_first(built).unwrap_or_default()
        ))),
        Decision::Keep(built) | Decision::Maintain(built, _) => {
            match built.run.as_ref().filter(|run| is_for(run, &request)) {
                Some(last) => Some(run(last.name_any())),
                None if built.beyond_converge.is_empty() => None,
                None => Some(refused(format!(
                    "converging does not change what a cluster is made of, and the spec also asks for {}",
                    built.beyond_converge.join("; ")
                ))),
            }
        }
        Decision::Stall(_) => Some(refused(
            "the spec must be corrected first: see the condition Stalled".to_owned(),
        )),
        // Of a cluster that is built and waits for its playbooks only.
        Decision::AwaitPlaybooks(_) if is_built(cluster) => None,
        Decision::Start(new) if new.operation.of_built => Some(refused(format!(
            "run {} comes first: ask again when it has ended",
            new.name
        ))),
        Decision::Cancel(_) | Decision::Forget => None,
        _ if cluster.meta().deletion_timestamp.is_some() => None,
        _ => Some(refused(
            "the cluster is not built yet: its creation runs the same playbooks".to_owned(),
        )),
    }
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

/// The request that no answer is known to.
fn open(cluster: &Cluster) -> Option<String> {
    let answered = cluster
        .status
        .as_ref()
        .and_then(|status| status.converge.as_ref());
    request(cluster).filter(|request| answered.is_none_or(|last| last.request != *request))
}

fn is_for(run: &Run, request: &str) -> bool {
    run.annotations().get(request::CONVERGE).map(String::as_str) == Some(request)
}
