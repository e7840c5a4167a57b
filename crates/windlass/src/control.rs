//! The commands that steer a run: each is one patch of `Run.spec.control`.

use anyhow::Context;
use api::{
    Run,
    run::{Control as Steering, DesiredState, Request, RequestAction, RunPhase},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::cli::{Control, Global, Skip, StepControl};

/// How often a request is tried again when somebody else changed the run in the same moment.
const CONFLICT_LIMIT: usize = 10;

/// Stops a run at the next task boundary.
pub(crate) async fn pause(global: &Global, options: &Control) -> anyhow::Result<()> {
    desire(
        global,
        options,
        DesiredState::Paused,
        "pauses at the next task boundary",
    )
    .await
}

/// Lets a paused run go on.
pub(crate) async fn resume(global: &Global, options: &Control) -> anyhow::Result<()> {
    desire(global, options, DesiredState::Running, "goes on").await
}

/// Ends a run at the next task boundary.
pub(crate) async fn cancel(global: &Global, options: &Control) -> anyhow::Result<()> {
    desire(
        global,
        options,
        DesiredState::Cancelled,
        "ends at the next task boundary",
    )
    .await
}

/// Tries a failed step again.
pub(crate) async fn retry(global: &Global, options: &StepControl) -> anyhow::Result<()> {
    ask(
        global,
        options.run.as_deref(),
        RequestAction::Retry,
        options.step.clone(),
        options.reason.clone(),
    )
    .await
}

/// Lets a waiting step go on.
pub(crate) async fn approve(global: &Global, options: &StepControl) -> anyhow::Result<()> {
    ask(
        global,
        options.run.as_deref(),
        RequestAction::Approve,
        options.step.clone(),
        options.reason.clone(),
    )
    .await
}

/// Counts a step as done.
pub(crate) async fn skip(global: &Global, options: &Skip) -> anyhow::Result<()> {
    let (step, reason) = (Some(options.step.clone()), Some(options.reason.clone()));
    ask(
        global,
        options.run.as_deref(),
        RequestAction::Skip,
        step,
        reason,
    )
    .await
}

async fn desire(
    global: &Global,
    options: &Control,
    state: DesiredState,
    effect: &str,
) -> anyhow::Result<()> {
    let runs: Api<Run> = Api::namespaced(global.client().await?, &global.namespace);
    let run = pick(&runs, options.run.as_deref()).await?;
    let name = run.name_any();
    let phase = run.status.map(|status| status.phase).unwrap_or_default();
    anyhow::ensure!(
        !has_ended(phase),
        "run {name} has ended ({phase:?}): there is nothing to steer"
    );
    let patch = Patch::Merge(json!({"spec": {"control": {"state": state}}}));
    runs.patch(&name, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("failed to steer run {name}"))?;
    println!("run {name} {effect}");
    Ok(())
}

/// Appends a request. The resource version in the patch keeps two requests of the same moment apart.
async fn ask(
    global: &Global,
    run: Option<&str>,
    action: RequestAction,
    step: Option<String>,
    reason: Option<String>,
) -> anyhow::Result<()> {
    let runs: Api<Run> = Api::namespaced(global.client().await?, &global.namespace);
    let name = pick(&runs, run).await?.name_any();
    for _ in 0..CONFLICT_LIMIT {
        let current = runs
            .get(&name)
            .await
            .with_context(|| format!("failed to get run {name}"))?;
        let step = checked_step(&current, step.as_deref())?;
        let steering = with_request(&current, action, step, reason.clone());
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": current.resource_version()},
            "spec": {"control": {"requests": steering.requests}},
        }));
        match runs.patch(&name, &PatchParams::default(), &patch).await {
            Ok(_) => {
                println!(
                    "asked run {name} to {}",
                    format!("{action:?}").to_lowercase()
                );
                return Ok(());
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error).with_context(|| format!("failed to steer run {name}")),
        }
    }
    anyhow::bail!("run {name} changed {CONFLICT_LIMIT} times in a row: try again")
}

fn with_request(
    run: &Run,
    action: RequestAction,
    step: Option<String>,
    reason: Option<String>,
) -> Steering {
    let mut steering = run.spec.control.clone().unwrap_or_default();
    let next = steering
        .requests
        .iter()
        .filter_map(|request| request.id.parse::<u32>().ok())
        .max()
        .unwrap_or(0)
        + 1;
    let by = std::env::var("USER").ok().filter(|user| !user.is_empty());
    steering.requests.push(Request {
        id: next.to_string(),
        action,
        step,
        reason,
        by,
    });
    steering
}

fn checked_step(run: &Run, step: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(step) = step else { return Ok(None) };
    let steps = &run.spec.plan.steps;
    if steps.iter().any(|candidate| candidate.id == step) {
        return Ok(Some(step.to_owned()));
    }
    let names: Vec<_> = steps.iter().map(|step| step.id.as_str()).collect();
    anyhow::bail!(
        "run {} has no step {step:?}: its steps are {}",
        run.name_any(),
        names.join(", ")
    )
}

/// The run of the given name, or the newest that has not ended, or else the newest.
pub(crate) async fn pick(runs: &Api<Run>, name: Option<&str>) -> anyhow::Result<Run> {
    if let Some(name) = name {
        return runs
            .get(name)
            .await
            .with_context(|| format!("failed to get run {name}"));
    }
    let all = runs
        .list(&ListParams::default())
        .await
        .context("failed to list the runs: does `windlass up` run?")?;
    let phase = |run: &Run| {
        run.status
            .as_ref()
            .map(|status| status.phase)
            .unwrap_or_default()
    };
    all.items
        .into_iter()
        .max_by_key(|run| {
            (
                !has_ended(phase(run)),
                run.creation_timestamp().map(|time| time.0),
            )
        })
        .context("there is no run in this namespace: name another with --namespace")
}

fn has_ended(phase: RunPhase) -> bool {
    matches!(
        phase,
        RunPhase::Succeeded | RunPhase::Cancelled | RunPhase::Superseded
    )
}
