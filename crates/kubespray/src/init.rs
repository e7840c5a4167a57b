//! A first set of objects from the addresses of hosts, for those who have no inventory. Pure.
//!
//! What is made is what a person would write: as few fields as say it. It passes the rules of every Cluster before it is handed
//! out, so that what is wrong is told where it was typed.

use std::{fmt, str::FromStr};

use ansible::{
    catalogue,
    inventory::{self, Directories},
};
use api::{
    Cluster, ClusterNode, HostName, KubernetesVersion, KubesprayVersion,
    cluster::{
        ClusterSpec, Creation, Kubespray, Minimum, OddMinimum, Operations, SecretKeyRef, Source,
        Ssh, StartConditions,
    },
    node::{ClusterNodeSpec, HostVariables, NodeType, Role},
};
use serde_json::Value;

use crate::{
    adopt,
    preview::{self, Objects},
    problem::{self, Problem},
};

/// One host as a person names it: `ADDRESS`, or `NAME=ADDRESS`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Machine {
    /// Its name. None: by its part in the cluster and its place.
    pub name: Option<HostName>,
    /// The address that ssh connects to.
    pub address: String,
}

/// Why a text names no host.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidMachine {
    /// There is no address.
    #[error(
        "{0:?} has no address: write ADDRESS or NAME=ADDRESS, for example 10.0.0.11 or node-1=10.0.0.11"
    )]
    NoAddress(String),
    /// The name is none of a host's.
    #[error("{0}")]
    NoName(String),
}

impl FromStr for Machine {
    type Err = InvalidMachine;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, address) = match text.split_once('=') {
            Some((name, address)) => (Some(name.trim().parse::<HostName>()), address.trim()),
            None => (None, text.trim()),
        };
        let name = name.transpose();
        let name = name.map_err(|error| InvalidMachine::NoName(error.to_string()))?;
        if address.is_empty() {
            return Err(InvalidMachine::NoAddress(text.to_owned()));
        }
        Ok(Self {
            name,
            address: address.to_owned(),
        })
    }
}

/// What a person says of a cluster that is to be.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The namespace of the objects.
    pub namespace: String,
    /// The name of the Cluster.
    pub name: String,
    /// The control planes. They are etcd members too, unless etcd has hosts of its own.
    pub control_planes: Vec<Machine>,
    /// The workers. None: the control planes run pods as well.
    pub workers: Vec<Machine>,
    /// The hosts that are etcd members alone.
    pub etcd: Vec<Machine>,
    /// The user to log in as. None: root.
    pub user: Option<String>,
    /// The kubespray release. None: the newest that Windlass knows.
    pub kubespray: Option<KubesprayVersion>,
    /// Where the playbooks are. None: the release's tag.
    pub source: Option<String>,
    /// The Kubernetes version. None: the release's own.
    pub kubernetes: Option<KubernetesVersion>,
}

/// The objects.
#[derive(Clone, Debug)]
pub struct First {
    /// The Cluster.
    pub cluster: Cluster,
    /// Its hosts, in their order.
    pub nodes: Vec<ClusterNode>,
}

/// Makes the objects.
///
/// # Errors
///
/// Everything that is wrong with them at once, as for any Cluster.
pub fn first(wish: &Wish) -> Result<First, Vec<Problem>> {
    let nodes = nodes(wish);
    let mut cluster = Cluster::new(&wish.name, spec(wish, &nodes));
    cluster.metadata.namespace = Some(wish.namespace.clone());
    let mut problems = unfit(wish);
    if !wish.control_planes.is_empty() {
        problems.extend(problems_of(&cluster, &nodes));
    }
    if problems.is_empty() {
        Ok(First { cluster, nodes })
    } else {
        Err(problems)
    }
}

impl First {
    /// The objects as people would write them, for a file of the Cluster and one of its hosts.
    ///
    /// # Errors
    ///
    /// An object cannot be written as JSON.
    pub fn documents(&self) -> Result<(Value, Vec<Value>), serde_json::Error> {
        adopt::documents(&self.cluster, &self.nodes)
    }
}

/// The Secret with the ssh key: a namespace has one Cluster.
pub const KEY: &str = "ssh";

/// What is told in the words of those who type it.
fn unfit(wish: &Wish) -> Vec<Problem> {
    let name_is_fit = wish.name.parse::<HostName>().is_ok() && wish.name.len() <= LONGEST_NAME;
    let mut problems = Vec::new();
    if !name_is_fit {
        problems.push(Problem::new(
            "Cluster metadata.name",
            &wish.name,
            format!("is no name of at most {LONGEST_NAME} lower-case letters, digits, '-' and '.'"),
            "give it one with --name",
        ));
    }
    if wish.control_planes.is_empty() {
        problems.push(Problem::new(
            "--control-plane",
            "none",
            "a cluster has one control plane at least",
            "name the addresses of one, three or five hosts",
        ));
    }
    problems.extend(not_installed(wish));
    problems
}

