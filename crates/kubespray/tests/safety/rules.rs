//! What must hold, whatever was wished.

use std::collections::BTreeSet;

use api::{
    Run,
    maintenance::Confine,
    node::Role,
    run::{Plan, RunPhase},
};
use kube::ResourceExt;
use kubespray::{
    action::QUORUM,
    cluster::decision::{Decision, NewRun, Planned},
    inputs::Inputs,
    operation::Operation,
};

use crate::{
    GUARDED, effect, order,
    world::{Reality, World},
};

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
        version_follows(before, &inputs);
        only_wished(world, &inputs);
        for steps in 0..=stops(world, run).unwrap_or(new.plan.steps.len()) {
            let (one, other) = (effect(before, run, steps), before);
            members(other, &one, &world.dead);
        }
        rolls(before, &new.plan, new.operation);
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

/// No quorum is lost, and one member changes at a time.
fn members(before: &Reality, after: &Reality, dead: &BTreeSet<String>) {
    for (role, group) in GUARDED {
        let (was, is) = (before.with(role), after.with(role));
        let changed = was.symmetric_difference(&is).count();
        assert!(
            changed <= 1,
            "{changed} hosts of {group} change at a time: {was:?} to {is:?}"
        );
        assert!(
            !is.is_empty(),
            "{group} is empty: there is no cluster without it"
        );
    }
    let (was, is) = (before.with(Role::Etcd), after.with(Role::Etcd));
    assert!(
        has_quorum(&is, dead) || !has_quorum(&was, dead),
        "etcd loses its quorum: of {was:?} to {is:?}, {dead:?} are switched off"
    );
}

fn has_quorum(members: &BTreeSet<String>, dead: &BTreeSet<String>) -> bool {
    members.difference(dead).count() > members.len() / 2
}

/// At how many steps a run stops because etcd, asked by one of them, could not do without the member: a planner may not know yet
/// who is switched off, and a run asks.
pub fn stops(world: &World, run: &Run) -> Option<usize> {
    let steps = &run.spec.plan.steps;
    let asks = steps.iter().position(|step| step.id == QUORUM)?;
    let (was, is) = (&world.reality, effect(&world.reality, run, steps.len()));
    let members = |reality: &Reality| reality.with(Role::Etcd);
    let keeps = |reality: &Reality| has_quorum(&members(reality), &world.dead);
    // One that was taken out by a removal that was given up is missed.
    let many = members(&is).difference(&members(was)).count() > 1;
    (many || (keeps(was) && !keeps(&is))).then_some(asks)
}

/// The head holds the authorities: nobody comes before it, and the rest keeps its order.
fn order_stays(before: &Reality, left: &Inputs, operation: &Operation) {
    // That one is for another head.
    if operation.name == "Replace" {
        return;
    }
    let after = order(left);
    for (_, group) in GUARDED {
        let none = Vec::new();
        let (was, is) = (
            before.order.get(group).unwrap_or(&none),
            after.get(group).unwrap_or(&none),
        );
        let stay: Vec<_> = was.iter().filter(|host| is.contains(host)).collect();
        let first: Vec<_> = is.iter().take(stay.len()).collect();
        assert_eq!(
            first, stay,
            "{} reorders {group}: {was:?} to {is:?}",
            operation.name
        );
        assert_eq!(
            was.first(),
            is.first(),
            "{} moves the head of {group}",
            operation.name
        );
    }
    for (host, name) in &left.inventory.etcd_member_names {
        if let Some(known) = before.members.get(host) {
            assert_eq!(known, name, "{} renames the member {host}", operation.name);
        }
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
fn only_wished(world: &World, inputs: &Inputs) {
    let nodes = &world.observed.nodes;
    let find = |name: &str| nodes.iter().find(|node| node.name_any() == name);
    for host in &inputs.leaving {
        let node = find(host.as_str());
        let asked = node.is_some_and(|node| node.metadata.deletion_timestamp.is_some());
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

/// Of a play that goes from host to host, no step is on two control planes.
fn rolls(before: &Reality, plan: &Plan, operation: &Operation) {
    let planes = before.with(Role::ControlPlane);
    for step in &plan.steps {
        let action = serde_json::to_value(&step.action).unwrap();
        let limited = action["engine"]["parameters"]["limited"] == true;
        let touched = plan
            .targets(step)
            .filter(|host| planes.contains(host.as_str()));
        let many = touched.count();
        // Facts are read and nothing is changed; and those plays are of all nodes, as converging runs them.
        let whole = step.id.ends_with("/facts")
            || ["endpoints/control-plane", "endpoints/nodes"].contains(&step.id.as_str());
        let rolling = limited && operation.disruptive && !whole;
        assert!(
            !rolling || many <= 1,
            "{} touches {many} control planes at once",
            step.id
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

/// The reasons that mend themselves.
const BY_THEMSELVES: [&str; 2] = ["BehindRun", "WaitingForPlaybooks"];
/// What a person is told to type or to write.
const REMEDIES: [&str; 7] = [
    "windlass ",
    "kubectl ",
    "declare",
    "correct",
    "write",
    "add ",
    "take ",
];

/// Of a world in which nothing starts.
pub fn of_rest(world: &World, planned: &Planned) {
    if let Decision::Stall(problems) = &planned.decision {
        assert!(!problems.is_empty(), "it stalls and says nothing");
        for problem in problems {
            let parts = [&problem.field, &problem.rule, &problem.remedy];
            assert!(
                parts.iter().all(|part| !part.trim().is_empty()),
                "{problem:?}"
            );
        }
    }
    for pending in &planned.pending {
        let remedy = BY_THEMSELVES.contains(&pending.reason.as_str())
            || REMEDIES
                .iter()
                .any(|remedy| pending.message.contains(remedy));
        assert!(remedy, "a refusal without a remedy: {pending:?}");
        assert!(pending.hosts.len() <= 100 && pending.message.len() <= 2048);
    }
    assert!(planned.pending.len() <= 16);
    let status = world.cluster.status.clone().unwrap();
    assert_eq!(status.pending, planned.pending);
    // What is drained is either on its way out, or people are told of it.
    for host in &world.reality.drained {
        let text = serde_json::to_string(&(&status.pending, &status.conditions)).unwrap();
        let failed = world.observed.runs.last().is_some_and(|run| {
            runs::phase(run) == RunPhase::Failed && Inputs::removes(&run.spec.plan.inputs, host)
        });
        assert!(
            text.contains(host) || failed || matches!(planned.decision, Decision::Stall(_)),
            "{host} takes no pods, and nobody is told: {text}"
        );
    }
    settled(world, planned);
}

/// Where nothing is left to do, the cluster is what was wished.
fn settled(world: &World, planned: &Planned) {
    let Decision::Keep(built) = &planned.decision else {
        return;
    };
    if !planned.pending.is_empty() || !built.not_carried_out.is_empty() {
        return;
    }
    let wished: BTreeSet<_> = world
        .observed
        .nodes
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    // That a host is no node any more which somebody kept too late is what the health tells.
    let there = world.reality.hosts.keys().chain(&world.reality.lost);
    let there: BTreeSet<_> = there.cloned().collect();
    assert_eq!(wished, there, "it rests, and is not what was wished");
    if let Some(wished) = world.cluster.spec.kubernetes_version {
        assert_eq!(Some(wished), world.reality.kubernetes);
    }
}
