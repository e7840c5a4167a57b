//! Remove: takes hosts out of a cluster that is built, once their pods are elsewhere, and leaves the others alone so far as they need
//! not know. Pure.
//!
//! Workers leave together. Control planes and members of etcd leave one a run, those first whose node is not Ready, and of etcd only
//! what it can do without at that moment: its members are asked before each. A host that does not answer is removed all the same,
//! and not reset: see [`Action::ForgetNodes`].

use api::{
    HostName,
    node::{Health, NodeHealth, NodeState, Role},
    run::Plan,
};
use kube::ResourceExt;
use serde_json::json;

use super::{REMOVE, upgrade};
use crate::{
    action::{Action, HEALTH, MemberChange, QUORUM, Turn},
    cluster::{
        compile::{self, Asks, Endpoints},
        decision::{Decision, Situation, checkout, declared, once},
        observe::Observed,
        resolve::Resolved,
    },
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::Problem,
};

/// Has the say about a built cluster with hosts whose ClusterNodes are being deleted.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref()?;
    // The playbooks are of another release, whose upgrade comes first.
    if before.kubespray != resolved.inputs.kubespray {
        return None;
    }
    let leaving = leaving(before, &resolved.removal.leaving, situation.observed)?;
    let checkout = match checkout(situation.observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    let cluster = situation.cluster.name_any();
    let down = |name: &HostName| is_down(situation.observed, name);
    match compiled(&cluster, before, &leaving, resolved, checkout, down) {
        Ok(plan) => {
            let mut about = declared(situation.observed, &leaving);
            let forced = resolved.removal.forced.iter();
            let forced = forced.filter(|name| leaving.contains(name));
            about.extend(forced.map(|name| format!("{name} by force")));
            once(situation, built, &REMOVE, plan, &about)
        }
        Err(problem) => Some(Decision::Stall(vec![problem])),
    }
}

/// Why hosts that somebody wants removed wait for an upgrade, if they do.
pub fn waits_for(before: &Inputs, resolved: &Resolved, observed: &Observed) -> Option<String> {
    let (built, wanted) = (before.kubespray, resolved.inputs.kubespray);
    if built != wanted {
        return Some(format!(
            "it comes after the upgrade to kubespray {wanted}, whose playbooks are named; to have it before, write \
             spec.kubespray.version: {built}"
        ));
    }
    let begun = upgrade::begun(&observed.runs)?;
    Some(format!(
        "control planes and members of etcd leave a cluster of one version only, and run {} has begun an upgrade; {}",
        begun.run,
        begun.remedy()
    ))
}

/// The hosts of a built cluster that leave next of those that somebody wants removed.
fn leaving(built: &Inputs, wanted: &[HostName], observed: &Observed) -> Option<Vec<HostName>> {
    // What the others are told of a member that left is of the version that the cluster was built with.
    let one_version = upgrade::begun(&observed.runs).is_none();
    let first = one_by_one(built, wanted, observed).into_iter().next();
    if let Some(first) = first.filter(|_| one_version) {
        return Some(vec![first]);
    }
    let hosts = built.hosts.iter().filter(|host| host.is_worker());
    let names = hosts.filter_map(|host| host.name.parse().ok());
    let workers: Vec<_> = names.filter(|name| wanted.contains(name)).collect();
    (!workers.is_empty()).then_some(workers)
}

/// The control planes and members of etcd among these hosts, in the order in which they leave: what does not work goes first, and
/// then the newest.
pub fn one_by_one(built: &Inputs, wanted: &[HostName], observed: &Observed) -> Vec<HostName> {
    let hosts = built.hosts.iter().filter(|host| host.is_member());
    let names = hosts.filter_map(|host| host.name.parse().ok());
    let members = names.filter(|name| wanted.contains(name)).collect();
    ordered(members, |name| is_down(observed, name))
}

/// Members from the oldest to the newest, in the order in which they leave.
fn ordered(mut members: Vec<HostName>, is_down: impl Fn(&HostName) -> bool) -> Vec<HostName> {
    members.reverse();
    members.sort_by_key(|name| !is_down(name));
    members
}

/// Whether the node of a host was found not to be Ready; while nothing was probed, as it was told last.
pub fn is_down(observed: &Observed, name: &HostName) -> bool {
    let Some(checked) = &observed.health else {
        return was_down(observed, name);
    };
    let report = checked.report.as_ref().ok();
    let member = report.and_then(|report| report.members.get(name.as_str()));
    member.is_some_and(|member| member.check.health != Health::Ok)
}

