//! Reset: removes Kubernetes from the hosts of a Cluster that is being deleted, if its deletion policy says so. Pure.

use api::{
    Cluster, ClusterNode, HostName, Run,
    cluster::DeletionPolicy,
    node::NodeState,
    run::{Plan, RunPhase, StepPhase},
};
use kube::{Resource, ResourceExt};
use runs::{is_active, phase};
use serde_json::{Value, json};

use super::{ADOPT, RESET, asked};
use crate::{
    action,
    cluster::{
        compile::{self, Asks},
        decision::{Decision, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::Problem,
    request::START_AGAIN,
};

/// Has the say about every Cluster that is being deleted.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster,
        wanted,
        observed,
        ..
    } = *situation;
    let deleted = cluster.meta().deletion_timestamp.is_some();
    deleted.then(|| deletion(cluster, wanted, observed))
}

fn deletion(
    cluster: &Cluster,
    wanted: Result<&Resolved, &[Problem]>,
    observed: &Observed,
) -> Decision {
    // Not the last one only: one that failed may have been taken up again since.
    let mut runs = observed.runs.iter().rev();
    let active = runs.find(|run| is_active(phase(run)));
    let last = active.or(observed.runs.last());
    let reset = cluster.spec.deletion_policy.unwrap_or_default() == DeletionPolicy::Reset;
    match last {
        Some(run) if !is_reset(run) && is_active(phase(run)) => {
            return Decision::Cancel(Box::new(run.clone()));
        }
        // A person may change their mind while a reset is stuck.
        Some(run) if !reset && is_active(phase(run)) => {
            return Decision::Cancel(Box::new(run.clone()));
        }
        Some(run) if is_reset(run) => {
            return match phase(run) {
                RunPhase::Succeeded => Decision::Forget,
                _ if !reset => Decision::Forget,
                RunPhase::Superseded => reset_run(cluster, wanted, observed),
                RunPhase::Cancelled if is_asked_anew(cluster, run) => {
                    reset_run(cluster, wanted, observed)
                }
                _ => Decision::Follow(Box::new(run.clone())),
            };
        }
        // Nothing was ever done to a host. That there are no runs does not prove it: they may have been deleted.
        None if !has_begun(cluster) => return Decision::Forget,
        _ => {}
    }
    if reset {
        reset_run(cluster, wanted, observed)
    } else {
        Decision::Forget
    }
}

fn is_reset(run: &Run) -> bool {
    run.spec.operation == RESET.name
}

/// Whether the last of these runs, oldest first, is a reset that somebody cancelled: another one begins when it is asked for by another
/// value of [`START_AGAIN`].
pub fn is_cancelled(runs: &[Run]) -> bool {
    let last = runs.last();
    last.is_some_and(|run| is_reset(run) && phase(run) == RunPhase::Cancelled)
}

/// Whether a person asks for another reset than the one that was cancelled.
fn is_asked_anew(cluster: &Cluster, run: &Run) -> bool {
    let answered = run.spec.plan.request.as_deref();
    asked::open(cluster, START_AGAIN, REQUEST, answered).is_some()
}

/// Whether an operation was ever begun, as the status remembers it.
fn has_begun(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status
        .is_some_and(|status| status.last_operation.is_some() || status.kubeconfig_secret.is_some())
}

fn reset_run(
    cluster: &Cluster,
    wanted: Result<&Resolved, &[Problem]>,
    observed: &Observed,
) -> Decision {
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return decision,
    };
    match wanted {
        Err(problems) => Decision::Stall(problems.iter().cloned().chain([way_out()]).collect()),
        Ok(resolved) => match compiled(resolved, checkout, observed) {
            Ok(Some(plan)) => Decision::Start(Box::new(new_run(cluster, observed, &RESET, plan))),
            Ok(None) => Decision::Forget,
            Err(problems) => Decision::Stall(problems),
        },
    }
}

/// What always helps a deletion that cannot reset the hosts, for example when their objects went with the namespace.
fn way_out() -> Problem {
    Problem::new(
        "Cluster spec.deletionPolicy",
        "Reset",
        "what the reset needs is not there, so no host was reset",
        "correct the above; or write Retain to forget the cluster and leave the hosts as they are",
    )
}

/// The plan that removes Kubernetes from the hosts. None: nothing was done to any.
fn compiled(
    resolved: &Resolved,
    checkout: &Checkout,
    observed: &Observed,
) -> Result<Option<Plan>, Vec<Problem>> {
    let mut inputs = resolved.inputs.clone();
    let spared = spare(&mut inputs, observed);
    if inputs.hosts.is_empty() {
        return Ok(None);
    }
    let moved: Vec<_> = inputs
        .hosts
        .iter()
        .filter_map(|host| moved(host, observed))
        .collect();
    if !moved.is_empty() {
        return Err(moved);
    }
    let plan = of_hosts(inputs, &spared, resolved, checkout);
    plan.map(Some).map_err(|problem| vec![problem])
}

