//! Steps that bring back a cluster whose etcd lost its quorum, or roll one back to a snapshot. Pure.
//!
//! kubespray documents that as `recover-control-plane.yml`: it removes the data of the survivor before it restores it, repeats the whole
//! `cluster.yml`, and expects somebody to have put the survivors first. Here etcd is founded by playbooks of Windlass' own, which keep
//! what there is and may be killed anywhere; what follows is what follows the removal of a member.

use api::{
    Duration, HostName,
    node::Role,
    run::{Interrupt, Step},
};
use serde_json::Value;
use snapshots::Name;

use super::{
    Endpoints, Placed, compiled, endpoints, kubeconfig, leaving, listed, of_nodes, own,
    planes::lenient, probe_staying, quorum, retry, saving::bringing, step, unproved,
};
use crate::{
    action::{
        Action, BRING_SNAPSHOT, CHECKED, FOUND, FOUNDED, GIVEN_UP, LOST, MemberChange, SET_ASIDE,
        Turn,
    },
    cluster::resolve::Conduct,
    inputs::{Host, Inputs},
    playbooks::{Checkout, Own},
    problem::Problem,
};

/// How long nodes that are given up may be Ready yet: what watches over nodes has to be elected, and to miss them.
const FORGET_TIMEOUT: Duration = Duration::from_seconds(300);
/// How long hosts may take to say whether they answer.
const PROBE_TIMEOUT: Duration = Duration::from_seconds(600);

/// What a recovery is about.
pub(crate) struct Recovering<'a> {
    /// The cluster's name.
    pub(crate) cluster: &'a str,
    /// How the operation behaves.
    pub(crate) conduct: &'a Conduct,
    /// The playbooks.
    pub(crate) checkout: &'a Checkout,
    /// The cluster, with the hosts that leave it.
    pub(crate) inputs: &'a Inputs,
    /// The host on which etcd is founded, and its member.
    pub(crate) founder: &'a MemberChange,
    /// The hosts that are given up, as the cluster was built with them.
    pub(crate) given_up: &'a [Host],
    /// The snapshot in the store that takes the place of its data.
    pub(crate) snapshot: Option<&'a Name>,
}

/// The directory of the founder that takes a snapshot of the store; `mark` tells one recovery from others.
pub(crate) fn from_store(mark: &str) -> String {
    format!("/var/backups/etcd-{mark}-from-store")
}

/// The steps after the founder has answered.
pub(crate) fn recovering(
    recovering: &Recovering<'_>,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let &Recovering {
        cluster,
        conduct,
        checkout,
        inputs,
        founder,
        given_up,
        snapshot,
    } = recovering;
    let inventory = compiled(inputs)?;
    let left = inputs.clone().left();
    let names = &inputs.leaving;
    let staying: Vec<_> = left
        .hosts
        .iter()
        .flat_map(|host| host.name.parse())
        .collect();
    steps.push(probe_staying(conduct, staying));
    if !names.is_empty() {
        steps.push(probe_given_up(conduct, names));
    }
    let of_etcd = given_up.iter().filter(|host| host.has(Role::Etcd));
    let asked = of_etcd.filter_map(|host| host.name.parse().ok());
    let asked: Vec<HostName> = [founder.host.clone()].into_iter().chain(asked).collect();
    steps.push(quorum(conduct, LOST, founder, &asked));
    if let Some(name) = snapshot {
        // Before anything is stopped: it may be missing, or not fit.
        let what = (name, &*from_store(mark_of(inputs)));
        steps.push(bringing(conduct, what, &founder.host));
    }
    let alone = vec![founder.host.clone()];
    // What refuses the founder is known before the others have lost their data.
    let title = format!("Prove that etcd can be founded anew on {}", founder.host);
    let words = (CHECKED, title.as_str());
    steps.push(own(Own::RecoverCheck, conduct, words, alone.clone()));
    if !names.is_empty() {
        let words = (SET_ASIDE, "Stop the members of etcd that are given up");
        let mut placed = own(Own::RecoverSetAside, conduct, words, names.clone());
        placed.step.gate = Some(lenient(conduct));
        steps.push(placed);
    }
    let title = format!("Found etcd anew on {}", founder.host);
    steps.push(own(
        Own::RecoverEtcd,
        conduct,
        (FOUND, &title),
        alone.clone(),
    ));
    let is_founded = MemberChange {
        turn: Turn::Founded,
        ..founder.clone()
    };
    steps.push(quorum(conduct, FOUNDED, &is_founded, &alone));
    serving(cluster, conduct, &left, steps);
    if names.is_empty() {
        return Ok(());
    }
    if let Some(playbook) = &checkout.remove {
        let with_node: Vec<_> = given_up
            .iter()
            .filter(|host| host.roles != [Role::Etcd])
            .filter_map(|host| host.name.parse().ok())
            .collect();
        leaving(playbook, conduct, &inventory, &with_node, steps)?;
        unproved(inputs, steps);
    }
    let mut forget = of_nodes(
        conduct,
        "forget/nodes",
        "Take the nodes that are given up out of the cluster",
        Action::ForgetNodes { forced: Vec::new() },
        names,
    );
    forget.step.timeout = Some(FORGET_TIMEOUT);
    steps.push(forget);
    let Some(all) = in_one(given_up) else {
        return Ok(());
    };
    let change = Endpoints {
        cluster,
        conduct,
        checkout,
        inputs: &left,
        host: &all,
        leaves: true,
    };
    endpoints(&change, &compiled(&left)?, steps)
}

