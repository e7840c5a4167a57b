//! The commands that steer a run.

use anyhow::Context;
use api::{
    Run,
    run::{DesiredState, RunPhase},
};
use kube::{Api, ResourceExt, api::ListParams};
use runs::{
    control::{Change, steer},
    object::age,
};

use crate::{
    cli::{Control, Global, Resume, Skip, StepControl},
    client,
};

/// Stops a run at the next task boundary.
pub(crate) async fn pause(global: &Global, options: &Control) -> anyhow::Result<()> {
    change(global, options.run.as_deref(), |run| {
        at_work(run)?;
        Ok((vec![Change::Pause], "pauses at the next task boundary"))
    })
    .await
}

/// Lets a paused run go on.
pub(crate) async fn resume(global: &Global, options: &Resume) -> anyhow::Result<()> {
    change(global, options.run.as_deref(), |run| {
        // A gate pauses a run that nobody asked to pause; what ends that is another attempt of its step.
        let asked = run.spec.control.as_ref().is_some_and(|control| {
            control.state == Some(DesiredState::Paused) || control.run_until.is_some()
        });
        let retried = (phase(run) == RunPhase::Paused && !asked).then_some(Change::Retry(None));
        if let Some(step) = &options.until {
            let until = Change::RunUntil(known(run, step)?);
            let changes = std::iter::once(until).chain(retried).collect();
            return Ok((changes, "goes on and pauses after that step"));
        }
        if let Some(retry) = retried {
            return Ok((vec![retry], "tries the step again that paused it"));
        }
        Ok((vec![Change::Resume], "goes on"))
    })
    .await
}

/// Ends a run at the next task boundary.
pub(crate) async fn cancel(global: &Global, options: &Control) -> anyhow::Result<()> {
    change(global, options.run.as_deref(), |run| {
        at_work(run)?;
        Ok((vec![Change::Cancel], "ends at the next task boundary"))
    })
    .await
}

/// Tries a failed step again.
pub(crate) async fn retry(global: &Global, options: &StepControl) -> anyhow::Result<()> {
    change(global, options.run.as_deref(), |run| {
        Ok((
            vec![Change::Retry(step(run, options)?)],
            "is asked to try the step again",
        ))
    })
    .await
}

/// Lets a waiting step go on.
pub(crate) async fn approve(global: &Global, options: &StepControl) -> anyhow::Result<()> {
    change(global, options.run.as_deref(), |run| {
        Ok((
            vec![Change::Approve(step(run, options)?)],
            "is told of the approval",
        ))
    })
    .await
}

/// Counts a step as done.
pub(crate) async fn skip(global: &Global, options: &Skip) -> anyhow::Result<()> {
    change(global, options.run.as_deref(), |run| {
        let step = known(run, &options.step)?;
        let reason = options.reason.clone();
        Ok((
            vec![Change::Skip { step, reason }],
            "is asked to count the step as done",
        ))
    })
    .await
}

/// Steers the run that the name or the namespace gives, and says what follows.
async fn change(
    global: &Global,
    name: Option<&str>,
    decide: impl FnOnce(&Run) -> anyhow::Result<(Vec<Change>, &'static str)>,
) -> anyhow::Result<()> {
    let client = global.client().await?;
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let run = pick(&runs, name).await?;
    let name = run.name_any();
    anyhow::ensure!(
        !has_ended(phase(&run)),
        "run {name} has ended ({:?}): there is nothing to steer",
        phase(&run)
    );
    let (changes, effect) = decide(&run)?;
    let by = asker();
    for change in changes {
        steer(&client, &global.namespace, &name, change, &by)
            .await
            .context("failed to steer the run")?;
    }
    println!("run {name} {effect}");
    Ok(())
}

/// Who asks: the user of this process by name, or by number where it has none.
fn asker() -> String {
    let user = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(user) {
        Ok(Some(known)) => known.name,
        _ => format!("user {user}"),
    }
}

fn step(run: &Run, options: &StepControl) -> anyhow::Result<Option<String>> {
    options
        .step
        .as_deref()
        .map(|step| known(run, step))
        .transpose()
}

/// The step, if the run has it.
fn known(run: &Run, step: &str) -> anyhow::Result<String> {
    let steps = &run.spec.plan.steps;
    if steps.iter().any(|candidate| candidate.id == step) {
        return Ok(step.to_owned());
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
    let all = runs.list(&ListParams::default()).await;
    let all = client::answered(all, "list the runs")?;
    all.items
        .into_iter()
        .max_by_key(|run| (!has_ended(phase(run)), age(run)))
        .context("there is no run in this namespace: name another with --namespace")
}

/// Refuses a run that failed: it has no runner that could stop.
fn at_work(run: &Run) -> anyhow::Result<()> {
    anyhow::ensure!(
        phase(run) != RunPhase::Failed,
        "run {} has failed and is not at work: `windlass retry` or `windlass skip` takes it up again",
        run.name_any()
    );
    Ok(())
}

fn phase(run: &Run) -> RunPhase {
    run.status
        .as_ref()
        .map(|status| status.phase)
        .unwrap_or_default()
}

fn has_ended(phase: RunPhase) -> bool {
    matches!(
        phase,
        RunPhase::Succeeded | RunPhase::Cancelled | RunPhase::Superseded
    )
}