/// What a checkout installs is read from it, when a plan is made, and one that is too old is refused of any Cluster.
fn not_installed(wish: &Wish) -> Option<Problem> {
    let wanted = wish.kubernetes.filter(|_| wish.source.is_none())?;
    let release = match wish.kubespray {
        Some(version) => catalogue::release(version).ok()?,
        None => catalogue::newest(),
    };
    let by = catalogue::installing(wanted).map_or_else(String::new, |release| {
        format!(", or --kubespray-version {}", release.version)
    });
    let is_too_new = wanted > release.kubernetes_default && !release.may_install(wanted);
    is_too_new.then(|| {
        Problem::new(
            "--kubernetes-version",
            wanted,
            format!(
                "kubespray {} installs Kubernetes {} to {}",
                release.version, release.kubernetes_minimum, release.kubernetes_default
            ),
            format!("write one of these{by}"),
        )
    })
}

fn problems_of(cluster: &Cluster, nodes: &[ClusterNode]) -> Vec<Problem> {
    let objects = Objects {
        clusters: vec![cluster.clone()],
        nodes: nodes.to_vec(),
        ..Objects::default()
    };
    let inputs = match preview::inputs(cluster, &objects) {
        Ok(inputs) => inputs,
        Err(problems) => return problems,
    };
    let input = inputs.to_inventory(Directories::default(), None, &[]);
    match inventory::compile(&input) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.into_iter().map(problem::of_inventory).collect(),
    }
}

fn nodes(wish: &Wish) -> Vec<ClusterNode> {
    // Without workers nothing but the control planes could run a pod.
    let alone = wish.workers.is_empty().then(|| {
        let etcd = wish.etcd.is_empty().then_some(Role::Etcd);
        let roles = [Some(Role::ControlPlane), etcd, Some(Role::Worker)];
        roles.into_iter().flatten().collect::<Vec<_>>()
    });
    let parts = [
        (
            "control-plane",
            NodeType::Master,
            &wish.control_planes,
            alone,
        ),
        ("etcd", NodeType::Etcd, &wish.etcd, None),
        ("worker", NodeType::Worker, &wish.workers, None),
    ];
    let mut nodes = Vec::new();
    for (part, node_type, machines, roles) in parts {
        for (machine, number) in machines.iter().zip(1..) {
            let name = match &machine.name {
                Some(name) => name.to_string(),
                None => format!("{part}-{number}"),
            };
            let spec = ClusterNodeSpec {
                node_type,
                roles: roles.clone(),
                inventory: HostVariables {
                    ansible_host: machine.address.clone(),
                    ..HostVariables::default()
                },
                extra_vars_secret_ref: None,
                certificates: None,
            };
            let mut node = ClusterNode::new(&name, spec);
            node.metadata.namespace = Some(wish.namespace.clone());
            nodes.push(node);
        }
    }
    nodes
}

