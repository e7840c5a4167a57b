//! What there is: reads only.

use std::sync::Arc;

use api::{Cluster, ClusterNode, Run};
use jiff::Timestamp;
use kube::{Resource, ResourceExt};

use crate::{
    cluster::resolve,
    context::{Context, Error},
    health_book::Checked,
    playbooks::Playbooks,
    secret::{self, SshKey},
};

/// A ClusterNode that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unreadable {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: String,
}

/// Everything that the decision about a cluster reads.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The clock.
    pub now: Timestamp,
    /// The oldest other cluster of the namespace that is older than this one.
    pub older_cluster: Option<String>,
    /// The namespace's hosts.
    pub nodes: Vec<ClusterNode>,
    /// Those that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The cluster's runs, oldest first.
    pub runs: Vec<Run>,
    /// The ssh key.
    pub key: SshKey,
    /// The playbooks.
    pub playbooks: Playbooks,
    /// What the last health probes found.
    pub health: Option<Arc<Checked>>,
}

/// Reads what there is.
pub async fn observe(cluster: &Cluster, context: &Context) -> Result<Observed, Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let reference = cluster
        .spec
        .ssh
        .as_ref()
        .and_then(|ssh| ssh.private_key_secret_ref.as_ref());
    let key = secret::look(&context.client, &namespace, reference)
        .await
        .map_err(|source| Error::api("read the ssh Secret", source))?;
    let awaited = reference.filter(|_| !key.is_usable());
    context.secrets.follow(
        &(namespace.clone(), cluster.name_any()),
        awaited.map(|reference| reference.name.as_str()),
    );
    let (nodes, unreadable) = nodes(context, &namespace);
    let runs = runs(context, cluster, &namespace);
    let playbooks = match resolve::source(cluster) {
        Ok(wish) => context.playbooks.get(cluster, wish),
        Err(_) => Playbooks::Unwanted,
    };
    Ok(Observed {
        now: Timestamp::now(),
        older_cluster: older(context, cluster, &namespace),
        nodes,
        unreadable,
        runs,
        key,
        playbooks,
        health: context.health.latest(cluster),
    })
}

fn nodes(context: &Context, namespace: &str) -> (Vec<ClusterNode>, Vec<Unreadable>) {
    let mut valid = Vec::new();
    let mut unreadable = Vec::new();
    for node in controller::stream::in_namespace(&context.stores.nodes, namespace) {
        match &node.0 {
            Ok(node) => valid.push(node.clone()),
            Err(invalid) => unreadable.push(Unreadable {
                name: invalid.metadata.name.clone().unwrap_or_default(),
                error: invalid.error.clone(),
            }),
        }
    }
    valid.sort_by_key(|node| (node.creation_timestamp(), node.name_any()));
    unreadable.sort_by(|a, b| a.name.cmp(&b.name));
    (valid, unreadable)
}

fn runs(context: &Context, cluster: &Cluster, namespace: &str) -> Vec<Run> {
    let mut runs: Vec<_> = controller::stream::in_namespace(&context.stores.runs, namespace)
        .iter()
        .filter_map(|run| run.0.as_ref().ok())
        .filter(|run| is_of(run, cluster))
        .cloned()
        .collect();
    runs.sort_by_key(|run| (run.creation_timestamp(), run.name_any()));
    runs
}

/// Whether a run belongs to this very cluster, not to an earlier one of the same name.
pub fn is_of(run: &Run, cluster: &Cluster) -> bool {
    let uid = cluster.uid().unwrap_or_default();
    run.owner_references().iter().any(|owner| owner.uid == uid)
}

fn older(context: &Context, cluster: &Cluster, namespace: &str) -> Option<String> {
    let rank = |meta: &kube::api::ObjectMeta| (meta.creation_timestamp.clone(), meta.name.clone());
    let own = rank(cluster.meta());
    controller::stream::in_namespace(&context.stores.clusters, namespace)
        .iter()
        .map(|other| rank(other.meta()))
        .filter(|other| *other < own)
        .min()
        .and_then(|(_, name)| name)
}
