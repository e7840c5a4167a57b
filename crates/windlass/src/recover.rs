//! `windlass recover`: asks for a cluster to be brought back whose etcd lost its quorum, or to be rolled back to a snapshot.

use anyhow::{Context, bail};
use api::{Cluster, ClusterNode};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt, api::DeleteParams};
use kubespray::{
    Layout,
    inputs::Inputs,
    operation::recover::{ASKED, Request, loss, refusal},
    preview,
};

use crate::{
    cli::{Global, Recover},
    client::{answered, named_or_only},
    converge::{possible, request_of},
    node::{another, built},
    plan,
    terminal::say,
};

/// Asks, says what the operator answers, and has the hosts forgotten that are lost.
pub(crate) async fn recover(global: &Global, options: Recover) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let runs = Api::namespaced(client.clone(), &global.namespace);
    possible(&cluster, &runs, &ASKED).await?;
    let name = cluster.name_any();
    let given_up = options.give_up.iter().chain(&options.rejoin);
    let request = Request {
        at: Some(Timestamp::now().to_string()),
        confirm: name.clone(),
        give_up: given_up.cloned().collect(),
        snapshot: options.from_snapshot,
        roll_back: options.roll_back,
    };
    if options.dry_run {
        let layout = Layout::new(global.private_data_directory()?);
        let asked = serde_json::to_string(&request)?;
        let preview =
            preview::asked(&client, &cluster, (ASKED.annotation, &asked), &layout).await?;
        return plan::show(&[preview], options.output);
    }
    if options.confirm.as_ref() != Some(&name) {
        let before = built(global, &client, &name).await?;
        let lost = lost(&cluster, request, before.as_ref())?;
        bail!(
            "nothing was done: {}{lost}; if that may be lost: {}",
            another(options.confirm.as_deref(), &name),
            global.confirmed(&name)
        );
    }
    let asked = serde_json::to_string(&request)?;
    request_of(global, clusters, &name, &ASKED, asked).await?;
    // Not before: what nobody declares is to be removed, and that would be begun first.
    let nodes: Api<ClusterNode> = Api::namespaced(client, &global.namespace);
    for host in &options.give_up {
        let deleted = nodes.delete(host.as_str(), &DeleteParams::default()).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.is_not_found() => continue,
            deleted => answered(deleted, &format!("delete ClusterNode {host}")),
        }
        .with_context(|| {
            format!("the run goes on; have the host forgotten with: windlass node remove {host}")
        })?;
        say!("clusternode {host} goes with the host: reset it before it is switched on again");
    }
    Ok(())
}

/// What is given up.
///
/// # Errors
///
/// The request would be refused also if it were confirmed.
fn lost(cluster: &Cluster, request: Request, before: Option<&Inputs>) -> anyhow::Result<String> {
    let Some(before) = before else {
        return Ok("what the others have and the one that stays has not is given up".to_owned());
    };
    let lost = loss(&request, before);
    match refusal(cluster, request, before) {
        Some(why) => bail!("nothing was done: {why}"),
        None => Ok(lost),
    }
}
