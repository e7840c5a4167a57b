//! Scale: makes new hosts part of a cluster that is built, and leaves the others alone so far as they need not know. Pure.
//!
//! Workers join together by `scale.yml`. Control planes and members of etcd join by `cluster.yml`, one a run and in the order of their
//! declaration, before workers do: when one has joined, what the cluster was built with has changed, and the next follows.
//!
//! The new hosts are given what the cluster was built with, whatever the spec asks for since: to carry that out is the part of other
//! operations, which are told of it as before.

use ansible::slice::FOUNDING;
use api::{HostName, node::Role, run::Plan};
use kube::ResourceExt;
use serde_json::json;

use super::{Fails, SCALE, upgrade};
use crate::{
    action::{MemberChange, QUORUM, Turn},
    cluster::{
        built::failed,
        compile::{self, Asks, Endpoints},
        decision::{Decision, Situation, checkout, declared, once},
        resolve::Resolved,
    },
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::Problem,
};

/// Has the say about a built cluster with hosts that can join it.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref()?;
    let new = joining(before, &resolved.inputs).next()?;
    let observed = situation.observed;
    // A host that joins has one version, and the cluster has two.
    if upgrade::begun(&observed.runs).is_some() || failed(observed, Fails::HoldsUp).is_some() {
        return None;
    }
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    let plan = match new.as_slice() {
        [one] if one.is_member() => member(
            &situation.cluster.name_any(),
            before,
            one,
            resolved,
            checkout,
        ),
        workers => compiled(before, workers, resolved, checkout),
    };
    match plan {
        Ok(plan) => {
            let names: Vec<HostName> = new.iter().flat_map(|host| host.name.parse()).collect();
            let about = declared(observed, &names);
            once(situation, built, &SCALE, plan, &about)
        }
        Err(problem) => Some(Decision::Stall(vec![problem])),
    }
}

/// The hosts that can be made part of a cluster with these inputs, as they join: each control plane and member of etcd alone, then
/// workers.
pub fn joining<'a>(
    built: &Inputs,
    wanted: &'a Inputs,
) -> impl Iterator<Item = Vec<&'a Host>> + use<'a> {
    let is_part = |host: &&Host| built.hosts.iter().any(|built| built.name == host.name);
    let release = built.kubespray == wanted.kubespray;
    let hosts = wanted.hosts.iter().filter(|_| release);
    let new: Vec<&Host> = hosts.filter(|host| !is_part(host)).collect();
    let workers: Vec<_> = new
        .iter()
        .copied()
        .filter(|host| host.is_worker())
        .collect();
    let alone = !manages_etcd(built);
    let members = new
        .into_iter()
        .filter(move |host| alone && host.is_member())
        .map(|host| vec![host]);
    members.chain((!workers.is_empty()).then_some(workers))
}

/// Whether kubeadm runs etcd, whose members come and go with their control planes.
pub fn manages_etcd(built: &Inputs) -> bool {
    let kind = built.variables.get("etcd_deployment_type");
    kind.is_some_and(|kind| kind == "kubeadm")
}

/// The plan that makes one control plane or member of etcd part of the cluster.
fn member(
    cluster: &str,
    before: &Inputs,
    new: &Host,
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    let mut inputs = grown(before, &[new], &resolved.inputs)?;
    let joins = joins(new, &inputs);
    if joins.is_some() {
        inputs.snapshots = resolved.store();
    }
    let inventory = compile::compiled(&inputs)?;
    let conduct = &resolved.scale;
    let change = Endpoints {
        cluster,
        conduct,
        checkout,
        inputs: &inputs,
        host: new,
        leaves: false,
    };
    let mut steps = compile::beginning(conduct, inventory.hosts().cloned().collect());
    match &joins {
        Some(joins) => {
            let members = before.group("etcd");
            steps.push(compile::quorum(conduct, QUORUM, joins, members));
            steps.extend(compile::saving_first(conduct, &inputs, members));
        }
        // The play of etcd gives the control plane its certificate, and goes over all members.
        None => steps.extend(compile::etcd_asked(QUORUM, conduct, &inputs)?),
    }
    compile::joining_member(&change, &inventory, joins.as_ref(), &mut steps)?;
    steps.push(compile::healthy(conduct, &inputs));
    let question = format!("make {} part of the cluster", new.name);
    let asks = Asks::Person(conduct, question);
    let mut reason = reason(new, before, &inputs, &resolved.inputs);
    reason.push_str(&taking(resolved, &[new]));
    compile::finish(
        &SCALE,
        resolved.again.as_deref(),
        &inputs,
        reason,
        asks,
        steps,
    )
}

/// What joins etcd, if something does.
fn joins(new: &Host, grown: &Inputs) -> Option<MemberChange> {
    if !new.has(Role::Etcd) {
        return None;
    }
    let member = grown.inventory.etcd_member_names.get(&new.name)?;
    Some(MemberChange {
        host: new.name.parse().ok()?,
        member: member.clone(),
        turn: Turn::Joins,
    })
}

