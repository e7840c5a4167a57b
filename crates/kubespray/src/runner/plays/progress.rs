//! How far the plays of a process are, from its events to the reports of its steps.

use std::collections::BTreeMap;

use ansible::{
    event::{Counts, Event, Kind, PlayTally, Tally},
    playbook::{self, Outcome, Verdict, judge},
    slice::REPAIRS,
};
use api::{
    run::{self, Exclusion, FailureClass, Step},
    text::plain,
};
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{Prepared, finish};
use crate::{
    operation::converge::changes::Changes,
    runner::{prepare, workspace::failure},
};
use runs::{runner::disk, small_log};

/// What a process is to do after an event.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Next {
    GoOn,
    End,
}

/// How far the steps are.
pub(super) struct Progress<'a> {
    prepared: &'a Prepared,
    steps: &'a [Step],
    context: &'a StepContext,
    tally: Tally,
    /// What changed in the step at work, by host, where that is told.
    changed: Changes,
    /// What was undone in the step at work before its play began anew, and on which hosts.
    undone: BTreeMap<&'static str, Vec<String>>,
    /// The index in `steps` of the step at work.
    at: usize,
    started: bool,
    ended: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(prepared: &'a Prepared, steps: &'a [Step], context: &'a StepContext) -> Self {
        Self {
            prepared,
            steps,
            context,
            tally: Tally::default(),
            changed: Changes::default(),
            undone: BTreeMap::new(),
            at: 0,
            started: true,
            ended: false,
        }
    }

    pub(super) async fn add(&mut self, event: &Event) -> Next {
        self.tally.add(event);
        self.log(event);
        self.note_change(event);
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
            results: self.results(&step.id).into(),
            unreachable: Vec::new(),
            detail: self.detail(),
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

    /// What a step that is done tells of it.
    fn detail(&mut self) -> Option<String> {
        let undone = std::mem::take(&mut self.undone).into_iter();
        let undone = undone.map(|(what, hosts)| {
            format!(
                "{what} was undone first, on {}: it was interrupted",
                hosts.join(", ")
            )
        });
        let changed = std::mem::take(&mut self.changed).told();
        let told: Vec<_> = undone.chain(changed).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// The process has ended: gives what is left its end.
    pub(super) async fn end(mut self, trouble: Option<StepOutcome>) {
        match trouble {
            None => while !self.ended && self.succeed().await == Next::GoOn {},
            Some(outcome) => self.fail(outcome).await,
        }
    }

    /// The end of the step at work, where the process did not come to a good one.
    pub(super) fn trouble(&self, outcome: &Outcome) -> Option<StepOutcome> {
        let verdict = judge(self.prepared.expected.iter().map(String::as_str), outcome);
        if verdict == Verdict::Succeeded {
            return None;
        }
        let mut outcome = match &verdict {
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
                    .map(|step| self.results(&step.id).into())
                    .unwrap_or_default(),
                unreachable: unreachable(&verdict, &self.prepared.new_key_remedy),
                remedies: Vec::new(),
            },
        };
        self.mask(&mut outcome);
        Some(outcome)
    }

    /// Masks what the plugin of an earlier release did not, or could not because Ansible ended before it was there.
    fn mask(&self, outcome: &mut StepOutcome) {
        if let StepOutcome::Failed {
            failure,
            unreachable,
            ..
        } = outcome
        {
            let reasons = unreachable.iter_mut().map(|host| &mut host.reason);
            for text in reasons.chain([&mut failure.message]) {
                *text = self.prepared.mask.apply(text).into_owned();
            }
        }
    }

    pub(super) async fn fail(self, outcome: StepOutcome) {
        if let Some(step) = self.step().filter(|_| self.started) {
            finish(self.context, step, outcome).await;
        }
    }

    /// Notes what was undone, and what a task changed, where that is told: of a converge, which is to change nothing.
    fn note_change(&mut self, event: &Event) {
        let Kind::Ok {
            host,
            changed: true,
            ..
        } = &event.kind
        else {
            return;
        };
        let task = self.tally.current.as_ref().map(|task| task.name.as_str());
        let task = task.unwrap_or_default();
        let mut repairs = REPAIRS.iter();
        if let Some(repair) = repairs.find(|repair| repair.task() == task) {
            let hosts = self.undone.entry(repair.undoes).or_default();
            hosts.push(plain(host, 64));
        }
        if self.prepared.tells_changes {
            self.changed.add(host, &self.prepared.mask.apply(task));
        }
    }

    /// The step at work.
    pub(super) fn step(&self) -> Option<&'a Step> {
        self.steps.get(self.at)
    }

    fn results(&self, step: &str) -> Counts {
        let mut plays = self.prepared.plays.iter().zip(&self.tally.plays);
        plays
            .find(|(id, _)| id.as_deref() == Some(step))
            .map(|(_, play)| play.results)
            .unwrap_or_default()
    }

    fn progress(&self) -> StepProgress {
        let play = self.tally.plays.last();
        let task = self.tally.current.as_ref();
        let task = task.map(|task| plain(&self.prepared.mask.apply(&task.name), 256));
        StepProgress {
            activity: task,
            progress: play.map(done),
            results: play.map(|play| play.results).unwrap_or_default().into(),
            ..StepProgress::default()
        }
    }

    /// Writes what people look for in a log into that of the step.
    fn log(&self, event: &Event) {
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
        let line = self.prepared.mask.apply(&line);
        let Some(step) = self.step() else { return };
        let path = self
            .prepared
            .logs
            .join(format!("{}.log", step.id.replace('/', "__")));
        let written = small_log::append(&path, &line)
            // Of a process that has it open: somebody else must keep it small.
            .and_then(|()| small_log::keep_small(&self.prepared.run.log));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), error = &error as &dyn std::error::Error, "the step's log was not written");
        }
    }
}

fn unreachable(verdict: &Verdict, new_key_remedy: &str) -> Vec<Exclusion> {
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
            let reason = if known.code == prepare::HOST_KEY_CHANGED {
                format!("its host key changed: {new_key_remedy}")
            } else {
                why.message.clone()
            };
            let reason = plain(&reason, 1024);
            Some(Exclusion {
                target: host.parse().ok()?,
                reason,
            })
        })
        .collect()
}

/// How many tasks of a play are done. How many there will be nobody knows: includes add more at run time.
fn done(play: &PlayTally) -> run::Progress {
    run::Progress {
        done: play.tasks_started.saturating_sub(1),
        total: None,
        unit: "tasks".to_owned(),
    }
}

fn reported(result: Result<(), workflow::executor::Rejected>) -> Next {
    match result {
        Ok(()) => Next::GoOn,
        Err(_) => Next::End,
    }
}
