//! `windlass maintain`: lets start now what waits for a maintenance window.

use std::time::Duration;

use anyhow::{Context, bail};
use api::{Cluster, cluster::MaintainRequest};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use kubespray::request::MAINTAIN;
use serde_json::json;

use crate::{
    cli::{Global, Maintain},
    client::named_or_only,
};

/// How long an operator may take to answer: another one may have to become the leader first.
const ANSWER: Duration = Duration::from_mins(1);

/// Asks, and says what the operator answers.
pub(crate) async fn maintain(global: &Global, options: &Maintain) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client, &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let request = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {MAINTAIN: request}}});
    clusters
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("failed to ask cluster {name}"))?;
    let answer = |cluster: Option<&Cluster>| {
        let answer = cluster?.status.as_ref()?.maintain.clone()?;
        (answer.request == request).then_some(answer)
    };
    let answered = Box::pin(await_condition(
        clusters,
        &name,
        |cluster: Option<&Cluster>| answer(cluster).is_some(),
    ));
    let cluster = tokio::time::timeout(ANSWER, answered).await.with_context(|| {
        format!("cluster {name} is asked, but nobody answered yet: does the operator run? The request stays; see kubectl describe cluster {name}")
    })??;
    match answer(cluster.as_ref()) {
        Some(MaintainRequest { run: Some(run), .. }) => {
            global.say(&format!(
                "run {run} goes on outside of a window; follow it with: windlass status --watch"
            ));
            Ok(())
        }
        Some(MaintainRequest { refused, .. }) => {
            bail!("refused: {}", refused.unwrap_or_default())
        }
        None => bail!("cluster {name} is gone"),
    }
}
