//! What an operation does to the hosts.

use api::{
    Run,
    node::Role,
    run::{Plan, Step},
};
use kubespray::{
    action::{self, Action, DRAIN, FOUND},
    inputs::Inputs,
    operation::{Leaves, Operation},
};

use crate::{drains, order, world::Reality};

/// The step after which hosts that leave are no part of the cluster.
const FORGOTTEN: &str = "forget/nodes";

/// What the hosts are like after the first steps of a run.
///
/// # Panics
///
/// The operation is not known here.
pub fn effect(before: &Reality, run: &Run, steps: usize) -> Reality {
    let plan = &run.spec.plan;
    let inputs = Inputs::from_map(&plan.inputs).unwrap();
    let done = |id: &str| plan.steps.iter().take(steps).any(|step| step.id == id);
    let whole = steps == plan.steps.len();
    let mut after = before.clone();
    match run.spec.operation.as_str() {
        "Create" | "Scale" | "Converge" if whole => {
            for host in &inputs.hosts {
                after.hosts.insert(host.name.clone(), host.roles.clone());
            }
        }
        // Half of it is done, and the host is no part of the cluster yet: it is done again.
        "Create" | "Scale" => return after,
        // What it does not name is none of this cluster, as far as anybody here knows.
        "Adopt" if whole => after
            .hosts
            .retain(|name, _| inputs.hosts.iter().any(|host| host.name == *name)),
        "Upgrade" | "Component" => {
            let_in(&mut after, plan, steps);
            if !whole {
                return after;
            }
        }
        "Remove" => {
            for host in &inputs.leaving {
                if done(DRAIN) {
                    after.drained.insert(host.to_string());
                }
                if done(FORGOTTEN) {
                    forget(&mut after, host.as_str());
                    after.lost.insert(host.to_string());
                }
            }
        }
        "Recover" => {
            // From then on what is given up has no part in etcd, whatever becomes of the run.
            if done(FOUND) {
                for host in &inputs.leaving {
                    if let Some(roles) = after.hosts.get_mut(host.as_str()) {
                        roles.retain(|role| *role != Role::Etcd);
                    }
                }
            }
            if done(FORGOTTEN) {
                for host in &inputs.leaving {
                    forget(&mut after, host.as_str());
                }
            }
        }
        "Toolbox" => tended(&mut after, plan, steps),
        // Nothing of the cluster is left on them. Where it was ended in the middle, it is taken up again or given up for good.
        "Reset" => {
            for host in inputs.hosts.iter().filter(|_| whole) {
                forget(&mut after, &host.name);
            }
            return after;
        }
        "Adopt" | "Converge" | "Renew" | "Replace" | "ResetHost" | "Snapshot" | "Drill" => {}
        other => panic!(
            "operation {other} is not known here: say in `effect` what it does to the hosts, and in `rules` what it may change"
        ),
    }
    if whole {
        assert!(!Operation::leaves(run, Leaves::Nothing));
        after.kubernetes = inputs.kubernetes;
        let left = inputs.left();
        after.order = order(&left);
        after.members.clone_from(&left.inventory.etcd_member_names);
        // What somebody kept after its removal had begun is brought back by the next operation that is of all hosts.
        let there = |host: &String| after.hosts.contains_key(host);
        let declared = |host: &String| left.hosts.iter().any(|left| left.name == *host);
        after.lost.clone_from(&before.lost);
        after.lost.retain(|host| declared(host) && !there(host));
    }
    after
}

fn forget(after: &mut Reality, host: &str) {
    after.hosts.remove(host);
    after.drained.remove(host);
    after.cordoned.remove(host);
}

/// The gate behind each batch lets pods in again, and each gate does on those of its nodes that the run goes on after, which an earlier one
/// has left.
fn let_in(after: &mut Reality, plan: &Plan, steps: usize) {
    let gate = |step: &Step| match action::of(step).unwrap() {
        Some(Action::Gate(gate)) => Some(gate),
        _ => None,
    };
    let halfway = plan.steps.iter().filter_map(gate);
    let halfway = halfway.filter_map(|gate| gate.after);
    let halfway: Vec<_> = halfway.flat_map(|left| left.halfway).collect();
    for step in plan.steps.iter().take(steps) {
        let lets_in = gate(step).is_some_and(|gate| !gate.begins);
        let hosts = action::hosts_of(plan, step).into_iter();
        for host in hosts.filter(|host| drains(plan, step) || lets_in && halfway.contains(host)) {
            after.drained.remove(host.as_str());
        }
    }
}

/// What a person has done to nodes stays until a person takes it back.
fn tended(after: &mut Reality, plan: &Plan, steps: usize) {
    for step in plan.steps.iter().take(steps) {
        let hosts = action::hosts_of(plan, step);
        let hosts = hosts.iter().map(ToString::to_string);
        match action::of(step).unwrap() {
            Some(Action::Cordon { lets_in: false } | Action::Drain { .. }) => {
                after.cordoned.extend(hosts);
            }
            Some(Action::Cordon { lets_in: true }) => {
                for host in hosts {
                    after.cordoned.remove(&host);
                    after.drained.remove(&host);
                }
            }
            _ => {}
        }
    }
}
