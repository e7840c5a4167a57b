//! Steps that bring one component of a built cluster to what its variables say. Pure.
//!
//! kubespray has no playbook for one component: those of Windlass' own run its roles. What a host must do without meanwhile says how it
//! goes: without the container engine it has no pods, so nodes go one by one as in an upgrade; a member of etcd is one vote less, so
//! members go one by one, and etcd is asked before and after each; the network plugin is exchanged under running pods, by itself.

use std::collections::BTreeSet;

use api::{
    HostName,
    run::{Interrupt, Step},
};

use super::{
    Placed, beginning, healthy, limit, own, pattern, play, quorum, saving_first, snapshot,
    upgrading::{Batches, batches, canary, gate, looking},
};
use crate::{
    action::{FACTS, Gate, Left, MemberChange, Turn},
    cluster::resolve::{Conduct, Upgrade},
    inputs::Inputs,
    operation::scale::manages_etcd,
    playbooks::{Checkout, Own},
    problem::Problem,
};

/// What can be brought to what its variables say, and nothing else with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Component {
    /// What runs containers on each node.
    ContainerEngine,
    /// Where the API server keeps everything.
    Etcd,
    /// What pods reach each other by.
    NetworkPlugin,
}

/// What the steps are made of.
#[derive(Clone, Copy)]
pub(crate) struct Bringing<'a> {
    /// The playbooks.
    pub(crate) checkout: &'a Checkout,
    /// How it behaves.
    pub(crate) settings: &'a Upgrade,
    /// The cluster with the component as it is to be.
    pub(crate) inputs: &'a Inputs,
    /// What an earlier run has left in the middle.
    pub(crate) after: Option<&'a Left>,
    /// Whether nodes are drained.
    pub(crate) drains: bool,
}

/// The steps of one component.
pub(crate) fn component(
    component: Component,
    bringing: &Bringing<'_>,
) -> Result<Vec<Placed>, Problem> {
    let Bringing {
        settings, inputs, ..
    } = *bringing;
    let hosts = match component {
        Component::ContainerEngine => with(inputs.members(), inputs.group("etcd")),
        Component::Etcd => with(
            inputs.group("etcd").to_vec(),
            // Their certificates are made with those of the members.
            inputs.group("kube_control_plane"),
        ),
        Component::NetworkPlugin => inputs.members(),
    };
    let mut steps = beginning(&settings.conduct, hosts.clone());
    let drains = bringing.drains && component == Component::ContainerEngine;
    let after = bringing.after.cloned();
    steps.extend(looking(settings, inputs, drains, after));
    facts(bringing, &hosts, &mut steps)?;
    match component {
        Component::ContainerEngine => engines(settings, inputs, &mut steps)?,
        Component::Etcd => members(settings, inputs, &mut steps)?,
        Component::NetworkPlugin => network(settings, inputs, &mut steps),
    }
    steps.push(healthy(&settings.conduct, inputs));
    Ok(steps)
}

/// These hosts, and those that are not among them.
fn with(mut hosts: Vec<HostName>, others: &[HostName]) -> Vec<HostName> {
    let known: BTreeSet<_> = hosts.iter().cloned().collect();
    let others = others.iter().filter(|host| !known.contains(host));
    hosts.extend(others.cloned());
    hosts
}

/// The play of the release that reads what its roles know of hosts.
fn facts(
    bringing: &Bringing<'_>,
    hosts: &[HostName],
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let playbook = &bringing.checkout.create;
    let slice = playbook.slice(FACTS).map_err(|error| {
        Problem::new(
            "Cluster spec.kubespray.source",
            playbook.name(),
            crate::chain(&error),
            "use playbooks that gather facts in a play of their own, as kubespray's do",
        )
    })?;
    let inventory = super::compiled(bringing.inputs)?;
    let targets = slice
        .targets(&inventory)
        .map_err(|error| pattern(playbook, &slice.id, &error))?;
    let mut targets = targets.hosts;
    targets.retain(|host| hosts.contains(host));
    let mut placed = play(playbook, slice, &bringing.settings.conduct, targets);
    limit(&mut placed.step, "facts");
    steps.push(placed);
    Ok(())
}

