//! What kubespray's operator brings to a move (`windlass move`), and what it does with a Cluster that is being moved.

use std::{collections::BTreeSet, error::Error as StdError, io};

use api::{
    Cluster, ClusterNode, Run,
    run::{RunPhase, RunnerIdentity},
};
use controller::{Conditions, Occurrence, Severity, Standing, Summary};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams},
};
use relocation::{Brought, Config, Domain, Graph, Hooks, Item, Kind, Reference, Root, RootLease};
use runs::{is_active, phase, process::is_gone};
use serde_json::{Value, json};

use crate::{
    Layout, Problem,
    cluster::apply,
    context::{Context, Error},
    host_keys::KNOWN_HOSTS,
    names::{CLUSTER_MANAGER, FINALIZER, NODE_FINALIZER, NODE_MANAGER, host_keys_name, lease_name},
    operation::{Leaves, Operation},
    secret::kubeconfig_name,
    variables,
};

/// What the condition and the Event of a Cluster that is being moved are called.
const REASON: &str = "Moving";

/// Names of Secrets in a spec, as a list.
const PULL_SECRETS: &str = "imagePullSecrets";

/// References to Secrets in the inputs of a plan.
const PLANNED: [&str; 2] = ["key", "knownHostsSecret"];

/// Playbooks that the images bring along.
const BUNDLE: &str = "/opt/windlass/bundle";

/// Clusters, their nodes and their runs. `data` is the data directory of the API that they leave, if it is on this machine.
pub fn domain(data: Option<Layout>) -> Domain {
    let cluster = Root {
        noun: "cluster",
        spared: "host",
        lease: Some(RootLease {
            name: lease_name,
            is_gone,
        }),
        told_meanwhile: &["Ready", "Reconciling", "Stalled"],
    };
    Domain {
        name: "kubespray",
        kinds: vec![
            Kind::acted_on::<Cluster>(CLUSTER_MANAGER)
                .held_by(FINALIZER)
                .root(cluster),
            Kind::acted_on::<ClusterNode>(NODE_MANAGER).held_by(NODE_FINALIZER),
            Kind::acted_on::<Run>(runs::runner::FIELD_MANAGER).only(is_of_a_cluster),
        ],
        field_managers: &[CLUSTER_MANAGER, NODE_MANAGER],
        selected: Vec::new(),
        hooks: Box::new(Clusters { data }),
    }
}

/// Whether a Run is of a Cluster. Those of other engines are not this domain's to move.
fn is_of_a_cluster(run: &DynamicObject) -> bool {
    let subject = &run.data["spec"]["subject"];
    subject["apiGroup"] == *Cluster::group(&()) && subject["kind"] == *Cluster::kind(&())
}

/// The Runs of Clusters, beside which there may be those of other domains that move.
fn runs_of_clusters(here: &Graph) -> impl Iterator<Item = Run> {
    let runs = here.of::<Run>();
    let own = runs.filter(|item| is_of_a_cluster(&item.object));
    own.filter_map(|item| item.object.clone().try_parse().ok())
}

struct Clusters {
    data: Option<Layout>,
}

impl Hooks for Clusters {
    /// What a Cluster's operator makes under a name of its own, and the Secrets and ConfigMaps that a spec or a plan names.
    fn references(&self, item: &Item) -> Vec<Reference> {
        let mut names = BTreeSet::new();
        named(&item.object.data, &mut names);
        if item.is::<Cluster>() {
            let cluster = item.name();
            names.extend([kubeconfig_name(&cluster), host_keys_name(&cluster)]);
        }
        let secret = |name| Reference {
            kind: Config::Secret,
            name,
        };
        let config_map = |name| Reference {
            kind: Config::ConfigMap,
            name,
        };
        let hooks = item.object.data["spec"]["hooks"].as_array();
        let texts = hooks.into_iter().flatten().flat_map(|hook| {
            ["script", "playbook"].map(|kind| {
                hook[kind]["configMapKeyRef"]["name"]
                    .as_str()
                    .map(str::to_owned)
            })
        });
        let maps: BTreeSet<String> = texts.flatten().collect();
        let maps = maps.into_iter().map(config_map);
        names.into_iter().map(secret).chain(maps).collect()
    }

