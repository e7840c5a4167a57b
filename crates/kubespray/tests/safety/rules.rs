//! What must hold, whatever was wished.

use std::collections::BTreeSet;

use api::{
    Run, Threshold,
    cluster::Pending,
    maintenance::Confine,
    node::Role,
    run::{Plan, RunPhase, StepPhase},
    text::lines,
};
use controller::hint;
use kube::ResourceExt;
use kubespray::{
    action::{self, Action, LOST, PROBE, QUORUM, QUORUM_AGAIN, SNAPSHOT},
    cluster::decision::{Decision, NewRun, Planned},
    inputs::Inputs,
    operation::replace::HEAD,
    operation::{Operation, Order},
    request::REPLACED_BY,
};

use crate::{
    GUARDED, drains, effect, order,
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

/// No quorum is lost, and one member changes at a time.
fn members(before: &Reality, after: &Reality, dead: &BTreeSet<String>) {
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
fn recovers(world: &World, inputs: &Inputs, after: &Reality) {
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
    let left = inputs.clone().left();
    for (_, group) in GUARDED {
        let head = left.group(group).first().unwrap().as_str();
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
    let asks = steps.iter().position(|step| step.id == QUORUM)?;
    if run.spec.operation == "Upgrade" {
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

/// How many members etcd had in the cluster as it was built.
fn before_of(world: &World) -> usize {
    world.reality.order.get("etcd").map_or(0, Vec::len)
}

/// The head holds the authorities: nobody comes before it, and the rest keeps its order.
fn order_stays(before: &Reality, left: &Inputs, operation: &Operation) {
    // That one is for another head.
    if operation.order == Order::Moves {
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

/// Another host is first, which stays and works as far as is known; the one that was is the last of its group and is to leave; nobody
/// else moves, and nobody joins or leaves by it.
fn hands_over(world: &World, left: &Inputs) {
    let (before, after) = (&world.reality, order(left));
    assert!(left.leaving.is_empty(), "somebody leaves by it");
    let hosts: BTreeSet<_> = left.hosts.iter().map(|host| host.name.clone()).collect();
    let there: BTreeSet<_> = before.hosts.keys().cloned().collect();
    assert!(hosts.is_superset(&there), "{there:?} to {hosts:?}");
    let node = |name: &str| {
        let mut nodes = world.observed.nodes.iter();
        nodes.find(|node| node.name_any() == name)
    };
    let leaves =
        |name: &str| node(name).is_none_or(|node| node.metadata.deletion_timestamp.is_some());
    let mut moved = 0;
    for (role, group) in GUARDED {
        let (was, is) = (&before.order[group], &after[group]);
        if was == is {
            continue;
        }
        moved += 1;
        let (old, heir) = (&was[0], &is[0]);
        let replaced = node(old)
            .is_some_and(|node| leaves(old) && node.annotations().contains_key(REPLACED_BY));
        assert!(replaced, "{old} is not to be replaced, and {heir} is first");
        assert!(
            !leaves(heir),
            "{heir} is the head of {group}, and is to leave"
        );
        let roles = before.hosts.get(heir);
        assert!(
            roles.map_or(before.lost.contains(heir), |roles| roles.contains(&role)),
            "{heir} is none of {group}"
        );
        let told = node(heir).and_then(|node| node.status.as_ref()?.node.as_ref());
        let works = told.is_none_or(|told| told.health == api::node::Health::Ok);
        assert!(
            works,
            "{heir} is known to be switched off, and is to be first"
        );
        let mut expected: Vec<_> = was
            .iter()
            .filter(|host| *host != old && *host != heir)
            .collect();
        expected.insert(0, heir);
        expected.push(old);
        assert_eq!(is.iter().collect::<Vec<_>>(), expected, "{group}");
    }
    assert!(moved > 0, "nobody else is first by it");
    assert_eq!(
        left.inventory.etcd_member_names, before.members,
        "a member is renamed"
    );
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

/// Of a play that goes from host to host, no step is on two control planes.
fn rolls(before: &Reality, inputs: &Inputs, plan: &Plan, operation: &Operation) {
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

/// Where nodes lose their pods: control planes first and, as members of etcd, alone; no more workers at a time than the spec lets go; a
/// person is asked once, when the canaries are done and others are left; and before all of it etcd is saved and, where its play is one
/// of all members, asked.
fn batches(world: &World, inputs: &Inputs, plan: &Plan, operation: &Operation) {
    let operations = world.cluster.spec.operations.clone().unwrap_or_default();
    let settings = match operation.name {
        "Upgrade" => operations.upgrade,
        _ => operations.component,
    };
    let settings = settings.unwrap_or_default();
    let with = |role: Role| {
        let hosts = inputs.hosts.iter();
        let hosts = hosts.filter(move |host| host.roles.contains(&role));
        hosts.map(|host| host.name.clone()).collect::<BTreeSet<_>>()
    };
    let planes = with(Role::ControlPlane);
    let alone: BTreeSet<_> = planes.union(&with(Role::Etcd)).cloned().collect();
    let of_nodes = inputs.members();
    let workers = of_nodes
        .iter()
        .filter(|host| !alone.contains(host.as_str()));
    let workers = workers.count();
    let most = match settings.max_unavailable.unwrap_or(Threshold::Count(1)) {
        Threshold::Count(count) => usize::try_from(count).unwrap(),
        Threshold::Percent(percent) => workers * usize::from(percent) / 100,
    };
    let place = |id: &str| plan.steps.iter().position(|step| step.id == id);
    let (mut gone, mut canaries, mut asked) = (0, None, 0);
    let mut worker_went = false;
    for (at, step) in plan.steps.iter().enumerate() {
        if step.id == "approve/canary" {
            (canaries, asked) = (Some(gone), asked + 1);
        }
        if !drains(plan, step) {
            continue;
        }
        let hosts = action::hosts_of(plan, step);
        let single = hosts.iter().any(|host| alone.contains(host.as_str()));
        assert!(!single || hosts.len() == 1, "{}: {hosts:?}", step.id);
        assert!(hosts.len() <= most.max(1), "{}: {hosts:?}, {most}", step.id);
        let is_plane = hosts.iter().any(|host| planes.contains(host.as_str()));
        assert!(!is_plane || !worker_went, "{}: workers before it", step.id);
        worker_went |= !is_plane;
        gone += hosts.len() * usize::from(!single);
        assert!(
            place(SNAPSHOT).is_some_and(|saved| saved < at),
            "{}: nothing is saved",
            step.id
        );
    }
    let canary = usize::from(settings.canary.unwrap_or_default());
    let asks = gone > 0 && canary > 0 && canary < workers;
    assert_eq!(asked, usize::from(asks), "{canary} of {workers}");
    assert_eq!(canaries, asks.then_some(canary));
    if gone > 0 {
        assert_eq!(gone, workers, "somebody is left out");
    }
    if let Some(etcd) = place("etcd/install") {
        let before = etcd.checked_sub(1).and_then(|at| plan.steps.get(at));
        assert_eq!(before.map(|step| step.id.as_str()), Some(QUORUM_AGAIN));
        assert!(place(QUORUM) < place(SNAPSHOT) && place(SNAPSHOT) < Some(etcd));
    }
}

/// A member of etcd is worked on alone, and etcd is asked before and after; no node is left without a gate that lets its pods in.
fn components(inputs: &Inputs, plan: &Plan) {
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
            let next = plan.steps.get(at + 1).unwrap();
            let gate = action::of(next).unwrap();
            assert!(
                matches!(gate, Some(Action::Gate(_))),
                "{}: no gate",
                step.id
            );
            assert_eq!(hosts, action::hosts_of(plan, next), "{}", step.id);
        }
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
    let namespace = world.cluster.namespace().unwrap();
    let told = planned.pending.iter().map(|pending| Pending {
        message: lines(&hint::placed(&pending.message, &namespace), 2048),
        ..pending.clone()
    });
    assert_eq!(status.pending, told.collect::<Vec<_>>());
    // What is drained is either on its way out, or people are told of it.
    for host in &world.reality.drained {
        let text = serde_json::to_string(&(&status.pending, &status.conditions)).unwrap();
        let failed = world.observed.runs.last().is_some_and(|run| {
            runs::phase(run) == RunPhase::Failed
                && (Inputs::removes(&run.spec.plan.inputs, host) || failed_on(run, host))
        });
        assert!(
            text.contains(host) || failed || matches!(planned.decision, Decision::Stall(_)),
            "{host} takes no pods, and nobody is told: {text}"
        );
    }
    settled(world, planned);
}

/// Whether a run failed in a step of this host: its failure says so.
fn failed_on(run: &Run, host: &str) -> bool {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let failed = steps.filter(|step| step.phase == StepPhase::Failed);
    let plan = &run.spec.plan;
    failed
        .filter_map(|failed| plan.steps.iter().find(|step| step.id == failed.id))
        .any(|step| plan.targets(step).any(|target| target.as_str() == host))
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
