//! Create: builds a cluster that does not exist yet, once its hosts are there and no new one came for a while. Pure.

use ansible::slice::FOUNDING;
use api::{
    Cluster,
    run::{Plan, RunPhase},
};
use jiff::SignedDuration;
use kube::ResourceExt;
use runs::{is_active, phase};

use super::{CREATE, Operation};
use crate::{
    cluster::{
        compile::{self, Asks},
        decision::{Decision, Situation, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    playbooks::{Checkout, Playbooks},
    problem::Problem,
};

/// Has the say when nothing else has.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    begin(situation, &CREATE, compiled)
}

/// What becomes of a cluster that is none yet, by the operation that makes it one and the plan of that.
pub(super) fn begin(
    situation: &Situation<'_>,
    operation: &'static Operation,
    compiled: impl Fn(&Cluster, &Resolved, &Checkout) -> Result<Plan, Problem>,
) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let resolved = situation.wanted.ok()?;
    let last = observed.runs.last();
    let active = last.filter(|run| is_active(phase(run)));
    let checkout = match (&observed.playbooks, active) {
        (Playbooks::Ready(checkout), _) => checkout,
        // Whether the wish changed is not known before the playbooks are; a run that is at work stays at work.
        (_, Some(run)) => return Some(Decision::Follow(Box::new(run.clone()))),
        (Playbooks::Unreachable(reason), None) => {
            return Some(Decision::AwaitPlaybooks(Some(reason.clone())));
        }
        (_, None) => return Some(Decision::AwaitPlaybooks(None)),
    };
    if !resolved.missing.is_empty() {
        return Some(match active {
            Some(run) => Decision::Follow(Box::new(run.clone())),
            None => Decision::AwaitHosts {
                missing: resolved.missing.clone(),
                recheck: None,
            },
        });
    }
    let plan = match compiled(cluster, resolved, checkout) {
        Ok(plan) => plan,
        Err(problem) => return Some(Decision::Stall(vec![problem])),
    };
    Some(match last {
        Some(run) if run.spec.plan.digest == plan.digest && phase(run) != RunPhase::Superseded => {
            Decision::Follow(Box::new(run.clone()))
        }
        Some(run) if is_active(phase(run)) => {
            Decision::Supersede(Box::new(run.clone()), plan.digest)
        }
        _ => match quiet_time_left(resolved, observed) {
            Some(wait) => Decision::AwaitHosts {
                missing: vec![format!(
                    "{} without a new host",
                    resolved.creation.last_node_creation
                )],
                recheck: Some(wait),
            },
            None => Decision::Start(Box::new(new_run(cluster, observed, operation, plan))),
        },
    })
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
    let undo = (FOUNDING.to_owned(), true.into());
    inputs.operation_variables.extend([undo]);
    inputs
        .authorities_secret_ref
        .clone_from(&resolved.creation.authorities);
    let steps = compile::founding(&cluster.name_any(), resolved, checkout)?;
    let question = format!("build the cluster on {hosts} hosts");
    let asks = Asks::Person(&resolved.creation.conduct, question);
    let reason = format!(
        "the cluster does not exist yet: kubespray {} builds it{} on {hosts} hosts",
        inputs.kubespray,
        compile::with_kubernetes(&inputs),
    );
    compile::finish(
        &CREATE,
        resolved.again.as_deref(),
        &inputs,
        reason,
        asks,
        steps,
    )
}
