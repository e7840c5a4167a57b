//! Events added up: by host, by play, by task.

use std::collections::{BTreeMap, BTreeSet};

use api::run::Results;

use super::{Event, Kind, Stats, Why};

/// Everything that is known of one ansible-playbook process from its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Plays in the order in which they started; each batch of a serial play is one.
    pub plays: Vec<PlayTally>,
    /// Tasks in the order in which they started, handlers too.
    pub tasks: Vec<TaskTally>,
    /// Counts over all tasks, by host.
    pub hosts: BTreeMap<String, Counts>,
    /// Failures that were not ignored, in the order in which they happened. When the playbook has ended, those that a
    /// rescue block mended are gone.
    pub failures: Vec<HostFailure>,
    /// Hosts that were not reached, and why.
    pub unreachable: BTreeMap<String, HostFailure>,
    /// The task at work.
    pub current: Option<CurrentTask>,
    /// Ansible's own counts, once the playbook has come to its end.
    pub stats: Option<BTreeMap<String, Stats>>,
    /// Whether it waits between two tasks.
    pub paused: bool,
    /// Whether it ended between two tasks because it was asked to.
    pub stopped: bool,
    /// How many events are missing.
    pub lost: u64,
    /// The number of the last event.
    pub sequence: u64,
}

/// Counts of task results.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Done without a change.
    pub ok: u32,
    /// Done with a change.
    pub changed: u32,
    /// Skipped.
    pub skipped: u32,
    /// Failed.
    pub failed: u32,
    /// Not reached.
    pub unreachable: u32,
}

impl From<Counts> for Results {
    fn from(counts: Counts) -> Self {
        let words = [
            ("ok", counts.ok),
            ("changed", counts.changed),
            ("skipped", counts.skipped),
            ("failed", counts.failed),
            ("unreachable", counts.unreachable),
        ];
        Self(words.map(|(word, count)| (word.to_owned(), count)).into())
    }
}

/// What happened in one play.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayTally {
    /// Its name.
    pub name: String,
    /// The hosts that it is about.
    pub hosts: BTreeSet<String>,
    /// The hosts that a task answered for.
    pub seen: BTreeSet<String>,
    /// How many tasks have started, handlers not counted.
    pub tasks_started: u32,
    /// Whether a task started that every host of the play must answer.
    pub for_all_hosts: bool,
    /// Counts over all hosts.
    pub results: Counts,
}

/// What one task did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskTally {
    /// Its play: an index into [`Tally::plays`].
    pub play: usize,
    /// Its name, with the role's.
    pub name: String,
    /// When it started, in seconds since the epoch.
    pub started: f64,
    /// When its last result came.
    pub last_result: Option<f64>,
    /// Counts over all hosts.
    pub results: Counts,
    /// How often it was tried again, over all hosts.
    pub retries: u32,
    /// How many items of loops are done, over all hosts.
    pub items: u32,
}

/// The task at work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurrentTask {
    /// Its name, with the role's.
    pub name: String,
    /// When it started, in seconds since the epoch.
    pub started: f64,
    /// The hosts that it works on now.
    pub working: BTreeSet<String>,
    /// How many hosts are done.
    pub done: u32,
}

/// Why a host failed or was not reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFailure {
    /// The host.
    pub host: String,
    /// The task's name.
    pub task: String,
    /// Why, for people.
    pub message: String,
    /// What the module said.
    pub why: Why,
}

