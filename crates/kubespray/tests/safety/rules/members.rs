//! How many of those who vote and of those who serve change, and of whom the quorum is.

use std::collections::BTreeSet;

use api::{Run, node::Role};
use kubespray::{
    action::{self, Action, LOST, PROBE, QUORUM, Turn},
    inputs::Inputs,
    operation::replace::HEAD,
};

use super::Starting;
use crate::{
    GUARDED,
    effect::effect,
    order,
    world::{Reality, World},
};

/// No quorum is lost, and one member changes at a time.
pub fn members(before: &Reality, after: &Reality, dead: &BTreeSet<String>) {
    for (role, group) in GUARDED {
        let (was, is) = (before.with(role), after.with(role));
        // A control plane that somebody kept too late is brought back beside another that joins; of etcd a run asks.
        let back = |host: &&String| role == Role::ControlPlane && before.lost.contains(*host);
        let changed = was.symmetric_difference(&is);
        let changed = changed.filter(|host| !back(host)).count();
        assert!(
            changed <= 1,
            "{changed} hosts of {group} change at a time: {was:?} to {is:?}"
        );
        assert!(
            !is.is_empty(),
            "{group} is empty: there is no cluster without it"
        );
    }
    let (was, is) = (before.with(Role::Worker), after.with(Role::Worker));
    assert!(
        was.is_empty() || !is.is_empty() || !before.lost.is_empty(),
        "nobody is left for pods: of {was:?}"
    );
    let (was, is) = (before.with(Role::Etcd), after.with(Role::Etcd));
    assert!(
        has_quorum(&is, dead) || !has_quorum(&was, dead),
        "etcd loses its quorum: of {was:?} to {is:?}, {dead:?} are switched off"
    );
}

/// Members are given up only where there is no quorum, and what is left answers.
pub fn recovers(starting: &Starting<'_>, after: &Reality) {
    let world = starting.world;
    let (was, is) = (world.reality.with(Role::Etcd), after.with(Role::Etcd));
    if was == is {
        return;
    }
    let before = &world.dead;
    assert!(
        !has_quorum(&was, before),
        "members are given up while etcd has its quorum: {was:?} to {is:?}, {before:?} are switched off"
    );
    assert_eq!(is.len(), 1, "etcd is founded anew on one member: {is:?}");
    assert!(
        has_quorum(&is, before),
        "it is founded on what is switched off"
    );
    let planes = after.with(Role::ControlPlane);
    for (_, group) in GUARDED {
        let head = starting.left.group(group).first().unwrap().as_str();
        assert!(
            is.contains(head) || planes.contains(head),
            "{head} is the head of {group}, and is given up"
        );
    }
}

fn has_quorum(members: &BTreeSet<String>, dead: &BTreeSet<String>) -> bool {
    members.difference(dead).count() > members.len() / 2
}

/// At how many steps a run stops because etcd, asked by one of them, could not do without the member: a planner may not know yet
/// who is switched off, and a run asks.
pub fn stops(world: &World, run: &Run) -> Option<usize> {
    let steps = &run.spec.plan.steps;
    if let Some(asks) = steps.iter().position(|step| step.id == LOST) {
        // What it is founded on must answer, and so must the first control plane that stays.
        let probe = steps.iter().position(|step| step.id == PROBE)?;
        let mut needed = run.spec.plan.targets(&steps[probe]);
        if needed.any(|host| world.dead.contains(host.as_str())) {
            return Some(probe);
        }
        let was = world.reality.with(Role::Etcd);
        let left = Inputs::from_map(&run.spec.plan.inputs).unwrap().left();
        let founder = left.group("etcd").first().unwrap();
        let again = before_of(world) > 1 && was.len() == 1 && was.contains(founder.as_str());
        return (has_quorum(&was, &world.dead) && !again).then_some(asks);
    }
    if run.spec.operation == "Replace" {
        // One that somebody kept too late has nothing of what the first one needs, and the run proves it on the host.
        let left = Inputs::from_map(&run.spec.plan.inputs).unwrap().left();
        let heirs = order(&left);
        let is_there = |(role, group): &(Role, &str)| {
            let heir = &heirs[*group][0];
            let roles = world.reality.hosts.get(heir);
            roles.is_some_and(|roles| roles.contains(role))
        };
        let proves = steps.iter().position(|step| step.id.starts_with(HEAD));
        return proves.filter(|_| !GUARDED.iter().all(is_there));
    }
    if run.spec.operation == "Adopt" {
        return finds_another(world, run);
    }
    let asks = steps.iter().position(|step| step.id == QUORUM)?;
    let asked = action::of(&steps[asks]).unwrap();
    if matches!(asked, Some(Action::Quorum(change)) if change.turn == Turn::AllRestart) {
        // All must answer.
        let was = world.reality.with(Role::Etcd);
        let known = Inputs::from_map(&run.spec.plan.inputs).unwrap();
        let lost = known.group("etcd").len() > was.len();
        return (lost || !was.is_disjoint(&world.dead)).then_some(asks);
    }
    let (was, is) = (&world.reality, effect(&world.reality, run, steps.len()));
    let members = |reality: &Reality| reality.with(Role::Etcd);
    let keeps = |reality: &Reality| has_quorum(&members(reality), &world.dead);
    // One that was taken out by a removal that was given up is missed.
    let many = members(&is).difference(&members(was)).count() > 1;
    (many || (keeps(was) && !keeps(&is))).then_some(asks)
}

/// At how many steps a run stops because what it is to take over is not what the objects say.
fn finds_another(world: &World, run: &Run) -> Option<usize> {
    let is = &world.reality;
    let said = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    let members: BTreeSet<_> = said.group("etcd").iter().map(ToString::to_string).collect();
    let answers = |host: &str| is.hosts.contains_key(host) && !world.dead.contains(host);
    let mut steps = run.spec.plan.steps.iter();
    steps.position(|step| match action::of(step).unwrap() {
        Some(Action::Probe) => said.hosts.iter().any(|host| !answers(&host.name)),
        Some(Action::Members) => members != is.with(Role::Etcd),
        Some(Action::Versions { kubernetes }) => Some(kubernetes) != is.kubernetes,
        _ => false,
    })
}

/// How many members etcd had in the cluster as it was built.
fn before_of(world: &World) -> usize {
    world.reality.order.get("etcd").map_or(0, Vec::len)
}
