//! The commands that steer a run.

use anyhow::{Context, bail, ensure};
use api::{
    Run,
    run::{Action, DesiredState, RunPhase, StepPhase},
};
use kube::{Api, ResourceExt, api::ListParams};
use kubespray::cluster::decision::outdated;
use runs::{
    control::{Change, rest, steer},
    object::age,
};

use crate::{
    cli::{Control, Global, Resume, Skip, StepControl},
    client,
};

/// Stops a run at the next task boundary.
pub(crate) async fn pause(global: &Global, options: &Control) -> anyhow::Result<()> {
    change(global, options.run.as_deref(), pausing).await
}

/// Lets a paused run go on.
pub(crate) async fn resume(global: &Global, options: &Resume) -> anyhow::Result<()> {
    let until = options.until.as_deref();
    change(global, options.run.as_deref(), |run| resuming(run, until)).await
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
    let step = options.step.as_deref();
    change(global, options.run.as_deref(), |run| retrying(run, step)).await
}

/// Lets a waiting step go on.
pub(crate) async fn approve(global: &Global, options: &StepControl) -> anyhow::Result<()> {
    let step = options.step.as_deref();
    change(global, options.run.as_deref(), |run| approving(run, step)).await
}

/// Counts a step as done.
pub(crate) async fn skip(global: &Global, options: &Skip) -> anyhow::Result<()> {
    let (step, reason) = (&options.step, &options.reason);
    change(global, options.run.as_deref(), |run| {
        skipping(run, step, reason)
    })
    .await
}

