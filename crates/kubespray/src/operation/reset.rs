//! Reset: removes Kubernetes from the hosts of a Cluster that is being deleted, if its deletion policy says so. Pure.

use api::{
    Cluster, HostName, Run,
    cluster::{Approval, DeletionPolicy},
    node::NodeState,
    run::{Plan, RunPhase},
};
use kube::{Resource, ResourceExt};
use runs::{is_active, phase};
use serde_json::{Value, json};

use super::RESET;
use crate::{
    cluster::{
        compile,
        decision::{Decision, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    inputs::Inputs,
    playbooks::Checkout,
    problem::Problem,
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
    let last = observed.runs.last();
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
        Ok(resolved) if nothing_begun(resolved, observed) => Decision::Forget,
        Ok(resolved) => match compiled(resolved, checkout, observed) {
            Ok(plan) => Decision::Start(Box::new(new_run(cluster, observed, &RESET, plan))),
            Err(problem) => Decision::Stall(vec![problem]),
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

/// The plan that removes Kubernetes from the hosts.
fn compiled(
    resolved: &Resolved,
    checkout: &Checkout,
    observed: &Observed,
) -> Result<Plan, Problem> {
    let mut inputs = resolved.inputs.clone();
    let spared = spare(&mut inputs, observed);
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
    if conduct.approval == Approval::Manual {
        let hosts: Vec<_> = inventory.hosts().cloned().collect();
        let question = format!("remove Kubernetes from {}", compile::listed(&hosts));
        steps.insert(0, compile::approval(question));
    }
    let mut reason = "the Cluster is being deleted and its deletionPolicy is Reset".to_owned();
    if !spared.is_empty() {
        reason.push_str(&format!(
            "; no run was ever to work on these, and they are left alone: {}",
            compile::listed(&spared)
        ));
    }
    if writes_resolver(&inputs, checkout) {
        reason.push_str(RESOLVER);
    }
    compile::finish(&RESET, resolved.again.as_deref(), &inputs, reason, steps)
}

/// Whether the playbooks wrote the resolver of the hosts, as far as can be seen: a Secret or a template may say otherwise.
fn writes_resolver(inputs: &Inputs, checkout: &Checkout) -> bool {
    let default = || checkout.contract.defaults.get(RESOLVER_MODE);
    let mode = inputs.variables.get(RESOLVER_MODE).or_else(default);
    mode.and_then(Value::as_str) == Some("host_resolvconf")
}

/// Whether a run was ever to work on a host, or something was told of it since.
fn is_touched(observed: &Observed, name: &str) -> bool {
    let mut runs = begun(observed);
    let planned = runs.any(|run| Inputs::has_host(&run.spec.plan.inputs, name));
    let mut nodes = observed.nodes.iter();
    let node = nodes.find(|node| node.name_any() == name);
    let state = node.and_then(|node| node.status.as_ref()?.state);
    planned || state.is_some_and(|state| state != NodeState::Waiting)
}

fn begun(observed: &Observed) -> impl Iterator<Item = &Run> {
    observed.runs.iter().filter(|run| !is_reset(run))
}

/// Whether the runs are there, and none of them was to work on a host that is declared: those that they were to work on are gone.
fn nothing_begun(resolved: &Resolved, observed: &Observed) -> bool {
    let mut hosts = resolved.inputs.hosts.iter();
    begun(observed).next().is_some() && !hosts.any(|host| is_touched(observed, &host.name))
}

/// Takes out the hosts that no run was ever to work on: what is on them is not the cluster's. Where the runs are gone, what was told of
/// the hosts counts, and where nothing was told, all are reset.
fn spare(inputs: &mut Inputs, observed: &Observed) -> Vec<HostName> {
    let touched = |name: &str| is_touched(observed, name);
    if !inputs.hosts.iter().any(|host| touched(&host.name)) {
        return Vec::new();
    }
    let names = inputs.hosts.iter().filter(|host| !touched(&host.name));
    let spared: Vec<HostName> = names.filter_map(|host| host.name.parse().ok()).collect();
    inputs.hosts.retain(|host| touched(&host.name));
    for order in inputs.inventory.order.values_mut() {
        order.retain(|name| !spared.contains(name));
    }
    spared
}

/// The variable that says who writes the resolver of hosts.
const RESOLVER_MODE: &str = "resolvconf_mode";
/// What `reset.yml` leaves then: it writes the file anew from the name servers that it finds there, the cluster's own among them.
const RESOLVER: &str = "; resolvconf_mode is host_resolvconf, so /etc/resolv.conf of the hosts may still name the cluster's DNS first \
    afterwards: take the lines between \"# Ansible entries BEGIN\" and END away then";
