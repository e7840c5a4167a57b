//! From a cluster to the objects that build it on hosts of the pool. Pure.
//!
//! A host has at most one claim, and the claim says which node of which cluster the host is. So the names of nodes need no memory of
//! their own, and what is planned a second time is the same. A cluster claims all the hosts that it lacks or none: two clusters that
//! each had half of what they need would wait for each other.
//!
//! A node that has to leave goes first, and the host is free when it has gone: kubespray drains and resets it meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Cluster, ClusterNode, ClusterSpec, Threshold,
    cluster::{
        AllNodes, Creation, DeletionPolicy, Deploy, Kubespray, Minimum, Nodes, OddMinimum,
        Operations, SecretKeyRef, SecretRef, Source, Ssh, StartConditions, Upgrade,
    },
    magnum::{
        CLUSTER_LABEL, Claim, CoeCluster, Host, NetworkDriver, NodeGroup, PROJECT_LABEL,
        TaintEffect,
    },
    node::{ClusterNodeSpec, HostVariables, NodeType, Role},
};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::view::backing_namespace;

/// The name of the kubespray Cluster: there is one in its namespace.
pub const NAME: &str = "cluster";
/// The name of the Secret with the ssh key in the namespace of a cluster.
pub const KEY: &str = "ssh";
/// The name of the Secret with its authorities there.
pub const AUTHORITIES: &str = "authorities";
/// The most members that an etcd cluster is asked to have before it is begun.
const MOST_ETCD: usize = 9;

/// What builds clusters.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The kubespray release. None: the newest that is known.
    pub kubespray: Option<api::KubesprayVersion>,
    /// A directory with the playbooks, instead of that release's own.
    pub playbooks: Option<String>,
}

/// What is to be done about a cluster.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Hosts to claim, by name.
    pub claims: BTreeMap<String, Claim>,
    /// Hosts to give back.
    pub releases: BTreeSet<String>,
    /// ClusterNodes to delete.
    pub leaving: BTreeSet<String>,
    /// Groups that lack hosts of the pool: their UUID, and why.
    pub missing: BTreeMap<String, String>,
    /// What builds the cluster. None: it has no control planes yet.
    pub objects: Option<Objects>,
}

/// What builds a cluster.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The cluster.
    pub cluster: Cluster,
    /// Its hosts.
    pub nodes: Vec<ClusterNode>,
}

impl Plan {
    /// Whether all is as it should be.
    pub fn is_done(&self) -> bool {
        self.claims.is_empty()
            && self.releases.is_empty()
            && self.leaving.is_empty()
            && self.missing.is_empty()
    }
}

/// What is to be done about a cluster, given the hosts of the pool and the names of the ClusterNodes that there are.
pub fn plan(
    cluster: &CoeCluster,
    hosts: &[Host],
    there: &BTreeSet<String>,
    settings: &Settings,
) -> Plan {
    let uuid = cluster.name_any();
    let groups = &cluster.spec.node_groups;
    let mut plan = Plan::default();
    let (mut staying, surplus) = divided(groups, claimed(hosts, &uuid));
    for (host, claim) in surplus {
        if there.contains(&claim.node) {
            plan.leaving.insert(claim.node.clone());
        } else {
            plan.releases.insert(host.name_any());
        }
    }
    let wanted = wanted(groups, &staying, hosts, &mut plan);
    if plan.missing.is_empty() {
        let mut names: BTreeSet<String> = claimed(hosts, &uuid)
            .into_iter()
            .map(|(_, claim)| claim.node.clone())
            .chain(there.iter().cloned())
            .collect();
        for (group, host) in wanted {
            let claim = Claim {
                cluster: uuid.clone(),
                group: group.uuid.clone(),
                node: free_name(&group.name, &mut names),
            };
            plan.claims.insert(host.name_any(), claim.clone());
            staying.push((host, claim));
        }
    }
    plan.objects = objects(cluster, &staying, settings);
    plan
}

/// The hosts that a cluster has.
fn claimed<'a>(hosts: &'a [Host], uuid: &str) -> Vec<(&'a Host, Claim)> {
    let claim = |host: &'a Host| Some((host, host.spec.claim.clone()?));
    let claims = hosts.iter().filter_map(claim);
    claims.filter(|(_, claim)| claim.cluster == uuid).collect()
}

type Taken<'a> = Vec<(&'a Host, Claim)>;

