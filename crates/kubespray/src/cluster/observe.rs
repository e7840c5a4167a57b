//! What there is: reads only.

use std::sync::Arc;

use api::{Cluster, ClusterNode, Run, cluster::SecretKeyRef, snapshots::SnapshotsStatus};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, Client, Resource, ResourceExt, core::DeserializeGuard};
use runs::{control::open_requests, job::Template, object, reconciler::report::obstacle};

use crate::{
    action, authorities,
    certificates::Served,
    cluster::built,
    context::{Context, Error},
    health_book::Checked,
    hooks::{self, Texts},
    host_keys::{self, HostKeys},
    playbooks::{Playbooks, Wish},
    problem::Problem,
    secret::{self, SshKey},
    snapshots,
    variables::{self, Sight},
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
    /// The hosts' public keys, where a Secret holds them.
    pub host_keys: HostKeys,
    /// The Secrets that variables come from.
    pub variables: Sight,
    /// What is wrong with the authorities that a new cluster is to be founded with.
    pub authorities: Vec<Problem>,
    /// The ConfigMaps that hooks come from.
    pub hooks: Texts,
    /// The playbooks.
    pub playbooks: Playbooks,
    /// What the last health probes found.
    pub health: Option<Arc<Checked>>,
    /// What the servers of hosts showed of their certificates.
    pub served: Arc<Served>,
    /// What lies in the store of snapshots, as the last run that looked saw it.
    pub snapshots: Option<SnapshotsStatus>,
    /// Whether a radar has not looked at the hosts just now: a run that changes them begins after a look, or what was edited since the last
    /// one would be told by nobody.
    pub unlooked: bool,
    /// What runner pods are made after, where runners are pods.
    pub pods: Option<Arc<Template>>,
    /// Whether the operator can log in to hosts itself.
    pub logs_in: bool,
}

impl Observed {
    /// A namespace at that time with nothing in it yet but the playbooks of its cluster.
    pub fn empty(now: Timestamp, playbooks: Playbooks) -> Self {
        Self {
            now,
            older_cluster: None,
            nodes: Vec::new(),
            unreadable: Vec::new(),
            runs: Vec::new(),
            key: SshKey::NotReferred,
            host_keys: HostKeys::NotReferred,
            variables: Sight::default(),
            authorities: Vec::new(),
            hooks: Texts::default(),
            playbooks,
            health: None,
            served: Arc::default(),
            snapshots: None,
            unlooked: false,
            pods: None,
            logs_in: true,
        }
    }

    /// Whether a Secret or a ConfigMap that the cluster refers to must change before the cluster can go on.
    pub fn awaits_secret(&self) -> bool {
        !(self.key.is_usable()
            && self.host_keys.is_usable()
            && self.variables.is_usable()
            && self.hooks.is_usable()
            && self.authorities.is_empty())
    }
}

/// Reads what there is.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn observe(cluster: &Cluster, context: &Context) -> Result<Observed, Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let (key, host_keys) = secrets(cluster, &context.client, &namespace).await?;
    let found = controller::stream::in_namespace(&context.stores.nodes, &namespace);
    let (nodes, unreadable) = nodes(found.iter().map(AsRef::as_ref));
    let variables = variables(cluster, &nodes, &context.client, &namespace).await?;
    let found = controller::stream::in_namespace(&context.stores.runs, &namespace);
    let runs = runs(cluster, found.iter().map(AsRef::as_ref));
    let authorities = authorities(cluster, &runs, &context.client, &namespace).await?;
    let hooks = hooks(cluster, &context.client, &namespace).await?;
    let playbooks = match Wish::of(cluster) {
        Ok(wish) => context.playbooks.get(cluster, wish),
        Err(_) => Playbooks::Unwanted,
    };
    let snapshots = snapshots(cluster, &context.client, &namespace).await?;
    let health = context.health.latest(cluster);
    let served = health.as_ref().map(|checked| Arc::clone(&checked.served));
    Ok(Observed {
        now: Timestamp::now(),
        older_cluster: older(context, cluster, &namespace),
        nodes,
        unreadable,
        runs,
        key,
        host_keys,
        variables,
        authorities,
        hooks,
        playbooks,
        health,
        served: served.unwrap_or_default(),
        snapshots,
        unlooked: cluster.spec.radar.is_some() && !context.radar.has_looked(cluster),
        pods: context.pods.clone(),
        logs_in: context.logs_in,
    })
}

