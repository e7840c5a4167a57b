//! The hosts of an inventory: their roles, their order, and how they are reached.

use std::collections::BTreeSet;

use api::{
    cluster::Bastion,
    node::{HostVariables, NodeType, Role},
};
use serde_json::Value;

use super::{Existing, Wish, key_name, members};
use crate::problem::Problem;

/// A host of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Found {
    pub(super) name: String,
    /// Its roles, sorted.
    pub(super) roles: Vec<Role>,
    /// Its place among the members of etcd, from 1.
    pub(super) member: Option<usize>,
}

impl Found {
    pub(super) fn kind(&self) -> NodeType {
        let is = |role| self.roles.contains(&role);
        match self.roles.first() {
            _ if is(Role::ControlPlane) => NodeType::Master,
            _ if is(Role::Worker) => NodeType::Worker,
            Some(Role::Etcd) => NodeType::Etcd,
            Some(Role::CalicoRr) => NodeType::CalicoRr,
            _ => NodeType::Bastion,
        }
    }

    /// Whether its type alone says its roles.
    pub(super) fn is_usual(&self, separate_etcd: bool) -> bool {
        let usual: &[Role] = match self.kind() {
            NodeType::Master if separate_etcd => &[Role::ControlPlane],
            NodeType::Master => &[Role::ControlPlane, Role::Etcd],
            NodeType::Worker => &[Role::Worker],
            NodeType::Etcd => &[Role::Etcd],
            NodeType::CalicoRr => &[Role::CalicoRr],
            NodeType::Bastion => &[Role::Bastion],
        };
        self.roles == usual
    }

    /// Whether others are reached through it, and nothing else.
    fn is_bastion(&self) -> bool {
        self.roles == [Role::Bastion]
    }

    /// Whether it stands in `k8s_cluster`.
    pub(super) fn is_node(&self) -> bool {
        [Role::ControlPlane, Role::Worker, Role::CalicoRr]
            .iter()
            .any(|role| self.roles.contains(role))
    }
}

/// The groups that give a role; the second names are those of kubespray before 2.16.
pub(super) const GROUPS: [(Role, &[&str]); 5] = [
    (Role::ControlPlane, &["kube_control_plane", "kube-master"]),
    (Role::Etcd, &["etcd"]),
    (Role::Worker, &["kube_node", "kube-node"]),
    (Role::CalicoRr, &["calico_rr", "calico-rr"]),
    (Role::Bastion, &["bastion"]),
];

/// The groups that hold others.
const WHOLE: [&str; 4] = ["all", "k8s_cluster", "k8s-cluster", "ungrouped"];

/// The members of a role, in the order of the inventory.
pub(super) fn members(existing: &Existing, role: Role) -> Vec<String> {
    let mut members: Vec<String> = Vec::new();
    let groups = GROUPS.iter().filter(|(of, _)| *of == role);
    for group in groups.flat_map(|(_, names)| *names) {
        for host in existing.listing.members(group) {
            if !members.iter().any(|member| member == host) {
                members.push(host.to_owned());
            }
        }
    }
    members
}