/// Those that stay, and those that are more than their group should have.
fn divided<'a>(groups: &[NodeGroup], mine: Taken<'a>) -> (Taken<'a>, Taken<'a>) {
    let (mut staying, mut surplus) = (Vec::new(), Vec::new());
    let mut by_group: BTreeMap<String, Taken<'a>> = BTreeMap::new();
    for (host, claim) in mine {
        let of_group = by_group.entry(claim.group.clone()).or_default();
        of_group.push((host, claim));
    }
    for (uuid, mut taken) in by_group {
        let group = groups.iter().find(|group| group.uuid == uuid);
        taken.sort_by_key(|(host, claim)| stays_by(group, host, claim));
        let count = group.map_or(0, |group| size(group.node_count));
        let rest = taken.split_off(count.min(taken.len()));
        staying.append(&mut taken);
        surplus.extend(rest);
    }
    (staying, surplus)
}

/// In this order hosts stay: first those that nobody wants removed, the oldest first.
fn stays_by(group: Option<&NodeGroup>, host: &Host, claim: &Claim) -> (bool, u32, String) {
    let named = group.is_some_and(|group| {
        let mut idents = group.nodes_to_remove.iter();
        idents.any(|ident| {
            *ident == claim.node || *ident == host.spec.address || *ident == host.name_any()
        })
    });
    (named, number(&claim.node), claim.node.clone())
}

/// The free hosts that groups lack. What cannot be had is noted in the plan.
fn wanted<'a>(
    groups: &'a [NodeGroup],
    staying: &Taken<'_>,
    hosts: &'a [Host],
    plan: &mut Plan,
) -> Vec<(&'a NodeGroup, &'a Host)> {
    let is_free =
        |host: &&Host| host.spec.claim.is_none() && host.metadata.deletion_timestamp.is_none();
    let mut free: Vec<_> = hosts.iter().filter(is_free).collect();
    free.sort_by_key(|host| host.name_any());
    let mut wanted = Vec::new();
    for group in groups {
        let has = staying
            .iter()
            .filter(|(_, claim)| claim.group == group.uuid)
            .count();
        let lacks = size(group.node_count).saturating_sub(has);
        let fits = |host: &&Host| host.spec.flavor.is_none() || host.spec.flavor == group.flavor_id;
        let (mut fit, rest): (Vec<_>, Vec<_>) = free.into_iter().partition(fits);
        // What others could take too is left to them, where there is a choice.
        fit.sort_by_key(|host| (host.spec.flavor.is_none(), host.name_any()));
        let got = fit.len().min(lacks);
        if got < lacks {
            plan.missing
                .insert(group.uuid.clone(), lack(group, lacks, got));
        }
        wanted.extend(fit.iter().take(lacks).map(|host| (group, *host)));
        free = rest
            .into_iter()
            .chain(fit.into_iter().skip(lacks))
            .collect();
        free.sort_by_key(|host| host.name_any());
    }
    wanted
}

