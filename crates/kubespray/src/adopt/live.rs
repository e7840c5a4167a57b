//! The cluster that an inventory stands for, as its own API shows it, held against the objects. Reads only.
//!
//! An inventory is what somebody meant once. What of it is not so is told before Windlass acts by it: a host that is no node would
//! be joined, a node that is no host would be forgotten, and another head would found a cluster of its own.

use std::collections::{BTreeMap, BTreeSet};

use api::{ClusterNode, KubernetesVersion};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Deserialize;

use super::{
    Adopted,
    members::{self, Member},
};
use crate::problem::Problem;

/// What there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    nodes: BTreeMap<String, Seen>,
    /// Where API servers reach etcd, in their order. Empty: it is not known.
    etcd: Vec<String>,
    /// The names of members of etcd that run as pods, by their nodes.
    members: BTreeMap<String, String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    addresses: Vec<String>,
    is_control_plane: bool,
    kubelet: Option<KubernetesVersion>,
    joined: Option<Time>,
}

/// Why a cluster could not be read.
#[derive(Debug, thiserror::Error)]
#[error("read the {what} of the cluster")]
pub struct Error {
    what: &'static str,
    #[source]
    source: Box<kube::Error>,
}

/// Looks at the cluster that a client reaches: at its nodes, at what kubeadm keeps of etcd, and at the pods of etcd, if it is in pods.
///
/// # Errors
///
/// The API refuses or does not answer. That kubeadm keeps nothing is no error.
pub async fn look(client: &Client) -> Result<Live, Error> {
    let failed = |what| {
        move |source| Error {
            what,
            source: Box::new(source),
        }
    };
    let nodes = Api::<Node>::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.map_err(failed("nodes"))?.items;
    let settings = Api::<ConfigMap>::namespaced(client.clone(), SYSTEM);
    let settings = settings.get_opt("kubeadm-config").await;
    let settings = settings.map_err(failed("ConfigMap kube-system/kubeadm-config"))?;
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM);
    let of_etcd = ListParams::default().labels("component=etcd,tier=control-plane");
    let pods = pods.list(&of_etcd).await.map_err(failed("pods of etcd"))?;
    Ok(Live::of(&nodes, settings.as_ref(), &pods.items))
}

impl Live {
    fn of(nodes: &[Node], settings: Option<&ConfigMap>, pods: &[Pod]) -> Self {
        Self {
            nodes: nodes
                .iter()
                .map(|node| (node.name_any(), seen(node)))
                .collect(),
            etcd: settings.map(endpoints).unwrap_or_default(),
            members: pods.iter().filter_map(member).collect(),
        }
    }

    /// The version that all nodes have. None: there is no node, or they differ.
    pub fn version(&self) -> Option<KubernetesVersion> {
        let versions: BTreeSet<_> = self.nodes.values().map(|node| node.kubelet).collect();
        match Vec::from_iter(versions).as_slice() {
            [one] => *one,
            _ => None,
        }
    }

    /// The members of etcd that run as pods.
    pub fn members(&self) -> Vec<Member> {
        let members = self.members.iter();
        let member = |(node, name): (&String, &String)| Member {
            name: name.clone(),
            at: vec![node.clone()],
        };
        members.map(member).collect()
    }

    /// Where the objects and the cluster contradict each other.
    pub fn contradictions(&self, adopted: &Adopted) -> Vec<Problem> {
        let (planes, workers) = (group(adopted, PLANES), group(adopted, "kube_node"));
        let mut told = self.missing(&planes, &workers);
        for node in &adopted.nodes {
            told.extend(self.of_node(node, &planes));
        }
        told.extend(self.version_differs(adopted));
        told.extend(self.of_etcd(&group(adopted, "etcd"), &adopted.nodes));
        told
    }

    /// What is likely to be wrong, and may be as it should: for people, with what to do.
    pub fn doubts(&self, adopted: &Adopted) -> Vec<String> {
        self.head(&group(adopted, PLANES)).into_iter().collect()
    }

