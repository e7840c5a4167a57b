//! Plays, in one ansible-playbook process for all that follow each other.
//!
//! A play's step starts with the play's first event and ends with the next play's, or with the process. The process is a
//! session of its own and outlives a runner that is killed; the next runner finds it by its record, lets it end between two
//! tasks, waits until no module is at work on a host, and runs the interrupted play again: never two playbooks at a time. A pod
//! takes the process with it, and the record where its volume goes too: then the hosts of the interrupted play are asked alone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ansible::{
    inventory::ansible_cfg,
    mask::Mask,
    playbook::{self, Adopted, Handle, Outcome, PlaybookRun},
    slice::Playbook,
    write_private,
};
use api::run::{Applied, Failure, FailureClass, Step};
use workflow::{Signal, StepContext, StepOutcome};

use super::{
    executor::{KubesprayExecutor, failed, succeeded},
    hook, prepare,
    work::{ClusterWork, EVENTS, FORMER_EVENTS},
    workspace::{disk, failure},
};
use crate::{
    action::{self, Action, AnsiblePlay, FACTS, FACTS_OF_OTHERS, FACTS_OF_STAYING},
    hooks::Kind,
    inputs::Inputs,
    operation::CONVERGE,
    playbooks::Own,
};
use runs::small_log;

mod earlier;
mod known;
mod look;
mod progress;
mod remedy;

pub(crate) use earlier::end_now;

use progress::{Next, Progress};

/// A process begins a new file of events when the one at hand has so many bytes.
const MOST_EVENTS: u64 = 64 * 1024 * 1024;

/// Executes plays that follow each other in one process.
pub(crate) async fn execute(executor: &KubesprayExecutor, steps: Vec<Step>, context: StepContext) {
    let Some(first) = steps.first() else { return };
    if is_limited(first) && nobody_left(executor, &steps, &context) {
        let nothing = "nothing was done: its hosts do not answer";
        pass_over(&steps, &context, nothing).await;
        return;
    }
    if let Err(failure) = earlier::end(executor, first, &context).await {
        finish(&context, first, failed(failure)).await;
        return;
    }
    if let Some(known) = known::all_known(executor, first, &context) {
        pass_over(&steps, &context, &known).await;
        return;
    }
    let preparing = executor.preparing.lock().await;
    let prepared = match prepare_process(executor, first, &steps, &context).await {
        Ok(prepared) => prepared,
        Err(failure) => {
            drop(preparing);
            finish(&context, first, failed(failure)).await;
            return;
        }
    };
    drop(preparing);
    executor.proven().await;
    match start(&prepared).await {
        Ok(handle) => {
            let guard = Guard(Some(prepared.run.clone()));
            follow(executor, handle, &prepared, &steps, &context).await;
            guard.disarm();
        }
        Err(failure) => finish(&context, first, failed(failure)).await,
    }
}

/// Kills a process whose step is given up: a future that is dropped must end what it started.
struct Guard(Option<PlaybookRun>);

impl Guard {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            tokio::spawn(async move {
                if let Ok(Adopted::Running(handle)) = run.adopt()
                    && let Err(error) = handle.kill().await
                {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a playbook was not killed"
                    );
                }
            });
        }
    }
}

/// A process ready to start.
struct Prepared {
    run: PlaybookRun,
    /// The step of each play of the process, in order; none for plays that only compute facts.
    plays: Vec<Option<String>>,
    /// The hosts that are expected to take part.
    expected: Vec<String>,
    logs: PathBuf,
    /// What is masked of what it tells.
    mask: Mask,
    /// What to do about a host with another key.
    new_key_remedy: String,
    /// Whether the record of a step says what changed in it.
    tells_changes: bool,
}

/// Whether a play works on the hosts of its step alone, as a hook does. Such plays share a process with their like.
fn is_limited(step: &Step) -> bool {
    let is_hook = matches!(action::of(step), Ok(Some(Action::Hook { .. })));
    is_hook || action::play_of(step).is_some_and(|play| play.limited)
}

/// Whether each host of these steps was left out of the run.
pub(super) fn nobody_left(
    executor: &KubesprayExecutor,
    steps: &[Step],
    context: &StepContext,
) -> bool {
    let left_out = action::hosts_left_out(&context.excluded);
    let plan = executor.work.plan.plan();
    let mut hosts = steps.iter().flat_map(|step| action::hosts_of(plan, step));
    hosts.all(|host| left_out.contains(&host))
}

/// Ends steps that have nothing to work on.
async fn pass_over(steps: &[Step], context: &StepContext, why: &str) {
    for step in steps {
        if context.reporter.started(&step.id).await.is_err() {
            return;
        }
        let outcome = succeeded(Some(why.to_owned()));
        if context.reporter.finished(&step.id, outcome).await.is_err() {
            return;
        }
    }
}

