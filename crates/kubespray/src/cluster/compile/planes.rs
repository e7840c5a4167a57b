//! Steps of control planes and members of etcd that join or leave one by one. Pure.
//!
//! kubespray documents the joining as `cluster.yml`, and leaves two things to people: the API servers go on with the members of etcd
//! that they were started with, and whatever spreads requests over the control planes on each node with those that it knew. So the
//! plays are bound to the hosts that a change is about, and both are brought up to date by plays that the release has for it.

use ansible::{
    inventory::Inventory,
    slice::{Playbook, Slice},
};
use api::{
    Duration, HostName,
    node::Role,
    run::{Gate, OnBreach, Step},
};
use serde_json::Value;

use super::{
    PROBE_TIMEOUT, Placed, etcd_asked, gate, kubeconfig, limit, pattern, play, retry, step,
};
use crate::{
    action::{
        self, Action, AnsiblePlay, FACTS, FACTS_OF_STAYING, JOINED, MemberChange, QUORUM_AGAIN,
        TAKE_OUT, Turn,
    },
    cluster::resolve::Conduct,
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::Problem,
};

/// The play that proves the inventory, that of etcd, of the control plane, and of the nodes.
const INVENTORY: &str = "preamble/inventory";
pub(super) const ETCD: &str = "etcd/install";
pub(super) const PLANES: &str = "control-plane/install";
const NODES: &str = "kubelet/install";
/// The play of `recover-control-plane.yml` that names the members of etcd to the API servers.
const SERVERS: &str = "recover/finish";

/// How long etcd may take to be as it must be before a change, and how long a new member may take to catch up.
const LOOK_TIMEOUT: Duration = Duration::from_seconds(45);
const CATCH_UP_TIMEOUT: Duration = Duration::from_seconds(300);
/// How long it may take until that etcd has no quorum was said often enough: each silent member costs seconds.
const LOST_TIMEOUT: Duration = Duration::from_seconds(300);
/// How long an API server may take to come back with other settings: the kubelet looks for them every 20 s.
const SERVER_TIMEOUT: Duration = Duration::from_seconds(300);

/// What a change of one host is about.
#[derive(Clone, Copy)]
pub(crate) struct Endpoints<'a> {
    /// The cluster's name.
    pub(crate) cluster: &'a str,
    /// How the operation behaves.
    pub(crate) conduct: &'a Conduct,
    /// The playbooks.
    pub(crate) checkout: &'a Checkout,
    /// The cluster as it is to be.
    pub(crate) inputs: &'a Inputs,
    /// The host that joins or leaves.
    pub(crate) host: &'a Host,
    /// Whether it leaves: then the inventory of the plays is without it.
    pub(crate) leaves: bool,
}

/// The plays of `cluster.yml` that make one host a control plane or a member of etcd, bound to the hosts that must know of it; facts
/// are read of all hosts.
pub(crate) fn joining_member(
    change: &Endpoints<'_>,
    inventory: &Inventory,
    member: Option<&MemberChange>,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let playbook = &change.checkout.create;
    let others = others(inventory, &change.host.name);
    for slice in playbook.slices() {
        // It refuses an even number of members, and nothing else that is not proved already: see docs/decisions/0014.
        if slice.id == INVENTORY && change.inputs.passing {
            continue;
        }
        let mut hosts = targets(playbook, slice, inventory)?;
        let row = match slice.id.as_str() {
            FACTS => None,
            ETCD => Some("etcd"),
            PLANES => Some("planes"),
            _ => Some("new"),
        };
        hosts.retain(|host| match slice.id.as_str() {
            FACTS | PLANES => true,
            ETCD => {
                let of = |group| inventory.group(group).contains(host);
                of("etcd") || of("kube_control_plane")
            }
            _ => host.as_str() == change.host.name,
        });
        if hosts.is_empty() {
            continue;
        }
        let is_etcd = slice.id == ETCD;
        if is_etcd {
            steps.extend(match member {
                Some(member) => Some(quorum(change.conduct, QUORUM_AGAIN, member, &others)),
                None => etcd_asked(QUORUM_AGAIN, change.conduct, change.inputs)?,
            });
        }
        let mut placed = play(playbook, slice, change.conduct, hosts);
        if let Some(row) = row {
            limit(&mut placed.step, row);
        }
        steps.push(placed);
        if let Some(member) = member.filter(|_| is_etcd) {
            let joined = MemberChange {
                turn: Turn::Joined,
                ..member.clone()
            };
            steps.push(quorum(change.conduct, JOINED, &joined, &others));
        }
    }
    told(change, inventory, steps)
}

