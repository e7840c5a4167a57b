//! What would be done: about objects of files alone (`windlass plan -f DIR`), about those of an API with files applied to them
//! (`windlass plan --live`), or about a request to converge (`windlass converge --dry-run`). Nothing is touched.

use std::sync::Arc;

use ansible::source::{Policy, Sources};
use api::{
    Cluster, ClusterNode, Run,
    cluster::{DeletionPolicy, Pending, SecretKeyRef},
    run::{Plan, RunPhase},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::DeserializeGuard};
use runs::{is_active, phase};

use crate::{
    authorities, budgets,
    certificates::Served,
    cluster::{
        decision::{Decision, Planned},
        observe::{self, Observed},
        plan, resolve,
    },
    context::Error,
    hooks,
    host_keys::{self, HostKeys},
    inputs::Inputs,
    layout::Layout,
    operation::{RESET, asked, converge, reset},
    playbooks::{self, Checkout, LoadError, Playbooks, Wish},
    problem::Problem,
    request::{CONVERGE, START_AGAIN},
    secret::{self, SshKey},
    variables::{self, Sight},
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
    /// ConfigMaps that they refer to, likewise.
    pub config_maps: Vec<ConfigMap>,
}

impl Objects {
    fn secret(&self, reference: &SecretKeyRef) -> Option<&Secret> {
        self.named(&reference.name)
    }

    fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        let mut config_maps = self.config_maps.iter();
        config_maps.find(|config_map| config_map.name_any() == name)
    }

    fn named(&self, name: &str) -> Option<&Secret> {
        let mut secrets = self.secrets.iter();
        secrets.find(|secret| secret.name_any() == name)
    }
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
    /// What a built cluster was not built with, and would be given.
    pub changes: Vec<String>,
    /// What the plan waits for, if it does not start at once.
    pub waits: Option<String>,
    /// What the drains of the plan would meet, once [`foresee`] has asked.
    pub drains: Vec<String>,
    /// What else the spec asks for, in its order.
    pub pending: Vec<Pending>,
}

impl Preview {
    fn new(cluster: &Cluster, planned: Planned) -> Self {
        let Planned {
            decision,
            mut pending,
            rest: _,
            recheck: _,
        } = planned;
        let waiting = match &decision {
            Decision::Keep(built) => built.waiting.clone(),
            _ => None,
        };
        let outcome = match &waiting {
            Some(waiting) => {
                let shown = waiting.new.operation.name;
                pending.retain(|pending| pending.operation != shown);
                PreviewOutcome::Plan(Box::new(waiting.new.plan.clone()))
            }
            None => shown(decision),
        };
        Self {
            namespace: namespace(cluster),
            cluster: cluster.name_any(),
            outcome,
            changes: Vec::new(),
            waits: waiting.map(|waiting| waiting.told()),
            drains: Vec::new(),
            pending,
        }
    }
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
    /// The request would be refused.
    Refused(String),
    /// Nothing, for this reason.
    Nothing(String),
}

/// Says what would be done about each cluster, in order of name. Playbooks are brought into the data directory.
pub async fn preview(objects: &Objects, layout: &Layout) -> Vec<Preview> {
    let mut previews = Vec::new();
    for cluster in &objects.clusters {
        previews.push(Preview::new(
            cluster,
            outcome(cluster, objects, layout).await,
        ));
    }
    previews.sort_by(|a, b| (&a.namespace, &a.cluster).cmp(&(&b.namespace, &b.cluster)));
    previews
}

/// Says what would be done next about a cluster as an API holds it, or would after these hosts were applied. Playbooks are brought
/// into the data directory.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn next(
    client: &Client,
    cluster: &Cluster,
    nodes: &[ClusterNode],
    layout: &Layout,
) -> Result<Preview, Error> {
    let playbooks = playbooks(cluster, layout).await;
    let observed = observed_in(client, cluster, nodes, playbooks).await?;
    let wanted = resolve::resolve(cluster, &observed);
    let planned = plan::planned(cluster, wanted.as_ref().map_err(Vec::as_slice), &observed);
    Ok(Preview::new(cluster, planned))
}

