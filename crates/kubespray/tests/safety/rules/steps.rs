//! What a step works on.

use api::{node::Role, run::Plan};
use kubespray::{
    action::{self, Action},
    inputs::Inputs,
    operation::{Operation, Order},
};

use crate::world::Reality;

/// Of a play that goes from host to host, no step is on two control planes.
pub fn rolls(before: &Reality, inputs: &Inputs, plan: &Plan, operation: &Operation) {
    let planes = before.with(Role::ControlPlane);
    for step in &plan.steps {
        let action = serde_json::to_value(&step.action).unwrap();
        let limited = action["engine"]["parameters"]["limited"] == true;
        let touched = plan
            .targets(step)
            .filter(|host| planes.contains(host.as_str()))
            // No more is lost of those that are given up.
            .filter(|host| {
                operation.order != Order::Moves
                    || !inputs
                        .leaving
                        .iter()
                        .any(|gone| gone.as_str() == host.as_str())
            });
        let many = touched.count();
        // Facts are read and nothing is changed; and those plays are of all nodes, as converging runs them.
        let whole = step.id.ends_with("/facts")
            || [
                "endpoints/control-plane",
                "endpoints/nodes",
                "network-plugin/upgrade",
            ]
            .contains(&step.id.as_str());
        let rolling = limited && operation.disruptive && !whole;
        assert!(
            !rolling || many <= 1,
            "{} touches {many} control planes at once",
            step.id
        );
    }
}

/// A member of etcd is worked on alone, and etcd is asked before and after; no node is left without a gate that lets its pods in.
pub fn components(inputs: &Inputs, plan: &Plan) {
    let is_asked = |at: Option<usize>| {
        let step = at.and_then(|at| plan.steps.get(at));
        step.is_some_and(|step| {
            action::of(step).is_ok_and(|action| matches!(action, Some(Action::Quorum(_))))
        })
    };
    for (at, step) in plan.steps.iter().enumerate() {
        let Some(play) = action::play_of(step).filter(|play| play.own.is_some()) else {
            continue;
        };
        let hosts = action::hosts_of(plan, step);
        if play.playbook == "windlass-etcd" {
            let members = hosts
                .iter()
                .filter(|host| inputs.group("etcd").contains(host));
            assert_eq!(
                (members.count(), hosts.len()),
                (1, 1),
                "{}: one member at a time",
                step.id
            );
            assert!(
                is_asked(at.checked_sub(1)) && is_asked(Some(at + 1)),
                "{}: nobody asks etcd",
                step.id
            );
        }
        if play.playbook == "windlass-container-engine" {
            let mut after = plan.steps.iter().skip(at + 1);
            let gate = after.find(|step| matches!(action::of(step), Ok(Some(Action::Gate(_)))));
            let gated = gate.map(|step| action::hosts_of(plan, step));
            assert_eq!(gated, Some(hosts), "{}: no gate", step.id);
        }
    }
}
