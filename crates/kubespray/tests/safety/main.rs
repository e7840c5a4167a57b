//! Whatever people do with a cluster, no plan that comes of it is unsafe, and everything comes to rest.
//!
//! A world is a cluster in small: its objects, and what its runs would have left on the hosts. It is decided by the real `resolve` and
//! `plan`, told of by the real `report`, and each run is carried out in the model: to its end, up to a step that fails, or until
//! somebody cancels it. What people do stands in `people.rs`, what an operation does to the hosts in `effect.rs`, and what must hold of every
//! plan in `rules.rs`; that a plan which breaks a rule is caught, in `forged.rs`. A new operation has its row in each: the stories end when
//! it has none, and when they never come to its end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod effect;
mod forged;
mod people;
mod rules;
mod story;
mod ways;
mod world;

use std::collections::BTreeMap;

use api::{
    node::Role,
    run::{Plan, Step},
};
use kubespray::inputs::Inputs;

/// Whether a step takes the pods from its nodes: a batch, behind which stands a gate of its own.
pub fn drains(plan: &Plan, step: &Step) -> bool {
    let gate = format!("gate/{}", step.id);
    plan.steps.iter().any(|step| step.id == gate)
}

/// The order of those groups in which it is state.
pub fn order(inputs: &Inputs) -> BTreeMap<String, Vec<String>> {
    let groups = inputs.inventory.order.iter();
    groups
        .map(|(group, hosts)| {
            (
                group.clone(),
                hosts.iter().map(ToString::to_string).collect(),
            )
        })
        .collect()
}

/// Those who vote in etcd, and those who serve the API.
pub const GUARDED: [(Role, &str); 2] = [
    (Role::Etcd, "etcd"),
    (Role::ControlPlane, "kube_control_plane"),
];
