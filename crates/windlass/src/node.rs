//! `windlass node`: removes hosts from a cluster, replaces or resets them, or keeps those whose removal somebody asked for; what is done
//! to nodes that stay is of the [toolbox].

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::{Cluster, ClusterNode, HostName, Run, cluster::Pending};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{conditions::is_deleted, wait::await_condition},
};
use kubespray::{
    Layout,
    cluster::built::{built_by, built_with, is_built},
    inputs::Inputs,
    names::NODE_FINALIZER,
    preview::{Preview, PreviewOutcome, foresee},
    request::{FORCE_REMOVAL, REPLACED_BY, RESET_HOST},
    secret,
    workload::Workload,
};
use runs::{is_active, object::age, phase};
use serde_json::json;

use crate::{
    cli::{Confirmed, Global, KeepNode, Node, RemoveNode, ReplaceNode, ResetNode},
    client::{answered, is_of, named_or_only},
    plan,
    terminal::say,
    toolbox,
};

/// How long an object may take to go that nothing holds any more.
const GONE: Duration = Duration::from_secs(30);

/// Carries out `windlass node`.
pub(crate) async fn node(global: &Global, command: &Node) -> anyhow::Result<()> {
    match command {
        Node::Remove(options) => remove(global, options).await,
        Node::Replace(options) => replace(global, options).await,
        Node::Reset(options) => reset(global, options).await,
        Node::Keep(options) => keep(global, options).await,
        Node::Cordon(_) | Node::Uncordon(_) | Node::Drain(_) | Node::Restart(_) => {
            toolbox::nodes(global, command).await
        }
    }
}

async fn remove(global: &Global, options: &RemoveNode) -> anyhow::Result<()> {
    let client = global.client().await?;
    let nodes: Api<ClusterNode> = Api::namespaced(client.clone(), &global.namespace);
    // All are looked for before the first is deleted.
    let mut leaving = Vec::new();
    for name in &options.names {
        let node = get(&nodes, name).await?;
        ensure!(
            options.dry_run || !is_removed(&node, options.force),
            "nothing was done: somebody has asked for the removal of ClusterNode {name} already; follow it with: windlass status \
             --watch; take it back with: windlass node keep {name}"
        );
        leaving.push(node);
    }
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let clusters = clusters.list(&ListParams::default().limit(1)).await;
    let clusters = answered(clusters, "list the Clusters")?.items;
    // Nobody holds the hosts of no cluster.
    if options.dry_run || !clusters.is_empty() {
        let of_api = client.clone();
        let mut preview = previewed(global, of_api, leaving, None, options.force).await?;
        if options.dry_run {
            foresee(&client, &mut preview).await;
            return plan::show(&[preview], options.output);
        }
        let mut names = options.names.iter();
        if let Some((name, why)) = names.find_map(|name| Some((name, refused(&preview, name)?))) {
            bail!("nothing was done: {name} is not removed: {why}");
        }
    }
    for name in &options.names {
        if options.force {
            let patch = json!({"metadata": {"annotations": {FORCE_REMOVAL: "true"}}});
            let parameters = PatchParams::default();
            let patched = nodes.patch(name, &parameters, &Patch::Merge(patch)).await;
            answered(patched, &format!("annotate ClusterNode {name}"))?;
        }
        let deleted = nodes.delete(name, &DeleteParams::default()).await;
        answered(deleted, &format!("delete ClusterNode {name}"))?;
        say!("clusternode {name} is held until its host is no part of the cluster any more");
        if options.force {
            say!(
                "  given up: its pods are deleted whatever their PodDisruptionBudgets say; if it does not answer it is not reset, \
                 and comes back as a node when it is switched on"
            );
        }
    }
    global
        .say("follow it with: windlass status --watch; take it back with: windlass node keep NAME");
    Ok(())
}

/// Whether its removal was asked for already, by the same means.
fn is_removed(node: &ClusterNode, force: bool) -> bool {
    let forced = node.annotations().contains_key(FORCE_REMOVAL);
    node.meta().deletion_timestamp.is_some() && (forced || !force)
}

/// What would be done if they were deleted, and that one took their place.
async fn previewed(
    global: &Global,
    client: kube::Client,
    mut leaving: Vec<ClusterNode>,
    by: Option<&HostName>,
    force: bool,
) -> anyhow::Result<Preview> {
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, None).await?;
    for node in &mut leaving {
        let now = Time(Timestamp::now());
        node.meta_mut().deletion_timestamp.get_or_insert(now);
        let annotations = node.annotations_mut();
        if force {
            annotations.insert(FORCE_REMOVAL.to_owned(), "true".to_owned());
        }
        if let Some(by) = by {
            annotations.insert(REPLACED_BY.to_owned(), by.to_string());
        }
    }
    let layout = Layout::new(global.private_data_directory()?);
    Ok(kubespray::preview::next(&client, &cluster, &leaving, &layout).await?)
}

