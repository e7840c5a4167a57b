//! Plays that bring a cluster to another version, node by node, with a look at the cluster between them. Pure.
//!
//! kubespray cuts such plays into batches with `serial`, all in one process, and nothing is looked at between two of them. Here each
//! batch is a step of its own, bound to its hosts, which kubespray documents as its node-based upgrade. A batch that has begun comes
//! to its end: its nodes would stay cordoned.

use std::collections::BTreeSet;

use ansible::{
    inventory::Inventory,
    slice::{Playbook, Slice},
};
use api::{
    Duration, HostName, Threshold,
    node::Role,
    run::{Action as RunAction, Approve, Interrupt, Step},
};

use super::{
    LOOK_TIMEOUT, Placed, limit, listed, member_change, pattern, planes::ETCD, play, quorum, retry,
    snapshot, step,
};
use crate::{
    action::{Action, BUDGETS, FACTS, Gate, Left, QUORUM_AGAIN, Turn},
    cluster::resolve::{Conduct, Upgrade},
    inputs::Inputs,
    operation::scale::manages_etcd,
    problem::Problem,
};

/// The gate before the first host is touched.
const BEFORE: &str = "gate/before";
/// The step that waits for a person when the first workers are done.
const CANARY: &str = "approve/canary";
/// The role that brings a node its version.
const KUBELET: &str = "kubernetes/node";

/// The steps before the first play: whether the cluster is well, and which budgets would hold pods for ever.
pub(crate) fn looking(
    upgrade: &Upgrade,
    inputs: &Inputs,
    drains: bool,
    after: Option<Left>,
) -> Vec<Placed> {
    let members = inputs.members();
    let begins = Gate {
        begins: true,
        after,
        pods: upgrade.gate.clone(),
        ..Gate::default()
    };
    let title = "Wait until the cluster is well";
    let mut steps = vec![gate(BEFORE, title, begins, members.clone(), upgrade)];
    if drains {
        let forced = Vec::new();
        let budgets = Step {
            timeout: Some(LOOK_TIMEOUT),
            weight: Some(2),
            retry: retry(&upgrade.conduct),
            ..step(
                BUDGETS,
                "Ask which pods cannot go elsewhere",
                Action::Budgets { forced },
            )
        };
        steps.push(Placed {
            step: budgets,
            hosts: members,
        });
    }
    steps
}

/// The step that asks etcd whether all its members answer: the play of etcd restarts some at a time, and makes a member of each host that
/// etcd does not know. None where kubeadm runs the members, which come with their control planes, one by one.
pub(crate) fn etcd_asked(
    id: &str,
    conduct: &Conduct,
    inputs: &Inputs,
) -> Result<Option<Placed>, Problem> {
    let members = inputs.group("etcd");
    let Some(first) = members.first().filter(|_| !manages_etcd(inputs)) else {
        return Ok(None);
    };
    let change = member_change(inputs, first, Turn::AllRestart)?;
    Ok(Some(quorum(conduct, id, &change, members)))
}

/// A step for each play that has something to work on, and one for each batch of those that go host by host.
pub(crate) fn upgrading(
    playbook: &Playbook,
    upgrade: &Upgrade,
    inputs: &Inputs,
    inventory: &Inventory,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    for slice in playbook.slices() {
        if slice.id == ETCD {
            steps.extend(etcd_asked(QUORUM_AGAIN, &upgrade.conduct, inputs)?);
        }
        let targets = slice
            .targets(inventory)
            .map_err(|error| pattern(playbook, &slice.id, &error))?;
        if targets.hosts.is_empty() && !targets.localhost {
            continue;
        }
        if slice.serial.is_none() {
            steps.push(play(playbook, slice, &upgrade.conduct, targets.hosts));
            // The first one that may read what the facts tell, and before whatever changes a host.
            if slice.id == FACTS {
                steps.push(snapshot(&upgrade.conduct, inputs));
            }
            continue;
        }
        let serial = slice.serial.as_ref().and_then(serde_json::Value::as_u64);
        let serial = serial.and_then(|number| usize::try_from(number).ok());
        let Batches { batches, asked } = batches(serial, &targets.hosts, upgrade, inputs);
        for (number, hosts) in (1_usize..).zip(batches) {
            steps.extend(batch(playbook, slice, upgrade, inputs, (number, hosts)));
            // Other plays go over the same hosts: one question is enough.
            if asked == Some(number) && brings_version(slice) {
                steps.push(canary(upgrade));
            }
        }
    }
    Ok(())
}

fn brings_version(slice: &Slice) -> bool {
    slice.roles.iter().any(|role| role == KUBELET)
}