/// Says what the reset of a cluster would come to, as an API holds it, if its Cluster was deleted now with the deletion policy Reset. A run
/// that is at work ends before it, and one that was cancelled is asked for once more. Playbooks are brought into the data directory.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn reset(client: &Client, cluster: &Cluster, layout: &Layout) -> Result<Preview, Error> {
    let mut cluster = cluster.clone();
    cluster.spec.deletion_policy = Some(DeletionPolicy::Reset);
    let now = Time(Timestamp::now());
    cluster.meta_mut().deletion_timestamp.get_or_insert(now);
    let playbooks = playbooks(&cluster, layout).await;
    let mut observed = observed_in(client, &cluster, &[], playbooks).await?;
    let at_work = |run: &&mut Run| is_active(phase(run)) && run.spec.operation != RESET.name;
    for run in observed.runs.iter_mut().filter(at_work) {
        run.status.get_or_insert_default().phase = RunPhase::Cancelled;
    }
    if reset::is_cancelled(&observed.runs) {
        let anew = (START_AGAIN.to_owned(), Timestamp::now().to_string());
        cluster.annotations_mut().extend([anew]);
    }
    let wanted = resolve::resolve(&cluster, &observed);
    let planned = plan::planned(&cluster, wanted.as_ref().map_err(Vec::as_slice), &observed);
    let forgotten = matches!(planned.decision, Decision::Forget);
    let mut preview = Preview::new(&cluster, planned);
    if forgotten {
        let why =
            "no run was ever to work on its hosts: none is reset, and the cluster is forgotten";
        preview.outcome = PreviewOutcome::Nothing(why.to_owned());
    }
    Ok(preview)
}

/// Says what a request by one of the annotations of [`request`](crate::request), and with this value, would come to now, for a cluster
/// as an API holds it. Playbooks are brought into the data directory.
///
/// # Errors
///
/// The API refuses or does not answer. A request that would be refused is no error.
pub async fn asked(
    client: &Client,
    cluster: &Cluster,
    (annotation, request): (&str, &str),
    layout: &Layout,
) -> Result<Preview, Error> {
    let mut cluster = cluster.clone();
    let annotations = cluster.annotations_mut();
    // Another one that is still open would come first.
    for other in asked::all() {
        annotations.remove(other.annotation);
    }
    annotations.insert(annotation.to_owned(), request.to_owned());
    let playbooks = playbooks(&cluster, layout).await;
    let observed = observed_in(client, &cluster, &[], playbooks).await?;
    let wanted = resolve::resolve(&cluster, &observed);
    let changes = wanted
        .as_ref()
        .ok()
        .filter(|_| annotation == CONVERGE)
        .map(|wanted| converge::changes(&observed.runs, wanted));
    let decision = plan::plan(&cluster, wanted.as_ref().map_err(Vec::as_slice), &observed);
    let answer = asked::all().find_map(|asked| asked.answer(&cluster, &decision));
    let refused = answer.and_then(|answer| answer.refused);
    let outcome = match (refused, decision) {
        (_, Decision::Stall(problems)) => PreviewOutcome::Problems(problems),
        (Some(why), _) => PreviewOutcome::Refused(why),
        (None, decision) => shown(decision),
    };
    Ok(Preview {
        namespace: namespace(&cluster),
        cluster: cluster.name_any(),
        outcome,
        changes: changes.unwrap_or_default(),
        waits: None,
        drains: Vec::new(),
        pending: Vec::new(),
    })
}

/// Asks the cluster itself what the drains of the plan would meet: which pods a PodDisruptionBudget would hold, and which would be lost. It is
/// read by its kubeconfig Secret. A cluster that does not answer is told in a line, and fails nothing.
pub async fn foresee(client: &Client, preview: &mut Preview) {
    if let PreviewOutcome::Plan(plan) = &preview.outcome {
        let cluster = (preview.namespace.as_str(), preview.cluster.as_str());
        preview.drains = budgets::ahead(client, cluster, plan).await;
    }
}