    /// Hosts that are no nodes, and nodes that are no hosts.
    fn missing(&self, planes: &[String], workers: &[String]) -> Vec<Problem> {
        let hosts: BTreeSet<&String> = planes.iter().chain(workers).collect();
        let absent = hosts.iter().filter(|host| !self.nodes.contains_key(**host));
        let absent = absent.map(|host| {
            Problem::new(
                format!("host {host}"),
                "",
                "the cluster has no node of that name",
                "take it out of the inventory, or name it as its node is called",
            )
        });
        let unknown = self.nodes.keys().filter(|node| !hosts.contains(node));
        let unknown = unknown.map(|node| {
            Problem::new(
                format!("node {node}"),
                "",
                format!("no host of {PLANES} or kube_node has that name"),
                "put it into the inventory",
            )
        });
        absent.chain(unknown).collect()
    }

    /// What is wrong with one host.
    fn of_node(&self, host: &ClusterNode, planes: &[String]) -> Vec<Problem> {
        let name = host.name_any();
        let Some(node) = self.nodes.get(&name) else {
            return Vec::new();
        };
        let mut told = Vec::new();
        let own = members::addresses(&host.spec.inventory);
        if !node.addresses.is_empty() && !node.addresses.iter().any(|at| own.contains(&at.as_str()))
        {
            let address = node.addresses.join(", ");
            told.push(Problem::new(
                format!("host {name} ip"),
                own.join(", "),
                format!("the cluster has its node at {address}"),
                format!("write ip: {address}"),
            ));
        }
        let of_planes =
            |rule: &str, remedy: &str| Problem::new(format!("group {PLANES}"), &name, rule, remedy);
        match (planes.contains(&name), node.is_control_plane) {
            (true, false) => told.push(of_planes(
                "its node is no control plane",
                "take it out of that group",
            )),
            (false, true) => told.push(of_planes(
                "its node is a control plane, and it does not stand in the group",
                "put it there",
            )),
            _ => {}
        }
        let named = host.spec.inventory.etcd_member_name.as_ref();
        if let (Some(member), Some(named)) = (self.members.get(&name), named)
            && member != named
        {
            told.push(members::named_otherwise(&name, named, member));
        }
        told
    }

    fn version_differs(&self, adopted: &Adopted) -> Option<Problem> {
        let wished = adopted.cluster.spec.kubernetes_version?;
        let differs = |node: &Seen| node.kubelet.is_some_and(|kubelet| kubelet != wished);
        let others = self.nodes.iter().filter(|(_, node)| differs(node));
        let others: Vec<_> = others
            .filter_map(|(name, node)| Some(format!("{name} has {}", node.kubelet?)))
            .collect();
        (!others.is_empty()).then(|| {
            Problem::new(
                "kube_version",
                wished,
                format!("nodes run another one: {}", others.join(", ")),
                "name the version that runs with --kubernetes-version, and bring nodes that differ to one version first",
            )
        })
    }

    /// The oldest node of the control plane is the one that the cluster was begun on, unless it was set up anew since.
    fn head(&self, planes: &[String]) -> Option<String> {
        let first = planes.first()?;
        let since = self.nodes.get(first)?.joined.as_ref()?;
        let known = planes.iter().filter_map(|name| {
            let joined = self.nodes.get(name)?.joined.as_ref()?;
            Some((joined, name))
        });
        let (oldest, name) = known.min()?;
        (oldest < since).then(|| {
            format!(
                "{PLANES}: {first} stands first, and the node {name} is older (since {}); put {name} first, unless {first} was made \
                 the first one since",
                oldest.0
            )
        })
    }

