//! How a cluster stands, in Magnum's words. Pure.

use std::{collections::BTreeMap, time::Duration};

use api::{
    Cluster, ClusterNode, KubernetesVersion,
    cluster::{CREATE, ClusterState, ClusterStatus},
    magnum::{
        CoeCluster, CoeClusterStatus, GroupStatus, HealthReport, HealthStatus, Host, NodeGroup,
        State,
    },
    node::{Health, NodeState},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::{
    bare_metal::Plan,
    labels,
    view::{CREATE_TIMEOUT_MINUTES, state_of_group},
};

/// The port of the Kubernetes API.
const PORT: u16 = 6443;
/// The longest reason.
pub(crate) const LONGEST: usize = 4096;

/// What is seen of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The hosts of the pool.
    pub hosts: Vec<Host>,
    /// What builds it.
    pub kubespray: Option<Cluster>,
    /// And its hosts.
    pub nodes: Vec<ClusterNode>,
    /// The ssh key of the pool.
    pub key: Option<Secret>,
    /// How people find that key: namespace and name.
    pub key_name: String,
}

impl Seen {
    fn status(&self) -> Option<&ClusterStatus> {
        self.kubespray.as_ref()?.status.as_ref()
    }

    /// Whether there is a Kubernetes.
    fn is_built(&self) -> bool {
        self.status()
            .is_some_and(|status| status.kubernetes_version.is_some())
    }

    /// Whether nothing is being done, nor will be.
    fn is_settled(&self) -> bool {
        let rests = self.status().is_some_and(|status| {
            let generation = self
                .kubespray
                .as_ref()
                .and_then(|cluster| cluster.metadata.generation);
            status.state == Some(ClusterState::Created)
                && status.observed_generation == generation
                && status.pending.is_empty()
        });
        let joined = |node: &ClusterNode| {
            let state = node.status.as_ref().and_then(|status| status.state);
            state == Some(NodeState::Joined) && node.metadata.deletion_timestamp.is_none()
        };
        rests && self.nodes.iter().all(joined)
    }

    /// Why kubespray does not go on by itself, if it does not.
    fn failure(&self) -> Option<String> {
        let status = self.status()?;
        if status.state == Some(ClusterState::Failed) {
            let operation = status.last_operation.as_ref();
            let told = operation.and_then(|operation| operation.description.clone());
            return Some(told.unwrap_or_else(|| "the last operation failed".to_owned()));
        }
        let stuck = ["InvalidSpec", "Refused", "RunFailed", "RunCancelled"];
        let mut pending = status.pending.iter();
        let pending = pending.find(|pending| stuck.contains(&pending.reason.as_str()))?;
        Some(pending.message.clone())
    }
}

/// How a cluster stands after a pass that did what the plan says.
pub fn status(cluster: &CoeCluster, seen: &Seen, plan: &Plan, now: Timestamp) -> CoeClusterStatus {
    let (state, reason) = judged(cluster, seen, plan, now);
    let known = cluster.status.clone().unwrap_or_default();
    let built = seen.status().filter(|_| seen.is_built());
    let groups = cluster.spec.node_groups.iter();
    CoeClusterStatus {
        observed_generation: cluster.metadata.generation,
        state: Some(state),
        health: built.and_then(health).or(known.health),
        api_address: built.and_then(|_| api_address(cluster, seen)),
        coe_version: built.and_then(|status| Some(format!("v{}", status.kubernetes_version?))),
        groups: groups
            .map(|group| (group.uuid.clone(), of_group(group, seen, plan, state)))
            .collect(),
        reason: reason.map(|reason| api::text::plain(&reason, LONGEST)),
        // Who installs them tells of them.
        addons: Vec::new(),
    }
}

fn judged(
    cluster: &CoeCluster,
    seen: &Seen,
    plan: &Plan,
    now: Timestamp,
) -> (State, Option<String>) {
    let failure = seen.failure();
    if cluster.metadata.deletion_timestamp.is_some() {
        return match failure {
            Some(reason) => (State::DeleteFailed, Some(reason)),
            None => (State::DeleteInProgress, None),
        };
    }
    let is_new = is_new(cluster);
    let waits = plan.missing.values().next().cloned().or_else(|| {
        let lacks_key = seen.key.is_none();
        lacks_key.then(|| {
            format!(
                "there is no Secret {} with the ssh key of the hosts: make one",
                seen.key_name
            )
        })
    });
    if !seen.is_built() {
        return match failure {
            Some(reason) => (State::CreateFailed, Some(reason)),
            None if is_late(cluster, now) => (State::CreateFailed, Some(late(cluster, waits))),
            None => (State::CreateInProgress, waits),
        };
    }
    match (failure, waits) {
        (Some(reason), _) | (None, Some(reason)) => (State::UpdateFailed, Some(reason)),
        (None, None) if !plan.is_done() || !seen.is_settled() => {
            let first = is_new && was_created(seen);
            (
                if first {
                    State::CreateInProgress
                } else {
                    State::UpdateInProgress
                },
                None,
            )
        }
        (None, None) if is_new => (State::CreateComplete, labels::notice(&cluster.spec)),
        (None, None) => (State::UpdateComplete, labels::notice(&cluster.spec)),
    }
}

