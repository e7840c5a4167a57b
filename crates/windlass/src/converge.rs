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
use kubespray::{Layout, cluster::built::is_built, operation::asked::Asked, preview};
use runs::{is_active, object::age, phase};
use serde_json::json;

use crate::{
    cli::{Converge, Global},
    client::{is_of, named_or_only},
    control::resting,
    plan,
};

/// How long an operator may take to answer: another one may have to become the leader first.
const ANSWER: Duration = Duration::from_mins(1);

/// Asks for an operation, and says what the operator answers.
pub(crate) async fn ask(global: &Global, options: &Converge, asked: &Asked) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let runs = Api::namespaced(client.clone(), &global.namespace);
    possible(&cluster, &runs, asked).await?;
    let request = Timestamp::now().to_string();
    if options.dry_run {
        let layout = Layout::new(global.private_data_directory()?);
        let asked = (asked.annotation, request.as_str());
        let preview = Box::pin(preview::asked(&client, &cluster, asked, &layout)).await?;
        return plan::show(&[preview], options.output);
    }
    request_of(global, clusters, &cluster.name_any(), asked, request).await
}

/// Asks a cluster for an operation with this value, and says what the operator answers.
pub(crate) async fn request_of(
    global: &Global,
    clusters: Api<Cluster>,
    name: &str,
    asked: &Asked,
    request: String,
) -> anyhow::Result<()> {
    let run = answer_of(clusters, name, asked, request).await?;
    let follow = "is carried out; follow it with: windlass status --watch";
    global.say(&format!("run {run} {follow}"));
    Ok(())
}

/// Asks a cluster for an operation with this value: the run that carries it out.
///
/// # Errors
///
/// The operator refuses it, or nobody answers.
pub(crate) async fn answer_of(
    clusters: Api<Cluster>,
    name: &str,
    asked: &Asked,
    request: String,
) -> anyhow::Result<String> {
    let patch = json!({"metadata": {"annotations": {asked.annotation: request}}});
    clusters
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("failed to ask cluster {name}"))?;
    let answer = |cluster: Option<&Cluster>| {
        let status = cluster?.status.as_ref()?;
        let answer = (asked.answered)(status)?.clone();
        (answer.request == request).then_some(answer)
    };
    let answered = Box::pin(await_condition(
        clusters,
        name,
        |cluster: Option<&Cluster>| answer(cluster).is_some(),
    ));
    let cluster = tokio::time::timeout(ANSWER, answered).await.with_context(|| {
        format!("cluster {name} is asked, but nobody answered yet: does the operator run? The request stays; see kubectl describe cluster {name}")
    })??;
    match answer(cluster.as_ref()) {
        Some(ConvergeRequest { run: Some(run), .. }) => Ok(run),
        Some(ConvergeRequest { refused, .. }) => {
            bail!("refused: {}", refused.unwrap_or_default())
        }
        None => bail!("cluster {name} is gone"),
    }
}

/// Says at once what the operator would refuse of a request for this operation.
pub(crate) async fn possible(
    cluster: &Cluster,
    runs: &Api<Run>,
    asked: &Asked,
) -> anyhow::Result<()> {
    let name = cluster.name_any();
    let unbuilt = asked.unbuilt;
    ensure!(
        is_built(cluster),
        "cluster {name} is not built yet: {unbuilt}"
    );
    let runs = runs
        .list(&ListParams::default())
        .await
        .context("failed to list the runs")?
        .items;
    let of_the_cluster = runs.into_iter().filter(|run| is_of(run, &name));
    if let Some(run) = of_the_cluster.max_by_key(age) {
        let phase = phase(&run);
        ensure!(!is_active(phase), under_way(&run, phase));
    }
    Ok(())
}

/// What to do about a run that is under way, by who wants another one.
fn under_way(run: &Run, phase: RunPhase) -> String {
    let name = run.name_any();
    let on_by = |verb: &str| format!("let it go on: windlass {verb} {name}");
    let (stands, on) = match (resting(run), phase) {
        (Some((why, on)), _) => (why, format!("let it go on: {on}")),
        (None, RunPhase::Paused) => ("is paused".to_owned(), on_by("resume")),
        (None, RunPhase::Waiting) => ("waits for a person".to_owned(), on_by("approve")),
        _ => (
            "is under way".to_owned(),
            "follow it with: windlass status --watch".to_owned(),
        ),
    };
    format!(
        "run {name} {stands}, and another one begins when it has ended: {on}; or end it: windlass cancel {name}; then ask again"
    )
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use kubespray::operation::asked;
    use runs::control::RESTS_AFTER;

    use super::*;

    #[tokio::test]
    async fn a_cluster_that_is_not_built_is_refused_in_the_words_of_what_is_asked_for() {
        let definitions = api::custom_resource_definitions();
        let server = kapi::Server::in_memory(&definitions).await.unwrap();
        let client = Client::new(server.router(), "default");
        let cluster = serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first"}, "spec": {},
        }));
        let cluster = cluster.unwrap();
        for asked in asked::all() {
            let runs = Api::namespaced(client.clone(), "default");
            let refused = possible(&cluster, &runs, asked).await.unwrap_err();
            let words = format!("cluster first is not built yet: {}", asked.unbuilt);
            assert_eq!(refused.to_string(), words);
        }
    }

    #[test]
    fn who_is_in_the_way_of_another_run_can_be_ended() {
        let rests = json!({RESTS_AFTER: "s1 it has closed"});
        for (phase, annotations, on) in [
            ("Waiting", json!({}), "windlass approve r"),
            ("Paused", json!({}), "windlass resume r"),
            ("Paused", rests, "windlass maintain first"),
            ("Running", json!({}), "windlass status --watch"),
        ] {
            let run: Run = serde_json::from_value(json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
                "metadata": {"name": "r", "annotations": annotations},
                "spec": {
                    "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
                    "operation": "Remove", "generation": 1, "plan": {"digest": "d", "steps": []},
                },
                "status": {"phase": phase, "steps": [{"id": "s1", "phase": "Succeeded"}]},
            }))
            .unwrap();
            let told = under_way(&run, runs::phase(&run));
            for words in [on, "windlass cancel r"] {
                assert!(told.contains(words), "{told}");
            }
        }
    }
}
