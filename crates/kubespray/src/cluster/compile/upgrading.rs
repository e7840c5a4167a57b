//! Plays that bring a cluster to another version, node by node, with a look at the cluster between them. Pure.
//!
//! kubespray cuts such plays into batches with `serial`, all in one process, and nothing is looked at between two of them. Here each
//! batch is a step of its own, bound to its hosts, which kubespray documents as its node-based upgrade. A batch that has begun comes
//! to its end: its nodes would stay cordoned.

use ansible::{
    inventory::Inventory,
    slice::{Playbook, Slice},
};
use api::{
    Duration, HostName, Threshold,
    node::Role,
    run::{Action as RunAction, Approve, Interrupt, Step},
};

use super::{LOOK_TIMEOUT, Placed, limit, listed, pattern, play, retry, snapshot, step};
use crate::{
    action::{Action, BUDGETS, FACTS, Gate, Left},
    cluster::resolve::Upgrade,
    inputs::Inputs,
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

/// A step for each play that has something to work on, and one for each batch of those that go host by host.
pub(crate) fn upgrading(
    playbook: &Playbook,
    upgrade: &Upgrade,
    inputs: &Inputs,
    inventory: &Inventory,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    for slice in playbook.slices() {
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
        let batches = batches(serial, &targets.hosts, upgrade, inputs);
        let asks = asks_after(&batches, upgrade, inputs);
        for (at, hosts) in batches.into_iter().enumerate() {
            let number = at.saturating_add(1);
            steps.extend(batch(playbook, slice, upgrade, inputs, (number, hosts)));
            if asks == Some(number) {
                steps.push(canary(upgrade));
            }
        }
    }
    Ok(())
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
    let brings_version = slice.roles.iter().any(|role| role == KUBELET);
    let between = Gate {
        kubernetes: inputs.kubernetes.filter(|_| brings_version),
        pods: upgrade.gate.clone(),
        soak: upgrade.soak,
        ..Gate::default()
    };
    let id = format!("gate/{}/{number}", slice.id);
    let title = format!("Wait until the cluster is well with {names}");
    [placed, gate(&id, &title, between, hosts, upgrade)]
}

/// The hosts of a play in batches. A control plane or a member of etcd goes alone, whatever the playbooks say.
pub(super) fn batches(
    serial: Option<usize>,
    hosts: &[HostName],
    upgrade: &Upgrade,
    inputs: &Inputs,
) -> Vec<Vec<HostName>> {
    let workers = hosts.iter().filter(|host| !goes_alone(inputs, host));
    let total = workers.count();
    let size = serial
        .unwrap_or_else(|| share(upgrade.max_unavailable, total))
        .max(1);
    let mut batches: Vec<Vec<HostName>> = Vec::new();
    let (mut open, mut before) = (false, 0_usize);
    for host in hosts {
        let alone = goes_alone(inputs, host);
        match batches.last_mut() {
            Some(batch) if open && !alone && batch.len() < size => batch.push(host.clone()),
            _ => batches.push(vec![host.clone()]),
        }
        before = before.saturating_add(usize::from(!alone));
        // The canaries are a batch, or some, of their own.
        open = !alone && before != upgrade.canary;
    }
    batches
}

/// After how many batches a person is asked: when the first workers are done, if others are left. Workers alone are canaries.
fn asks_after(batches: &[Vec<HostName>], upgrade: &Upgrade, inputs: &Inputs) -> Option<usize> {
    let mut hosts = batches.iter().flatten();
    let total = batches.iter().flatten().count();
    if upgrade.canary == 0 || upgrade.canary >= total || hosts.any(|host| goes_alone(inputs, host))
    {
        return None;
    }
    let mut done = 0_usize;
    let at = batches.iter().position(|batch| {
        done = done.saturating_add(batch.len());
        done >= upgrade.canary
    });
    at.map(|at| at.saturating_add(1))
}

fn goes_alone(inputs: &Inputs, name: &HostName) -> bool {
    let mut hosts = inputs.hosts.iter();
    let host = hosts.find(|host| host.name == name.as_str());
    host.is_some_and(|host| {
        let roles = &host.roles;
        roles.contains(&Role::ControlPlane) || roles.contains(&Role::Etcd)
    })
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