async fn prepare_process(
    executor: &KubesprayExecutor,
    first: &Step,
    steps: &[Step],
    context: &StepContext,
) -> Result<Prepared, Failure> {
    let workspace = &executor.workspace;
    let work = &executor.work;
    let sandbox = prepare::ensure(executor, &|_| {}).await?;
    let key = workspace.key().await?;
    let own = action::play_of(first).and_then(|play| Own::named(&play.playbook));
    let secrets = workspace.secret_variables(own).await?;
    let excluded = action::hosts_left_out(&context.excluded);
    prepare::acquaint(executor, &excluded).await?;
    let inputs = inventory_of(&work.inputs, first);
    let pythons = prepare::pythons(executor);
    let (inventory, files) = workspace.inventory(&inputs, key.clone(), &excluded, &pythons)?;
    let config = work.directory.join("ansible.cfg");
    let text = ansible_cfg(&workspace.configuration(key)).map_err(|error| {
        failure(
            FailureClass::Config,
            "BadConfiguration",
            crate::chain(&error),
            Some("correct spec.runner.ansible"),
        )
    })?;
    write_private(&config, text.as_bytes()).map_err(|error| disk(&config, &error))?;
    // One of Windlass' own stands at the root of the view, and a view holds the playbooks of one place.
    let hook = hook::of(work, first);
    let view = if own.is_some() || hook.is_some() {
        "slices-own"
    } else {
        "slices"
    };
    let view = work.directory.join(view);
    let cache = workspace.directories().facts;
    let expected: Vec<String> = steps
        .iter()
        .flat_map(|step| action::hosts_of(work.plan.plan(), step))
        .filter(|host| !excluded.contains(host))
        .filter(|host| first.id != FACTS_OF_OTHERS || !known::is_known(&cache, host))
        .map(|host| host.to_string())
        .collect();
    let playbook = action::play_of(first).unwrap_or_default().playbook;
    let lost = lost_facts(work, &cache, &playbook, &expected);
    let checkout = workspace.checkout();
    let (file, plays) = match hook {
        Some(hook) => hook::write(work, &checkout, &view, (hook, first))?,
        None => slices(&checkout, &view, steps, lost)?,
    };
    let limited = is_limited(first);
    let with_localhost = |hosts: Vec<String>| hosts.into_iter().chain(["localhost".to_owned()]);
    let limit = if limited {
        with_localhost(expected.clone()).collect()
    } else if excluded.is_empty() {
        Vec::new()
    } else {
        let hosts = inventory.hosts().filter(|host| !excluded.contains(host));
        with_localhost(hosts.map(ToString::to_string).collect()).collect()
    };
    let record = earlier::Record::of(&work.directory, first);
    let first = first.id.as_str();
    let name = format!("{}-{}", first.replace('/', "__"), context.attempt);
    // An attempt that was interrupted has the next attempt's number taken; the records of processes must not meet.
    let id = format!("{first}#{}-{}", context.attempt, work.identity.id);
    let logs = work.directory.join("logs");
    let run = PlaybookRun {
        id,
        ansible_playbook: sandbox.ansible_playbook(),
        directory: view,
        playbooks: vec![file],
        inventory: files.inventory,
        host_secrets: secrets.hosts,
        vars: [Some(files.vars), secrets.vars]
            .into_iter()
            .flatten()
            .collect(),
        mask: Some(workspace.mask_file()).filter(|file| file.exists()),
        secret_names: secrets.names,
        temporary: Some(workspace.temporary()),
        config: Some(config),
        limit,
        work: work.directory.join("work").join(&name),
        home: work.cluster_directory().join("ansible"),
        events: work.directory.join(EVENTS),
        log: logs.join(format!("{}.ansible.log", first.replace('/', "__"))),
        leave: Some(work.leave()),
        timeout: hook.map(hook::timeout),
        ..PlaybookRun::default()
    };
    small_log::keep_all_small(&logs).map_err(|error| disk(&logs, &error))?;
    // Beside a playbook of other hosts, which writes into the same file.
    if !limited {
        set_aside(&run.events).map_err(|error| disk(&run.events, &error))?;
    }
    record.write(&run)?;
    // Which of the hosts the plays of a hook name is its own matter.
    let of_person = hook.is_some_and(|hook| hook.kind == Kind::Playbook);
    Ok(Prepared {
        run,
        plays,
        expected: if of_person { Vec::new() } else { expected },
        logs,
        mask: workspace.mask(),
        new_key_remedy: prepare::new_key_remedy(executor),
        tells_changes: executor.work.run.spec.operation == CONVERGE.name,
    })
}

