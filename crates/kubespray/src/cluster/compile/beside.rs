//! Hosts that have etcd and nothing else are made ready beside the others, and start etcd meanwhile. Pure.
//!
//! What the first plays do on a host, packages, the container engine, downloads, takes most of the time of a creation, and no host
//! needs another one for it. So the play of that is cut in two by hosts. What needs both, the certificates of the API servers for
//! one, is the play of etcd once more, on all of its hosts; it finds the members as they are.

use std::collections::BTreeSet;

use ansible::{inventory::Inventory, slice::Playbook};
use api::{HostName, run::Step};
use serde_json::Value;

use super::{Placed, limit, step, weight};
use crate::{
    action::{self, Action},
    cluster::resolve::Resolved,
    inputs::Inputs,
};

/// The play that makes hosts ready, and that of etcd.
const PREPARE: &str = "prepare/hosts";
const ETCD: &str = "etcd/install";
/// The steps of hosts that have etcd and nothing else.
const ETCD_HOSTS: &str = "etcd/hosts";
const ETCD_MEMBERS: &str = "etcd/members";

/// How many of these steps may be at work at a time.
pub(super) const PARALLELISM: u8 = 2;

/// Variables that make one host download for the others: then the hosts of two plays are not disjoint.
const FOR_OTHERS: [&str; 3] = [
    "download_run_once",
    "download_force_cache",
    "download_localhost",
];

/// Cuts the preparation in two, where the hosts prove to be disjoint.
pub(super) fn cut(
    playbook: &Playbook,
    resolved: &Resolved,
    inventory: &Inventory,
    steps: &mut Vec<Placed>,
) {
    let Some(members) = alone(inventory).filter(|_| nobody_works_for_others(&resolved.inputs))
    else {
        return;
    };
    let place = |steps: &[Placed], id: &str| steps.iter().position(|placed| placed.step.id == id);
    let (Some(prepare), Some(etcd)) = (place(steps, PREPARE), place(steps, ETCD)) else {
        return;
    };
    let works_on_all = |at: usize| {
        let works = |placed: &Placed| members.iter().all(|host| placed.hosts.contains(host));
        steps.get(at).is_some_and(works)
    };
    let whole = |id: &str| playbook.slice(id).is_ok_and(|slice| !slice.with_next);
    if prepare == 0
        || prepare >= etcd
        || !(works_on_all(prepare) && works_on_all(etcd))
        || !(whole(PREPARE) && whole(ETCD))
    {
        return;
    }
    let Some(row) = own(resolved, &steps[prepare], &steps[etcd], &members) else {
        return;
    };
    let (before, last) = (steps[prepare - 1].step.id.clone(), ETCD_MEMBERS.to_owned());
    // Both rows begin where the plays before them end, and what follows waits for both.
    steps[prepare + 1].step.depends_on = vec![last, PREPARE.to_owned()];
    let others = &mut steps[prepare];
    others.step.depends_on = vec![before.clone()];
    others.hosts.retain(|host| !members.contains(host));
    limit(&mut others.step, "others");
    let [mut first, second] = row;
    first.step.depends_on = vec![before];
    steps.splice(prepare..prepare, [first, second]);
}

/// The hosts that have etcd and are no part of Kubernetes, if no other host has etcd.
fn alone(inventory: &Inventory) -> Option<Vec<HostName>> {
    let kubernetes: BTreeSet<_> = ["k8s_cluster", "kube_control_plane", "kube_node"]
        .iter()
        .flat_map(|group| inventory.group(group))
        .collect();
    let members = inventory.group("etcd");
    let disjoint = members.iter().all(|host| !kubernetes.contains(host));
    (disjoint && !members.is_empty() && !kubernetes.is_empty()).then(|| members.to_vec())
}

/// Whether the plays of one host surely leave the others alone. What stands in a Secret nobody knows here.
fn nobody_works_for_others(inputs: &Inputs) -> bool {
    let hidden = [&inputs.extra_vars_secret_ref, &inputs.operation_secret_ref];
    let of_hosts = inputs.hosts.iter().map(|host| &host.extra_vars_secret_ref);
    if hidden.into_iter().chain(of_hosts).any(Option::is_some) {
        return false;
    }
    let of_hosts = inputs.hosts.iter().map(|host| &host.variables.other);
    let all = [&inputs.variables, &inputs.operation_variables];
    all.into_iter().chain(of_hosts).all(|variables| {
        FOR_OTHERS
            .iter()
            .all(|name| matches!(variables.get(*name), None | Some(Value::Bool(false))))
    })
}

/// The steps of the etcd hosts alone.
fn own(
    resolved: &Resolved,
    prepare: &Placed,
    etcd: &Placed,
    members: &[HostName],
) -> Option<[Placed; 2]> {
    let part = |id: &str, title: &str, of: &Placed| {
        let mut own = Step {
            retry: super::retry(&resolved.creation.conduct),
            gate: Some(super::gate(&resolved.creation.conduct)),
            weight: Some(weight(&of.step.id)),
            ..step(id, title, Action::AnsiblePlay(action::play_of(&of.step)?))
        };
        limit(&mut own, "etcd");
        Some(Placed {
            step: own,
            hosts: members.to_vec(),
        })
    };
    Some([
        part(ETCD_HOSTS, "Prepare the hosts of etcd", prepare)?,
        part(ETCD_MEMBERS, "Start etcd on hosts of its own", etcd)?,
    ])
}
