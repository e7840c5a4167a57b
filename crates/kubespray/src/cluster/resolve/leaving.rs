//! Which hosts the wish still has of those whose ClusterNodes are being deleted. Pure.
//!
//! A finalizer holds such an object until its host is no part of the cluster any more: it is the wish to remove the host, while an
//! object that is not there says nothing. A host that cannot be removed stays in the wish, so that nothing is planned that would
//! do without it.

use std::fmt;

use api::{Cluster, ClusterNode, HostName, node::Role};
use kube::{Resource, ResourceExt};

use crate::{
    cluster::{
        built::{built_by, built_with, is_built},
        observe::Observed,
    },
    inputs::{Host, Inputs},
    operation::{remove::one_by_one, scale::manages_etcd},
    request::FORCE_REMOVAL,
};

use super::replacing::{Replacing, judge, named};

/// A host whose ClusterNode is being deleted, and which stays part of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, why } = self;
        write!(
            f,
            "the removal of host {name}: {why}; to take it back: windlass node keep {name}"
        )
    }
}

/// Whether a person wants a host gone whatever is lost.
pub(super) fn is_forced(node: &ClusterNode) -> bool {
    is_leaving(node) && node.annotations().contains_key(FORCE_REMOVAL)
}

pub(super) fn is_leaving(node: &ClusterNode) -> bool {
    node.meta().deletion_timestamp.is_some()
}

/// The hosts of the wish.
pub(super) struct Wished {
    pub(super) nodes: Vec<ClusterNode>,
    /// Those of them that somebody wants removed.
    pub(super) kept: Vec<Kept>,
    /// Those that were part of the wish, and are to be removed.
    pub(super) leaving: Vec<HostName>,
    /// Those whose place others take.
    pub(super) replacing: Vec<Replacing>,
}

/// The hosts of the wish, and those that leave it.
pub(super) fn wished(cluster: &Cluster, observed: &Observed) -> Wished {
    let nodes = &observed.nodes;
    let mut wished = Wished {
        nodes: nodes.clone(),
        kept: Vec::new(),
        leaving: Vec::new(),
        replacing: Vec::new(),
    };
    // A reset is of all hosts that there are.
    if cluster.meta().deletion_timestamp.is_some() || !nodes.iter().any(is_leaving) {
        return wished;
    }
    let builder = built_by(&observed.runs);
    let before = builder.and_then(built_with);
    let stands = builder.is_some() || is_built(cluster);
    for node in nodes.iter().filter(|node| is_leaving(node)) {
        let name = node.name_any();
        if let Some((before, host, by)) = replaced(node, before.as_ref()) {
            match judge(node, by, host, before, observed) {
                Ok(replacing) => wished.replacing.push(replacing),
                Err(why) => wished.kept.push(Kept { name, why }),
            }
            continue;
        }
        let why = stands.then(|| why_not(&name, before.as_ref(), nodes));
        match why.flatten() {
            Some(why) => wished.kept.push(Kept { name, why }),
            None => wished.leaving.extend(name.parse().ok()),
        }
    }
    let replaced = wished.replacing.iter().map(|replacing| &replacing.host);
    let all: Vec<HostName> = wished.leaving.iter().chain(replaced).cloned().collect();
    if let Some(kept) = before.and_then(|before| uneven(&before, &all, observed)) {
        wished.leaving.retain(|name| name.as_str() != kept.name);
        wished
            .replacing
            .retain(|replacing| replacing.host.as_str() != kept.name);
        wished.kept.push(kept);
    }
    let turns = wished.replacing.iter();
    let turns = turns.filter(|replacing| !replacing.stays());
    wished
        .leaving
        .extend(turns.map(|replacing| replacing.host.clone()));
    let leaves = |node: &ClusterNode| {
        let name = node.name_any();
        wished
            .leaving
            .iter()
            .any(|leaving| leaving.as_str() == name)
    };
    wished.nodes.retain(|node| !leaves(node));
    wished
}

/// What the cluster was built with, the host in it, and the name of the one that takes its place, if somebody wants that.
fn replaced<'a>(
    node: &'a ClusterNode,
    before: Option<&'a Inputs>,
) -> Option<(&'a Inputs, &'a Host, &'a str)> {
    let by = named(node)?;
    let before = before?;
    let host = before.host(&node.name_any().parse().ok()?)?;
    Some((before, host, by))
}

/// The member of etcd that stays because an even number would be left, when all is done: the last one to go.
fn uneven(before: &Inputs, leaving: &[HostName], observed: &Observed) -> Option<Kept> {
    let has_member = |name: &HostName| before.host(name).is_some_and(|host| host.has(Role::Etcd));
    let last = one_by_one(before, leaving, observed)
        .into_iter()
        .rfind(has_member)?;
    let hosts = super::hosts(&observed.nodes);
    let stays = |host: &&Host| !leaving.iter().any(|name| name.as_str() == host.name);
    let members = hosts.iter().filter(stays);
    let members = members.filter(|host| host.has(Role::Etcd)).count();
    members.is_multiple_of(2).then(|| Kept {
        name: last.to_string(),
        why: format!(
            "etcd would have {members} members when all that is asked for is done, and of an even number no more may fail than of \
             one less; have one more leave (windlass node remove NAME), or declare one more"
        ),
    })
}

/// Why a host cannot be removed from a cluster that stands.
fn why_not(name: &str, before: Option<&Inputs>, nodes: &[ClusterNode]) -> Option<String> {
    let Some(before) = before else {
        return Some(
            "the runs that know what the cluster was built with are gone; windlass converge makes it known again"
                .to_owned(),
        );
    };
    let host = before.hosts.iter().find(|host| host.name == name)?;
    if let Some(why) = needed(host, before) {
        return Some(why);
    }
    let stays = |host: &&Host| {
        let node = nodes.iter().find(|node| node.name_any() == host.name);
        host.has(Role::Worker) && node.is_some_and(|node| !is_leaving(node))
    };
    let last = host.has(Role::Worker) && !before.hosts.iter().any(|host| stays(&host));
    last.then(|| {
        "the cluster would have no worker left for its pods; declare another one first".to_owned()
    })
}

/// What the cluster cannot do without of a host.
fn needed(host: &Host, before: &Inputs) -> Option<String> {
    let first_of = |group: &str| {
        before
            .group(group)
            .first()
            .is_some_and(|head| head.as_str() == host.name)
    };
    let members = before.group("etcd").len();
    let planes = before.group("kube_control_plane").len();
    let instead = format!(
        "another one takes its place by: windlass node replace {} --by NAME",
        host.name
    );
    let why = match () {
        () if host.is_worker() => return None,
        () if host.has(Role::ControlPlane) && planes == 1 => {
            format!("it is the only host of the control plane; {instead}")
        }
        () if host.has(Role::Etcd) && members == 1 => {
            format!("it is the only member of etcd; {instead}")
        }
        () if first_of("kube_control_plane") || first_of("etcd") => format!(
            "it is the first one, and holds the authorities that the cluster was built with; {instead}"
        ),
        () if !host.is_member() => {
            "only workers, control planes and members of etcd can be removed yet".to_owned()
        }
        () if manages_etcd(before) => {
            "kubeadm runs etcd (etcd_deployment_type), and taking its members out is not carried out yet".to_owned()
        }
        () => return None,
    };
    Some(why)
}