async fn observed_in(
    client: &Client,
    cluster: &Cluster,
    further: &[ClusterNode],
    playbooks: Playbooks,
) -> Result<Observed, Error> {
    let own = namespace(cluster);
    let (key, host_keys) = observe::secrets(cluster, client, &own).await?;
    let found = Api::<DeserializeGuard<ClusterNode>>::namespaced(client.clone(), &own)
        .list(&ListParams::default())
        .await
        .map_err(|source| Error::api("list the ClusterNodes", source))?;
    let name = |node: &DeserializeGuard<ClusterNode>| node.name_any();
    let is_newer = |name: &String| further.iter().any(|node| node.name_any() == *name);
    let found = found
        .items
        .into_iter()
        .filter(|node| !is_newer(&name(node)));
    let further = further.iter().filter(|node| namespace_of(*node) == own);
    let found: Vec<_> = found
        .chain(further.map(|node| DeserializeGuard(Ok(node.clone()))))
        .collect();
    let (nodes, unreadable) = observe::nodes(&found);
    let variables = observe::variables(cluster, &nodes, client, &own).await?;
    // As the operator told what it saw.
    let served = Served::told(&nodes);
    let found = Api::<DeserializeGuard<Run>>::namespaced(client.clone(), &own)
        .list(&ListParams::default())
        .await
        .map_err(|source| Error::api("list the Runs", source))?;
    let runs = observe::runs(cluster, &found);
    let authorities = observe::authorities(cluster, &runs, client, &own).await?;
    let hooks = observe::hooks(cluster, client, &own).await?;
    Ok(Observed {
        now: Timestamp::now(),
        // A second Cluster of a namespace is never built.
        older_cluster: None,
        nodes,
        unreadable,
        runs,
        key,
        host_keys,
        variables,
        authorities,
        hooks,
        playbooks,
        health: None,
        snapshots: cluster
            .status
            .as_ref()
            .and_then(|status| status.snapshots.clone()),
        unlooked: false,
        served: served.into(),
        // Only the operator knows.
        pods: None,
        logs_in: true,
    })
}

/// What a plan for a cluster would be made from, before its playbooks are known. The hosts are taken in the order in which an
/// API would have them.
///
/// # Errors
///
/// Everything that must be changed first.
pub fn inputs(cluster: &Cluster, objects: &Objects) -> Result<Inputs, Vec<Problem>> {
    let mut observed = observed(cluster, objects, Playbooks::Unwanted);
    observed.nodes.sort_by_key(observe::joined);
    resolve::resolve(cluster, &observed).map(|wanted| wanted.inputs)
}

/// What a plan for a cluster of files would be made from, and its playbooks, which are brought into the data directory.
///
/// # Errors
///
/// Everything that must be changed first.
pub async fn with_playbooks(
    cluster: &Cluster,
    objects: &Objects,
    layout: &Layout,
) -> Result<(Inputs, Arc<Checkout>), Vec<Problem>> {
    let playbooks = playbooks(cluster, layout).await;
    let mut observed = observed(cluster, objects, playbooks.clone());
    observed.nodes.sort_by_key(observe::joined);
    both(cluster, &observed, playbooks)
}

/// The same of a cluster as an API holds it.
///
/// # Errors
///
/// The API refuses or does not answer. What must be changed first is no error of it.
pub async fn next_with_playbooks(
    client: &Client,
    cluster: &Cluster,
    layout: &Layout,
) -> Result<Result<(Inputs, Arc<Checkout>), Vec<Problem>>, Error> {
    let playbooks = playbooks(cluster, layout).await;
    let observed = observed_in(client, cluster, &[], playbooks.clone()).await?;
    Ok(both(cluster, &observed, playbooks))
}

fn both(
    cluster: &Cluster,
    observed: &Observed,
    playbooks: Playbooks,
) -> Result<(Inputs, Arc<Checkout>), Vec<Problem>> {
    let inputs = resolve::resolve(cluster, observed)?.inputs;
    match playbooks {
        Playbooks::Ready(checkout) => Ok((inputs, checkout)),
        Playbooks::Unusable(problem) => Err(vec![problem]),
        Playbooks::Unreachable(reason) => Err(vec![Problem::new(
            "Cluster spec.kubespray.source",
            "",
            format!("the playbooks cannot be had: {reason}"),
            "let this machine reach them, or name a directory: path: DIR",
        )]),
        Playbooks::Unwanted | Playbooks::Fetching => Err(Vec::new()),
    }
}

async fn outcome(cluster: &Cluster, objects: &Objects, layout: &Layout) -> Planned {
    let observed = observed(cluster, objects, playbooks(cluster, layout).await);
    let wanted = resolve::resolve(cluster, &observed);
    plan::planned(cluster, wanted.as_ref().map_err(Vec::as_slice), &observed)
}

async fn playbooks(cluster: &Cluster, layout: &Layout) -> Playbooks {
    match Wish::of(cluster) {
        Err(_) => Playbooks::Unwanted,
        Ok(wish) => match playbooks::load(&wish, &namespace(cluster), &sources(layout)).await {
            Ok(checkout) => Playbooks::Ready(checkout.into()),
            Err(LoadError::Unusable(problem)) => Playbooks::Unusable(problem),
            Err(LoadError::Unreachable(reason)) => Playbooks::Unreachable(reason),
        },
    }
}