/// What is to change, and what follows.
type Changes = anyhow::Result<(Vec<Change>, &'static str)>;

fn pausing(run: &Run) -> Changes {
    at_work(run)?;
    ensure!(
        !(phase(run) == RunPhase::Paused && is_asked_to_pause(run)),
        "run {0} is paused already; go on with: windlass resume {0}",
        run.name_any()
    );
    Ok((vec![Change::Pause], "pauses at the next task boundary"))
}

fn resuming(run: &Run, until: Option<&str>) -> Changes {
    at_work(run)?;
    let name = run.name_any();
    if let Some((why, on)) = resting(run) {
        bail!("run {name} {why}: {on}");
    }
    // A gate pauses a run that nobody asked to pause; what ends that is another attempt of its step.
    let asked = is_asked_to_pause(run);
    let retried = (phase(run) == RunPhase::Paused && !asked).then_some(Change::Retry(None));
    if let Some(step) = until {
        let step = known(run, step)?;
        ensure!(
            !is_done(standing(run, &step)),
            "step {step} of run {name} is done: name one that is still to come"
        );
        let until = Change::RunUntil(step);
        let changes = std::iter::once(until).chain(retried).collect();
        return Ok((changes, "goes on and pauses after that step"));
    }
    if let Some(retry) = retried {
        return Ok((vec![retry], "tries the step again that paused it"));
    }
    ensure!(
        asked,
        "run {name} is not paused: {}",
        match phase(run) {
            RunPhase::Waiting => format!("it waits for a person: windlass approve {name}"),
            _ => "follow it with: windlass status --watch".to_owned(),
        }
    );
    Ok((vec![Change::Resume], "goes on"))
}

fn retrying(run: &Run, step: Option<&str>) -> Changes {
    let step = step.map(|step| known(run, step)).transpose()?;
    match &step {
        Some(step) => {
            let now = standing(run, step);
            ensure!(
                now == StepPhase::Failed,
                "step {step} of run {} has not failed, it is {now:?}: there is nothing to try again",
                run.name_any()
            );
        }
        None => ensure!(
            any(run, StepPhase::Failed),
            "no step of run {} has failed: there is nothing to try again{}",
            run.name_any(),
            instead(run)
        ),
    }
    Ok((vec![Change::Retry(step)], "is asked to try the step again"))
}

fn approving(run: &Run, step: Option<&str>) -> Changes {
    let step = step.map(|step| known(run, step)).transpose()?;
    match &step {
        Some(step) => {
            let now = standing(run, step);
            ensure!(
                now == StepPhase::Waiting,
                "step {step} of run {} does not wait for an approval, it is {now:?}",
                run.name_any()
            );
        }
        None => ensure!(
            any(run, StepPhase::Waiting),
            "no step of run {} waits for an approval{}",
            run.name_any(),
            instead(run)
        ),
    }
    Ok((vec![Change::Approve(step)], "is told of the approval"))
}

fn skipping(run: &Run, step: &str, reason: &str) -> Changes {
    let step = known(run, step)?;
    let name = run.name_any();
    let now = standing(run, &step);
    ensure!(
        !is_done(now),
        "step {step} of run {name} is done, it is {now:?}: there is nothing to skip"
    );
    ensure!(
        now != StepPhase::Running,
        "step {step} of run {name} is being executed: windlass pause {name} stops it first"
    );
    ensure!(
        !asks(run, &step) && now != StepPhase::Waiting,
        "step {step} of run {name} asks a person, and to skip it would be to approve it: windlass approve {name} --step {step}, or \
         windlass cancel {name}"
    );
    let reason = reason.to_owned();
    Ok((
        vec![Change::Skip { step, reason }],
        "is asked to count the step as done",
    ))
}

/// Of a run that rests until a window opens, and that no person paused: so, and what has it go on before that.
pub(crate) fn resting(run: &Run) -> Option<(String, String)> {
    let rest = rest(run)?;
    // Until that step is done a gate may have paused it.
    let is_reached = is_done(standing(run, &rest.after));
    (phase(run) == RunPhase::Paused && is_reached && !is_asked_to_pause(run)).then(|| {
        let why = format!("rests until a window opens ({})", rest.why);
        (why, format!("windlass maintain {}", run.spec.subject.name))
    })
}

/// What fits how the run stands, where something else was asked.
fn instead(run: &Run) -> String {
    let name = run.name_any();
    if let Some((why, on)) = resting(run) {
        return format!("; it {why}: {on}");
    }
    match phase(run) {
        RunPhase::Paused => format!("; it is paused: windlass resume {name}"),
        RunPhase::Waiting => format!("; it waits for a person: windlass approve {name}"),
        RunPhase::Failed => format!("; it failed: windlass retry {name}"),
        _ => "; follow it with: windlass status --watch".to_owned(),
    }
}

/// Whether a person asked for the pause, or for one after a step.
fn is_asked_to_pause(run: &Run) -> bool {
    run.spec.control.as_ref().is_some_and(|control| {
        control.state == Some(DesiredState::Paused) || control.run_until.is_some()
    })
}

/// How a step stands, as the status tells.
fn standing(run: &Run, step: &str) -> StepPhase {
    let status = run.status.iter();
    let mut steps = status.flat_map(|status| &status.steps);
    let step = steps.find(|known| known.id == step);
    step.map(|step| step.phase).unwrap_or_default()
}

fn any(run: &Run, wanted: StepPhase) -> bool {
    let status = run.status.iter();
    let mut steps = status.flat_map(|status| &status.steps);
    steps.any(|step| step.phase == wanted)
}

const fn is_done(phase: StepPhase) -> bool {
    matches!(phase, StepPhase::Succeeded | StepPhase::Skipped)
}

/// Whether a step does nothing but ask a person.
fn asks(run: &Run, step: &str) -> bool {
    let mut steps = run.spec.plan.steps.iter();
    let step = steps.find(|known| known.id == step);
    step.is_some_and(|step| matches!(step.action, Action::Approve(_)))
}

/// Steers the run that the name or the namespace gives, and says what follows.
async fn change(
    global: &Global,
    name: Option<&str>,
    decide: impl FnOnce(&Run) -> Changes,
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
    if phase(&run) == RunPhase::Failed {
        not_outdated(&runs, &run).await?;
    }
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

/// Refuses a run that failed before others changed its cluster: what it would go on with is not what there is.
async fn not_outdated(runs: &Api<Run>, run: &Run) -> anyhow::Result<()> {
    let all = runs.list(&ListParams::default()).await;
    let all = client::answered(all, "list the runs")?.items;
    match outdated(&all, run) {
        Some(why) => bail!(why),
        None => Ok(()),
    }
}

/// The run of the given name, or the newest that is at work, or else the newest.
pub(crate) async fn pick(runs: &Api<Run>, name: Option<&str>) -> anyhow::Result<Run> {
    if let Some(name) = name {
        let found = runs.get_opt(name).await;
        let found = client::answered(found, &format!("get run {name}"))?;
        return found.with_context(|| {
            format!(
                "there is no run {name} in namespace {}: name another with --namespace",
                client::namespace(runs)
            )
        });
    }
    let all = runs.list(&ListParams::default()).await;
    let all = client::answered(all, "list the runs")?;
    all.items
        .into_iter()
        .max_by_key(|run| (runs::is_active(phase(run)), age(run)))
        .with_context(|| {
            format!(
                "there is no run in namespace {}: name another with --namespace",
                client::namespace(runs)
            )
        })
}

/// Refuses a run that failed: it has no runner that could stop.
fn at_work(run: &Run) -> anyhow::Result<()> {
    anyhow::ensure!(
        phase(run) != RunPhase::Failed,
        "run {0} has failed and is not at work: `windlass retry {0}` or `windlass skip {0}` takes it up again",
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

#[cfg(test)]
mod tests {
    use runs::control::RESTS_AFTER;
    use serde_json::{Value, json};

    use super::*;

    fn run(phase: &str, control: &Value, steps: &[&str]) -> Run {
        let of = |at: usize| {
            if at == 0 {
                json!({"id": "ask", "action": {"approve": {"question": "go on?"}}})
            } else {
                let action = json!({"engine": {"name": "kubespray", "type": "AnsiblePlay"}});
                json!({"id": format!("s{at}"), "action": action})
            }
        };
        let plan: Vec<_> = (0..steps.len()).map(of).collect();
        let stand = steps.iter().zip(&plan);
        let status: Vec<_> = stand
            .map(|(phase, step)| json!({"id": step["id"], "phase": phase}))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
                "operation": "Create", "generation": 1, "plan": {"digest": "d", "steps": plan}, "control": control,
            },
            "status": {"phase": phase, "steps": status},
        }))
        .unwrap()
    }

    /// Has a run rest after a step, as the operator does when a window closes.
    fn rests(run: &mut Run, after: &str) {
        let rest = (RESTS_AFTER.to_owned(), format!("{after} it has closed"));
        run.annotations_mut().extend([rest]);
    }

    #[test]
    fn a_verb_that_would_do_nothing_says_so_and_what_would() {
        let none = json!({});
        let paused = json!({"state": "Paused"});
        let running = run("Running", &none, &["Succeeded", "Running", "Pending"]);
        let failed = run("Failed", &none, &["Succeeded", "Failed", "Pending"]);
        let waiting = run("Waiting", &none, &["Waiting", "Pending"]);
        let at_rest = run("Paused", &paused, &["Succeeded", "Interrupted"]);
        let begun = run("Running", &none, &["Pending", "Running"]);
        let mut resting = run("Paused", &none, &["Succeeded", "Pending"]);
        rests(&mut resting, "ask");
        for (name, changes, words) in [
            (
                "pause of a paused one",
                pausing(&at_rest),
                "windlass resume r",
            ),
            ("pause of a failed one", pausing(&failed), "windlass retry"),
            ("resume at work", resuming(&running, None), "is not paused"),
            (
                "resume of a failed one",
                resuming(&failed, None),
                "windlass retry r",
            ),
            (
                "resume until, failed",
                resuming(&failed, Some("s2")),
                "windlass retry r",
            ),
            (
                "resume while it waits",
                resuming(&waiting, None),
                "windlass approve r",
            ),
            (
                "resume until the past",
                resuming(&at_rest, Some("ask")),
                "is done",
            ),
            (
                "resume of one that rests",
                resuming(&resting, None),
                "run r rests until a window opens (it has closed): windlass maintain first",
            ),
            (
                "resume until, of one that rests",
                resuming(&resting, Some("s1")),
                "windlass maintain first",
            ),
            (
                "retry of one that rests",
                retrying(&resting, None),
                "windlass maintain first",
            ),
            (
                "retry at work",
                retrying(&running, None),
                "windlass status --watch",
            ),
            (
                "retry of a paused one",
                retrying(&at_rest, None),
                "windlass resume r",
            ),
            (
                "retry of what is done",
                retrying(&failed, Some("ask")),
                "is Succeeded",
            ),
            (
                "retry of what is to come",
                retrying(&failed, Some("s2")),
                "is Pending",
            ),
            (
                "approve at work",
                approving(&running, None),
                "no step of run r waits",
            ),
            (
                "approve of a failed one",
                approving(&failed, None),
                "windlass retry r",
            ),
            (
                "approve of another step",
                approving(&waiting, Some("s1")),
                "is Pending",
            ),
            (
                "skip of what is done",
                skipping(&failed, "ask", "w"),
                "is done",
            ),
            (
                "skip of what is at work",
                skipping(&running, "s1", "w"),
                "windlass pause r",
            ),
            (
                "skip of a question",
                skipping(&waiting, "ask", "w"),
                "windlass approve r --step ask",
            ),
            (
                "skip of a question to come",
                skipping(&begun, "ask", "w"),
                "would be to approve it",
            ),
            (
                "skip of nothing",
                skipping(&failed, "s9", "w"),
                "has no step",
            ),
        ] {
            let error = format!("{:#}", changes.expect_err(name));
            assert!(error.contains(words), "{name}: {error}");
        }
    }

    #[test]
    fn a_verb_that_there_is_a_use_for_is_carried_out() {
        let none = json!({});
        let failed = run("Failed", &none, &["Succeeded", "Failed", "Pending"]);
        let waiting = run("Waiting", &none, &["Waiting", "Pending"]);
        let gated = run("Paused", &none, &["Succeeded", "Failed"]);
        // It was paused before it came to where it is to rest.
        let mut gated_before = gated.clone();
        rests(&mut gated_before, "s1");
        let at_rest = run(
            "Paused",
            &json!({"state": "Paused"}),
            &["Succeeded", "Pending"],
        );
        // What a person paused is theirs, wherever it is to rest.
        let mut both = at_rest.clone();
        rests(&mut both, "ask");
        let bound = run(
            "Paused",
            &json!({"runUntil": "ask"}),
            &["Succeeded", "Pending"],
        );
        let changes = |changes: Changes| changes.unwrap().0;
        let skip = |step: &str| Change::Skip {
            step: step.to_owned(),
            reason: "w".to_owned(),
        };
        for (did, expected) in [
            (pausing(&waiting), vec![Change::Pause]),
            (resuming(&at_rest, None), vec![Change::Resume]),
            (resuming(&bound, None), vec![Change::Resume]),
            (resuming(&gated, None), vec![Change::Retry(None)]),
            (resuming(&gated_before, None), vec![Change::Retry(None)]),
            (resuming(&both, None), vec![Change::Resume]),
            (
                resuming(&at_rest, Some("s1")),
                vec![Change::RunUntil("s1".to_owned())],
            ),
            (retrying(&failed, None), vec![Change::Retry(None)]),
            (
                retrying(&gated, Some("s1")),
                vec![Change::Retry(Some("s1".to_owned()))],
            ),
            (approving(&waiting, None), vec![Change::Approve(None)]),
            (skipping(&failed, "s1", "w"), vec![skip("s1")]),
            (skipping(&failed, "s2", "w"), vec![skip("s2")]),
        ] {
            assert_eq!(changes(did), expected);
        }
    }
}
