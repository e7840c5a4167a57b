//! Which hosts are to be replaced, and how far that is. Pure.
//!
//! It is the wish of a ClusterNode that is being deleted and names another one, of the same roles. That one joins first, and the host
//! leaves then; a host that is lost leaves first, where the cluster can do without it, because etcd takes no new member beside one
//! that does not answer. Where the host is the first one, another takes its place before it leaves.

use std::fmt;

use api::{ClusterNode, HostName, cluster::InventoryStatus, node::Role};
use kube::ResourceExt;

use super::leaving::{is_forced, is_leaving};
use crate::{
    cluster::{compile, observe::Observed},
    inputs::{Host, Inputs},
    operation::{remove::is_down, scale::manages_etcd},
    request::REPLACED_BY,
};

/// The groups whose first host has a part that no other one has, and what they are for people.
const HEADED: [(&str, Role, &str); 2] = [
    ("kube_control_plane", Role::ControlPlane, "control planes"),
    ("etcd", Role::Etcd, "etcd"),
];

/// A host that is to be replaced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replacing {
    /// The host.
    pub host: HostName,
    /// The one that takes its place.
    pub by: HostName,
    /// What comes next.
    pub turn: Turn,
    /// Whether the host leaves before the other one joins, because it is lost.
    pub is_lost: bool,
    /// The groups of which another host becomes the first, at its turn.
    pub hands_over: Vec<Handover>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// The other one joins.
    Joins,
    /// Another one takes the first place.
    HandsOver,
    /// The host leaves.
    Leaves,
}

/// A group of which another host becomes the first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Handover {
    /// Its name.
    pub group: &'static str,
    /// What it is for people.
    pub what: &'static str,
    /// Its order with that one.
    pub order: Vec<HostName>,
    /// Its order now, and after the other one joined where that comes before.
    pub from: Vec<HostName>,
}

impl Handover {
    /// The host that becomes the first.
    pub fn heir(&self) -> Option<&HostName> {
        self.order.first()
    }
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |hosts: &[HostName]| {
            let names: Vec<_> = hosts.iter().map(HostName::as_str).collect();
            names.join(", ")
        };
        let Self {
            what, from, order, ..
        } = self;
        let first = self.heir().map_or("", HostName::as_str);
        write!(
            f,
            "the first of {what} was {}, and is {first} from then on: their order {} becomes {}",
            from.first().map_or("", HostName::as_str),
            listed(from),
            listed(order)
        )
    }
}

impl Replacing {
    /// Whether the host is part of the wish yet.
    pub fn stays(&self) -> bool {
        self.turn != Turn::Leaves
    }

    /// The order that is state, once the others are first.
    pub fn rotated(&self, before: &InventoryStatus) -> InventoryStatus {
        let mut rotated = before.clone();
        for handover in &self.hands_over {
            let order = handover.order.clone();
            rotated.order.insert(handover.group.to_owned(), order);
        }
        rotated
    }

    /// How the orders change, for people.
    pub fn handed_over(&self) -> String {
        let all: Vec<_> = self.hands_over.iter().map(ToString::to_string).collect();
        all.join("; ")
    }

    /// Why the host is part of the cluster yet, for people.
    pub fn waits(&self) -> String {
        let Self { host, by, .. } = self;
        let then = if self.hands_over.is_empty() {
            String::new()
        } else {
            format!(
                "; then another takes the first place ({})",
                self.handed_over()
            )
        };
        match self.turn {
            Turn::Joins => {
                format!("{by} joins first, which takes its place{then}; {host} leaves last")
            }
            Turn::HandsOver => format!(
                "another host takes the first place before it leaves ({})",
                self.handed_over()
            ),
            Turn::Leaves if self.is_lost => {
                format!("it is lost and leaves first; {by}, which takes its place, joins then")
            }
            Turn::Leaves => format!("{by} has taken its place"),
        }
    }
}

/// The host that a ClusterNode names to take its place.
pub fn named(node: &ClusterNode) -> Option<&String> {
    is_leaving(node)
        .then(|| node.annotations().get(REPLACED_BY))
        .flatten()
}

/// How far the replacement of a host of a built cluster is, or why it cannot be.
pub fn judge(
    node: &ClusterNode,
    by: &str,
    host: &Host,
    before: &Inputs,
    observed: &Observed,
) -> Result<Replacing, String> {
    let other = taker(node, by, host, &observed.nodes)?;
    if !host.is_worker() {
        possible(host, before)?;
    }
    let name: HostName = host
        .name
        .parse()
        .map_err(|_| "its name is no host name".to_owned())?;
    let is_lost = is_forced(node) || is_down(observed, &name);
    let joined = before.host(&other).is_some();
    let spared = is_spared(host, before, &observed.nodes);
    if is_lost && !joined && !spared && !host.is_worker() {
        return Err(format!(
            "it is all that the cluster has of its control plane or of etcd, so that {other} can join beside it only, and it is lost: bring \
             the host back, or the files of {} from a backup of it; windlass recover is for etcd whose data is lost",
            host.part()
        ));
    }
    // The place is taken before it is given up, unless the one in it is lost.
    let joins = !joined && (!is_lost || !spared);
    let mut hands_over = Vec::new();
    for (group, role, what) in HEADED {
        let order = before.group(group);
        if host.has(role) && order.first() == Some(&name) {
            let newcomer = Some(&other).filter(|_| joins);
            hands_over.extend(handover((group, what), order, newcomer, observed)?);
        }
    }
    let turn = match () {
        () if joins => Turn::Joins,
        () if !hands_over.is_empty() => Turn::HandsOver,
        () => Turn::Leaves,
    };
    Ok(Replacing {
        host: name,
        by: other,
        turn,
        is_lost: is_lost && !joined && spared,
        hands_over,
    })
}