/// The steps after all members have answered that roll them back to a snapshot.
pub(crate) fn rolling_back(
    (cluster, conduct): (&str, &Conduct),
    inputs: &Inputs,
    first: &MemberChange,
    snapshot: Option<&Name>,
    steps: &mut Vec<Placed>,
) {
    let members = inputs.group("etcd");
    for (number, host) in (1_usize..).zip(members) {
        let Some(name) = snapshot else { break };
        // To all of them before anything is stopped.
        let mut placed = bringing(conduct, (name, &*from_store(mark_of(inputs))), host);
        placed.step.id = format!("{BRING_SNAPSHOT}-{number}");
        steps.push(placed);
    }
    let title = "Prove that all members can be rolled back to the snapshot";
    let words = (CHECKED, title);
    steps.push(own(Own::RecoverCheck, conduct, words, members.to_vec()));
    let title = format!("Roll etcd back to the snapshot on {}", listed(members));
    let words = (FOUND, title.as_str());
    let mut placed = own(Own::RecoverEtcd, conduct, words, members.to_vec());
    // In the middle of it nobody answers.
    placed.step.interrupt = Interrupt::Never;
    steps.push(placed);
    steps.push(quorum(conduct, FOUNDED, first, members));
    serving(cluster, conduct, inputs, steps);
}

/// What tells one recovery from others.
fn mark_of(inputs: &Inputs) -> &str {
    let mark = inputs.operation_variables.get("windlass_recover_mark");
    mark.and_then(Value::as_str).unwrap_or_default()
}

/// The control planes that stay serve again, one after the other; the first one's kubeconfig is stored.
fn serving(cluster: &str, conduct: &Conduct, left: &Inputs, steps: &mut Vec<Placed>) {
    let planes = left.group("kube_control_plane");
    for (number, host) in (1_usize..).zip(planes) {
        let id = format!("recover/serve-{number}");
        let title = format!("Have the API server of {host} answer");
        let only = vec![host.clone()];
        steps.push(own(Own::RecoverServe, conduct, (&id, &title), only));
        if number == 1 {
            // At once: what is stored may name a host that is lost.
            let mut stored = kubeconfig(cluster, conduct, left);
            "recover/kubeconfig".clone_into(&mut stored.step.id);
            steps.push(stored);
        }
    }
}

fn probe_given_up(conduct: &Conduct, hosts: &[HostName]) -> Placed {
    let title = "Ask the hosts that are given up whether they answer";
    Placed {
        step: Step {
            timeout: Some(PROBE_TIMEOUT),
            weight: Some(2),
            retry: retry(conduct),
            gate: Some(lenient(conduct)),
            ..step(GIVEN_UP, title, Action::Probe)
        },
        hosts: hosts.to_vec(),
    }
}

/// A host that is all that these are: what their leaving changes for the others.
fn in_one(hosts: &[Host]) -> Option<Host> {
    let mut all = hosts.first()?.clone();
    all.roles = hosts.iter().flat_map(|host| host.roles.clone()).collect();
    all.roles.sort_unstable();
    all.roles.dedup();
    Some(all)
}