fn reason(new: &Host, before: &Inputs, grown: &Inputs, wanted: &Inputs) -> String {
    let mut reason = format!(
        "{} is no part of the cluster yet: kubespray {} makes {} of it{}; {} and {} are told, \
         the nodes only where they spread requests over the control planes, and of the rest of the {} hosts facts are read",
        new.name,
        grown.kubespray,
        new.part(),
        compile::with_kubernetes(grown),
        counted(before.group("etcd").len(), "etcd member"),
        counted(before.group("kube_control_plane").len(), "control plane"),
        before.hosts.len(),
    );
    let members = grown.group("etcd").len();
    let next = joining(grown, wanted).find_map(|next| {
        let next = next.into_iter().next()?;
        next.has(Role::Etcd).then_some(&next.name)
    });
    if let Some(next) = next.filter(|_| grown.passing) {
        reason.push_str(&format!(
            "; {members} of {}: until {next} joins etcd has {members} members, and of an even number no more may fail than of one less",
            wanted.group("etcd").len(),
        ));
    }
    reason
}

/// The plan that makes these workers part of the cluster.
fn compiled(
    before: &Inputs,
    new: &[&Host],
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    let names: Vec<HostName> = new.iter().flat_map(|host| host.name.parse()).collect();
    let playbook = checkout
        .scale
        .as_ref()
        .ok_or_else(|| no_playbook(&names, resolved))?;
    let inputs = grown(before, new, &resolved.inputs)?;
    let inventory = compile::compiled(&inputs)?;
    let conduct = &resolved.scale;
    let mut steps = compile::beginning(conduct, inventory.hosts().cloned().collect());
    compile::joining(playbook, conduct, &inventory, &names, &mut steps)?;
    compile::unproved(&inputs, &mut steps);
    steps.push(compile::healthy(conduct, &inputs));
    let question = format!("make {} part of the cluster", compile::listed(&names));
    let asks = Asks::Person(conduct, question);
    let mut reason = format!(
        "{} {} no part of the cluster yet: kubespray {} makes {} of it{}, and reads no more than the facts of the {} hosts that are, where they are stale",
        compile::listed(&names),
        if new.len() == 1 { "is" } else { "are" },
        inputs.kubespray,
        if new.len() == 1 {
            "a worker"
        } else {
            "workers"
        },
        compile::with_kubernetes(&inputs),
        before.hosts.len(),
    );
    reason.push_str(&taking(resolved, new));
    compile::finish(
        &SCALE,
        resolved.again.as_deref(),
        &inputs,
        reason,
        asks,
        steps,
    )
}

/// Whose place new hosts take, at the end of a reason.
fn taking(resolved: &Resolved, new: &[&Host]) -> String {
    let comes = |name: &HostName| new.iter().any(|host| host.name == name.as_str());
    let replacing = resolved.replacing.iter();
    let taken = replacing.filter(|replacing| replacing.stays() && comes(&replacing.by));
    let told: Vec<_> = taken
        .map(|replacing| format!("; of {}: {}", replacing.host, replacing.waits()))
        .collect();
    told.concat()
}

fn counted(number: usize, what: &str) -> String {
    match number {
        1 => format!("its only {what}"),
        more => format!("{more} {what}s"),
    }
}

/// What the cluster was built with, and the new hosts at the end of it. How hosts are reached is as the spec says now.
fn grown(before: &Inputs, new: &[&Host], wanted: &Inputs) -> Result<Inputs, Problem> {
    let mut grown = before.reached_as(wanted);
    grown.operation_variables.clear();
    grown.hosts.extend(new.iter().map(|host| (*host).clone()));
    if new.iter().any(|host| host.has(Role::Etcd)) && !grown.variables.contains_key(RETRIES) {
        let retries = (RETRIES.to_owned(), json!(20));
        grown.operation_variables.extend([retries]);
    }
    let planes = new.iter().find(|host| host.has(Role::ControlPlane));
    if let Some(host) = planes.and_then(|host| host.name.parse::<HostName>().ok()) {
        // Of this host alone what was interrupted may be undone: kubespray neither joins it again nor gets past it.
        let only = format!("{{{{ inventory_hostname == '{host}' }}}}");
        let undo = (FOUNDING.to_owned(), only.into());
        grown.operation_variables.extend([undo]);
    }
    grown = grown.on_the_way();
    for name in grown.variable_secrets() {
        if let Some(revision) = wanted.revisions.get(&name) {
            let revisions = &mut grown.revisions;
            revisions.entry(name).or_insert_with(|| revision.clone());
        }
    }
    grown.inventory = compile::compiled(&grown)?.order().clone();
    Ok(grown)
}

/// How often kubespray asks etcd again while a member joins: its own number is too small, as its documentation says.
const RETRIES: &str = "etcd_retries";

fn no_playbook(new: &[HostName], resolved: &Resolved) -> Problem {
    Problem::new(
        "Cluster spec.kubespray.source",
        &resolved.inputs.source.origin,
        format!(
            "its playbooks have no scale.yml, and {} cannot join without it",
            compile::listed(new)
        ),
        "name playbooks that have it, as kubespray's do, or take the ClusterNodes back",
    )
}