/// Begins a new file of events where the one at hand is large; the one before that goes. No process has it open here, and how a
/// process went is judged by its own events alone.
fn set_aside(events: &Path) -> std::io::Result<()> {
    match fs::metadata(events) {
        Ok(metadata) if metadata.len() > MOST_EVENTS => {
            fs::rename(events, events.with_file_name(FORMER_EVENTS))
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The hosts that the inventory of a play has, and how they are reached.
fn inventory_of(inputs: &Inputs, step: &Step) -> Inputs {
    let left = action::play_of(step).is_some_and(|play| play.left);
    let inputs = inputs.clone();
    if left { inputs.left() } else { inputs }
}

/// The play of the playbook that gathers facts, where it is done and what it found is lost: with the volume of an earlier pod, say.
fn lost_facts(work: &ClusterWork, cache: &Path, playbook: &str, hosts: &[String]) -> Option<usize> {
    if hosts.is_empty() || hosts.iter().any(|host| cache.join(host).exists()) {
        return None;
    }
    let plays = [FACTS, FACTS_OF_STAYING].into_iter();
    let mut plays = plays.filter_map(|id| action::play_of(work.plan.step(id)?));
    let play = plays.find(|play| play.playbook == playbook)?;
    usize::try_from(play.play).ok()
}

/// Writes the plays of the steps into one file, and says which step each play of the process belongs to. The play `facts`
/// comes first where the steps are all behind it.
fn slices(
    checkout: &Path,
    view: &Path,
    steps: &[Step],
    facts: Option<usize>,
) -> Result<(PathBuf, Vec<Option<String>>), Failure> {
    let broken = |error: &dyn std::error::Error| {
        failure(
            FailureClass::Config,
            "PlaybooksUnusable",
            crate::chain(error),
            Some("correct spec.kubespray.source"),
        )
    };
    let plays: Vec<(&Step, AnsiblePlay)> = steps
        .iter()
        .filter_map(|step| Some((step, action::play_of(step)?)))
        .collect();
    let first = plays.first().map(|(_, play)| play);
    let name = first.map_or("", |play| play.playbook.as_str());
    let playbook = match first.and_then(|play| play.own.as_deref()) {
        Some(planned) => own(checkout, name, planned)?,
        None => Playbook::read(checkout, name).map_err(|error| broken(&error))?,
    };
    let planned = plays
        .iter()
        .filter_map(|(_, play)| usize::try_from(play.play).ok());
    let mut group = playbook.with_what_they_read(planned);
    if let Some(facts) = facts.filter(|facts| group.first().is_some_and(|first| first > facts)) {
        group.insert(0, facts);
    }
    let written = playbook
        .write(checkout, view, &[&group])
        .map_err(|error| broken(&error))?;
    let file = written.into_iter().next().ok_or_else(|| {
        failure(
            FailureClass::Permanent,
            "PlaybooksUnusable",
            format!("no file was written for the plays of {name}"),
            None,
        )
    })?;
    let step_of = |index: usize| {
        plays
            .iter()
            .find(|(_, play)| usize::try_from(play.play) == Ok(index))
            .map(|(step, _)| step.id.clone())
    };
    let steps = file.plays.iter().map(|index| step_of((*index)?)).collect();
    Ok((file.path, steps))
}

/// The playbook of Windlass' own that a run was planned with, if this Windlass has the same.
fn own(checkout: &Path, name: &str, planned: &str) -> Result<Playbook, Failure> {
    let own = Own::named(name).filter(|own| own.digest() == planned);
    let own = own.ok_or_else(|| {
        failure(
            FailureClass::Permanent,
            "OtherPlaybook",
            format!(
                "the run was planned by another Windlass, whose playbook {name} has the digest {planned}"
            ),
            Some("cancel the run: what it was for is planned anew by this Windlass"),
        )
    })?;
    own.playbook(checkout).map_err(|error| {
        let text = crate::chain(&error);
        failure(FailureClass::Permanent, "PlaybooksUnusable", text, None)
    })
}

/// Follows a process to its end and reports its steps.
async fn follow(
    executor: &KubesprayExecutor,
    handle: Handle,
    prepared: &Prepared,
    steps: &[Step],
    context: &StepContext,
) {
    let mut progress = Progress::new(prepared, steps, context);
    match watch(handle, &mut progress, context).await {
        Ok(outcome) => {
            let trouble = progress.trouble(&outcome);
            let step = progress.step().map(|step| {
                // Of those that follow in its process none has failed before.
                let first = steps.first().filter(|first| first.id == step.id);
                (step, first.map_or(&[][..], |_| &context.remedied))
            });
            let trouble = treated(executor, context, trouble, step).await;
            progress.end(trouble).await;
        }
        Err(failure) => progress.fail(failed(failure)).await,
    }
}

/// A failed outcome, told as what a look at the host says that it is, and with what was done about it for a step that may be helped: the
/// step, and what was done for it before.
async fn treated(
    executor: &KubesprayExecutor,
    context: &StepContext,
    outcome: Option<StepOutcome>,
    step: Option<(&Step, &[Applied])>,
) -> Option<StepOutcome> {
    let Some(StepOutcome::Failed {
        failure,
        results,
        unreachable,
        ..
    }) = outcome
    else {
        return outcome;
    };
    let failure = look::refined(executor, failure).await;
    let remedies = match step {
        // Who does not answer cannot be helped, and the gate of the step judges it.
        Some((step, before)) if unreachable.is_empty() => {
            remedy::applied(executor, step, context, &failure, before).await
        }
        _ => Vec::new(),
    };
    Some(StepOutcome::Failed {
        failure,
        results,
        unreachable,
        remedies,
    })
}

/// Follows a process to its end.
async fn watch(
    mut handle: Handle,
    progress: &mut Progress<'_>,
    context: &StepContext,
) -> Result<Outcome, Failure> {
    let mut events = handle.events();
    let mut signal = context.signal.clone();
    signal.mark_changed();
    loop {
        tokio::select! {
            event = events.next() => match event {
                Ok(Some(event)) => {
                    if progress.add(&event).await == Next::End {
                        // What cannot be reported, or must not go on, ends at the next task.
                        warn(handle.stop());
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "the playbook's events cannot be read");
                    warn(handle.stop());
                    break;
                }
            },
            changed = signal.changed() => {
                if changed.is_err() {
                    warn(handle.stop());
                    continue;
                }
                let wanted = *signal.borrow_and_update();
                match wanted {
                    Signal::Continue => warn(handle.resume()),
                    Signal::Pause => warn(handle.pause()),
                    Signal::Stop => warn(handle.stop()),
                }
            }
        }
    }
    handle.wait().await.map_err(|error| {
        failure(
            FailureClass::Permanent,
            "PlaybookLost",
            crate::chain(&error),
            None,
        )
    })
}

/// Runs a playbook of Windlass' own within a step that is no play, on the hosts of the step and to its end.
///
/// # Errors
///
/// How the step ends, where the playbook did not come to a good end.
pub(crate) async fn within(
    executor: &KubesprayExecutor,
    (name, planned): (&str, &str),
    step: &Step,
    context: &StepContext,
) -> Result<(), StepOutcome> {
    let play = AnsiblePlay {
        playbook: name.to_owned(),
        play: 0,
        limited: true,
        own: Some(planned.to_owned()),
        left: false,
    };
    let step = Step {
        action: action::Action::AnsiblePlay(play).into(),
        batch: Some(format!("{name}/{}", step.id)),
        ..step.clone()
    };
    alone(executor, &[step], context).await
}

/// Runs what a step runs in a process of its own to its end, within the step.
///
/// # Errors
///
/// How the step ends, where that did not come to a good end.
pub(super) async fn alone(
    executor: &KubesprayExecutor,
    steps: &[Step],
    context: &StepContext,
) -> Result<(), StepOutcome> {
    let Some(step) = steps.first() else {
        return Ok(());
    };
    earlier::end(executor, step, context)
        .await
        .map_err(failed)?;
    let preparing = executor.preparing.lock().await;
    let prepared = prepare_process(executor, step, steps, context).await;
    drop(preparing);
    let prepared = prepared.map_err(failed)?;
    executor.proven().await;
    let handle = start(&prepared).await.map_err(failed)?;
    let guard = Guard(Some(prepared.run.clone()));
    let mut progress = Progress::new(&prepared, steps, context);
    let outcome = watch(handle, &mut progress, context).await;
    guard.disarm();
    match outcome {
        Ok(outcome) => {
            let trouble = progress.trouble(&outcome);
            let trouble = treated(executor, context, trouble, None).await;
            trouble.map_or(Ok(()), Err)
        }
        Err(failure) => Err(failed(failure)),
    }
}

async fn start(prepared: &Prepared) -> Result<Handle, Failure> {
    prepared.run.start().await.map_err(|error| {
        failure(
            FailureClass::Permanent,
            "PlaybookNotStarted",
            crate::chain(&error),
            Some("look into the message, then retry the run"),
        )
    })
}

fn warn(result: Result<(), playbook::Error>) {
    if let Err(error) = result {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a playbook was not told"
        );
    }
}

async fn finish(context: &StepContext, step: &Step, outcome: StepOutcome) {
    if context.reporter.finished(&step.id, outcome).await.is_err() {
        tracing::warn!(step = step.id, "the end of a step was not taken");
    }
}