/// Why a host would stay, if it would.
fn refused<'a>(preview: &'a Preview, name: &str) -> Option<&'a str> {
    let refused = |pending: &&Pending| {
        pending.reason == "Refused" && pending.hosts.iter().any(|host| host.as_str() == name)
    };
    let refused = preview.pending.iter().find(refused)?;
    refused.message.split("; to take it back").next()
}

/// Whether what costs data is to be done. Where it is not, or it is not what would be done next, the plan is shown.
///
/// # Errors
///
/// Nobody has said so by the name of the host or of the cluster: what is `lost`, and the command that does it.
pub(crate) fn confirmed(
    global: &Global,
    preview: Preview,
    planned: bool,
    options: &Confirmed,
    (name, lost): (&str, &str),
) -> anyhow::Result<bool> {
    let confirmed = options.confirm.as_deref() == Some(name);
    if options.dry_run || !confirmed || !planned {
        plan::show(&[preview], options.output)?;
    }
    ensure!(
        options.dry_run || confirmed,
        "nothing was done: {}{lost}; if that is wanted: {}",
        another(options.confirm.as_deref(), name),
        global.confirmed(name)
    );
    Ok(!options.dry_run)
}

/// Says that another name was typed, if one was.
pub(crate) fn another(typed: Option<&str>, name: &str) -> String {
    typed.map_or_else(String::new, |typed| {
        format!("--confirm names {typed}, and not {name}; ")
    })
}

async fn replace(global: &Global, options: &ReplaceNode) -> anyhow::Result<()> {
    let client = global.client().await?;
    let nodes: Api<ClusterNode> = Api::namespaced(client.clone(), &global.namespace);
    let ReplaceNode { name, by, .. } = options;
    let node = get(&nodes, name).await?;
    ensure!(
        options.confirmed.dry_run
            || !is_removed(&node, options.force)
            || node.annotations().get(REPLACED_BY).map(String::as_str) != Some(by.as_str()),
        "nothing was done: {by} is to take the place of {name} already; follow it with: windlass status --watch; take it back with: \
         windlass node keep {name}"
    );
    joins(global, &client, name, by).await?;
    let preview = previewed(global, client, vec![node], Some(by), options.force).await?;
    if let Some(why) = refused(&preview, name) {
        bail!("{name} is not replaced: {why}");
    }
    let planned = matches!(
        preview.outcome,
        PreviewOutcome::Plan(_) | PreviewOutcome::Nothing(_)
    );
    let lost = format!("{name} leaves the cluster and is reset, what is on it is lost");
    if !confirmed(global, preview, planned, &options.confirmed, (name, &lost))? {
        return Ok(());
    }
    let mut annotations = json!({REPLACED_BY: by});
    if options.force {
        annotations[FORCE_REMOVAL] = json!("true");
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let patched = nodes.patch(name, &PatchParams::default(), &patch).await;
    answered(patched, &format!("annotate ClusterNode {name}"))?;
    let deleted = nodes.delete(name, &DeleteParams::default()).await;
    answered(deleted, &format!("delete ClusterNode {name}"))?;
    say!(
        "clusternode {name} is held until {by} has taken its place and its host is no part of the cluster any more"
    );
    global.say(&format!(
        "follow it with: windlass status --watch; take it back with: windlass node keep {name}"
    ));
    Ok(())
}

async fn reset(global: &Global, options: &ResetNode) -> anyhow::Result<()> {
    let client = global.client().await?;
    let nodes: Api<ClusterNode> = Api::namespaced(client.clone(), &global.namespace);
    let name = &options.name;
    let mut node = get(&nodes, name).await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, None).await?;
    ensure!(
        is_built(&cluster),
        "cluster {0} is not built: to remove what its creation left from all of its hosts: windlass reset {0}",
        cluster.name_any()
    );
    let asked = format!("{name} {}", Timestamp::now());
    let annotations = json!({RESET_HOST: asked});
    node.annotations_mut()
        .insert(RESET_HOST.to_owned(), asked.clone());
    let layout = Layout::new(global.private_data_directory()?);
    let preview = kubespray::preview::next(&client, &cluster, &[node], &layout).await?;
    if let Some(why) = refused(&preview, name) {
        bail!("{name} is not reset: {why}");
    }
    let planned = matches!(preview.outcome, PreviewOutcome::Plan(_));
    let lost = format!("all of Kubernetes on {name} is removed, with its data");
    if !confirmed(global, preview, planned, &options.confirmed, (name, &lost))? {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let patched = nodes.patch(name, &PatchParams::default(), &patch).await;
    answered(patched, &format!("annotate ClusterNode {name}"))?;
    say!("{name} is reset when no other run is at work, and joins then as it is declared");
    global.say(&format!(
        "follow it with: windlass status --watch; if it is not to join: windlass node remove {name}"
    ));
    Ok(())
}

/// Refuses one that is part of the cluster already where that is no way to anything: the host is removed then.
async fn joins(
    global: &Global,
    client: &kube::Client,
    name: &str,
    by: &HostName,
) -> anyhow::Result<()> {
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, None).await?.name_any();
    let Some(built) = built(global, client, &cluster).await? else {
        return Ok(());
    };
    let is_first = |group: &str| {
        let first = built.group(group).first();
        first.is_some_and(|first| first.as_str() == name)
    };
    ensure!(
        built.host(by).is_none() || is_first("kube_control_plane") || is_first("etcd"),
        "{by} is part of the cluster already, and {name} is not its first host, so that nobody has to take a place: \
         windlass node remove {name}, or declare another host"
    );
    Ok(())
}

