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
    request::FORCE_REMOVAL,
};

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

fn is_leaving(node: &ClusterNode) -> bool {
    node.meta().deletion_timestamp.is_some()
}

/// The hosts of the wish.
pub(super) struct Wished {
    pub(super) nodes: Vec<ClusterNode>,
    /// Those of them that somebody wants removed.
    pub(super) kept: Vec<Kept>,
    /// Those that were part of the wish, and are to be removed.
    pub(super) leaving: Vec<HostName>,
}

/// The hosts of the wish, and those that leave it.
pub(super) fn wished(cluster: &Cluster, observed: &Observed) -> Wished {
    let nodes = &observed.nodes;
    let mut wished = Wished {
        nodes: nodes.clone(),
        kept: Vec::new(),
        leaving: Vec::new(),
    };
    // A reset is of all hosts that there are.
    if cluster.meta().deletion_timestamp.is_some() || !nodes.iter().any(is_leaving) {
        return wished;
    }
    let builder = built_by(&observed.runs);
    let before = builder.and_then(built_with);
    let stands = builder.is_some() || is_built(cluster);
    wished.nodes.retain(|node| {
        if !is_leaving(node) {
            return true;
        }
        let name = node.name_any();
        let why = stands.then(|| why_not(&name, before.as_ref(), nodes));
        if let Some(why) = why.flatten() {
            wished.kept.push(Kept { name, why });
            return true;
        }
        wished.leaving.extend(name.parse().ok());
        false
    });
    wished
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
    if !host.is_worker() {
        return Some(needed(host, before));
    }
    let stays = |host: &&Host| {
        let node = nodes.iter().find(|node| node.name_any() == host.name);
        host.roles.contains(&Role::Worker) && node.is_some_and(|node| !is_leaving(node))
    };
    (!before.hosts.iter().any(|host| stays(&host))).then(|| {
        "the cluster would have no worker left for its pods; declare another one first".to_owned()
    })
}

/// What a host is that is no worker alone.
fn needed(host: &Host, before: &Inputs) -> String {
    let first_of = |group: &str| {
        before
            .group(group)
            .first()
            .is_some_and(|head| head.as_str() == host.name)
    };
    let has = |role| host.roles.contains(&role);
    let members = before.group("etcd").len();
    let planes = before.group("kube_control_plane").len();
    match () {
        () if has(Role::ControlPlane) && planes == 1 => {
            "it is the only host of the control plane".to_owned()
        }
        () if has(Role::Etcd) && members == 1 => "it is the only member of etcd".to_owned(),
        () if first_of("kube_control_plane") || first_of("etcd") => {
            "it holds the authorities that the cluster was built with, and another host cannot take its place yet"
                .to_owned()
        }
        () if has(Role::Etcd) => format!(
            "etcd would have {} members, and of an even number no more may fail than of one less; removing members is not carried out yet",
            members.saturating_sub(1)
        ),
        () => "only workers can be removed yet".to_owned(),
    }
}