/// Whoever looks ahead names the sources themselves.
fn sources(layout: &Layout) -> Sources {
    Sources::new(layout.sources(), Policy::person())
}

fn shown(decision: Decision) -> PreviewOutcome {
    match decision {
        Decision::Start(new) => PreviewOutcome::Plan(Box::new(new.plan)),
        Decision::Stall(problems) => PreviewOutcome::Problems(problems),
        Decision::AwaitPlaybooks(why) => PreviewOutcome::NoPlaybooks(why.unwrap_or_default()),
        Decision::AwaitHosts { missing, .. } => PreviewOutcome::Waiting(missing),
        Decision::Follow(run) | Decision::Maintain(_, run) => {
            PreviewOutcome::Nothing(standing(&run))
        }
        Decision::Supersede(run, _) => PreviewOutcome::Nothing(format!(
            "run {} ends at the next step where it may, then what is asked for now is planned",
            run.name_any()
        )),
        Decision::Keep(built) if built.not_carried_out.is_empty() => {
            PreviewOutcome::Nothing("the cluster is built as the spec says".to_owned())
        }
        Decision::Keep(built) => PreviewOutcome::Nothing(format!(
            "the cluster is built; the spec also asks for {}",
            built.not_carried_out.join("; ")
        )),
        Decision::Cancel(_) | Decision::Forget => {
            PreviewOutcome::Nothing("the cluster is being deleted".to_owned())
        }
    }
}

/// How the run stands that comes first.
fn standing(run: &Run) -> String {
    let name = run.name_any();
    let phase = runs::phase(run);
    if runs::is_active(phase) {
        format!("run {name} is at work: what else is to be done comes after it")
    } else {
        format!("run {name} ended as {phase:?}: windlass status says what to do about it")
    }
}

fn observed(cluster: &Cluster, objects: &Objects, playbooks: Playbooks) -> Observed {
    let own = namespace(cluster);
    let nodes = objects
        .nodes
        .iter()
        .filter(|node| node.namespace().unwrap_or_else(|| "default".to_owned()) == own)
        .cloned()
        .collect::<Vec<_>>();
    let other = objects
        .clusters
        .iter()
        .take_while(|other| other.name_any() != cluster.name_any() || namespace(other) != own)
        .find(|other| namespace(other) == own);
    Observed {
        now: Timestamp::now(),
        older_cluster: other.map(ResourceExt::name_any),
        variables: sight(cluster, &nodes, objects),
        nodes,
        unreadable: Vec::new(),
        runs: Vec::new(),
        key: key(cluster, objects),
        host_keys: host_keys(cluster, objects),
        authorities: authorities(cluster, objects),
        hooks: hooks::judge(cluster, |name| objects.config_map(name).map(Some)),
        playbooks,
        health: None,
        snapshots: None,
        unlooked: false,
        served: Arc::default(),
        pods: None,
        logs_in: true,
    }
}

/// A Secret may be applied by other means; only one that is among the files is looked at.
fn key(cluster: &Cluster, objects: &Objects) -> SshKey {
    let (reference, _) = observe::references(cluster);
    reference.map_or(SshKey::NotReferred, |reference| {
        objects.secret(reference).map_or(SshKey::Usable, |secret| {
            secret::judge(Some(secret), secret::key_of(reference))
        })
    })
}

fn authorities(cluster: &Cluster, objects: &Objects) -> Vec<Problem> {
    let reference = authorities::reference(cluster);
    let found = reference.and_then(|reference| Some((reference, objects.named(&reference.name)?)));
    found.map_or_else(Vec::new, |(reference, secret)| {
        authorities::problems(reference, Some(secret), Timestamp::now())
    })
}

fn sight(cluster: &Cluster, nodes: &[ClusterNode], objects: &Objects) -> Sight {
    let (referred, _) = variables::referred(cluster, nodes);
    variables::judge(referred, |name| objects.named(name).map(Some))
}

fn host_keys(cluster: &Cluster, objects: &Objects) -> HostKeys {
    let (_, reference) = observe::references(cluster);
    reference.map_or(HostKeys::NotReferred, |reference| {
        objects
            .secret(reference)
            .map_or(HostKeys::Usable, |secret| {
                host_keys::judge(Some(secret), host_keys::key_of(reference))
            })
    })
}

fn namespace(cluster: &Cluster) -> String {
    namespace_of(cluster)
}

fn namespace_of(object: &impl ResourceExt) -> String {
    object.namespace().unwrap_or_else(|| "default".to_owned())
}