/// The keys of Secrets with the ssh key and with the hosts' keys that a cluster refers to.
pub fn references(cluster: &Cluster) -> (Option<&SecretKeyRef>, Option<&SecretKeyRef>) {
    let ssh = cluster.spec.ssh.as_ref();
    (
        ssh.and_then(|ssh| ssh.private_key_secret_ref.as_ref()),
        ssh.and_then(|ssh| ssh.known_hosts_secret_ref.as_ref()),
    )
}

/// Reads the Secrets that a cluster refers to.
///
/// # Errors
///
/// The API refuses or does not answer. That a Secret is missing is no error.
pub async fn secrets(
    cluster: &Cluster,
    client: &Client,
    namespace: &str,
) -> Result<(SshKey, HostKeys), Error> {
    let (key, host_keys) = references(cluster);
    let key = secret::look(client, namespace, key)
        .await
        .map_err(|source| Error::api("read the ssh Secret", source))?;
    let host_keys = host_keys::look(client, namespace, host_keys)
        .await
        .map_err(|source| Error::api("read the Secret with the hosts' keys", source))?;
    Ok((key, host_keys))
}

/// Reads the Secrets that variables of a cluster and its hosts come from.
///
/// # Errors
///
/// The API refuses or does not answer. That a Secret is missing is no error.
pub async fn variables(
    cluster: &Cluster,
    nodes: &[ClusterNode],
    client: &Client,
    namespace: &str,
) -> Result<Sight, Error> {
    variables::look(client, namespace, cluster, nodes)
        .await
        .map_err(|source| Error::api("read the Secrets with variables", source))
}

/// Reads the ConfigMaps that the hooks of a cluster come from.
///
/// # Errors
///
/// The API refuses or does not answer. That a ConfigMap is missing is no error.
pub async fn hooks(cluster: &Cluster, client: &Client, namespace: &str) -> Result<Texts, Error> {
    hooks::look(client, namespace, cluster)
        .await
        .map_err(|source| Error::api("read the ConfigMaps with hooks", source))
}

/// Says what is wrong with the authorities of a cluster that is still to be founded.
///
/// # Errors
///
/// The API refuses or does not answer. That the Secret is missing is no error.
pub async fn authorities(
    cluster: &Cluster,
    runs: &[Run],
    client: &Client,
    namespace: &str,
) -> Result<Vec<Problem>, Error> {
    let stands = built::is_built(cluster) || built::built_by(runs).is_some();
    if stands || cluster.meta().deletion_timestamp.is_some() {
        return Ok(Vec::new());
    }
    let reference = authorities::reference(cluster);
    authorities::look(client, namespace, reference, Timestamp::now())
        .await
        .map_err(|source| Error::api("read the Secret with the authorities", source))
}

/// Reads what lies in the store of snapshots, as the last run that looked saw it. What cannot be read is as good as nothing: the next run
/// writes it anew.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn snapshots(
    cluster: &Cluster,
    client: &Client,
    namespace: &str,
) -> Result<Option<SnapshotsStatus>, Error> {
    let etcd = cluster.spec.etcd.as_ref();
    if etcd.is_none_or(|etcd| etcd.snapshots.is_none()) {
        return Ok(None);
    }
    let name = snapshots::catalogue_name(&cluster.name_any());
    let secret = Api::<Secret>::namespaced(client.clone(), namespace)
        .get_opt(&name)
        .await
        .map_err(|source| Error::api("read the Secret with the list of snapshots", source))?;
    let bytes = secret.and_then(|secret| secret.data?.remove(snapshots::CATALOGUE_KEY));
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes.0).ok()))
}

/// The hosts that can be read, in their order, and those that cannot.
pub fn nodes<'a>(
    found: impl IntoIterator<Item = &'a DeserializeGuard<ClusterNode>>,
) -> (Vec<ClusterNode>, Vec<Unreadable>) {
    let mut valid = Vec::new();
    let mut unreadable = Vec::new();
    for node in found {
        match &node.0 {
            Ok(node) => valid.push(node.clone()),
            Err(invalid) => unreadable.push(Unreadable {
                name: invalid.metadata.name.clone().unwrap_or_default(),
                error: invalid.error.clone(),
            }),
        }
    }
    valid.sort_by_key(joined);
    unreadable.sort_by(|a, b| a.name.cmp(&b.name));
    (valid, unreadable)
}