/// A snapshot, and a step for each batch of nodes, control planes alone and first, and a gate behind each. Where a member of etcd is on
/// the node, etcd itself is asked before and after: the member may be one of the engine's containers, and the gate sees etcd through an
/// API server, which is well with the barest quorum.
fn engines(settings: &Upgrade, inputs: &Inputs, steps: &mut Vec<Placed>) -> Result<(), Problem> {
    saved(settings, inputs, steps);
    let conduct = &settings.conduct;
    let members = inputs.group("etcd");
    let hosts = with(
        inputs.group("kube_control_plane").to_vec(),
        &inputs.members(),
    );
    let Batches { batches, asked } = batches(None, &hosts, settings, inputs);
    for (number, hosts) in (1_usize..).zip(batches) {
        let names = super::listed(&hosts);
        let id = format!("container-engine/{number}");
        let title = format!("Bring the container engine of {names} to what the spec says");
        let words = (id.as_str(), title.as_str());
        let brings = whole(own(Own::ContainerEngine, conduct, words, hosts.clone()));
        // Members go alone. What kubeadm runs of etcd, the hosts do not tell of.
        let member = hosts.iter().find(|host| members.contains(host));
        match member.filter(|_| !manages_etcd(inputs)) {
            Some(host) => asked_around(conduct, inputs, (number, host), brings, steps)?,
            None => steps.push(brings),
        }
        let id = format!("gate/{id}");
        let title = format!("Wait until the cluster is well with {names}");
        steps.push(gate(&id, &title, between(settings), hosts, settings));
        if asked == Some(number) {
            steps.push(canary(settings));
        }
    }
    Ok(())
}

/// What may restart the member of etcd on a host, and before and after it a question to etcd, whose other members must answer.
fn asked_around(
    conduct: &Conduct,
    inputs: &Inputs,
    (number, host): (usize, &HostName),
    restarts: Placed,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let members = inputs.group("etcd");
    // The others first: it may be down itself.
    let others = members.iter().filter(|other| *other != host);
    let asked: Vec<_> = others.chain([host]).cloned().collect();
    let change = |turn| member_change(inputs, host, turn);
    let before = format!("etcd/before-{number}");
    steps.push(quorum(conduct, &before, &change(Turn::Restarts)?, &asked));
    steps.push(restarts);
    let after = format!("etcd/after-{number}");
    steps.push(quorum(conduct, &after, &change(Turn::Restarted)?, &asked));
    Ok(())
}

/// A snapshot, and the members one by one; etcd itself is asked before and after each.
fn members(settings: &Upgrade, inputs: &Inputs, steps: &mut Vec<Placed>) -> Result<(), Problem> {
    let conduct = &settings.conduct;
    let hosts = inputs.group("etcd");
    saved(settings, inputs, steps);
    for (number, host) in (1_usize..).zip(hosts) {
        let id = format!("etcd/upgrade-{number}");
        let title = format!("Bring the member of etcd on {host} to what the spec says");
        let only = vec![host.clone()];
        let brings = whole(own(Own::Etcd, conduct, (&id, &title), only));
        asked_around(conduct, inputs, (number, host), brings, steps)?;
        let id = format!("gate/etcd/{number}");
        let title = format!("Wait until the cluster is well with {host}");
        let nodes = inputs.members();
        steps.push(gate(&id, &title, between(settings), nodes, settings));
    }
    Ok(())
}

/// A snapshot before the first control plane or member is touched.
fn saved(settings: &Upgrade, inputs: &Inputs, steps: &mut Vec<Placed>) {
    let conduct = &settings.conduct;
    steps.extend(saving_first(conduct, inputs, inputs.group("etcd")));
    steps.push(snapshot(conduct, inputs));
}

/// The plugin on all nodes at once: its own roll-out goes from node to node.
fn network(settings: &Upgrade, inputs: &Inputs, steps: &mut Vec<Placed>) {
    let nodes = inputs.members();
    let words = (
        "network-plugin/upgrade",
        "Bring the network plugin to what the spec says",
    );
    steps.push(whole(own(
        Own::NetworkPlugin,
        &settings.conduct,
        words,
        nodes.clone(),
    )));
    let title = "Wait until the cluster is well";
    let id = "gate/network-plugin";
    steps.push(gate(id, title, between(settings), nodes, settings));
}

/// One that has begun comes to its end: a node would stay without its pods, or a member of etcd between two settings.
fn whole(placed: Placed) -> Placed {
    Placed {
        step: Step {
            interrupt: Interrupt::Never,
            ..placed.step
        },
        ..placed
    }
}

fn between(settings: &Upgrade) -> Gate {
    Gate {
        pods: settings.gate.clone(),
        soak: settings.soak,
        ..Gate::default()
    }
}

/// A change of the member of etcd on a host.
pub(crate) fn member_change(
    inputs: &Inputs,
    host: &HostName,
    turn: Turn,
) -> Result<MemberChange, Problem> {
    let member = inputs.inventory.etcd_member_names.get(host.as_str());
    let member = member.ok_or_else(|| unnamed(host))?;
    Ok(MemberChange {
        host: host.clone(),
        member: member.clone(),
        turn,
    })
}

fn unnamed(host: &HostName) -> Problem {
    Problem::new(
        format!("ClusterNode {host}"),
        host,
        "it is not known by which name etcd knows its member",
        "write it into spec.inventory.etcd_member_name: etcdctl member list tells it",
    )
}
