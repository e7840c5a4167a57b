//! Plays, in one ansible-playbook process for all that follow each other.
//!
//! A play's step starts with the play's first event and ends with the next play's, or with the process. The process is a
//! session of its own and outlives a runner that is killed; the next runner finds it by its record, lets it end between two
//! tasks, waits until no module is at work on a host, and runs the interrupted play again: never two playbooks at a time.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ansible::{
    event::{Event, Kind, Tally},
    inventory::ansible_cfg,
    playbook::{self, Adopted, Handle, Outcome, PlaybookRun, Verdict, judge, leftovers},
    slice::Playbook,
};
use api::{
    HostName,
    run::{Action, AnsiblePlay, ExcludedHost, Failure, FailureClass, Step},
};
use serde::{Deserialize, Serialize};
use workflow::{Signal, StepContext, StepOutcome, StepProgress};

use super::{
    Job, disk,
    executor::{KubesprayExecutor, failed},
    prepare,
    workspace::{disk, failure},
};

/// How long the modules of a killed playbook may go on before a person must look.
const QUIESCE: Duration = Duration::from_mins(10);

/// The step whose play gathers the facts that later plays read from the cache.
const FACTS: &str = "bootstrap/facts";

/// The file that says which process a run started last.
const CURRENT: &str = "playbook.json";

/// Where a process is found again.
#[derive(Debug, Deserialize, Serialize)]
struct Current {
    id: String,
    work: PathBuf,
    events: PathBuf,
    log: PathBuf,
    home: PathBuf,
}