/// What orders the hosts of a cluster, oldest first.
pub fn joined(node: &ClusterNode) -> (Option<Time>, String) {
    (relocation::mark::created(node.meta()), node.name_any())
}

/// The runs of a cluster among these, oldest first.
pub fn runs<'a>(
    cluster: &Cluster,
    found: impl IntoIterator<Item = &'a DeserializeGuard<Run>>,
) -> Vec<Run> {
    let readable = found.into_iter().filter_map(|run| run.0.as_ref().ok());
    let mut runs: Vec<_> = readable
        .filter(|run| object::is_of(run, cluster))
        .cloned()
        .collect();
    runs.sort_by_key(object::age);
    runs
}

/// What a pass over a Cluster reads of a run that may change. What its steps are at, and its history, wake no Cluster: a runner
/// writes of them every other second.
pub fn of_run(run: &DeserializeGuard<Run>) -> impl PartialEq + Send + use<> {
    let meta = run.meta();
    let whole = (
        meta.generation,
        meta.deletion_timestamp.is_some(),
        meta.annotations.clone(),
    );
    let run = run.0.as_ref().ok();
    let told = run.and_then(|run| {
        let status = run.status.as_ref()?;
        let probe = status.steps.iter().find(|step| step.id == action::PROBE);
        Some((
            (status.phase, status.progress, status.step.clone()),
            (status.message.clone(), status.failure.clone()),
            probe.map(|probe| (probe.phase, probe.failure.clone())),
            runs::runner::left_out(&status.excluded),
            status.finished_at.clone(),
            obstacle(run).map(|(reason, why)| (reason, why.to_owned())),
        ))
    });
    (whole, told, run.map_or(0, |run| open_requests(run).len()))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_wakes_its_cluster_by_what_the_cluster_tells_of_it() {
        let run = |status: serde_json::Value, annotation: &str| -> DeserializeGuard<Run> {
            let run = json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
                "metadata": {"name": "first-create-1", "annotations": {"a": annotation}},
                "spec": {
                    "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"}, "operation": "Create", "generation": 1,
                    "plan": {"digest": "d", "steps": []},
                    "control": {"requests": [{"id": "1", "action": "Retry"}]},
                },
                "status": status,
            });
            DeserializeGuard(Ok(serde_json::from_value(run).unwrap()))
        };
        let status = json!({
            "phase": "Running", "progress": 7, "step": "etcd/install", "message": "step 2 of 9: etcd/install",
            "steps": [{"id": "prepare/probe", "phase": "Succeeded"}, {"id": "etcd/install", "phase": "Running"}],
        });
        let with = |pointer: &str, value: serde_json::Value| {
            let mut status = status.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            status.pointer_mut(parent).unwrap()[field] = value;
            run(status, "")
        };
        let seen = of_run(&run(status.clone(), ""));
        for (pointer, value) in [
            ("/steps/1/activity", json!("install etcd on host-7")),
            ("/steps/1/progress", json!({"done": 3, "unit": "tasks"})),
            ("/steps/1/attempt", json!(2)),
            ("/estimatedFinish", json!("2026-01-01T00:00:00Z")),
            ("/runner", json!({"id": "another"})),
        ] {
            assert!(of_run(&with(pointer, value)) == seen, "{pointer} wakes");
        }
        let failure = json!({"class": "External", "code": "Gate", "message": "m"});
        let excluded = json!([{"target": "host-1", "reason": "silent"}]);
        let condition = json!([{
            "type": "Ready", "status": "False", "reason": "RunnerDied", "message": "no memory", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let record = json!([{
            "sequence": 1, "time": "2026-01-01T00:00:00Z", "event": "StepRetried", "request": "1",
        }]);
        for (pointer, value) in [
            ("/phase", json!("Paused")),
            ("/progress", json!(8)),
            ("/step", json!("network")),
            ("/message", json!("step 3 of 9: network")),
            ("/failure", failure.clone()),
            ("/excluded", excluded),
            ("/finishedAt", json!("2026-01-01T00:00:00Z")),
            ("/steps/0/phase", json!("Failed")),
            ("/steps/0/failure", failure),
            ("/conditions", condition),
            ("/history", record),
        ] {
            assert!(of_run(&with(pointer, value)) != seen, "{pointer} wakes not");
        }
        assert!(of_run(&run(status.clone(), "superseded")) != seen);
    }
}