/// The host that takes the place, if it can.
fn taker(
    node: &ClusterNode,
    by: &str,
    host: &Host,
    nodes: &[ClusterNode],
) -> Result<HostName, String> {
    let name = &host.name;
    let again = format!("windlass node replace {name} --by NAME");
    let shown = api::text::plain(by, 64);
    let Ok(other) = by.parse::<HostName>() else {
        return Err(format!(
            "the annotation {REPLACED_BY} says {shown:?}, which is no name of a host: name the ClusterNode that takes its place ({again})"
        ));
    };
    if other.as_str() == name {
        return Err(format!(
            "it cannot take its own place: name another ClusterNode ({again})"
        ));
    }
    let Some(taker) = nodes.iter().find(|node| node.name_any() == other.as_str()) else {
        return Err(format!(
            "there is no ClusterNode {other}, which is to take its place: declare it with the roles {}",
            roles(host)
        ));
    };
    if is_leaving(taker) {
        return Err(format!(
            "{other}, which is to take its place, is to leave itself: windlass node keep {other}, or name another ({again})"
        ));
    }
    let hosts = super::hosts(nodes);
    let of_taker = hosts.iter().find(|host| host.name == other.as_str());
    if let Some(of_taker) = of_taker.filter(|taker| taker.roles != host.roles) {
        return Err(format!(
            "{other}, which is to take its place, has the roles {}, and it has {}: declare {other} anew with spec.roles {}",
            roles(of_taker),
            roles(host),
            roles(host),
        ));
    }
    let before = nodes
        .iter()
        .take_while(|older| older.name_any() != node.name_any());
    let taken = before
        .filter(|older| named(older) == Some(&by.to_owned()))
        .map(ResourceExt::name_any)
        .next();
    match taken {
        Some(taken) => Err(format!(
            "{other} takes the place of {taken} already: declare another host and name that ({again})"
        )),
        None => Ok(other),
    }
}

/// What cannot be replaced at all.
fn possible(host: &Host, before: &Inputs) -> Result<(), String> {
    if !host.is_member() {
        return Err(
            "only workers, control planes and members of etcd can be replaced yet: take it back (windlass node keep NAME)"
                .to_owned(),
        );
    }
    if manages_etcd(before) {
        return Err(
            "kubeadm runs etcd (etcd_deployment_type), and replacing its members is not carried out yet".to_owned(),
        );
    }
    Ok(())
}

/// Whether the cluster can do without a host before another has joined.
fn is_spared(host: &Host, before: &Inputs, nodes: &[ClusterNode]) -> bool {
    let another = |role: Role| {
        let mut others = before.hosts.iter().filter(|other| other.name != host.name);
        !host.has(role) || others.any(|other| other.has(role) && stays(&other.name, nodes))
    };
    another(Role::ControlPlane) && another(Role::Etcd) && another(Role::Worker)
}

fn stays(name: &str, nodes: &[ClusterNode]) -> bool {
    let node = nodes.iter().find(|node| node.name_any() == name);
    node.is_some_and(|node| !is_leaving(node))
}

/// Who comes after the first of a group: the next one that stays, and works as far as is known.
fn handover(
    (group, what): (&'static str, &'static str),
    order: &[HostName],
    newcomer: Option<&HostName>,
    observed: &Observed,
) -> Result<Option<Handover>, String> {
    let from: Vec<HostName> = order.iter().chain(newcomer).cloned().collect();
    let Some((old, others)) = from.split_first() else {
        return Ok(None);
    };
    let mut fit = others
        .iter()
        .filter(|name| stays(name.as_str(), &observed.nodes) && !is_down(observed, name));
    let Some(heir) = fit.next() else {
        return Err(format!(
            "it is the first of {what}, and no other of them that stays works: bring one of these back, or take back its removal \
             (windlass node keep NAME): {}",
            compile::listed(others)
        ));
    };
    let mut rotated = vec![heir.clone()];
    rotated.extend(others.iter().filter(|name| *name != heir).cloned());
    rotated.push(old.clone());
    Ok(Some(Handover {
        group,
        what,
        order: rotated,
        from,
    }))
}

fn roles(host: &Host) -> String {
    let names: Vec<_> = host
        .roles
        .iter()
        .filter_map(|role| serde_json::to_value(role).ok()?.as_str().map(str::to_owned))
        .collect();
    format!("[{}]", names.join(", "))
}