fn was_down(observed: &Observed, name: &HostName) -> bool {
    let mut nodes = observed.nodes.iter();
    let node = nodes.find(|node| node.name_any() == name.as_str());
    let status = node.and_then(|node| node.status.as_ref());
    status.is_some_and(|status| {
        let healthy = |node: &NodeHealth| node.health == Health::Ok;
        status.state == Some(NodeState::Joined) && !status.node.as_ref().is_none_or(healthy)
    })
}

/// The plan that removes these hosts from the cluster.
fn compiled(
    cluster: &str,
    before: &Inputs,
    leaving: &[HostName],
    resolved: &Resolved,
    checkout: &Checkout,
    is_down: impl Fn(&HostName) -> bool,
) -> Result<Plan, Problem> {
    let playbook = checkout
        .remove
        .as_ref()
        .ok_or_else(|| no_playbook(leaving, resolved))?;
    let removal = &resolved.removal;
    let conduct = &removal.conduct;
    let forced: Vec<HostName> = leaving
        .iter()
        .filter(|name| removal.forced.contains(name))
        .cloned()
        .collect();
    let mut inputs = shrunk(before, leaving, !forced.is_empty(), resolved)?;
    let inventory = compile::compiled(&inputs)?;
    let member = leaving.first().and_then(|name| before.host(name));
    let member = member.filter(|host| host.is_member());
    let change = member.and_then(|host| leaves(host, before));
    if change.is_some() {
        inputs.snapshots = resolved.store();
    }
    let stay = members_but(before, leaving);
    let first = inputs.group("kube_control_plane").iter().take(1).cloned();
    let mut steps = compile::beginning(conduct, first.collect());
    let [probe, budgets, drain] =
        compile::draining(conduct, removal.drain_timeout, leaving, &forced);
    steps.push(probe);
    if member.is_some() {
        let staying = inventory.hosts().filter(|host| !leaving.contains(host));
        steps.push(compile::probe_staying(conduct, staying.cloned().collect()));
    }
    if let Some(change) = &change {
        steps.push(compile::quorum(conduct, QUORUM, change, &stay));
    }
    steps.push(budgets);
    steps.extend(compile::saving_first(conduct, &inputs, &stay));
    steps.push(drain);
    let take_out = change.map(|change| compile::take_out(conduct, &change, &stay));
    // The plays do it as well where the host has nothing else: an inventory must have it somewhere.
    let alone = member.is_some_and(|host| host.roles == [Role::Etcd]);
    let (early, late) = if alone {
        (None, take_out)
    } else {
        (take_out, None)
    };
    steps.extend(early);
    compile::leaving(playbook, conduct, &inventory, leaving, &mut steps)?;
    compile::unproved(&inputs, &mut steps);
    steps.extend(late);
    steps.push(compile::of_nodes(
        conduct,
        "forget/nodes",
        "Take the nodes out of the cluster",
        Action::ForgetNodes {
            forced: forced.clone(),
        },
        leaving,
    ));
    if let Some(host) = member {
        let left = inputs.clone().left();
        let change = Endpoints {
            cluster,
            conduct,
            checkout,
            inputs: &left,
            host,
            leaves: true,
        };
        compile::endpoints(&change, &compile::compiled(&left)?, &mut steps)?;
    }
    // Nothing is done on the workers that stay when a worker leaves, and nobody asks them whether they answer: one that is down, known or
    // not, would hold the run until its time is up.
    let planes = inputs.group("kube_control_plane");
    let is_concerned = |name: &HostName| member.is_some() || planes.contains(name);
    let concerned = inputs.members().into_iter().filter(is_concerned);
    let (down, well): (Vec<_>, Vec<_>) = concerned.partition(is_down);
    let words = (HEALTH, "Wait until the cluster is healthy");
    steps.push(compile::healthy_nodes(conduct, words, well));
    let question = format!("remove {} from the cluster", compile::listed(leaving));
    let asks = Asks::Person(conduct, question);
    let mut reason = reason(leaving, &forced, before.members().len());
    if !down.is_empty() {
        reason.push_str(&format!(
            "; the end does not wait for what was not Ready before: {}",
            compile::listed(&down)
        ));
    }
    if let Some(host) = member {
        reason.push_str(&of_member(host, before, &inputs, &resolved.removal.leaving));
    }
    let replacing = resolved.replacing.iter();
    for replacing in replacing.filter(|replacing| leaving.contains(&replacing.host)) {
        reason.push_str(&format!(
            "; {} is replaced: {}",
            replacing.host,
            replacing.waits()
        ));
    }
    compile::finish(
        &REMOVE,
        resolved.again.as_deref(),
        &inputs,
        reason,
        asks,
        steps,
    )
}

/// What leaves etcd, if something does.
fn leaves(host: &Host, before: &Inputs) -> Option<MemberChange> {
    if !host.has(Role::Etcd) {
        return None;
    }
    let member = before.inventory.etcd_member_names.get(&host.name);
    Some(MemberChange {
        host: host.name.parse().ok()?,
        member: member.unwrap_or(&host.name).clone(),
        turn: Turn::Leaves,
    })
}