/// What a cluster is made of, if the run that says so is still there.
pub(crate) async fn built(
    global: &Global,
    client: &kube::Client,
    cluster: &str,
) -> anyhow::Result<Option<Inputs>> {
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let runs = answered(runs.list(&ListParams::default()).await, "list the runs")?;
    let mut runs: Vec<Run> = runs.items;
    runs.retain(|run| is_of(run, cluster));
    runs.sort_by_key(age);
    Ok(built_by(&runs).and_then(built_with))
}

/// Makes the object anew: what is being deleted stays so.
async fn keep(global: &Global, options: &KeepNode) -> anyhow::Result<()> {
    let client = global.client().await?;
    let nodes: Api<ClusterNode> = Api::namespaced(client.clone(), &global.namespace);
    let name = &options.name;
    let node = get(&nodes, name).await?;
    ensure!(
        node.meta().deletion_timestamp.is_some(),
        "nobody asked for the removal of ClusterNode {name}: there is nothing to take back"
    );
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let runs = answered(runs.list(&ListParams::default()).await, "list the runs")?;
    let removes =
        |run: &&Run| is_active(phase(run)) && Inputs::removes(&run.spec.plan.inputs, name);
    if let Some(run) = runs.iter().find(removes) {
        let run = run.name_any();
        bail!("run {run} removes it at this moment; end that first: windlass cancel {run}");
    }
    let others: Vec<_> = node
        .finalizers()
        .iter()
        .filter(|finalizer| *finalizer != NODE_FINALIZER)
        .collect();
    ensure!(
        others.is_empty(),
        "others hold ClusterNode {name} too ({others:?}): when they let go of it, declare it again"
    );
    let again = ClusterNode {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: node.metadata.labels.clone(),
            annotations: node.metadata.annotations.clone().map(|mut annotations| {
                annotations.remove(FORCE_REMOVAL);
                annotations.remove(REPLACED_BY);
                annotations
            }),
            ..ObjectMeta::default()
        },
        spec: node.spec.clone(),
        status: None,
    };
    let patch = json!({
        "metadata": {"resourceVersion": node.resource_version(), "finalizers": null},
    });
    let parameters = PatchParams::default();
    let released = nodes.patch(name, &parameters, &Patch::Merge(patch)).await;
    answered(released, &format!("let go of ClusterNode {name}"))?;
    let uid = node.uid().unwrap_or_default();
    let gone = await_condition(nodes.clone(), name, is_deleted(&uid));
    tokio::time::timeout(GONE, gone)
        .await
        .with_context(|| format!("ClusterNode {name} does not go: then declare it again"))??;
    let made = nodes.create(&PostParams::default(), &again).await;
    answered(
        made,
        &format!("make ClusterNode {name} anew: apply its file again"),
    )?;
    say!("clusternode {name} stays");
    uncordon(global, client, name).await
}

/// Lets pods come to the node again, if a removal had begun.
async fn uncordon(global: &Global, client: kube::Client, name: &str) -> anyhow::Result<()> {
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, None).await?.name_any();
    let by_hand = || format!("if the node is cordoned: kubectl uncordon {name}");
    let kubeconfig = secret::read_kubeconfig(&client, &global.namespace, &cluster);
    let Some(kubeconfig) = kubeconfig.await.with_context(by_hand)? else {
        return Ok(());
    };
    let host = name.parse().with_context(by_hand)?;
    let uncordoned = async { Workload::connect(&kubeconfig).await?.uncordon(&host).await };
    let uncordoned = uncordoned.await.map_err(anyhow::Error::msg);
    if uncordoned.with_context(by_hand)? {
        say!("node {name} takes pods again");
    }
    Ok(())
}

async fn get(nodes: &Api<ClusterNode>, name: &str) -> anyhow::Result<ClusterNode> {
    let found = nodes.get_opt(name).await;
    answered(found, &format!("get ClusterNode {name}"))?.with_context(|| {
        format!(
            "there is no ClusterNode {name} in namespace {}: name another with --namespace",
            crate::client::namespace(nodes)
        )
    })
}