fn spec(wish: &Wish, nodes: &[ClusterNode]) -> ClusterSpec {
    let least = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let etcd = match wish.etcd.len() {
        0 => wish.control_planes.len(),
        own => own,
    };
    let source = wish.source.clone().map(|path| Source {
        path: Some(path),
        ..Source::default()
    });
    ClusterSpec {
        kubernetes_version: wish.kubernetes,
        kubespray: Some(Kubespray {
            mirror: None,
            version: Some(
                wish.kubespray
                    .unwrap_or_else(|| catalogue::newest().version),
            ),
            source,
        }),
        ssh: Some(Ssh {
            user: wish.user.clone(),
            private_key_secret_ref: Some(SecretKeyRef {
                name: KEY.to_owned(),
                key: None,
            }),
            ..Ssh::default()
        }),
        operations: Some(Operations {
            creation: Some(Creation {
                // Nothing starts before all of them are declared.
                start_conditions: Some(StartConditions {
                    etcd: (etcd > 0).then(|| OddMinimum {
                        minimum: least(etcd).min(MOST_ETCD),
                    }),
                    control_plane: Some(Minimum {
                        minimum: least(wish.control_planes.len()),
                    }),
                    nodes: Some(Minimum {
                        minimum: least(nodes.len()),
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

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.address),
            None => f.write_str(&self.address),
        }
    }
}

/// The names of what belongs to a Cluster are made of its own.
const LONGEST_NAME: usize = 50;
/// As many members as the definition of a Cluster lets it ask for.
const MOST_ETCD: u16 = 9;

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    fn wish(control_planes: &[&str], workers: &[&str], etcd: &[&str]) -> Wish {
        let machines = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Wish {
            namespace: "prod".to_owned(),
            name: "mine".to_owned(),
            control_planes: machines(control_planes),
            workers: machines(workers),
            etcd: machines(etcd),
            ..Wish::default()
        }
    }

    fn written(wish: &Wish) -> String {
        let (cluster, nodes) = first(wish).unwrap().documents().unwrap();
        let all = std::iter::once(cluster).chain(nodes);
        let all: Vec<_> = all
            .map(|document| serde_saphyr::to_string(&document).unwrap())
            .collect();
        all.join("---\n")
    }

    fn refused(wish: &Wish) -> String {
        problem::text(&first(wish).unwrap_err())
    }

    #[test]
    fn a_control_plane_and_workers() {
        let wish = Wish {
            kubespray: Some("2.30.0".parse().unwrap()),
            user: Some("ubuntu".to_owned()),
            ..wish(&["10.0.0.11"], &["10.0.0.12", "big-1=10.0.0.13"], &[])
        };
        insta::assert_snapshot!(written(&wish));
    }

    #[test]
    fn a_host_alone_runs_pods_too() {
        let first = first(&wish(&["10.0.0.11"], &[], &[])).unwrap();
        assert_eq!(
            first.nodes[0].spec.roles,
            Some(vec![Role::ControlPlane, Role::Etcd, Role::Worker])
        );
    }

    #[test]
    fn etcd_on_hosts_of_its_own() {
        let etcd = ["10.0.1.1", "10.0.1.2", "10.0.1.3"];
        let first = first(&wish(&["10.0.0.11", "10.0.0.12"], &["10.0.0.13"], &etcd)).unwrap();
        let names: Vec<String> = first.nodes.iter().map(ResourceExt::name_any).collect();
        assert_eq!(
            names,
            [
                "control-plane-1",
                "control-plane-2",
                "etcd-1",
                "etcd-2",
                "etcd-3",
                "worker-1"
            ]
        );
        let creation = first.cluster.spec.operations.unwrap().creation.unwrap();
        let conditions = creation.start_conditions.unwrap();
        assert_eq!(conditions.etcd.unwrap().minimum, 3);
        assert_eq!(conditions.nodes.unwrap().minimum, 6);
    }

    #[test]
    fn what_is_wrong_is_told_as_of_any_cluster() {
        let three = ["10.0.0.11", "10.0.0.12", "10.0.0.13"];
        for (wish, part) in [
            (
                wish(&[], &["10.0.0.12"], &[]),
                "--control-plane is \"none\"",
            ),
            (wish(&three[..2], &[], &[]), "odd number of members"),
            (
                wish(&three[..1], &["10.0.0.12"], &["10.0.1.1", "10.0.1.2"]),
                "odd number of members",
            ),
            (wish(&three[..1], &["10.0.0.11"], &[]), "10.0.0.11"),
            (
                wish(&["a=10.0.0.1"], &["a=10.0.0.2"], &[]),
                "ClusterNode/a metadata.name",
            ),
            (
                wish(&["10.0.0.300x!"], &[], &[]),
                "is neither an IP address nor a host name",
            ),
            (
                Wish {
                    name: "Mine".to_owned(),
                    ..wish(&three, &[], &[])
                },
                "Cluster metadata.name",
            ),
            (
                Wish {
                    kubespray: Some("2.30.0".parse().unwrap()),
                    kubernetes: Some("1.35.4".parse().unwrap()),
                    ..wish(&three, &[], &[])
                },
                "--kubespray-version 2.31.0",
            ),
            (
                Wish {
                    kubespray: Some("2.30.0".parse().unwrap()),
                    kubernetes: Some("1.36.1".parse().unwrap()),
                    ..wish(&three, &[], &[])
                },
                "kubespray 2.30.0 installs Kubernetes 1.32.0 to 1.34.3",
            ),
            (
                Wish {
                    user: Some("two words".to_owned()),
                    ..wish(&three, &[], &[])
                },
                "is not a user name",
            ),
        ] {
            let said = refused(&wish);
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for text in ["", "a=", "A=10.0.0.1", "_=x"] {
            assert!(text.parse::<Machine>().is_err(), "{text}");
        }
        let machine: Machine = "node-1=10.0.0.1".parse().unwrap();
        assert_eq!(machine.to_string(), "node-1=10.0.0.1");
    }
}
