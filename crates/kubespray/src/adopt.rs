//! An inventory that kubespray was run with, as a Cluster and its ClusterNodes. Pure.
//!
//! What counts is what each host gets: Ansible has merged the variables of groups and hosts already, and each goes where Windlass
//! gives every host the same value again: one that all hosts share to the Cluster, every other one to each host that has it.
//! Windlass' own checks decide what cannot be taken, and [`proof`] compiles the objects as a plan would and compares. To carry
//! groups and files over one by one was rejected: Windlass has no groups of a person's own, and whose value wins would have to be
//! found out a second time.
//!
//! The first hosts of `kube_control_plane` and `etcd` hold the authorities of the cluster, so the order of both is kept: by the
//! annotation [`relocation::mark::CREATED`], which orders hosts before the time does at which an API made them. That time will not
//! do, because it has seconds and `kubectl apply` makes many hosts in one; nor will `status`, which `kubectl apply` leaves out.

use std::collections::BTreeMap;

use ansible::inventory::Inventory;
use api::{
    Cluster, ClusterNode, KubernetesVersion, KubesprayVersion,
    cluster::{
        AllNodes, ClusterSpec, Creation, Deploy, InventoryStatus, Kubespray, Minimum, Nodes,
        OddMinimum, Operations, SecretKeyRef, Source, Ssh, StartConditions,
    },
    node::{ClusterNodeSpec, NodeType, Role},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt, api::ObjectMeta};
use serde_json::{Map, Value};

use crate::{names::ADOPTED, problem::Problem};

mod existing;
pub mod groups;
mod hosts;
pub mod live;
pub mod members;
pub mod proof;
mod variables;

pub use existing::{Existing, encrypted};

/// What an inventory does not say of the cluster that it stands for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The namespace of the objects.
    pub namespace: String,
    /// The name of the Cluster.
    pub name: String,
    /// The kubespray release that built it.
    pub kubespray: KubesprayVersion,
    /// Where the playbooks are. None: the release's tag.
    pub source: Option<String>,
    /// The Kubernetes version that it has, as a person says. None: what `kube_version` says.
    pub kubernetes: Option<KubernetesVersion>,
    /// The version that all of its nodes have, where that is known: it counts where nobody says one.
    pub running: Option<KubernetesVersion>,
    /// The members of its etcd, as far as they are known: they name those that the inventory does not name.
    pub members: Vec<members::Member>,
    /// The user to log in as. None: what `ansible_user` says.
    pub user: Option<String>,
}

/// The objects.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// The Cluster.
    pub cluster: Cluster,
    /// Its hosts, in their order.
    pub nodes: Vec<ClusterNode>,
    /// What was vaulted; none: nothing was.
    pub secret: Option<Secret>,
    /// What could not be carried over, or not as it was.
    pub notes: Vec<String>,
}

/// Makes objects of an inventory.
///
/// # Errors
///
/// Everything that keeps the inventory from being a cluster of Windlass at once. That single variables cannot be carried over
/// is none: it is noted.
pub fn adopt(existing: &Existing, wish: &Wish) -> Result<Adopted, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut notes = Vec::new();
    let found = hosts::hosts(existing, &mut problems, &mut notes);
    let reached = hosts::reached(existing, &found, wish, &mut problems, &mut notes);
    let kubernetes = version(existing, &found, wish, &mut problems, &mut notes);
    let spread = variables::spread(existing, &found, &secret_name(wish));
    notes.extend(spread.notes.iter().cloned());
    if !problems.is_empty() {
        return Err(problems);
    }
    let separate_etcd = found.iter().any(|host| host.kind() == NodeType::Etcd);
    let nodes = found
        .iter()
        .zip(&reached.hosts)
        .zip(0..)
        .map(|((host, variables), place)| {
            let mut variables = variables.clone();
            variables.other = spread.hosts.get(&host.name).cloned().unwrap_or_default();
            let secret = spread.secret.contains_key(&variables::file_of(&host.name));
            let spec = ClusterNodeSpec {
                node_type: host.kind(),
                roles: (!host.is_usual(separate_etcd)).then(|| host.roles.clone()),
                inventory: variables,
                extra_vars_secret_ref: secret.then(|| SecretKeyRef {
                    name: secret_name(wish),
                    key: Some(variables::file_of(&host.name)),
                }),
                certificates: None,
            };
            let mut node = ClusterNode::new(&host.name, spec);
            node.metadata.namespace = Some(wish.namespace.clone());
            let mark = relocation::mark::CREATED.to_owned();
            node.annotations_mut().insert(mark, place_in_time(place));
            node
        })
        .collect();
    let mut cluster = Cluster::new(
        &wish.name,
        spec(wish, &found, &reached, kubernetes, &spread),
    );
    cluster.metadata.namespace = Some(wish.namespace.clone());
    let mark = (ADOPTED.to_owned(), "true".to_owned());
    cluster.annotations_mut().extend([mark]);
    let mut adopted = Adopted {
        cluster,
        nodes,
        secret: secret(wish, spread.secret),
        notes,
    };
    let inventory = proof::inventory(&adopted, ansible::inventory::Directories::default())?;
    adopted.record(&inventory);
    Ok(adopted)
}

impl Adopted {
    /// Records the order in the status, as Windlass does when it builds a cluster.
    fn record(&mut self, inventory: &Inventory) {
        let inventory: InventoryStatus = inventory.order().clone();
        let status = self.cluster.status.get_or_insert_default();
        status.inventory = Some(inventory);
    }
}

