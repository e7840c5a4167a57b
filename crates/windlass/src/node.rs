//! `windlass node`: removes hosts from a cluster, or keeps those whose removal somebody asked for.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::{Cluster, ClusterNode, Run};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{conditions::is_deleted, wait::await_condition},
};
use kubespray::{
    Layout, inputs::Inputs, names::NODE_FINALIZER, request::FORCE_REMOVAL, secret,
    workload::Workload,
};
use runs::{is_active, phase};
use serde_json::json;

use crate::{
    cli::{Global, KeepNode, Node, RemoveNode},
    client::{answered, named_or_only},
    plan,
};

/// How long an object may take to go that nothing holds any more.
const GONE: Duration = Duration::from_secs(30);

/// Carries out `windlass node`.
pub(crate) async fn node(global: &Global, command: &Node) -> anyhow::Result<()> {
    match command {
        Node::Remove(options) => remove(global, options).await,
        Node::Keep(options) => keep(global, options).await,
    }
}

async fn remove(global: &Global, options: &RemoveNode) -> anyhow::Result<()> {
    let client = global.client().await?;
    let nodes: Api<ClusterNode> = Api::namespaced(client.clone(), &global.namespace);
    // All are looked for before the first is deleted.
    let mut leaving = Vec::new();
    for name in &options.names {
        leaving.push(get(&nodes, name).await?);
    }
    if options.dry_run {
        return preview(global, client, leaving, options).await;
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
        println!("clusternode {name} is held until its host is no part of the cluster any more");
        if options.force {
            println!(
                "  given up: its pods are deleted whatever their PodDisruptionBudgets say; if it does not answer it is not reset, \
                 and comes back as a node when it is switched on"
            );
        }
    }
    println!("follow it with: windlass status --watch; take it back with: windlass node keep NAME");
    Ok(())
}

/// Shows what would be done if they were deleted.
async fn preview(
    global: &Global,
    client: kube::Client,
    mut leaving: Vec<ClusterNode>,
    options: &RemoveNode,
) -> anyhow::Result<()> {
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, None).await?;
    for node in &mut leaving {
        let now = Time(Timestamp::now());
        node.meta_mut().deletion_timestamp.get_or_insert(now);
        if options.force {
            let forced = (FORCE_REMOVAL.to_owned(), "true".to_owned());
            node.annotations_mut().extend([forced]);
        }
    }
    let layout = Layout::new(global.private_data_directory()?);
    let preview = kubespray::preview::next(&client, &cluster, &leaving, &layout).await?;
    plan::show(&[preview], options.output)
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
    println!("clusternode {name} stays");
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
        println!("node {name} takes pods again");
    }
    Ok(())
}

async fn get(nodes: &Api<ClusterNode>, name: &str) -> anyhow::Result<ClusterNode> {
    let found = nodes.get_opt(name).await;
    answered(found, &format!("get ClusterNode {name}"))?.with_context(|| {
        format!("there is no ClusterNode {name} in this namespace: see windlass get clusternodes")
    })
}