fn lack(group: &NodeGroup, lacks: usize, free: usize) -> String {
    let flavor = match &group.flavor_id {
        Some(flavor) => format!("of flavor {flavor} or of none"),
        None => "of no flavor".to_owned(),
    };
    format!(
        "node group {} needs {lacks} more hosts {flavor}, and {free} are free in the pool: add Hosts, or wait until others are given \
         back",
        group.name
    )
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The number at the end of a node's name.
fn number(node: &str) -> u32 {
    let number = node
        .rsplit('-')
        .next()
        .and_then(|number| number.parse().ok());
    number.unwrap_or(u32::MAX)
}

/// The first name of a group's that no node has. It becomes the name of the host.
fn free_name(group: &str, names: &mut BTreeSet<String>) -> String {
    let lower = group.to_ascii_lowercase();
    let plain: String = lower
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(40)
        .collect();
    let plain = match plain.trim_matches('-') {
        "" => "node",
        plain => plain,
    };
    let mut names_of_group = (1_u32..).map(|number| format!("{plain}-{number}"));
    let free = names_of_group.find(|name| !names.contains(name));
    let free = free.unwrap_or_else(|| plain.to_owned());
    names.insert(free.clone());
    free
}

fn objects(cluster: &CoeCluster, staying: &Taken<'_>, settings: &Settings) -> Option<Objects> {
    let group_of = |claim: &Claim| {
        let mut groups = cluster.spec.node_groups.iter();
        groups.find(|group| group.uuid == claim.group)
    };
    let mut placed: Vec<_> = staying
        .iter()
        .filter_map(|(host, claim)| Some((group_of(claim)?, *host, claim)))
        .collect();
    placed.sort_by_key(|(group, _, claim)| {
        (!group.is_master(), number(&claim.node), claim.node.clone())
    });
    let masters = placed
        .iter()
        .filter(|(group, ..)| group.is_master())
        .count();
    if masters == 0 {
        return None;
    }
    let is_alone = masters == placed.len();
    let nodes = placed
        .iter()
        .map(|(group, host, claim)| node(cluster, group, host, claim, is_alone));
    Some(Objects {
        nodes: nodes.collect(),
        cluster: kubespray(cluster, masters, placed.len(), settings),
    })
}

fn kubespray(cluster: &CoeCluster, masters: usize, all: usize, settings: &Settings) -> Cluster {
    let least = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let spec = ClusterSpec {
        kubernetes_version: cluster.spec.kubernetes_version,
        kubespray: Some(Kubespray {
            mirror: None,
            version: settings.kubespray,
            source: settings.playbooks.clone().map(|path| Source {
                path: Some(path),
                ..Source::default()
            }),
        }),
        ssh: Some(Ssh {
            private_key_secret_ref: Some(SecretKeyRef {
                name: KEY.to_owned(),
                key: None,
            }),
            ..Ssh::default()
        }),
        nodes: variables(cluster).map(|variables| Nodes {
            all: Some(AllNodes {
                deploy: Some(Deploy {
                    extra_vars: Some(variables),
                    ..Deploy::default()
                }),
                ..AllNodes::default()
            }),
        }),
        operations: Some(Operations {
            creation: Some(Creation {
                // Nothing starts before all of them are declared.
                start_conditions: Some(StartConditions {
                    etcd: Some(OddMinimum {
                        minimum: least(masters.min(MOST_ETCD)),
                    }),
                    control_plane: Some(Minimum {
                        minimum: least(masters),
                    }),
                    nodes: Some(Minimum {
                        minimum: least(all),
                    }),
                    last_node_creation: None,
                }),
                // What a client is given is signed by them, and the cluster has to know it.
                authorities_secret_ref: Some(SecretRef {
                    name: AUTHORITIES.to_owned(),
                }),
                ..Creation::default()
            }),
            upgrade: cluster.spec.max_batch_size.map(|batch| Upgrade {
                max_unavailable: Some(Threshold::Count(batch)),
                ..Upgrade::default()
            }),
            ..Operations::default()
        }),
        // A host that is given back is empty.
        deletion_policy: Some(DeletionPolicy::Reset),
        ..ClusterSpec::default()
    };
    let mut object = Cluster::new(NAME, spec);
    object.metadata.namespace = Some(backing_namespace(&cluster.name_any()));
    object.metadata.labels = Some(labels(cluster));
    object
}

/// kubespray's own default is calico, so only another plugin is asked for.
fn variables(cluster: &CoeCluster) -> Option<Map<String, Value>> {
    let plugin = match cluster.spec.network_driver.unwrap_or_default() {
        NetworkDriver::Calico => return None,
        NetworkDriver::Cilium => "cilium",
        NetworkDriver::Flannel => "flannel",
    };
    Some(Map::from_iter([(
        "kube_network_plugin".to_owned(),
        json!(plugin),
    )]))
}

fn node(
    cluster: &CoeCluster,
    group: &NodeGroup,
    host: &Host,
    claim: &Claim,
    is_alone: bool,
) -> ClusterNode {
    let node_type = if group.is_master() {
        NodeType::Master
    } else {
        NodeType::Worker
    };
    // Pods have to run somewhere.
    let roles = is_alone.then(|| vec![Role::ControlPlane, Role::Etcd, Role::Worker]);
    let spec = ClusterNodeSpec {
        node_type,
        roles,
        inventory: HostVariables {
            ansible_host: host.spec.address.clone(),
            ansible_port: host.spec.port,
            ansible_user: host.spec.user.clone(),
            other: node_variables(group),
            ..HostVariables::default()
        },
        extra_vars_secret_ref: None,
        certificates: None,
    };
    let mut object = ClusterNode::new(&claim.node, spec);
    object.metadata.namespace = Some(backing_namespace(&cluster.name_any()));
    object.metadata.labels = Some(labels(cluster));
    object
}

fn node_variables(group: &NodeGroup) -> Map<String, Value> {
    let mut variables = Map::new();
    if !group.node_labels.is_empty() {
        variables.insert("node_labels".to_owned(), json!(group.node_labels));
    }
    if !group.node_taints.is_empty() {
        let taints = group.node_taints.iter().map(|taint| {
            let effect = match taint.effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            };
            format!(
                "{}={}:{effect}",
                taint.key,
                taint.value.as_deref().unwrap_or_default()
            )
        });
        variables.insert("node_taints".to_owned(), taints.collect());
    }
    variables
}

fn labels(cluster: &CoeCluster) -> BTreeMap<String, String> {
    BTreeMap::from([
        (CLUSTER_LABEL.to_owned(), cluster.name_any()),
        (PROJECT_LABEL.to_owned(), cluster.spec.project_id.clone()),
    ])
}

#[cfg(test)]
mod tests;