/// Whether the last that was done is the creation.
fn was_created(seen: &Seen) -> bool {
    let operation = seen
        .status()
        .and_then(|status| status.last_operation.as_ref());
    operation.is_none_or(|operation| operation.operation == CREATE)
}

fn minutes(cluster: &CoeCluster) -> u32 {
    cluster
        .spec
        .create_timeout
        .unwrap_or(CREATE_TIMEOUT_MINUTES)
}

/// Whether nothing was asked of it since it was made.
pub(crate) fn is_new(cluster: &CoeCluster) -> bool {
    let generation = cluster.metadata.generation;
    generation.is_none_or(|generation| generation <= 1)
}

/// Without a limit nothing is late.
pub(crate) fn is_late(cluster: &CoeCluster, now: Timestamp) -> bool {
    let minutes = i64::from(minutes(cluster));
    let created = cluster.metadata.creation_timestamp.as_ref();
    created.is_some_and(|created| {
        minutes > 0 && now.as_second() - created.0.as_second() > minutes * 60
    })
}

/// How long until it is. None: it is already, or never will be.
pub(crate) fn late_in(cluster: &CoeCluster, now: Timestamp) -> Option<Duration> {
    let seconds = i64::from(minutes(cluster)) * 60;
    let created = cluster.metadata.creation_timestamp.as_ref()?.0;
    let left = created.as_second() + seconds + 1 - now.as_second();
    let left = u64::try_from(left).ok().filter(|_| seconds > 0)?;
    (left > 0).then(|| Duration::from_secs(left))
}

pub(crate) fn late(cluster: &CoeCluster, waits: Option<String>) -> String {
    let late = format!("it was not made within {} minutes", minutes(cluster));
    waits.map_or(late.clone(), |waits| format!("{late}: {waits}"))
}

fn health(status: &ClusterStatus) -> Option<HealthReport> {
    let told = status.cluster.as_ref()?;
    let word = match told.health {
        Health::Ok => HealthStatus::Healthy,
        Health::Warn | Health::Err => HealthStatus::Unhealthy,
    };
    let mut reasons = BTreeMap::new();
    for condition in &status.conditions {
        if condition.type_ == "APIServerAvailable" {
            let api = if condition.status == "True" {
                "ok"
            } else {
                "failed"
            };
            reasons.insert("api".to_owned(), api.to_owned());
        }
    }
    if let Some(nodes) = &status.nodes {
        reasons.insert("nodes".to_owned(), nodes.summary.clone());
    }
    Some(HealthReport {
        status: word,
        reasons,
    })
}

fn api_address(cluster: &CoeCluster, seen: &Seen) -> Option<String> {
    let mut groups = cluster.spec.node_groups.iter();
    let masters = groups.find(|group| group.is_master())?;
    let address = addresses(masters, seen).into_iter().next()?;
    Some(format!("https://{address}:{PORT}"))
}

fn addresses(group: &NodeGroup, seen: &Seen) -> Vec<String> {
    let of_group = |host: &&Host| {
        let claim = host.spec.claim.as_ref();
        claim.is_some_and(|claim| {
            let is_there = seen.nodes.iter().any(|node| node.name_any() == claim.node);
            claim.group == group.uuid && is_there
        })
    };
    let mut hosts: Vec<_> = seen.hosts.iter().filter(of_group).collect();
    hosts.sort_by_key(|host| host.name_any());
    hosts
        .into_iter()
        .map(|host| host.spec.address.clone())
        .collect()
}

/// The kubelets of a group's nodes.
fn versions<'a>(group: &'a NodeGroup, seen: &'a Seen) -> impl Iterator<Item = &'a str> {
    let is_of = |node: &&ClusterNode| {
        let mut claims = seen
            .hosts
            .iter()
            .filter_map(|host| host.spec.claim.as_ref());
        claims.any(|claim| claim.group == group.uuid && claim.node == node.name_any())
    };
    seen.nodes.iter().filter(is_of).filter_map(|node| {
        let versions = node.status.as_ref()?.versions.as_ref()?;
        versions.kubelet.as_deref()
    })
}

/// The version that is behind the others, in Magnum's spelling. What is no version is not told.
pub(crate) fn oldest<'a>(versions: impl Iterator<Item = &'a str>) -> Option<String> {
    let versions = versions.filter_map(|version| version.parse::<KubernetesVersion>().ok());
    versions.min().map(|version| format!("v{version}"))
}

fn of_group(group: &NodeGroup, seen: &Seen, plan: &Plan, whole: State) -> GroupStatus {
    let reason = plan.missing.get(&group.uuid).cloned();
    // A group that lacks nothing does not fail because another one does.
    let state = match whole {
        State::UpdateFailed if reason.is_none() && !plan.missing.is_empty() => {
            State::UpdateComplete
        }
        whole => whole,
    };
    GroupStatus {
        state: Some(state_of_group(group, state)),
        reason,
        version: oldest(versions(group, seen)),
        node_addresses: addresses(group, seen),
    }
}

#[cfg(test)]
mod tests;