    fn refusals(&self, here: &Graph, there: &Graph) -> Vec<Problem> {
        let runs = runs_of_clusters(here);
        let mut problems: Vec<_> = runs.filter_map(|run| being_reset(&run)).collect();
        let names: BTreeSet<_> = here.of::<Cluster>().map(Item::name).collect();
        let others = there.of::<Cluster>().map(Item::name);
        problems.extend(others.filter(|other| !names.contains(other)).map(|other| {
            Problem::new(
                "--to-namespace",
                there.namespace(),
                format!("a namespace holds one Cluster, and {other} is there"),
                "name another namespace",
            )
        }));
        problems
    }

    fn warnings(&self, here: &Graph) -> Vec<String> {
        here.of::<Cluster>().flat_map(unfit_for_pods).collect()
    }

    /// The recorded keys of hosts, for clusters whose spec gives none.
    fn brings(&self, here: &Graph) -> Result<Vec<Brought>, Box<dyn StdError + Send + Sync>> {
        let Some(data) = &self.data else {
            return Ok(Vec::new());
        };
        let mut brought = Vec::new();
        for cluster in here.of::<Cluster>().filter(|cluster| !gives_keys(cluster)) {
            let directory = data.cluster(here.namespace(), &cluster.name());
            let file = directory.join(KNOWN_HOSTS);
            let recorded = match std::fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let file = file.display();
                    return Err(
                        format!("{file}: {error}; make it a readable file, or remove it").into(),
                    );
                }
            };
            brought.extend(host_keys(here, cluster, &recorded).map(|secret| Brought {
                what: "the recorded keys of the hosts",
                secret,
            }));
        }
        Ok(brought)
    }

    fn at_work(&self, here: &Graph, _root: &Item) -> Option<String> {
        let run = runs_of_clusters(here).find(|run| is_active(phase(run)))?;
        let step = run.status.as_ref().and_then(|status| status.step.clone());
        Some(match step {
            Some(step) => format!("Run/{} (at {step})", run.name_any()),
            None => format!("Run/{}", run.name_any()),
        })
    }

    fn may_be_at_work(&self, here: &Graph) -> bool {
        runs_of_clusters(here).any(|run| has_runner(&run))
    }
}

/// The Secrets that a spec or a plan names: every `...SecretRef` and `secretKeyRef`, what a plan calls them, and those for
/// images.
fn named(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let one = field.ends_with("SecretRef")
                    || field == variables::REFERENCE
                    || PLANNED.contains(&field.as_str());
                if one {
                    names.extend(value["name"].as_str().map(str::to_owned));
                } else if field == PULL_SECRETS {
                    names.extend(value.as_array().into_iter().flatten().filter_map(pulling));
                }
                named(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| named(value, names)),
        _ => {}
    }
}

fn pulling(value: &Value) -> Option<String> {
    let name = value.as_str().or_else(|| value["name"].as_str())?;
    Some(name.to_owned())
}

fn being_reset(run: &Run) -> Option<Problem> {
    let is_reset = is_active(phase(run)) && Operation::leaves(run, Leaves::Nothing);
    is_reset.then(|| {
        Problem::new(
            format!("Run/{} spec.operation", run.name_any()),
            "Reset",
            "the cluster is being removed from its hosts",
            "wait until the run has ended",
        )
    })
}

/// What a pod does not have that a Cluster names.
fn unfit_for_pods(item: &Item) -> Vec<String> {
    let name = item.shown();
    let Ok(cluster) = item.object.clone().try_parse::<Cluster>() else {
        return vec![format!("{name} cannot be read by this version of Windlass")];
    };
    let mut warnings = Vec::new();
    let source = cluster.spec.kubespray.unwrap_or_default().source;
    if let Some(path) = source.and_then(|source| source.path)
        && !path.starts_with(BUNDLE)
    {
        warnings.push(format!(
            "{name} spec.kubespray.source.path is {path:?}: pods have no such directory; write {BUNDLE}, which the images \
             bring along, or name git or image. A run that is not finished then begins anew with the other playbooks"
        ));
    }
    if (cluster.spec.ssh.unwrap_or_default())
        .private_key_secret_ref
        .is_none()
    {
        warnings.push(format!(
            "{name} spec.ssh.privateKeySecretRef is not set: pods have no ssh key of their own; store it in a Secret and \
             name that"
        ));
    }
    let snapshots = cluster.spec.etcd.and_then(|etcd| etcd.snapshots);
    if let Some(directory) = snapshots.and_then(|snapshots| snapshots.store.directory) {
        warnings.push(format!(
            "{name} spec.etcd.snapshots.store.directory is {directory:?}, which pods do not have: write persistentVolumeClaim or s3 \
             there, or nothing is saved; what lies in the directory stays"
        ));
    }
    warnings
}

