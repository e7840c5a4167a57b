//! Replace: puts another host first in a cluster that is built, where the one that is first is to leave. Pure.
//!
//! A host is replaced by three operations, each of which leaves a cluster that is whole: the other one joins ([`scale`](super::scale)),
//! a host that is part of the cluster takes the first place, which is this one, and the host leaves ([`remove`]). Nothing
//! joins or leaves here: who is first has the keys of the authorities proved on it, and is named where the other was.

use api::{HostName, node::Role, run::Plan};
use kube::ResourceExt;
use serde_json::json;

use super::{REPLACE, remove};
use crate::{
    action::HEALTH,
    cluster::{
        compile::{self, Asks, Placed},
        decision::{Decision, Situation, checkout, declared, once},
        resolve::{Conduct, Replacing, ReplacingTurn, Resolved},
    },
    inputs::Inputs,
    playbooks::Own,
    problem::Problem,
};

/// The group of the control planes.
const PLANES: &str = "kube_control_plane";
/// The steps that prove a host and make it the first.
pub const HEAD: &str = "replace/head";
/// The steps that have the nodes ask another host than the one that was first.
const ENDPOINTS: &str = "replace/endpoints";

/// Has the say about a built cluster whose first host is to leave, once what takes its place has joined.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref()?;
    // As of the removal, which follows.
    if remove::waits_for(before, resolved, situation.observed).is_some() {
        return None;
    }
    let mut all = resolved.replacing.iter();
    let replacing = all.find(|replacing| replacing.turn == ReplacingTurn::HandsOver)?;
    if let Err(decision) = checkout(situation.observed) {
        return Some(decision);
    }
    let cluster = situation.cluster.name_any();
    match compiled(&cluster, before, replacing, resolved) {
        Ok(plan) => {
            let mut about = declared(situation.observed, [&replacing.host]);
            let heirs = replacing.hands_over.iter();
            about.extend(heirs.map(ToString::to_string));
            once(situation, built, &REPLACE, plan, &about)
        }
        Err(problem) => Some(Decision::Stall(vec![problem])),
    }
}

/// The plan that puts another host first.
fn compiled(
    cluster: &str,
    before: &Inputs,
    replacing: &Replacing,
    resolved: &Resolved,
) -> Result<Plan, Problem> {
    let conduct = &resolved.replacement;
    let inputs = Inputs {
        snapshots: resolved.store(),
        ..rotated(before, replacing, resolved)
    };
    let inventory = compile::compiled(&inputs)?;
    let mut heirs: Vec<HostName> = Vec::new();
    for heir in replacing.hands_over.iter().filter_map(|group| group.heir()) {
        if !heirs.contains(heir) {
            heirs.push(heir.clone());
        }
    }
    let mut steps = compile::beginning(conduct, heirs.clone());
    let staying = inventory.hosts().filter(|host| **host != replacing.host);
    steps.push(compile::probe_staying(conduct, staying.cloned().collect()));
    let members = inputs.group("etcd").iter();
    let members: Vec<_> = members
        .filter(|host| **host != replacing.host)
        .cloned()
        .collect();
    steps.extend(compile::saving_first(conduct, &inputs, &members));
    for (number, heir) in (1_usize..).zip(&heirs) {
        let id = format!("{HEAD}-{number}");
        let title = format!("Make {heir} the first host");
        let words = (id.as_str(), title.as_str());
        let alone = vec![heir.clone()];
        steps.push(compile::own(Own::ReplaceHead, conduct, words, alone));
    }
    let mut handovers = replacing.hands_over.iter();
    let mut nodes = inputs.members();
    nodes.retain(|name| *name != replacing.host);
    if handovers.any(|group| group.group == PLANES) {
        steps.push(compile::kubeconfig(cluster, conduct, &inputs));
        let planes = inputs.group(PLANES);
        let (own, others) = nodes
            .iter()
            .cloned()
            .partition(|node| planes.contains(node));
        asked(conduct, &replacing.host, own, others, &mut steps);
    }
    let words = (HEALTH, "Wait until the cluster is healthy");
    steps.push(compile::healthy_nodes(conduct, words, nodes));
    let question = format!("put another host first than {}", replacing.host);
    let asks = Asks::Person(conduct, question);
    let reason = format!(
        "{host} is to leave, and {by} takes its place{joined}: {}; no host joins or leaves by it, and {host} leaves in the run after it",
        replacing.handed_over(),
        host = replacing.host,
        by = replacing.by,
        joined = if replacing.is_lost {
            ", which joins last, because it is lost"
        } else {
            ""
        },
    );
    compile::finish(
        &REPLACE,
        resolved.again.as_deref(),
        &inputs,
        reason,
        asks,
        steps,
    )
}

/// The steps that have nodes ask another host: control planes one after the other, then the others.
fn asked(
    conduct: &Conduct,
    host: &HostName,
    planes: Vec<HostName>,
    others: Vec<HostName>,
    steps: &mut Vec<Placed>,
) {
    let each = planes.into_iter().map(|plane| vec![plane]);
    let rest = (!others.is_empty()).then_some(others);
    for (number, nodes) in (1_usize..).zip(each.chain(rest)) {
        let id = format!("{ENDPOINTS}-{number}");
        let title = format!("Have nodes ask another host than {host}");
        let words = (id.as_str(), title.as_str());
        let placed = compile::own(Own::ReplaceEndpoints, conduct, words, nodes);
        // One that does not answer is told by the next converge.
        steps.push(compile::leniently(conduct, placed));
    }
}

/// What the cluster was built with, and who is first. How hosts are reached is as the spec says now.
fn rotated(before: &Inputs, replacing: &Replacing, resolved: &Resolved) -> Inputs {
    let mut inputs = before.reached_as(&resolved.inputs);
    inputs.inventory = replacing.rotated(&before.inventory);
    inputs.operation_variables.clear();
    let host = before.host(&replacing.host);
    let head = before.group(PLANES).first() == Some(&replacing.host);
    if let Some(host) = host.filter(|host| head && host.has(Role::ControlPlane)) {
        let addresses: Vec<_> = host.addresses().collect();
        let old = ("windlass_old_head_addresses".to_owned(), json!(addresses));
        inputs.operation_variables.extend([old]);
    }
    inputs.on_the_way()
}
