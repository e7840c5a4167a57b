//! `windlass converge` and `windlass renew`: ask for the playbooks to run over a built cluster once more, or for its certificates to be
//! renewed; or show what would be done then.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::{Cluster, Run, cluster::ConvergeRequest, run::RunPhase};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use kubespray::{Layout, cluster::built::is_built, preview, request::RENEW};
use runs::{is_active, object::age, phase};
use serde_json::json;

use crate::{
    cli::{Converge, Global},
    client::{is_of, named_or_only},
    plan,
};

/// How long an operator may take to answer: another one may have to become the leader first.
const ANSWER: Duration = Duration::from_mins(1);

/// Asks by this annotation, and says what the operator answers.
pub(crate) async fn ask(
    global: &Global,
    options: &Converge,
    annotation: &str,
) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let name = cluster.name_any();
    possible(&cluster, &runs).await?;
    if options.dry_run {
        let layout = Layout::new(global.private_data_directory()?);
        let preview = preview::asked(&client, &cluster, annotation, &layout).await?;
        return plan::show(&[preview], options.output);
    }
    let request = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {annotation: request}}});
    clusters
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("failed to ask cluster {name}"))?;
    let answer = |cluster: Option<&Cluster>| {
        let status = cluster?.status.as_ref()?;
        let answer = match annotation {
            RENEW => &status.renew,
            _ => &status.converge,
        };
        let answer = answer.clone()?;
        (answer.request == request).then_some(answer)
    };
    let answered = await_condition(clusters, &name, |cluster: Option<&Cluster>| {
        answer(cluster).is_some()
    });
    let cluster = tokio::time::timeout(ANSWER, answered).await.with_context(|| {
        format!("cluster {name} is asked, but nobody answered yet: does the operator run? The request stays; see kubectl describe cluster {name}")
    })??;
    match answer(cluster.as_ref()) {
        Some(ConvergeRequest { run: Some(run), .. }) => {
            println!("run {run} is carried out; follow it with: windlass status --watch");
            Ok(())
        }
        Some(ConvergeRequest { refused, .. }) => {
            bail!("refused: {}", refused.unwrap_or_default())
        }
        None => bail!("cluster {name} is gone"),
    }
}

/// Says at once what the operator would refuse.
async fn possible(cluster: &Cluster, runs: &Api<Run>) -> anyhow::Result<()> {
    let name = cluster.name_any();
    ensure!(
        is_built(cluster),
        "cluster {name} is not built yet: its creation runs the same playbooks, and makes its certificates"
    );
    let runs = runs
        .list(&ListParams::default())
        .await
        .context("failed to list the runs")?
        .items;
    let of_the_cluster = runs.into_iter().filter(|run| is_of(run, &name));
    if let Some(run) = of_the_cluster.max_by_key(age) {
        let phase = phase(&run);
        ensure!(
            !is_active(phase),
            "run {} is under way ({}): ask again when it has ended",
            run.name_any(),
            word(phase)
        );
    }
    Ok(())
}

const fn word(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Paused => "Paused; go on with: windlass resume",
        RunPhase::Waiting => "waits for: windlass approve",
        _ => "follow it with: windlass status --watch",
    }
}