fn spec(
    wish: &Wish,
    hosts: &[hosts::Found],
    reached: &hosts::Reached,
    kubernetes: Option<KubernetesVersion>,
    spread: &variables::Spread,
) -> ClusterSpec {
    let count = |role| {
        hosts
            .iter()
            .filter(|host| host.roles.contains(&role))
            .count()
    };
    let least = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let etcd = least(count(Role::Etcd));
    let vaulted = spread.secret.contains_key(variables::FILE);
    ClusterSpec {
        kubernetes_version: kubernetes,
        kubespray: Some(Kubespray {
            mirror: None,
            version: Some(wish.kubespray),
            source: wish.source.clone().map(|path| Source {
                path: Some(path),
                ..Source::default()
            }),
        }),
        ssh: Some(Ssh {
            user: reached.user.clone(),
            port: reached.port,
            private_key_secret_ref: reached.key.then(|| SecretKeyRef {
                name: key_name(wish),
                key: None,
            }),
            bastion: reached.bastion.clone(),
            ..Ssh::default()
        }),
        nodes: Some(Nodes {
            all: Some(AllNodes {
                deploy: Some(Deploy {
                    extra_vars: Some(spread.cluster.clone()),
                    extra_vars_secret_ref: vaulted.then(|| SecretKeyRef {
                        name: secret_name(wish),
                        key: Some(variables::FILE.to_owned()),
                    }),
                }),
                ..AllNodes::default()
            }),
        }),
        operations: Some(Operations {
            creation: Some(Creation {
                // Not one host less than there are: what is missing would be no part of what was taken over.
                start_conditions: Some(StartConditions {
                    etcd: (etcd > 0).then_some(OddMinimum {
                        minimum: etcd.min(9),
                    }),
                    control_plane: Some(Minimum {
                        minimum: least(count(Role::ControlPlane)),
                    }),
                    nodes: Some(Minimum {
                        minimum: least(hosts.len()),
                    }),
                    last_node_creation: None,
                }),
                ..Creation::default()
            }),
            ..Operations::default()
        }),
        ..ClusterSpec::default()
    }
}

/// The version that the cluster has, from the variable of that name.
fn version(
    existing: &Existing,
    hosts: &[hosts::Found],
    wish: &Wish,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) -> Option<KubernetesVersion> {
    if let Some(version) = wish.kubernetes {
        return Some(version);
    }
    let mut said: Vec<String> = Vec::new();
    for host in hosts.iter().filter(|host| host.is_node()) {
        if let Some(value) = existing.value(&host.name, KUBE_VERSION) {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            if !said.contains(&text) {
                said.push(text);
            }
        }
    }
    match (said.as_slice(), wish.running) {
        ([one], _) if one.parse::<KubernetesVersion>().is_ok() => one.parse().ok(),
        ([], running @ Some(_)) => running,
        (_, Some(running)) => {
            notes.push(format!(
                "{KUBE_VERSION}: {} is not one version of Kubernetes: the Cluster has {running}, which its nodes run",
                said.join(", ")
            ));
            Some(running)
        }
        ([], None) => {
            notes.push(format!(
                "{KUBE_VERSION}: the inventory does not say it, and the cluster is not taken over before the Cluster does; name the \
                 version that runs with --kubernetes-version, or have the nodes asked with --live"
            ));
            None
        }
        (_, None) => {
            problems.push(Problem::new(
                KUBE_VERSION,
                said.join(", "),
                "is not one version of Kubernetes",
                "name the version that runs with --kubernetes-version, or have the nodes asked with --live",
            ));
            None
        }
    }
}

fn secret(wish: &Wish, data: BTreeMap<String, String>) -> Option<Secret> {
    (!data.is_empty()).then(|| Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(wish)),
            namespace: Some(wish.namespace.clone()),
            ..ObjectMeta::default()
        },
        string_data: Some(data),
        ..Secret::default()
    })
}

/// The Secret with what was vaulted.
fn secret_name(wish: &Wish) -> String {
    format!("{}-vault", wish.name)
}

/// The Secret with the ssh key.
fn key_name(wish: &Wish) -> String {
    format!("{}-ssh", wish.name)
}

/// A time that puts a host in its place: a second each from the year 2000 on, before every host that is declared later. The same
/// each time, so that objects that are made again are the same.
fn place_in_time(place: i64) -> String {
    const BEGINNING: i64 = 946_684_800;
    jiff::Timestamp::from_second(BEGINNING.saturating_add(place))
        .unwrap_or_default()
        .to_string()
}

const KUBE_VERSION: &str = "kube_version";

/// The objects for `kubectl apply`, the Cluster with its status, the hosts in their order. Nothing of it is secret.
///
/// # Errors
///
/// An object cannot be written as JSON.
pub fn documents(
    cluster: &Cluster,
    nodes: &[ClusterNode],
) -> Result<(Value, Vec<Value>), serde_json::Error> {
    let nodes = nodes.iter().map(serde_json::to_value);
    Ok((
        without_nulls(serde_json::to_value(cluster)?),
        nodes
            .map(|node| node.map(without_nulls))
            .collect::<Result<_, _>>()?,
    ))
}

/// Metadata and status as people would write them. Variables keep theirs.
fn without_nulls(mut object: Value) -> Value {
    for part in ["metadata", "status"] {
        let Some(Value::Object(fields)) = object.get_mut(part) else {
            continue;
        };
        fields.retain(|_, value| !is_nothing(value));
    }
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !is_nothing(value));
    }
    object
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests;