/// Leaves the proof of the inventory out where etcd has an even number of members on the way: it refuses that, and nothing else that is
/// not proved already.
pub(crate) fn unproved(inputs: &Inputs, steps: &mut Vec<Placed>) {
    steps.retain(|placed| !inputs.passing || placed.step.id != INVENTORY);
}

/// The plays that have the hosts that stay forget one that left.
pub(crate) fn endpoints(
    change: &Endpoints<'_>,
    inventory: &Inventory,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let playbook = &change.checkout.create;
    for (play, id, title, row) in [
        (
            FACTS,
            FACTS_OF_STAYING,
            "Gather facts of the hosts that stay",
            "facts",
        ),
        (
            PLANES,
            "endpoints/control-plane",
            "Tell the control planes that stay",
            "planes",
        ),
    ] {
        let Ok(slice) = playbook.slice(play) else {
            continue;
        };
        let hosts = targets(playbook, slice, inventory)?;
        let mut placed = again(change, playbook, slice, (id, title, row), hosts);
        if play == FACTS {
            placed.step.gate = Some(lenient(change.conduct));
        }
        steps.push(placed);
    }
    told(change, inventory, steps)
}

/// The steps at the end of both: the kubeconfig, what API servers know of etcd, and what nodes know of control planes.
fn told(
    change: &Endpoints<'_>,
    inventory: &Inventory,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    steps.push(kubeconfig(change.cluster, change.conduct, change.inputs));
    if change.host.has(Role::Etcd) {
        api_servers(change, inventory, steps)?;
    }
    if change.host.has(Role::ControlPlane) && balances_on_nodes(change.inputs) {
        let playbook = &change.checkout.create;
        if let Ok(slice) = playbook.slice(NODES) {
            let mut hosts = targets(playbook, slice, inventory)?;
            hosts.retain(|host| host.as_str() != change.host.name);
            let title = "Tell the load balancer of each node of the control planes";
            let words = ("endpoints/nodes", title, "nodes");
            let mut placed = again(change, playbook, slice, words, hosts);
            // One that does not answer knows most of them all the same.
            placed.step.gate = Some(lenient(change.conduct));
            steps.push(placed);
        }
    }
    Ok(())
}

/// API servers restart with other settings: where a play is needed for it, one after the other.
fn api_servers(
    change: &Endpoints<'_>,
    inventory: &Inventory,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let planes = inventory.group("kube_control_plane");
    let wait = |id: &str, hosts: &[HostName]| Placed {
        step: Step {
            timeout: Some(SERVER_TIMEOUT),
            weight: Some(20),
            retry: retry(change.conduct),
            ..step(
                id,
                "Wait until the API server runs with the members of etcd",
                Action::ApiServers,
            )
        },
        hosts: hosts.to_vec(),
    };
    let recover = change.checkout.recover.as_ref();
    let Some((playbook, slice)) =
        recover.and_then(|playbook| Some((playbook, playbook.slice(SERVERS).ok()?)))
    else {
        steps.push(wait("endpoints/api-servers", planes));
        return Ok(());
    };
    let works_on = targets(playbook, slice, inventory)?;
    for (number, host) in (1_usize..).zip(works_on) {
        let id = format!("endpoints/etcd-{number}");
        let row = format!("servers-{number}");
        let title = "Name the members of etcd to the API server";
        let hosts = vec![host.clone()];
        steps.push(again(change, playbook, slice, (&id, title, &row), hosts));
        steps.push(wait(&format!("endpoints/api-server-{number}"), &[host]));
    }
    Ok(())
}