/// The step of one batch, and the gate behind it.
fn batch(
    playbook: &Playbook,
    slice: &Slice,
    upgrade: &Upgrade,
    inputs: &Inputs,
    (number, hosts): (usize, Vec<HostName>),
) -> [Placed; 2] {
    let names = listed(&hosts);
    let mut placed = play(playbook, slice, &upgrade.conduct, hosts.clone());
    placed.step.id = format!("{}/{number}", slice.id);
    placed.step.title = api::text::plain(&format!("{}: {names}", slice.name), 256);
    placed.step.interrupt = Interrupt::Never;
    limit(&mut placed.step, &format!("batch-{number}"));
    let between = Gate {
        kubernetes: inputs.kubernetes.filter(|_| brings_version(slice)),
        pods: upgrade.gate.clone(),
        soak: upgrade.soak,
        ..Gate::default()
    };
    let id = format!("gate/{}/{number}", slice.id);
    let title = format!("Wait until the cluster is well with {names}");
    [placed, gate(&id, &title, between, hosts, upgrade)]
}

/// The hosts of a play, cut.
pub(super) struct Batches {
    /// Those that go at the same time.
    pub(super) batches: Vec<Vec<HostName>>,
    /// After how many batches a person is asked, with the canaries done and others left.
    pub(super) asked: Option<usize>,
}

/// The hosts of a play in batches. A control plane or a member of etcd goes alone, whatever the playbooks say; the others are the workers
/// of which `maxUnavailable` and `canary` speak.
pub(super) fn batches(
    serial: Option<usize>,
    hosts: &[HostName],
    upgrade: &Upgrade,
    inputs: &Inputs,
) -> Batches {
    let alone = alone(inputs);
    let workers = hosts.iter().filter(|host| !alone.contains(host.as_str()));
    let workers = workers.count();
    let size = serial
        .unwrap_or_else(|| share(upgrade.max_unavailable, workers))
        .max(1);
    let mut batches: Vec<Vec<HostName>> = Vec::new();
    let mut asked = None;
    let (mut open, mut before) = (false, 0_usize);
    for host in hosts {
        let alone = alone.contains(host.as_str());
        match batches.last_mut() {
            Some(batch) if open && !alone && batch.len() < size => batch.push(host.clone()),
            _ => batches.push(vec![host.clone()]),
        }
        before = before.saturating_add(usize::from(!alone));
        let canaries_done = !alone && before == upgrade.canary;
        // The canaries are a batch, or some, of their own.
        open = !alone && !canaries_done;
        if canaries_done && before < workers {
            asked = Some(batches.len());
        }
    }
    Batches { batches, asked }
}

/// How many workers go at a time, and how many of them there are.
pub(crate) fn at_once(upgrade: &Upgrade, inputs: &Inputs) -> (usize, usize) {
    let alone = alone(inputs);
    let members = inputs.members();
    let workers = members.iter().filter(|host| !alone.contains(host.as_str()));
    let workers = workers.count();
    (share(upgrade.max_unavailable, workers).max(1), workers)
}

/// The control planes and the members of etcd.
fn alone(inputs: &Inputs) -> BTreeSet<&str> {
    let hosts = inputs.hosts.iter();
    let alone = hosts.filter(|host| host.has(Role::ControlPlane) || host.has(Role::Etcd));
    alone.map(|host| host.name.as_str()).collect()
}

/// So many of all.
fn share(bound: Threshold, total: usize) -> usize {
    match bound {
        Threshold::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Threshold::Percent(percent) => total.saturating_mul(usize::from(percent)) / 100,
    }
}

pub(super) fn gate(
    id: &str,
    title: &str,
    gate: Gate,
    hosts: Vec<HostName>,
    upgrade: &Upgrade,
) -> Placed {
    let seconds = upgrade.gate_timeout.seconds();
    let seconds = seconds.saturating_add(gate.soak.seconds());
    Placed {
        step: Step {
            timeout: Some(Duration::from_seconds(seconds)),
            weight: Some(3),
            retry: None,
            ..step(id, title, Action::Gate(gate))
        },
        hosts,
    }
}

pub(super) fn canary(upgrade: &Upgrade) -> Placed {
    let number = upgrade.canary;
    let question = match number {
        1 => "upgrade the other workers as well: the first one is done".to_owned(),
        _ => format!("upgrade the other workers as well: the first {number} are done"),
    };
    Placed {
        step: step(
            CANARY,
            "Wait for a word on the first workers",
            RunAction::Approve(Approve { question }),
        ),
        hosts: Vec::new(),
    }
}