/// Executes plays that follow each other in one process.
pub(crate) async fn execute(executor: &KubesprayExecutor, steps: Vec<Step>, context: StepContext) {
    let Some(first) = steps.first() else { return };
    if let Err(failure) = end_former(executor, first, &context).await {
        finish(&context, first, failed(failure)).await;
        return;
    }
    let prepared = match prepare_process(executor, &steps, &context).await {
        Ok(prepared) => prepared,
        Err(failure) => {
            finish(&context, first, failed(failure)).await;
            return;
        }
    };
    match prepared.run.start().await {
        Ok(handle) => {
            let guard = Guard(Some(prepared.run.clone()));
            follow(handle, &prepared, &steps, &context).await;
            guard.disarm();
        }
        Err(error) => {
            let failure = failure(
                FailureClass::Permanent,
                "PlaybookNotStarted",
                crate::chain(&error),
                Some("look into the message, then retry the run"),
            );
            finish(&context, first, failed(failure)).await;
        }
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

/// Ends the process of an earlier runner between two tasks, and waits until nothing is at work on the hosts.
async fn end_former(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Result<(), Failure> {
    let file = executor.job.directory.join(CURRENT);
    let Some(current) = fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Current>(&bytes).ok())
    else {
        return Ok(());
    };
    let former = PlaybookRun {
        id: current.id,
        work: current.work,
        events: current.events,
        log: current.log,
        home: current.home,
        ..PlaybookRun::default()
    };
    let trouble = |error: playbook::Error| {
        failure(
            FailureClass::Transient,
            "FormerPlaybook",
            format!(
                "the playbook of an earlier runner was not ended: {}",
                crate::chain(&error)
            ),
            None,
        )
    };
    let adopted = former.adopt().map_err(trouble)?;
    let remote_work = match adopted {
        Adopted::Never => false,
        Adopted::Ended(outcome) => !outcome.tally.ended() && !outcome.tally.stopped,
        Adopted::Running(mut handle) => {
            tell(
                step,
                context,
                "ending the playbook of an earlier runner at its next task",
            )
            .await;
            handle
                .resume()
                .and_then(|()| handle.stop())
                .map_err(trouble)?;
            let outcome = handle.wait().await.map_err(trouble)?;
            !outcome.tally.ended() && !outcome.tally.stopped
        }
    };
    if remote_work || context.interrupted {
        quiesce(executor, step, context).await?;
    }
    // What is not there need not be removed.
    let _ = fs::remove_file(&file);
    Ok(())
}

async fn quiesce(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Result<(), Failure> {
    let left_out = |name: &HostName| context.excluded.iter().any(|host| host.host == *name);
    let hosts: Vec<_> = step
        .hosts
        .iter()
        .filter(|name| !left_out(name))
        .cloned()
        .collect();
    let options = prepare::options(executor).await?;
    tell(
        step,
        context,
        "waiting for what is still at work on the hosts",
    )
    .await;
    let left = leftovers(&prepare::targets(executor, &hosts), &options, QUIESCE).await;
    // A host that does not answer is the play's matter.
    let busy: Vec<_> = left
        .iter()
        .filter(|leftover| !leftover.processes.is_empty())
        .map(ToString::to_string)
        .collect();
    if busy.is_empty() {
        return Ok(());
    }
    Err(failure(
        FailureClass::External,
        "StillAtWork",
        format!("an earlier Ansible is still at work on {}", busy.join(", ")),
        Some("wait for it or end it on the hosts, then retry the run"),
    ))
}

async fn tell(step: &Step, context: &StepContext, task: &str) {
    let progress = StepProgress {
        task: Some(task.to_owned()),
        ..StepProgress::default()
    };
    // A runner that has ended takes no reports; the next report finds out.
    let _ = context.reporter.progress(&step.id, progress).await;
}

/// A process ready to start.
struct Prepared {
    run: PlaybookRun,
    /// The step of each play of the process, in order; none for plays that only compute facts.
    plays: Vec<Option<String>>,
    /// The hosts that are expected to take part.
    expected: Vec<String>,
    logs: PathBuf,
    /// What to do about a host with another key.
    new_key_remedy: String,
}

async fn prepare_process(
    executor: &KubesprayExecutor,
    steps: &[Step],
    context: &StepContext,
) -> Result<Prepared, Failure> {
    let workspace = &executor.workspace;
    let job = &executor.job;
    let sandbox = prepare::ensure(executor, &|_| {}).await?;
    let key = workspace.key().await?;
    let excluded: Vec<_> = context
        .excluded
        .iter()
        .map(|host| host.host.clone())
        .collect();
    prepare::acquaint(executor, &excluded).await?;
    let (inventory, files) =
        workspace.inventory(key.clone(), &excluded, &prepare::pythons(executor))?;
    let config = job.directory.join("ansible.cfg");
    let text = ansible_cfg(&workspace.configuration(key)).map_err(|error| {
        failure(
            FailureClass::Config,
            "BadConfiguration",
            crate::chain(&error),
            Some("correct spec.runner.ansible"),
        )
    })?;
    fs::write(&config, text).map_err(|error| disk(&config, &error))?;
    let view = job.directory.join("slices");
    let expected: Vec<String> = steps
        .iter()
        .flat_map(|step| &step.hosts)
        .filter(|host| !excluded.contains(host))
        .map(ToString::to_string)
        .collect();
    let lost = lost_facts(job, &workspace.directories().facts, &expected);
    let (file, plays) = slices(&workspace.checkout(), &view, steps, lost)?;
    let limit = if excluded.is_empty() {
        Vec::new()
    } else {
        let hosts = inventory.hosts().filter(|host| !excluded.contains(host));
        hosts
            .map(ToString::to_string)
            .chain(["localhost".to_owned()])
            .collect()
    };
    let first = steps
        .first()
        .map(|step| step.id.as_str())
        .unwrap_or_default();
    let name = format!("{}-{}", first.replace('/', "__"), context.attempt);
    // An attempt that was interrupted has the next attempt's number taken; the records of processes must not meet.
    let id = format!("{first}#{}-{}", context.attempt, job.identity.id);
    let logs = job.directory.join("logs");
    let run = PlaybookRun {
        id,
        ansible_playbook: sandbox.ansible_playbook(),
        directory: view,
        playbooks: vec![file],
        inventory: files.inventory,
        vars: vec![files.vars],
        config: Some(config),
        limit,
        work: job.directory.join("work").join(&name),
        home: job.cluster_directory().join("ansible"),
        events: job.directory.join("events.jsonl"),
        log: logs.join(format!("{}.ansible.log", first.replace('/', "__"))),
        timeout: None,
        ..PlaybookRun::default()
    };
    let current = Current {
        id: run.id.clone(),
        work: run.work.clone(),
        events: run.events.clone(),
        log: run.log.clone(),
        home: run.home.clone(),
    };
    let path = job.directory.join(CURRENT);
    let bytes =
        serde_json::to_vec(&current).map_err(|error| disk(&path, &std::io::Error::other(error)))?;
    fs::write(&path, bytes).map_err(|error| disk(&path, &error))?;
    Ok(Prepared {
        run,
        plays,
        expected,
        logs,
        new_key_remedy: prepare::new_key_remedy(executor),
    })
}

/// The play that gathers facts, where it is done and what it found is lost: with the volume of an earlier pod, say.
fn lost_facts(job: &Job, cache: &Path, hosts: &[String]) -> Option<usize> {
    if hosts.is_empty() || hosts.iter().any(|host| cache.join(host).exists()) {
        return None;
    }
    match &job.plan.step(FACTS)?.action {
        Action::AnsiblePlay(play) => usize::try_from(play.play).ok(),
        _ => None,
    }
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
    let plays: Vec<(&Step, &AnsiblePlay)> = steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::AnsiblePlay(play) => Some((step, play)),
            _ => None,
        })
        .collect();
    let name = plays.first().map_or("", |(_, play)| play.playbook.as_str());
    let playbook = Playbook::read(checkout, name).map_err(|error| broken(&error))?;
    let mut group: Vec<usize> = plays
        .iter()
        .filter_map(|(_, play)| usize::try_from(play.play).ok())
        .collect();
    // A play that reads what the one before registered takes it along.
    while let Some(before) = group.first().and_then(|first| first.checked_sub(1))
        && playbook
            .slices()
            .get(before)
            .is_some_and(|slice| slice.with_next)
    {
        group.insert(0, before);
    }
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

/// Follows a process to its end and reports its steps.
async fn follow(mut handle: Handle, prepared: &Prepared, steps: &[Step], context: &StepContext) {
    let mut events = handle.events();
    let mut signal = context.signal.clone();
    let mut progress = Progress::new(prepared, steps, context);
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
    match handle.wait().await {
        Ok(outcome) => progress.end(&outcome).await,
        Err(error) => {
            let failure = failure(
                FailureClass::Permanent,
                "PlaybookLost",
                crate::chain(&error),
                None,
            );
            progress.fail(failed(failure)).await;
        }
    }
}

fn warn(result: Result<(), playbook::Error>) {
    if let Err(error) = result {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a playbook was not told"
        );
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Next {
    GoOn,
    End,
}

/// How far the steps are.
struct Progress<'a> {
    prepared: &'a Prepared,
    steps: &'a [Step],
    context: &'a StepContext,
    tally: Tally,
    /// The index in `steps` of the step at work.
    at: usize,
    started: bool,
    ended: bool,
}

impl<'a> Progress<'a> {
    fn new(prepared: &'a Prepared, steps: &'a [Step], context: &'a StepContext) -> Self {
        Self {
            prepared,
            steps,
            context,
            tally: Tally::default(),
            at: 0,
            started: true,
            ended: false,
        }
    }

    async fn add(&mut self, event: &Event) -> Next {
        self.tally.add(event);
        self.log(event);
        if let Kind::PlayStart { .. } = &event.kind {
            return self.play_started().await;
        }
        if self.tally.paused && matches!(event.kind, Kind::Paused { .. }) {
            return match self.step() {
                Some(step) => reported(self.context.reporter.held(&step.id).await),
                None => Next::GoOn,
            };
        }
        if matches!(
            event.kind,
            Kind::TaskStart { .. } | Kind::Ok { .. } | Kind::Failed { .. }
        ) && let Some(step) = self.step()
        {
            let progress = self.progress();
            return reported(self.context.reporter.progress(&step.id, progress).await);
        }
        Next::GoOn
    }

    /// A play starts: the steps before its own are done, unless something failed in them.
    async fn play_started(&mut self) -> Next {
        let play = self.tally.plays.len().saturating_sub(1);
        let Some(Some(id)) = self.prepared.plays.get(play) else {
            return Next::GoOn;
        };
        let Some(target) = self.steps.iter().position(|step| step.id == *id) else {
            return Next::GoOn;
        };
        if target > self.at && self.in_trouble() {
            return Next::End;
        }
        while self.at < target {
            if self.succeed().await == Next::End {
                return Next::End;
            }
        }
        Next::GoOn
    }

    fn in_trouble(&self) -> bool {
        !self.tally.failures.is_empty() || !self.tally.unreachable.is_empty()
    }

    /// The step at work is done; the next one starts.
    async fn succeed(&mut self) -> Next {
        let Some(step) = self.step() else {
            return Next::End;
        };
        let outcome = StepOutcome::Succeeded {
            results: self.results(&step.id),
            unreachable: Vec::new(),
            detail: None,
        };
        if self
            .context
            .reporter
            .finished(&step.id, outcome)
            .await
            .is_err()
        {
            return Next::End;
        }
        self.at += 1;
        self.started = false;
        let Some(step) = self.step() else {
            self.ended = true;
            return Next::GoOn;
        };
        let next = reported(self.context.reporter.started(&step.id).await);
        self.started = next == Next::GoOn;
        next
    }

    /// The process has ended: judge it, and give what is left its end.
    async fn end(mut self, outcome: &Outcome) {
        let verdict = judge(self.prepared.expected.iter().map(String::as_str), outcome);
        if verdict == Verdict::Succeeded {
            while !self.ended && self.succeed().await == Next::GoOn {}
            return;
        }
        let outcome = match &verdict {
            Verdict::Interrupted {
                timed_out: false,
                remote_work,
            } => StepOutcome::Interrupted {
                detail: remote_work.then(|| "modules may still be at work on hosts".to_owned()),
            },
            _ => StepOutcome::Failed {
                failure: disk::explain(
                    &self.prepared.logs,
                    playbook::failure(&verdict).unwrap_or_else(|| {
                        failure(
                            FailureClass::Permanent,
                            "PlaybookFailed",
                            "the playbook failed".to_owned(),
                            None,
                        )
                    }),
                ),
                results: self
                    .step()
                    .map(|step| self.results(&step.id))
                    .unwrap_or_default(),
                unreachable: unreachable(&verdict, &self.prepared.new_key_remedy),
            },
        };
        self.fail(outcome).await;
    }

    async fn fail(self, outcome: StepOutcome) {
        if let Some(step) = self.step().filter(|_| self.started) {
            finish(self.context, step, outcome).await;
        }
    }

    fn step(&self) -> Option<&'a Step> {
        self.steps.get(self.at)
    }

    fn results(&self, step: &str) -> api::run::Results {
        let mut plays = self.prepared.plays.iter().zip(&self.tally.plays);
        plays
            .find(|(id, _)| id.as_deref() == Some(step))
            .map(|(_, play)| play.results)
            .unwrap_or_default()
    }

    fn progress(&self) -> StepProgress {
        let play = self.tally.plays.last();
        let mut task = self.tally.current.as_ref().map(|task| task.name.clone());
        if let Some(task) = &mut task {
            controller::conditions::cut(task, 256);
        }
        StepProgress {
            task,
            tasks_started: play.map(|play| play.tasks_started).unwrap_or_default(),
            results: play.map(|play| play.results).unwrap_or_default(),
        }
    }

    /// Writes what people look for in a log into that of the step.
    fn log(&self, event: &Event) {
        use std::io::Write as _;
        let line = match &event.kind {
            Kind::PlayStart { name, .. } => format!("PLAY [{name}]"),
            Kind::TaskStart { name, .. } => format!("TASK [{name}]"),
            Kind::Ok { host, changed, .. } => {
                format!("{}: [{host}]", if *changed { "changed" } else { "ok" })
            }
            Kind::Failed {
                host, ignored, why, ..
            } => format!(
                "{}: [{host}] {}",
                if *ignored {
                    "failed, ignored"
                } else {
                    "failed"
                },
                why.text()
            ),
            Kind::Unreachable { host, why, .. } => format!("unreachable: [{host}] {}", why.text()),
            Kind::Retry {
                host,
                attempts,
                retries,
                ..
            } => format!(
                "retry: [{host}] {} of {}",
                attempts.unwrap_or_default(),
                retries.unwrap_or_default()
            ),
            _ => return,
        };
        let Some(step) = self.step() else { return };
        let path = self
            .prepared
            .logs
            .join(format!("{}.log", step.id.replace('/', "__")));
        let written = fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| writeln!(file, "{line}"));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), error = &error as &dyn std::error::Error, "the step's log was not written");
        }
    }
}

fn unreachable(verdict: &Verdict, new_key_remedy: &str) -> Vec<ExcludedHost> {
    let (Verdict::Failed {
        unreachable: hosts, ..
    }
    | Verdict::Unreachable { unreachable: hosts }) = verdict
    else {
        return Vec::new();
    };
    hosts
        .iter()
        .filter_map(|(host, why)| {
            let known = playbook::failure_of_text(&why.message);
            let mut reason = if known.code == prepare::HOST_KEY_CHANGED {
                format!("its host key changed: {new_key_remedy}")
            } else {
                why.message.clone()
            };
            controller::conditions::cut(&mut reason, 1024);
            Some(ExcludedHost {
                host: host.parse().ok()?,
                reason,
            })
        })
        .collect()
}

fn reported(result: Result<(), workflow::executor::Rejected>) -> Next {
    match result {
        Ok(()) => Next::GoOn,
        Err(_) => Next::End,
    }
}

async fn finish(context: &StepContext, step: &Step, outcome: StepOutcome) {
    if context.reporter.finished(&step.id, outcome).await.is_err() {
        tracing::warn!(step = step.id, "the end of a step was not taken");
    }
}