/// A play of the release once more, as a step of another name.
fn again(
    change: &Endpoints<'_>,
    playbook: &Playbook,
    slice: &Slice,
    (id, title, row): (&str, &str, &str),
    hosts: Vec<HostName>,
) -> Placed {
    let mut placed = play(playbook, slice, change.conduct, hosts);
    limit(&mut placed.step, row);
    if let Some(play) = action::play_of(&placed.step).filter(|_| change.leaves) {
        placed.step.action = Action::AnsiblePlay(AnsiblePlay { left: true, ..play }).into();
    }
    id.clone_into(&mut placed.step.id);
    title.clone_into(&mut placed.step.title);
    placed
}

/// A step that proves that etcd takes the change; these members are asked.
pub(crate) fn quorum(
    conduct: &Conduct,
    id: &str,
    change: &MemberChange,
    members: &[HostName],
) -> Placed {
    let (title, timeout) = match change.turn {
        Turn::Joins => ("Ask etcd whether it takes one more member", LOOK_TIMEOUT),
        Turn::Joined => (
            "Wait until the new member of etcd has a vote",
            CATCH_UP_TIMEOUT,
        ),
        Turn::Restarts => ("Ask etcd whether all other members answer", LOOK_TIMEOUT),
        Turn::Restarted => ("Wait until the member of etcd answers", CATCH_UP_TIMEOUT),
        Turn::AllRestart => ("Ask etcd whether all members answer", LOOK_TIMEOUT),
        Turn::Leaves => (
            "Ask etcd whether it keeps its quorum without the member",
            LOOK_TIMEOUT,
        ),
        Turn::Founds => ("Prove that etcd has lost its quorum", LOST_TIMEOUT),
        Turn::Founded => ("Prove that etcd answers, with one member", LOOK_TIMEOUT),
    };
    asked(
        conduct,
        (id, title),
        timeout,
        Action::Quorum(change.clone()),
        members,
    )
}

/// The step that takes a member out of etcd; one of these does it.
pub(crate) fn take_out(conduct: &Conduct, change: &MemberChange, members: &[HostName]) -> Placed {
    let title = "Take the member out of etcd";
    let action = Action::TakeOut(change.clone());
    asked(conduct, (TAKE_OUT, title), LOOK_TIMEOUT, action, members)
}

fn asked(
    conduct: &Conduct,
    (id, title): (&str, &str),
    timeout: Duration,
    action: Action,
    members: &[HostName],
) -> Placed {
    Placed {
        step: Step {
            timeout: Some(timeout),
            weight: Some(2),
            retry: retry(conduct),
            ..step(id, title, action)
        },
        hosts: members.to_vec(),
    }
}

/// The step that asks the hosts that stay whether they answer: one that does not is told later.
pub(crate) fn probe_staying(conduct: &Conduct, hosts: Vec<HostName>) -> Placed {
    let probe = Step {
        timeout: Some(PROBE_TIMEOUT),
        weight: Some(2),
        retry: retry(conduct),
        gate: Some(lenient(conduct)),
        ..step(
            "endpoints/probe",
            "Ask the hosts that stay whether they answer",
            Action::Probe,
        )
    };
    Placed { step: probe, hosts }
}

/// A step that leaves out hosts that do not answer.
pub(crate) fn leniently(conduct: &Conduct, mut placed: Placed) -> Placed {
    placed.step.gate = Some(lenient(conduct));
    placed
}

pub(super) fn lenient(conduct: &Conduct) -> Gate {
    Gate {
        on_breach: OnBreach::Exclude,
        ..gate(conduct)
    }
}

fn targets(
    playbook: &Playbook,
    slice: &Slice,
    inventory: &Inventory,
) -> Result<Vec<HostName>, Problem> {
    let targets = slice.targets(inventory);
    let targets = targets.map_err(|error| pattern(playbook, &slice.id, &error))?;
    Ok(targets.hosts)
}

/// The members of etcd but one.
fn others(inventory: &Inventory, name: &str) -> Vec<HostName> {
    let members = inventory.group("etcd").iter();
    members
        .filter(|host| host.as_str() != name)
        .cloned()
        .collect()
}

/// Whether nodes spread requests over the control planes by themselves, as they do where nothing before the cluster does it.
fn balances_on_nodes(inputs: &Inputs) -> bool {
    match inputs.variables.get("loadbalancer_apiserver_localhost") {
        Some(Value::Bool(local)) => *local,
        _ => !inputs.variables.contains_key("loadbalancer_apiserver"),
    }
}
