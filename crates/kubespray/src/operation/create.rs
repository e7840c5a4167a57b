//! Create: builds a cluster that does not exist yet, once its hosts are there and no new one came for a while. Pure.
//!
//! One that was adopted is there already: the same playbooks go over it as when it is converged, nothing is undone of what they find
//! half done, and hosts are not made ready side by side.

use ansible::slice::FOUNDING;
use api::{
    Cluster,
    cluster::Approval,
    run::{Plan, RunPhase},
};
use jiff::SignedDuration;
use kube::ResourceExt;
use runs::{is_active, phase};

use super::CREATE;
use crate::{
    cluster::{
        compile,
        decision::{Decision, Situation, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    names::ADOPTED,
    playbooks::{Checkout, Playbooks},
    problem::Problem,
};

/// Has the say when nothing else has.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let resolved = situation.wanted.ok()?;
    Some(creation(situation.cluster, resolved, situation.observed))
}

fn creation(cluster: &Cluster, resolved: &Resolved, observed: &Observed) -> Decision {
    let last = observed.runs.last();
    let active = last.filter(|run| is_active(phase(run)));
    let checkout = match (&observed.playbooks, active) {
        (Playbooks::Ready(checkout), _) => checkout,
        // Whether the wish changed is not known before the playbooks are; a run that is at work stays at work.
        (_, Some(run)) => return Decision::Follow(Box::new(run.clone())),
        (Playbooks::Unreachable(reason), None) => {
            return Decision::AwaitPlaybooks(Some(reason.clone()));
        }
        (_, None) => return Decision::AwaitPlaybooks(None),
    };
    if !resolved.missing.is_empty() {
        return match active {
            Some(run) => Decision::Follow(Box::new(run.clone())),
            None => Decision::AwaitHosts {
                missing: resolved.missing.clone(),
                recheck: None,
            },
        };
    }
    let plan = match compiled(cluster, resolved, checkout) {
        Ok(plan) => plan,
        Err(problem) => return Decision::Stall(vec![problem]),
    };
    match last {
        Some(run) if run.spec.plan.digest == plan.digest && phase(run) != RunPhase::Superseded => {
            Decision::Follow(Box::new(run.clone()))
        }
        Some(run) if is_active(phase(run)) => {
            Decision::Supersede(Box::new(run.clone()), plan.digest)
        }
        _ => start_when_ready(cluster, resolved, observed, plan),
    }
}

fn start_when_ready(
    cluster: &Cluster,
    resolved: &Resolved,
    observed: &Observed,
    plan: Plan,
) -> Decision {
    if let Some(wait) = quiet_time_left(resolved, observed) {
        return Decision::AwaitHosts {
            missing: vec![format!(
                "{} without a new host",
                resolved.creation.last_node_creation
            )],
            recheck: Some(wait),
        };
    }
    Decision::Start(Box::new(new_run(cluster, observed, &CREATE, plan)))
}

fn quiet_time_left(resolved: &Resolved, observed: &Observed) -> Option<SignedDuration> {
    let quiet = i64::try_from(resolved.creation.last_node_creation.seconds()).unwrap_or(i64::MAX);
    let since = observed.now.duration_since(resolved.newest_node?);
    let left = SignedDuration::from_secs(quiet).checked_sub(since)?;
    left.is_positive().then_some(left)
}

/// The plan that builds a cluster.
fn compiled(cluster: &Cluster, resolved: &Resolved, checkout: &Checkout) -> Result<Plan, Problem> {
    let mut inputs = resolved.inputs.clone();
    let hosts = inputs.hosts.len();
    let name = cluster.name_any();
    let (mut steps, question, why) = if cluster.annotations().contains_key(ADOPTED) {
        let steps = compile::building(&name, resolved, checkout)?;
        let question =
            format!("take the cluster over: run its playbooks over {hosts} hosts that are at work");
        (steps, question, "the cluster is taken over")
    } else {
        let undo = (FOUNDING.to_owned(), true.into());
        inputs.operation_variables.extend([undo]);
        inputs
            .authorities_secret_ref
            .clone_from(&resolved.creation.authorities);
        let steps = compile::founding(&name, resolved, checkout)?;
        let question = format!("build the cluster on {hosts} hosts");
        (steps, question, "the cluster does not exist yet")
    };
    if resolved.creation.conduct.approval == Approval::Manual {
        steps.insert(0, compile::approval(question));
    }
    let reason = format!(
        "{why}: kubespray {} builds it{} on {hosts} hosts",
        inputs.kubespray,
        compile::with_kubernetes(&inputs),
    );
    compile::finish(&CREATE, resolved.again.as_deref(), &inputs, reason, steps)
}