fn of_hosts(
    mut inputs: Inputs,
    spared: &[HostName],
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    // That of the creation.
    inputs.operation_secret_ref = None;
    inputs.operation_variables.extend([
        ("reset_confirmation".to_owned(), json!("yes")),
        ("skip_confirmation".to_owned(), json!(true)),
    ]);
    // One of several that were to join may be among those that are spared.
    let inputs = inputs.on_the_way();
    let inventory = compile::compiled(&inputs)?;
    let conduct = &resolved.reset;
    let mut steps = compile::beginning(conduct, inventory.hosts().cloned().collect());
    compile::plays(&checkout.reset, conduct, &inventory, &mut steps)?;
    compile::unproved(&inputs, &mut steps);
    let hosts: Vec<_> = inventory.hosts().cloned().collect();
    let question = format!("remove Kubernetes from {}", compile::listed(&hosts));
    let asks = Asks::Person(conduct, question);
    let mut reason = "the Cluster is being deleted and its deletionPolicy is Reset".to_owned();
    if !spared.is_empty() {
        reason.push_str(&format!(
            "; no run has worked on these, and they are left alone: {}",
            compile::listed(spared)
        ));
    }
    if writes_resolver(&inputs, checkout) {
        reason.push_str(RESOLVER);
    }
    compile::finish(
        &RESET,
        resolved.again.as_deref(),
        &inputs,
        reason,
        asks,
        steps,
    )
}

/// Whether the playbooks wrote the resolver of the hosts, as far as can be seen: a Secret or a template may say otherwise.
fn writes_resolver(inputs: &Inputs, checkout: &Checkout) -> bool {
    let default = || checkout.contract.defaults.get(RESOLVER_MODE);
    let mode = inputs.variables.get(RESOLVER_MODE).or_else(default);
    mode.and_then(Value::as_str) == Some("host_resolvconf")
}

/// Takes out the hosts that no run has worked on: what is on them is not the cluster's. Where the runs are gone, what was told of the
/// hosts counts, and where nothing was told, all are reset.
fn spare(inputs: &mut Inputs, observed: &Observed) -> Vec<HostName> {
    let told = |name: &str| {
        let state = node(observed, name).and_then(|node| node.status.as_ref()?.state);
        state.is_some_and(|state| state != NodeState::Waiting)
    };
    let is_gone = observed.runs.iter().all(is_reset);
    if is_gone && !inputs.hosts.iter().any(|host| told(&host.name)) {
        return Vec::new();
    }
    let touched = |name: &str| {
        if is_gone {
            told(name)
        } else {
            worked_on(observed, name).is_some()
        }
    };
    let names = inputs.hosts.iter().filter(|host| !touched(&host.name));
    let spared: Vec<HostName> = names.filter_map(|host| host.name.parse().ok()).collect();
    inputs.hosts.retain(|host| touched(&host.name));
    for order in inputs.inventory.order.values_mut() {
        order.retain(|name| !spared.contains(name));
    }
    spared
}

/// The newest run that did something to a host; none: nothing was done to it since it was declared. A run that ended before its first play
/// did nothing, nor did one that was to adopt the host and did not come to its end.
fn worked_on<'a>(observed: &'a Observed, name: &str) -> Option<&'a Run> {
    let runs = observed.runs.iter().rev().filter(|run| !is_reset(run));
    let mut runs = runs.filter(|run| Inputs::has_host(&run.spec.plan.inputs, name));
    let run = runs.find_map(|run| {
        let succeeded = phase(run) == RunPhase::Succeeded;
        let removed = succeeded && Inputs::removes(&run.spec.plan.inputs, name);
        if removed && is_declared_since(observed, name, run) {
            return Some(None);
        }
        let adopts = run.spec.operation == ADOPT.name;
        let worked = !adopts && (is_active(phase(run)) || has_played(run, name));
        (succeeded || worked).then_some(Some(run))
    });
    run.flatten()
}

/// Whether a play of a run has begun on a host.
fn has_played(run: &Run, name: &str) -> bool {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let mut begun = steps.filter(|step| step.phase != StepPhase::Pending);
    begun.any(|begun| {
        let plan = &run.spec.plan;
        let mut known = plan.steps.iter().filter(|step| step.id == begun.id);
        known.any(|step| {
            action::play_of(step).is_some() && plan.targets(step).any(|host| host.as_str() == name)
        })
    })
}

fn is_declared_since(observed: &Observed, name: &str, run: &Run) -> bool {
    let declared = node(observed, name).and_then(|node| relocation::mark::created(node.meta()));
    declared > relocation::mark::created(run.meta())
}

fn node<'a>(observed: &'a Observed, name: &str) -> Option<&'a ClusterNode> {
    let mut nodes = observed.nodes.iter();
    nodes.find(|node| node.name_any() == name)
}

/// What is wrong with a host that is reached elsewhere than when it was worked on.
fn moved(host: &Host, observed: &Observed) -> Option<Problem> {
    let run = worked_on(observed, &host.name)?;
    let mut known = run.spec.plan.inputs.get("hosts")?.as_array()?.iter();
    let before = known.find(|known| known["name"] == host.name)?;
    let before = before["variables"]["ansible_host"].as_str()?;
    let now = &host.variables.ansible_host;
    (before != now).then(|| {
        Problem::new(
            format!("ClusterNode/{} spec.inventory.ansible_host", host.name),
            now,
            format!("the cluster was built with {before}, and what answers at {now} may be another's; no host was reset"),
            format!("write {before} again; or write spec.deletionPolicy: Retain to forget the cluster and leave the hosts as they are"),
        )
    })
}

/// How much of a request a plan keeps, by its schema.
const REQUEST: usize = 256;
/// The variable that says who writes the resolver of hosts.
const RESOLVER_MODE: &str = "resolvconf_mode";
/// What `reset.yml` leaves then: it writes the file anew from the name servers that it finds there, the cluster's own among them.
const RESOLVER: &str = "; resolvconf_mode is host_resolvconf, so /etc/resolv.conf of the hosts may still name the cluster's DNS first \
    afterwards: take the lines between \"# Ansible entries BEGIN\" and END away then";