/// The hosts of the cluster in an order that keeps that of control plane and etcd.
pub(super) fn hosts(
    existing: &Existing,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) -> Vec<Found> {
    groups(existing, notes);
    let of = |role| members(existing, role);
    let etcd = of(Role::Etcd);
    let mut names = merged(&of(Role::ControlPlane), &etcd).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    for (role, _) in GROUPS {
        for name in of(role) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    left_out(existing, &names, problems, notes);
    if names.is_empty() {
        problems.push(Problem::new(
            "the inventory",
            "no host",
            "none of its hosts stands in a group of kubespray",
            "name the hosts file that was given to ansible-playbook; its groups are kube_control_plane, etcd and kube_node",
        ));
    }
    let found = names.into_iter().map(|name| {
        let roles = GROUPS.iter().map(|(role, _)| *role);
        let mut roles: Vec<Role> = roles.filter(|role| of(*role).contains(&name)).collect();
        roles.sort_unstable();
        let member = etcd.iter().position(|member| *member == name);
        Found {
            member: member.map(|index| index.saturating_add(1)),
            name,
            roles,
        }
    });
    let found: Vec<Found> = found.filter(|host| !host.is_bastion()).collect();
    for host in &found {
        problems.extend(unfit(&host.name));
    }
    found
}

/// One order that keeps two.
fn merged(first: &[String], second: &[String]) -> Result<Vec<String>, Problem> {
    let mut order: Vec<String> = Vec::new();
    loop {
        let next = |of: &[String]| of.iter().find(|name| !order.contains(name)).cloned();
        let (one, other) = (next(first), next(second));
        let is_free = |name: &String, of: &[String], next: &Option<String>| {
            !of.contains(name) || next.as_ref() == Some(name)
        };
        let free = match (&one, &other) {
            (None, None) => return Ok(order),
            (Some(name), _) if is_free(name, second, &other) => name,
            (_, Some(name)) if is_free(name, first, &one) => name,
            _ => {
                return Err(Problem::new(
                    "the groups kube_control_plane and etcd",
                    format!("{} and {}", first.join(", "), second.join(", ")),
                    "their orders contradict each other, and Windlass has one order of hosts",
                    "have both groups begin with the same host, by kubespray's own means, before the cluster is adopted; hosts that \
                     are first in neither may stand in any order, once each etcd host has its etcd_member_name",
                ));
            }
        };
        order.push(free.clone());
    }
}

fn groups(existing: &Existing, notes: &mut Vec<String>) {
    let known: BTreeSet<&str> = GROUPS
        .iter()
        .flat_map(|(_, names)| *names)
        .chain(&WHOLE)
        .copied()
        .collect();
    let unknown = existing.listing.groups();
    for name in unknown.filter(|name| !known.contains(name)) {
        notes.push(format!(
            "group {name}: Windlass makes kubespray's groups alone; what its variables give to hosts is carried over, the group \
             itself is not, and a template that reads groups['{name}'] finds nothing"
        ));
    }
}

fn left_out(
    existing: &Existing,
    names: &[String],
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) {
    let whole = ["k8s_cluster", "k8s-cluster"];
    let of_cluster: Vec<&str> = whole
        .iter()
        .flat_map(|group| existing.listing.members(group))
        .collect();
    let others = existing.listing.hosts().keys();
    for name in others.filter(|name| !names.contains(name)) {
        if of_cluster.contains(&name.as_str()) {
            problems.push(Problem::new(
                format!("host {name}"),
                "k8s_cluster",
                "stands in k8s_cluster, and in none of the groups that say what it is for",
                "put it into kube_control_plane, kube_node or calico_rr",
            ));
        } else {
            notes.push(format!(
                "host {name}: left out, it stands in no group of kubespray"
            ));
        }
    }
}

/// The name of a host is that of its node and of files on it, so it cannot be changed on the way.
fn unfit(name: &str) -> Option<Problem> {
    let fits = name.parse::<api::HostName>().is_ok() && name.len() <= 63 && !name.contains('.');
    (!fits).then(|| {
        Problem::new(
            format!("host {name}"),
            name,
            "the name of a ClusterNode is the host's: at most 63 lower-case letters, digits and '-'",
            "it cannot be adopted under this name, and another one would make another node of it",
        )
    })
}

/// How hosts are reached.
#[derive(Clone, Debug, Default)]
pub(super) struct Reached {
    pub(super) user: Option<String>,
    pub(super) port: Option<u16>,
    /// Whether the inventory names a file with the key.
    pub(super) key: bool,
    /// The host to reach the others through.
    pub(super) bastion: Option<Bastion>,
    /// Of each host what has a field of its own.
    pub(super) hosts: Vec<HostVariables>,
}

/// Reads how hosts are reached.
pub(super) fn reached(
    existing: &Existing,
    hosts: &[Found],
    wish: &Wish,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) -> Reached {
    let mut each = Vec::new();
    for host in hosts {
        each.push(variables(existing, host, wish, problems, notes));
    }
    let user = one(each.iter().map(|host| host.ansible_user.clone()));
    let port = one(each.iter().map(|host| host.ansible_port));
    for host in &mut each {
        // What all hosts have stands in the Cluster, for those that come later.
        host.ansible_user = host.ansible_user.take().filter(|_| user.is_none());
        host.ansible_port = host.ansible_port.take().filter(|_| port.is_none());
    }
    Reached {
        user: wish.user.clone().or(user),
        port,
        key: key(existing, hosts, wish, notes),
        bastion: bastion(existing, hosts, wish, problems, notes),
        hosts: each,
    }
}

/// The host to reach the others through, where it is none of the cluster itself. That is no node, so it needs no ClusterNode, and
/// may have the name that kubespray's samples give it, which no ClusterNode can have.
fn bastion(
    existing: &Existing,
    hosts: &[Found],
    wish: &Wish,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) -> Option<Bastion> {
    let mut names = members(existing, Role::Bastion);
    names.retain(|name| !hosts.iter().any(|host| host.name == *name));
    let (name, more) = names.split_first()?;
    notes.push(format!(
        "host {name}: it is spec.ssh.bastion of the Cluster, and no ClusterNode; variables of its own are left out"
    ));
    notes.extend(
        more.iter().map(|name| {
            format!("host {name}: left out, Windlass reaches hosts through one bastion")
        }),
    );
    let host = Found {
        name: name.clone(),
        roles: vec![Role::Bastion],
        member: None,
    };
    let reached = variables(existing, &host, wish, problems, notes);
    Some(Bastion {
        address: reached.ansible_host,
        user: reached.ansible_user,
        port: reached.ansible_port,
    })
}

fn variables(
    existing: &Existing,
    host: &Found,
    wish: &Wish,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) -> HostVariables {
    let name = &host.name;
    let mut text = |names: &[&str]| text(existing, name, names, problems);
    let address = text(&["ansible_host", "ansible_ssh_host"]);
    let user = text(&["ansible_user", "ansible_ssh_user"]);
    let ip = text(&["ip"]);
    let access_ip = text(&["access_ip"]);
    let member = text(&["etcd_member_name"]);
    let port = text(&["ansible_port", "ansible_ssh_port"]);
    let number: Option<u16> = port.as_ref().and_then(|text| text.parse().ok());
    if let Some(text) = port.filter(|_| number.is_none()) {
        problems.push(Problem::new(
            format!("host {name} ansible_port"),
            text,
            "is not a port",
            "write a number from 1 to 65535",
        ));
    }
    if address.is_none() {
        notes.push(format!(
            "host {name}: it has no ansible_host, so Ansible connects to its name; so does Windlass, which must be able to resolve it \
             where its runners are"
        ));
    }
    let mut variables = HostVariables {
        ansible_host: address.unwrap_or_else(|| name.clone()),
        ansible_port: number,
        ansible_user: user,
        ip,
        access_ip,
        etcd_member_name: None,
        other: serde_json::Map::new(),
    };
    // As etcd says, or kubespray names it where nobody does. Written, so that nothing can rename it.
    variables.etcd_member_name = host.member.map(|place| {
        let own = members::name(&wish.members, name, &variables).map(str::to_owned);
        member.or(own).unwrap_or_else(|| format!("etcd{place}"))
    });
    variables
}

/// The first of these variables that a host has, as a text.
fn text(
    existing: &Existing,
    host: &str,
    names: &[&str],
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let name = names.iter().find(|name| existing.has(host, name))?;
    let field = format!("host {host} {name}");
    match existing.value(host, name) {
        Some(Value::String(text)) if ansible::template::is_template(text) => {
            problems.push(Problem::new(
                field,
                text,
                "is a template, and must be known before anything runs",
                "write the value itself",
            ));
        }
        Some(Value::String(text)) => return Some(text.clone()),
        Some(Value::Number(number)) => return Some(number.to_string()),
        Some(Value::Null) => {}
        Some(other) => problems.push(Problem::new(
            field,
            other,
            "is not a text",
            "write the value itself",
        )),
        None => problems.push(Problem::new(
            field,
            "",
            "is encrypted, and how a host is reached stands in its ClusterNode",
            "write it in the open",
        )),
    }
    None
}

/// What all have. None: some have none, or another one.
fn one<T: PartialEq>(mut values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = values.next()??;
    values
        .all(|value| value.as_ref() == Some(&first))
        .then_some(first)
}

/// A path as a shell reads it between quotes.
fn of_home(path: &str) -> String {
    match path.strip_prefix("\"~/") {
        Some(rest) => format!("\"$HOME/{rest}"),
        None => path.to_owned(),
    }
}

/// Whether the inventory names a file with the ssh key.
fn key(existing: &Existing, hosts: &[Found], wish: &Wish, notes: &mut Vec<String>) -> bool {
    let named = hosts.iter().flat_map(|host| {
        let values = KEYS.iter().map(|name| existing.value(&host.name, name));
        values.flatten().map(Value::to_string)
    });
    let named: BTreeSet<String> = named.collect();
    let files: Vec<&str> = named.iter().map(String::as_str).collect();
    let secret = key_name(wish);
    match files.as_slice() {
        [] => notes.push(
            "ssh key: the inventory names none; put the one that is used into a Secret and name it in spec.ssh.privateKeySecretRef, \
             or Windlass tries what ssh finds by itself"
                .to_owned(),
        ),
        [file] => notes.push(format!(
            "ssh key: put it into the Secret that the Cluster names: kubectl -n {} create secret generic {secret} \
             --from-file=ssh-privatekey={}",
            wish.namespace,
            of_home(file)
        )),
        several => notes.push(format!(
            "ssh key: hosts have different ones ({}), Windlass has one for all: put it into the Secret {secret}, key ssh-privatekey",
            several.join(", ")
        )),
    }
    !files.is_empty()
}

/// The variables that name the file with the key.
pub(super) const KEYS: [&str; 2] = ["ansible_ssh_private_key_file", "ansible_private_key_file"];

/// All variables that say how a host is reached, or have a field of their own.
pub(super) const FIELDS: &[&str] = &[
    "ansible_host",
    "ansible_ssh_host",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_user",
    "ansible_ssh_user",
    "ip",
    "access_ip",
    "etcd_member_name",
    "ansible_become",
    "ansible_ssh_private_key_file",
    "ansible_private_key_file",
    "kube_version",
];
