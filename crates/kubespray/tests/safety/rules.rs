//! What must hold, whatever was wished.

use api::{Run, maintenance::Confine};
use kube::ResourceExt;
use kubespray::{
    cluster::decision::{NewRun, Planned},
    inputs::Inputs,
    operation::Operation,
};

use crate::{
    effect::effect,
    world::{Reality, World},
};

mod batches;
mod members;
mod order;
mod resting;
mod steps;

pub use members::stops;
pub use resting::of_rest;

use batches::batches;
use members::{members, recovers};
use order::{hands_over, order_stays};
use steps::{components, rolls};

/// Of a run that is about to start.
pub fn of_start(world: &World, planned: &Planned, new: &NewRun, run: &Run) {
    let before = &world.reality;
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    let left = inputs.clone().left();
    let running = world
        .observed
        .runs
        .iter()
        .find(|run| runs::is_active(runs::phase(run)));
    assert!(
        running.is_none(),
        "{} starts beside {:?}",
        new.name,
        running.map(ResourceExt::name_any)
    );
    assert!(!new.plan.steps.is_empty(), "a plan of nothing");
    if new.operation.of_built {
        order_stays(before, &left, new.operation);
        if new.operation.name == "Replace" {
            hands_over(world, &left);
        }
        version_follows(before, &inputs);
        only_wished(world, &inputs, new.operation);
        for steps in 0..=stops(world, run).unwrap_or(new.plan.steps.len()) {
            let (one, other) = (effect(before, run, steps), before);
            if new.operation.name == "Recover" {
                recovers(world, &inputs, &one);
            } else {
                members(other, &one, &world.dead);
            }
        }
        rolls(before, &inputs, &new.plan, new.operation);
        components(&inputs, &new.plan);
        if ["Component", "Upgrade"].contains(&new.operation.name) {
            batches(world, &inputs, &new.plan, new.operation);
        }
        windows(world, new);
    }
    let itself = |pending: &&api::cluster::Pending| {
        pending.operation == new.operation.name && pending.reason != "BehindRun"
    };
    if let Some(pending) = planned.pending.iter().find(itself) {
        assert!(
            pending.reason == "Refused" || pending.reason == "RunCancelled",
            "{} starts and waits: {pending:?}",
            new.name
        );
    }
}

fn version_follows(before: &Reality, inputs: &Inputs) {
    let (Some(was), Some(is)) = (before.kubernetes, inputs.kubernetes) else {
        return;
    };
    assert!(is >= was, "from Kubernetes {was} down to {is}");
    let minors = is.minor - was.minor;
    assert!(
        minors <= 1 && is.major == was.major,
        "from Kubernetes {was} to {is} skips a minor"
    );
}

/// Nobody leaves whose removal was not asked for, and nobody joins who was not declared.
fn only_wished(world: &World, inputs: &Inputs, operation: &Operation) {
    let nodes = &world.observed.nodes;
    let find = |name: &str| nodes.iter().find(|node| node.name_any() == name);
    for host in &inputs.leaving {
        if operation.name == "ResetHost" {
            assert!(
                !world.reality.hosts.contains_key(host.as_str()),
                "{host} is part of the cluster, and is reset"
            );
            continue;
        }
        let node = find(host.as_str());
        let asked = node.is_some_and(|node| node.metadata.deletion_timestamp.is_some())
            || world.gives_up(host.as_str());
        assert!(asked, "{host} leaves, and nobody asked for it");
    }
    for host in &inputs.hosts {
        let joins = !world.reality.hosts.contains_key(&host.name);
        assert!(
            !joins || find(&host.name).is_some(),
            "{} joins undeclared",
            host.name
        );
    }
}

/// Nothing that keeps to windows starts outside of them, unless a person lets it.
fn windows(world: &World, new: &NewRun) {
    let maintenance = world.cluster.spec.maintenance.clone().unwrap_or_default();
    let read = controller::Windows::read(&maintenance.windows, "windows").unwrap();
    let closed = matches!(read.at(world.now()), controller::window::Now::Closed { .. });
    let confined = match maintenance.confine.unwrap_or_default() {
        Confine::All => true,
        Confine::Disruptive => new.operation.disruptive,
        Confine::None => false,
    };
    let asked = new.request.is_some() || new.maintain.is_some();
    assert!(
        !(closed && confined) || asked,
        "{} starts at {}, outside of every window",
        new.name,
        world.now()
    );
}
