//! The members of etcd as the cluster that runs tells them, held against the objects. Pure.
//!
//! kubespray counts members where an inventory does not name them, and nothing says that it counted then as it would now: a host
//! that left and came back has another place. A member under another name cannot be taken out or replaced.

use api::node::{ClusterNodeSpec, HostVariables};
use kube::ResourceExt;

use super::Adopted;
use crate::{etcd, problem::Problem};

/// A member of etcd.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// What it is called.
    pub name: String,
    /// The name of its node, or the addresses at which others reach it.
    pub at: Vec<String>,
}

impl Member {
    fn is_of(&self, host: &str, variables: &HostVariables) -> bool {
        let mut known = vec![host];
        known.extend(addresses(variables));
        self.at.iter().any(|at| known.contains(&at.as_str()))
    }
}

/// Reads what `etcdctl member list --write-out=json` prints.
///
/// # Errors
///
/// It is something else, or a member has no name because it has not started.
pub fn read(text: &str) -> Result<Vec<Member>, Problem> {
    let wrong = |value: String, rule: String| {
        Problem::new(
            "--etcd-members",
            value,
            rule,
            "write into the file what a member prints: etcdctl member list --write-out=json",
        )
    };
    let listed = etcd::listed(text.trim()).map_err(|why| wrong(String::new(), why))?;
    let members = listed.into_iter().map(|member| {
        let at = member.addresses().to_vec();
        match member.name {
            Some(name) => Ok(Member { name, at }),
            None => Err(wrong(
                at.join(", "),
                "the member there has not started, and has no name yet".to_owned(),
            )),
        }
    });
    members.collect()
}

/// What the member of a host is called; none: none is known there.
pub(super) fn name<'a>(
    members: &'a [Member],
    host: &str,
    variables: &HostVariables,
) -> Option<&'a str> {
    let mut members = members.iter();
    let own = members.find(|member| member.is_of(host, variables))?;
    Some(&own.name)
}

/// Where the objects contradict a list of all members.
pub fn contradictions(members: &[Member], adopted: &Adopted) -> Vec<Problem> {
    let hosts = adopted.nodes.iter().filter_map(|node| {
        let named = node.spec.inventory.etcd_member_name.as_ref()?;
        Some((node.name_any(), &node.spec, named))
    });
    let hosts: Vec<(String, &ClusterNodeSpec, &String)> = hosts.collect();
    let mut told = Vec::new();
    for (host, spec, named) in &hosts {
        let at = || addresses(&spec.inventory).join(", ");
        match name(members, host, &spec.inventory) {
            Some(own) if own == *named => {}
            Some(own) => told.push(named_otherwise(host, named, own)),
            None => told.push(Problem::new(
                format!("group etcd: host {host}"),
                at(),
                "etcd has no member there",
                "take it out of the group, or write the address of its member as ip",
            )),
        }
    }
    let is_of_one = |member: &&Member| {
        let mut hosts = hosts.iter();
        hosts.any(|(host, spec, _)| member.is_of(host, &spec.inventory))
    };
    let unknown = members.iter().filter(|member| !is_of_one(member));
    told.extend(unknown.map(|member| {
        Problem::new(
            "group etcd",
            member.at.join(", "),
            format!(
                "etcd has the member {} there, and no host of the group is",
                member.name
            ),
            "put its host into the group",
        )
    }));
    told
}

/// That a member has another name than the inventory gives it.
pub(super) fn named_otherwise(host: &str, named: &str, own: &str) -> Problem {
    Problem::new(
        format!("host {host} etcd_member_name"),
        named,
        format!("its member of etcd is called {own}"),
        format!("write etcd_member_name: {own}"),
    )
}

/// All addresses by which a host may be known.
pub(super) fn addresses(variables: &HostVariables) -> Vec<&str> {
    let mut addresses = vec![variables.ansible_host.as_str()];
    addresses.extend(variables.ip.as_deref());
    addresses.extend(variables.access_ip.as_deref());
    addresses.dedup();
    addresses
}