/// Whether the spec gives the keys of hosts, so that there is nothing to carry.
fn gives_keys(cluster: &Item) -> bool {
    let ssh = &cluster.object.data["spec"]["ssh"];
    let mut fields = ["knownHosts", "knownHostsSecretRef"].iter();
    fields.any(|field| !ssh[*field].is_null())
}

/// The Secret with the recorded keys of a cluster's hosts beside those that it holds; none: it holds them.
fn host_keys(here: &Graph, cluster: &Item, recorded: &str) -> Option<Secret> {
    let name = host_keys_name(&cluster.name());
    let existing = here
        .parsed::<Secret>()
        .find(|secret| secret.name_any() == name);
    let known = existing.and_then(|secret| secret.data?.remove(KNOWN_HOSTS));
    let known = known.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
    let merged = merged(known.as_deref().unwrap_or_default(), recorded);
    if merged.is_empty() || known.as_ref() == Some(&merged) {
        return None;
    }
    let owner = cluster.object.clone().try_parse::<Cluster>().ok()?;
    Some(Secret {
        metadata: ObjectMeta {
            name: Some(name),
            owner_references: owner.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some([(KNOWN_HOSTS.to_owned(), ByteString(merged.into_bytes()))].into()),
        ..Secret::default()
    })
}

/// The lines of both, each once.
fn merged(known: &str, recorded: &str) -> String {
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for line in known.lines().chain(recorded.lines()) {
        if !line.trim().is_empty() && seen.insert(line) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Whether a runner holds a run that may not have seen what became of it.
fn has_runner(run: &Run) -> bool {
    let status = run.status.as_ref();
    let runner = status.and_then(|status| status.runner.as_ref());
    let is_alive = |runner: &RunnerIdentity| !is_gone(&runner.id);
    matches!(phase(run), RunPhase::Running | RunPhase::Waiting) && runner.is_some_and(is_alive)
}

/// A pass over a Cluster that is being moved: it says so, and lets go of an object that is deleted. No host is touched,
/// whatever the deletion policy says, because the hosts belong to the other side.
pub(crate) async fn rest(cluster: &Cluster, mark: &str, context: &Context) -> Result<(), Error> {
    if cluster.meta().deletion_timestamp.is_some() {
        return apply::let_go(cluster, context).await;
    }
    // What was copied is compared with its original: a copy says nothing before it is at work.
    if relocation::mark::is_arriving(mark) {
        return Ok(());
    }
    let status = cluster.status.clone().unwrap_or_default();
    let before = &status.conditions;
    let generation = cluster.metadata.generation;
    let mut conditions = Conditions::new(before, generation, Timestamp::now());
    let message = format!(
        "{mark}: nothing is done here; if it was stopped, start the same `windlass move` again"
    );
    conditions.summarise(&Summary {
        standing: Standing::AtWork,
        reason: REASON,
        message: message.clone(),
    });
    let mut wanted = status.clone();
    wanted.conditions = conditions.into_vec();
    if wanted.conditions == status.conditions {
        return Ok(());
    }
    let occurrence = Occurrence {
        severity: Severity::Normal,
        reason: REASON.to_owned(),
        note: message,
        edge: mark.to_owned(),
    };
    context
        .events
        .publish(&cluster.object_ref(&()), &occurrence)
        .await
        .map_err(|source| Error::api("publish an Event", source))?;
    let namespace = cluster.namespace().unwrap_or_default();
    let body = json!({
        "apiVersion": Cluster::api_version(&()),
        "kind": Cluster::kind(&()),
        // Of this revision only: a status that was carried here meanwhile is not taken back.
        "metadata": {"name": cluster.name_any(), "resourceVersion": cluster.resource_version()},
        "status": wanted,
    });
    let written = Api::<Cluster>::namespaced(context.client.clone(), &namespace)
        .patch_status(
            &cluster.name_any(),
            &PatchParams::apply(CLUSTER_MANAGER).force(),
            &Patch::Apply(&body),
        )
        .await;
    match written {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result
            .map(drop)
            .map_err(|source| Error::api("write the Cluster's status", source)),
    }
}