/// The members of etcd that stay.
fn members_but(before: &Inputs, leaving: &[HostName]) -> Vec<HostName> {
    let members = before.group("etcd").iter();
    members
        .filter(|name| !leaving.contains(name))
        .cloned()
        .collect()
}

/// What the removal of a control plane or a member of etcd is about, at the end of a reason.
fn of_member(host: &Host, before: &Inputs, inputs: &Inputs, wanted: &[HostName]) -> String {
    let mut reason = format!(
        "; it is {}, so the control planes that stay are told, and the nodes only where they spread requests over the control planes",
        host.part()
    );
    if !host.has(Role::Etcd) {
        return reason;
    }
    let name: Option<HostName> = host.name.parse().ok();
    let left = members_but(before, name.as_slice());
    reason.push_str("; etcd is asked first whether it keeps its quorum");
    let next = left.iter().find(|name| wanted.contains(name));
    if inputs.passing {
        let until = next.map_or_else(
            || "another joins".to_owned(),
            |next| format!("{next} leaves"),
        );
        reason.push_str(&format!(", and has {} members until {until}", left.len()));
    }
    reason
}

fn reason(leaving: &[HostName], forced: &[HostName], members: usize) -> String {
    let mut reason = format!(
        "somebody deleted the ClusterNode{} of {}: {} drained, reset and removed, and {} nodes stay",
        if leaving.len() == 1 { "" } else { "s" },
        compile::listed(leaving),
        if leaving.len() == 1 {
            "it is"
        } else {
            "they are"
        },
        members.saturating_sub(leaving.len()),
    );
    if !forced.is_empty() {
        reason.push_str(&format!(
            "; by force, so no PodDisruptionBudget is kept: {}",
            compile::listed(forced)
        ));
    }
    reason
}

/// What the cluster was built with, and which hosts leave it. How hosts are reached is as the spec says now.
fn shrunk(
    before: &Inputs,
    leaving: &[HostName],
    forced: bool,
    resolved: &Resolved,
) -> Result<Inputs, Problem> {
    let rest = Inputs {
        leaving: leaving.to_vec(),
        ..before.clone()
    };
    let left = rest.on_the_way().left();
    let inventory = compile::compiled(&left)?.order().clone();
    let mut inputs = before.reached_as(&resolved.inputs);
    inputs.leaving = leaving.to_vec();
    inputs.inventory = inventory;
    for host in &mut inputs.hosts {
        if leaving.iter().any(|name| name.as_str() == host.name) {
            // Its name in etcd stays pinned until it is gone: somebody may keep it.
            let member = before.inventory.etcd_member_names.get_key_value(&host.name);
            let pinned = member.map(|(host, member)| (host.clone(), member.clone()));
            inputs.inventory.etcd_member_names.extend(pinned);
            as_it_leaves(host);
        }
    }
    inputs.operation_variables.clear();
    let names: Vec<_> = leaving.iter().map(HostName::as_str).collect();
    inputs.operation_variables.extend([
        ("node".to_owned(), json!(names.join(","))),
        ("skip_confirmation".to_owned(), json!(true)),
        ("allow_ungraceful_removal".to_owned(), json!(forced)),
    ]);
    Ok(inputs.on_the_way())
}

/// A host that leaves, as the plays see it: its member of etcd is taken out before, which kubespray's own role does not survive twice.
pub fn as_it_leaves(host: &mut Host) {
    if host.roles != [Role::Etcd] {
        host.roles.retain(|role| *role != Role::Etcd);
    }
}

fn no_playbook(leaving: &[HostName], resolved: &Resolved) -> Problem {
    Problem::new(
        "Cluster spec.kubespray.source",
        &resolved.inputs.source.origin,
        format!(
            "the playbooks have no remove-node.yml, which removes {}",
            compile::listed(leaving)
        ),
        format!(
            "add one as kubespray has it, or take the removal back: windlass node keep {}",
            leaving.first().map_or("NAME", HostName::as_str)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_work_leaves_first_and_then_the_newest() {
        let members = || -> Vec<HostName> {
            let names = ["a", "b", "c", "d"];
            names.map(|name| name.parse().unwrap()).to_vec()
        };
        let order = |down: &[&str]| {
            let order = ordered(members(), |name| down.contains(&name.as_str()));
            order.iter().map(ToString::to_string).collect::<String>()
        };
        assert_eq!(order(&[]), "dcba");
        assert_eq!(order(&["b"]), "bdca");
        assert_eq!(order(&["a", "c"]), "cadb");
    }
}
