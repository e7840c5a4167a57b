//! What would be done about objects that nobody applied yet: `windlass plan -f DIR`. Nothing is touched.

use api::{Cluster, ClusterNode, run::Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::{
    cluster::{
        observe::Observed,
        plan::{self, Decision},
        resolve,
    },
    host_keys::{self, HostKeys},
    layout::Layout,
    playbooks::{self, LoadError, Playbooks},
    problem::Problem,
    secret::{self, SshKey},
};

/// Objects as files hold them.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Clusters.
    pub clusters: Vec<Cluster>,
    /// Their hosts.
    pub nodes: Vec<ClusterNode>,
    /// Secrets that they refer to, if the files hold them.
    pub secrets: Vec<Secret>,
}

/// What would be done about one cluster.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The cluster's namespace.
    pub namespace: String,
    /// The cluster's name.
    pub cluster: String,
    /// What would be done.
    pub outcome: PreviewOutcome,
}

/// What would be done.
#[derive(Clone, Debug, PartialEq)]
pub enum PreviewOutcome {
    /// This plan would be executed.
    Plan(Box<Plan>),
    /// Nothing, until this is corrected.
    Problems(Vec<Problem>),
    /// Nothing yet: the start conditions ask for more.
    Waiting(Vec<String>),
    /// Nothing can be said: the playbooks cannot be had.
    NoPlaybooks(String),
}

/// Says what would be done about each cluster, in order of name. Playbooks are brought into the data directory.
pub async fn preview(objects: &Objects, layout: &Layout) -> Vec<Preview> {
    let mut previews = Vec::new();
    for cluster in &objects.clusters {
        previews.push(Preview {
            namespace: namespace(cluster),
            cluster: cluster.name_any(),
            outcome: outcome(cluster, objects, layout).await,
        });
    }
    previews.sort_by(|a, b| (&a.namespace, &a.cluster).cmp(&(&b.namespace, &b.cluster)));
    previews
}

async fn outcome(cluster: &Cluster, objects: &Objects, layout: &Layout) -> PreviewOutcome {
    let playbooks = match resolve::source(cluster) {
        Err(_) => Playbooks::Unwanted,
        Ok(wish) => match playbooks::load(&wish, layout).await {
            Ok(checkout) => Playbooks::Ready(checkout.into()),
            Err(LoadError::Unusable(problem)) => Playbooks::Unusable(problem),
            Err(LoadError::Unreachable(reason)) => Playbooks::Unreachable(reason),
        },
    };
    let observed = observed(cluster, objects, playbooks);
    let wanted = resolve::resolve(cluster, &observed);
    let decision = plan::plan(cluster, wanted.as_ref().map_err(Vec::as_slice), &observed);
    match decision {
        Decision::Start(new) => PreviewOutcome::Plan(Box::new(new.plan)),
        Decision::Stall(problems) => PreviewOutcome::Problems(problems),
        Decision::AwaitPlaybooks(why) => PreviewOutcome::NoPlaybooks(why.unwrap_or_default()),
        Decision::AwaitHosts { missing, .. } => PreviewOutcome::Waiting(missing),
        // Objects from files have no runs, and are not being deleted.
        Decision::Follow(_)
        | Decision::Supersede(..)
        | Decision::Keep(_)
        | Decision::Maintain(..)
        | Decision::Cancel(_)
        | Decision::Forget => PreviewOutcome::Waiting(Vec::new()),
    }
}

fn observed(cluster: &Cluster, objects: &Objects, playbooks: Playbooks) -> Observed {
    let own = namespace(cluster);
    let nodes = objects
        .nodes
        .iter()
        .filter(|node| node.namespace().unwrap_or_else(|| "default".to_owned()) == own);
    let other = objects
        .clusters
        .iter()
        .take_while(|other| other.name_any() != cluster.name_any() || namespace(other) != own)
        .find(|other| namespace(other) == own);
    Observed {
        now: Timestamp::now(),
        older_cluster: other.map(ResourceExt::name_any),
        nodes: nodes.cloned().collect(),
        unreadable: Vec::new(),
        runs: Vec::new(),
        key: key(cluster, objects),
        host_keys: host_keys(cluster, objects),
        playbooks,
        health: None,
    }
}

/// The Secret may be applied by other means; only one that is among the files is looked at.
fn key(cluster: &Cluster, objects: &Objects) -> SshKey {
    let reference = cluster
        .spec
        .ssh
        .as_ref()
        .and_then(|ssh| ssh.private_key_secret_ref.as_ref());
    let Some(reference) = reference else {
        return SshKey::NotReferred;
    };
    let secret = objects
        .secrets
        .iter()
        .find(|secret| secret.name_any() == reference.name);
    secret.map_or(SshKey::Usable, |secret| {
        secret::judge(Some(secret), secret::key_of(reference))
    })
}

fn host_keys(cluster: &Cluster, objects: &Objects) -> HostKeys {
    let reference = cluster
        .spec
        .ssh
        .as_ref()
        .and_then(|ssh| ssh.known_hosts_secret_ref.as_ref());
    let Some(reference) = reference else {
        return HostKeys::NotReferred;
    };
    let secret = objects
        .secrets
        .iter()
        .find(|secret| secret.name_any() == reference.name);
    secret.map_or(HostKeys::Usable, |secret| {
        host_keys::judge(Some(secret), host_keys::key_of(reference))
    })
}

fn namespace(cluster: &Cluster) -> String {
    cluster.namespace().unwrap_or_else(|| "default".to_owned())
}