impl Tally {
    /// Adds up events.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut tally = Self::default();
        for event in events {
            tally.add(event);
        }
        tally
    }

    /// Adds one event. Events come in the order of their numbers; one that was added before is left out.
    pub fn add(&mut self, event: &Event) {
        if event.sequence <= self.sequence {
            return;
        }
        self.lost += event.sequence - self.sequence - 1;
        self.sequence = event.sequence;
        match &event.kind {
            Kind::PlayStart { name, hosts, .. } => self.play_start(name, hosts.as_deref()),
            Kind::TaskStart {
                name,
                handler,
                run_once,
                ..
            } => self.task_start(event.time, name, *handler, *run_once),
            Kind::HostStart { host, .. } => self.host_start(host),
            Kind::Retry { .. } => self.task(|task| task.retries += 1),
            Kind::Item { .. } => self.task(|task| task.items += 1),
            Kind::Paused { .. } => self.paused = true,
            Kind::Resumed { .. } => self.paused = false,
            Kind::Stopped { .. } => {
                self.paused = false;
                self.stopped = true;
            }
            Kind::Stats { hosts } => self.end(hosts),
            kind => self.result(event.time, kind),
        }
    }

    /// Counts over all hosts.
    pub fn results(&self) -> Counts {
        self.plays.iter().fold(Counts::default(), |sum, play| {
            let one = play.results;
            Counts {
                ok: sum.ok + one.ok,
                changed: sum.changed + one.changed,
                skipped: sum.skipped + one.skipped,
                failed: sum.failed + one.failed,
                unreachable: sum.unreachable + one.unreachable,
            }
        })
    }

    /// How many tasks have started, handlers not counted.
    pub fn tasks_started(&self) -> u32 {
        self.plays.iter().map(|play| play.tasks_started).sum()
    }

    /// Whether the playbook came to its end, whatever happened to its hosts.
    pub fn ended(&self) -> bool {
        self.stats.is_some()
    }

    fn play_start(&mut self, name: &str, hosts: Option<&[String]>) {
        self.plays.push(PlayTally {
            name: name.to_owned(),
            hosts: hosts.unwrap_or_default().iter().cloned().collect(),
            ..PlayTally::default()
        });
        self.current = None;
    }

    fn task_start(&mut self, time: f64, name: &str, handler: bool, run_once: bool) {
        if let Some(play) = self.plays.last_mut()
            && !handler
        {
            play.tasks_started += 1;
            play.for_all_hosts |= !run_once;
        }
        self.tasks.push(TaskTally {
            play: self.plays.len().saturating_sub(1),
            name: name.to_owned(),
            started: time,
            ..TaskTally::default()
        });
        self.current = Some(CurrentTask {
            name: name.to_owned(),
            started: time,
            ..CurrentTask::default()
        });
    }

    fn host_start(&mut self, host: &str) {
        if let Some(current) = &mut self.current {
            current.working.insert(host.to_owned());
        }
    }

    fn result(&mut self, time: f64, kind: &Kind) {
        let (host, count): (&String, fn(&mut Counts)) = match kind {
            Kind::Ok {
                host,
                changed: true,
                ..
            } => (host, |counts| counts.changed += 1),
            Kind::Ok { host, .. }
            | Kind::Failed {
                host,
                ignored: true,
                ..
            } => (host, |counts| counts.ok += 1),
            Kind::Skipped { host, .. }
            | Kind::Unreachable {
                host,
                ignored: true,
                ..
            } => (host, |counts| counts.skipped += 1),
            Kind::Failed { host, .. } => (host, |counts| counts.failed += 1),
            Kind::Unreachable { host, .. } => (host, |counts| counts.unreachable += 1),
            _ => return,
        };
        count(self.hosts.entry(host.clone()).or_default());
        if let Some(play) = self.plays.last_mut() {
            play.seen.insert(host.clone());
            count(&mut play.results);
        }
        self.task(|task| {
            count(&mut task.results);
            task.last_result = Some(time);
        });
        if let Some(current) = &mut self.current {
            current.working.remove(host);
            current.done += 1;
        }
        self.remember(kind);
    }

    fn remember(&mut self, kind: &Kind) {
        let failure = |host: &str, task: &str, why: &Why| HostFailure {
            host: host.to_owned(),
            task: task.to_owned(),
            message: why.text(),
            why: why.clone(),
        };
        match kind {
            Kind::Failed {
                host,
                name,
                ignored: false,
                why,
                ..
            } => self.failures.push(failure(host, name, why)),
            Kind::Unreachable {
                host,
                name,
                ignored: false,
                why,
                ..
            } => {
                self.unreachable
                    .insert(host.clone(), failure(host, name, why));
            }
            _ => {}
        }
    }

    /// Ansible's counts say which failures a rescue block mended, and which unreachable hosts were cleared.
    fn end(&mut self, hosts: &BTreeMap<String, Stats>) {
        let has =
            |host: &str, count: fn(&Stats) -> u32| hosts.get(host).is_some_and(|s| count(s) > 0);
        self.failures
            .retain(|failure| has(&failure.host, |s| s.failed));
        self.unreachable
            .retain(|host, _| has(host, |s| s.unreachable));
        self.stats = Some(hosts.clone());
        self.current = None;
    }

    fn task(&mut self, change: impl FnOnce(&mut TaskTally)) {
        if let Some(task) = self.tasks.last_mut() {
            change(task);
        }
    }
}