    /// Where API servers reach etcd, against its hosts. The first of these holds its authorities.
    fn of_etcd(&self, members: &[String], nodes: &[ClusterNode]) -> Vec<Problem> {
        if self.etcd.is_empty() {
            return Vec::new();
        }
        let at = |address: &String| {
            let mut hosts = nodes.iter();
            let is_there = |host: &&ClusterNode| {
                members::addresses(&host.spec.inventory).contains(&address.as_str())
            };
            let name = hosts.find(is_there)?.name_any();
            members.contains(&name).then_some(name)
        };
        let found: Vec<_> = self
            .etcd
            .iter()
            .map(|address| (address, at(address)))
            .collect();
        let problem = |value: &str, rule: String, remedy: String| {
            Problem::new("group etcd", value, rule, remedy)
        };
        let mut told: Vec<_> = found
            .iter()
            .filter(|(_, host)| host.is_none())
            .map(|(address, _)| {
                problem(
                    address,
                    "the API servers reach a member there, and no host of the group is".to_owned(),
                    "put it into the group".to_owned(),
                )
            })
            .collect();
        let known: BTreeSet<&String> = found.iter().filter_map(|(_, host)| host.as_ref()).collect();
        let others = members.iter().filter(|name| !known.contains(name));
        told.extend(others.map(|name| {
            problem(
                name,
                "the API servers do not reach a member there".to_owned(),
                "take it out of the group".to_owned(),
            )
        }));
        if let (Some((_, Some(head))), Some(first)) = (found.first(), members.first())
            && head != first
        {
            told.push(problem(
                first,
                format!("it stands first, and {head} is the first that the API servers name"),
                format!("put {head} first"),
            ));
        }
        told
    }
}

/// The hosts of a group, in their order.
fn group(adopted: &Adopted, name: &str) -> Vec<String> {
    let status = adopted.cluster.status.as_ref();
    let inventory = status.and_then(|status| status.inventory.as_ref());
    let hosts = inventory.and_then(|inventory| inventory.order.get(name));
    hosts
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect()
}

fn seen(node: &Node) -> Seen {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let internal = addresses
        .into_iter()
        .flatten()
        .filter(|at| at.type_ == "InternalIP");
    let info = status.and_then(|status| status.node_info.as_ref());
    Seen {
        addresses: internal.map(|at| at.address.clone()).collect(),
        is_control_plane: CONTROL_PLANE
            .iter()
            .any(|label| node.labels().contains_key(*label)),
        kubelet: info.and_then(|info| info.kubelet_version.parse().ok()),
        joined: node.creation_timestamp(),
    }
}

/// The hosts of etcd that kubeadm was given, as kubespray gives them where etcd is no pod.
fn endpoints(settings: &ConfigMap) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ClusterConfiguration {
        etcd: Etcd,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Etcd {
        external: External,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct External {
        endpoints: Vec<String>,
    }
    let data = settings.data.as_ref();
    let text = data.and_then(|data| data.get("ClusterConfiguration"));
    let parsed = text.and_then(|text| serde_saphyr::from_str::<ClusterConfiguration>(text).ok());
    let endpoints = parsed.unwrap_or_default().etcd.external.endpoints;
    let hosts = endpoints.iter().filter_map(|endpoint| {
        let uri: http::Uri = endpoint.parse().ok()?;
        let host = uri.host()?;
        Some(host.trim_matches(['[', ']']).to_owned())
    });
    hosts.collect()
}

/// The node of a pod of etcd, and what its member is called.
fn member(pod: &Pod) -> Option<(String, String)> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.clone()?;
    let arguments = spec.containers.iter().flat_map(|container| {
        let command = container.command.iter().flatten();
        command.chain(container.args.iter().flatten())
    });
    let mut names = arguments.filter_map(|argument| argument.strip_prefix("--name="));
    Some((node, names.next()?.to_owned()))
}

const SYSTEM: &str = "kube-system";
const PLANES: &str = "kube_control_plane";
/// The label of nodes of the control plane; the second is that of Kubernetes before 1.24.
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
