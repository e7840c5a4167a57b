//! A simulated world: steps that leave a mark, outcomes by script, and a journal that can refuse.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::run::{
    Applied, Control, DesiredState, Exclusion, Failure, FailureClass, Plan, Record, RecordEvent,
    Request, RequestAction, Results, Step,
};
use jiff::Timestamp;
use tokio::sync::watch;
use workflow::{
    CheckedPlan, Clock, Executor, JournalStore, MemoryJournal, Observer, Outcome, RunError, Signal,
    State, Steering, StepContext, StepOutcome,
    journal::JournalError,
    runner::{self, Runner, STOP_GRACE},
};

/// What a step does at one attempt; without a script it succeeds.
#[derive(Clone, Debug)]
pub enum Act {
    Fail(FailureClass),
    Unreachable(&'static str),
    /// Succeeds, but some targets did not answer.
    Without(&'static str),
    /// Works until it is told to stop; holds when told to pause.
    Work,
    Hang,
    /// Fails after something was done about it, which helped or did not. It is done once for a target.
    Mend(bool),
}

#[derive(Clone, Debug, Default)]
pub struct World {
    pub scripts: Arc<Mutex<HashMap<String, Vec<Act>>>>,
    pub done: Arc<Mutex<Vec<String>>>,
    pub calls: Arc<Mutex<Vec<Vec<String>>>>,
    /// The steps at work, and the most that there ever were.
    at_work: Arc<Mutex<(Vec<Step>, usize)>>,
}

/// A step at work, until it is dropped.
struct AtWork<'a>(&'a World, String);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut at_work = self.0.at_work.lock().unwrap();
        at_work.0.retain(|step| step.id != self.1);
    }
}

impl World {
    pub fn script(self, step: &str, acts: &[Act]) -> Self {
        self.scripts
            .lock()
            .unwrap()
            .insert(step.to_owned(), acts.to_vec());
        self
    }

    pub fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }

    /// The most steps that ever were at work at a time.
    pub fn most_at_work(&self) -> usize {
        self.at_work.lock().unwrap().1
    }

    fn begin(&self, step: &Step) -> AtWork<'_> {
        let (at_work, most) = &mut *self.at_work.lock().unwrap();
        for other in at_work.iter() {
            assert_ne!(other.id, step.id, "a step beside itself");
            let shared = CheckedPlan::share_targets(other, step);
            assert!(!shared, "{} beside {}", other.id, step.id);
        }
        at_work.push(step.clone());
        *most = at_work.len().max(*most);
        AtWork(self, step.id.clone())
    }

    async fn act(&self, step: &Step, context: &mut StepContext) -> StepOutcome {
        let _at_work = self.begin(step);
        let act = {
            let mut scripts = self.scripts.lock().unwrap();
            scripts
                .get_mut(&step.id)
                .filter(|acts| !acts.is_empty())
                .map(|acts| acts.remove(0))
        };
        let results = Results::default();
        match act {
            Some(Act::Fail(class)) => StepOutcome::Failed {
                failure: failure(class),
                results,
                unreachable: Vec::new(),
                remedies: Vec::new(),
            },
            Some(Act::Unreachable(targets)) => StepOutcome::Failed {
                failure: failure(FailureClass::External),
                results,
                unreachable: lost(targets),
                remedies: Vec::new(),
            },
            Some(Act::Mend(helped)) => StepOutcome::Failed {
                failure: failure(FailureClass::External),
                results,
                unreachable: Vec::new(),
                remedies: vec![mended(&context.remedied, helped)],
            },
            Some(Act::Work) => {
                if let Some(outcome) = work(step, context).await {
                    return outcome;
                }
                self.succeed(step, Vec::new())
            }
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::Without(targets)) => self.succeed(step, lost(targets)),
            None => self.succeed(step, Vec::new()),
        }
    }

    fn succeed(&self, step: &Step, unreachable: Vec<Exclusion>) -> StepOutcome {
        self.done.lock().unwrap().push(step.id.clone());
        StepOutcome::Succeeded {
            results: Results::default(),
            unreachable,
            detail: None,
        }
    }
}

async fn work(step: &Step, context: &mut StepContext) -> Option<StepOutcome> {
    loop {
        let signal = *context.signal.borrow_and_update();
        match signal {
            Signal::Stop => return Some(StepOutcome::Interrupted { detail: None }),
            Signal::Pause => context.reporter.held(&step.id).await.ok()?,
            Signal::Continue if context.attempt == 0 => return None,
            Signal::Continue => {}
        }
        let changed = tokio::time::timeout(Duration::from_secs(100), context.signal.changed());
        if changed.await.is_err() && signal == Signal::Continue {
            return None;
        }
    }
}

impl Executor for World {
    async fn execute(&self, steps: Vec<Step>, mut context: StepContext) {
        let ids = steps.iter().map(|step| step.id.clone()).collect();
        self.calls.lock().unwrap().push(ids);
        for step in steps {
            if context.reporter.started(&step.id).await.is_err() {
                return;
            }
            let outcome = self.act(&step, &mut context).await;
            let succeeded = matches!(outcome, StepOutcome::Succeeded { .. });
            if context.reporter.finished(&step.id, outcome).await.is_err() || !succeeded {
                return;
            }
            if *context.signal.borrow() != Signal::Continue {
                return;
            }
        }
    }
}

/// A journal that dies at the n-th append, before or after it reached the disk.
pub struct Mortal {
    pub journal: MemoryJournal,
    pub lives: usize,
    pub lost: bool,
}

impl JournalStore for Mortal {
    fn load(&mut self) -> Result<Vec<Record>, JournalError> {
        self.journal.load()
    }

    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        if self.lives == 0 {
            if !self.lost {
                self.journal.append(record)?;
            }
            return Err(JournalError::Refused("killed".into()));
        }
        self.lives -= 1;
        self.journal.append(record)
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if self.lives == 0 {
            if !self.lost {
                self.journal.replace(records)?;
            }
            return Err(JournalError::Refused("killed".into()));
        }
        self.lives -= 1;
        self.journal.replace(records)
    }
}

pub struct Epoch;

impl Clock for Epoch {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

/// Changes the controls as a person would: when a record of this kind appears, the first rule for it that is left.
#[derive(Default)]
pub struct Person {
    pub rules: Vec<(RecordEvent, Steering)>,
    pub controls: Option<watch::Sender<Steering>>,
}

impl Observer for Person {
    fn recorded(&mut self, record: &Record, _: &State) {
        let rule = self
            .rules
            .first()
            .filter(|(event, _)| *event == record.event);
        if let (Some((_, steering)), Some(controls)) = (rule, &self.controls) {
            controls.send_replace(steering.clone());
            self.rules.remove(0);
        }
    }
}

pub async fn life(
    plan: &CheckedPlan,
    world: &World,
    journal: Mortal,
    mut person: Person,
    start: Steering,
) -> Result<Outcome, RunError> {
    let (sender, controls) = watch::channel(start);
    person.controls = Some(sender);
    life_with(plan, world, journal, person, controls).await
}

/// One runner, with any journal and anybody who looks on.
pub async fn life_with(
    plan: &CheckedPlan,
    world: &World,
    journal: impl JournalStore,
    observer: impl Observer,
    controls: watch::Receiver<Steering>,
) -> Result<Outcome, RunError> {
    let mut runner = Runner {
        journal,
        executor: world.clone(),
        clock: Epoch,
        observer,
        stop_grace: STOP_GRACE,
    };
    let limit = Duration::from_secs(100_000);
    let run = sendable(runner::run(plan, &mut runner, controls));
    tokio::time::timeout(limit, run)
        .await
        .expect("the run ends")
}

/// Engines spawn runs, so the future must be `Send`.
fn sendable<F: Future + Send>(future: F) -> F {
    future
}

pub fn plan(steps: &str) -> CheckedPlan {
    plan_beside(1, steps)
}

/// A plan of which so many steps may run at a time.
pub fn plan_beside(parallelism: u8, steps: &str) -> CheckedPlan {
    let steps = serde_json::from_str::<Vec<serde_json::Value>>(steps).unwrap();
    let mut lists: Vec<Vec<api::Target>> = Vec::new();
    let targets = steps.iter().map(|step| step.get("targets").cloned());
    lists.extend(
        targets.map(|targets| targets.map_or(Vec::new(), |h| serde_json::from_value(h).unwrap())),
    );
    let (groups, made_of) = workflow::plan::grouped(&[], &lists);
    let steps = steps.into_iter().zip(made_of).map(|(mut step, groups)| {
        let fields = step.as_object_mut().unwrap();
        fields.remove("targets");
        fields.insert("groups".to_owned(), serde_json::json!(groups));
        fields
            .entry("action")
            .or_insert(serde_json::json!({"engine": {"name": "simulated", "type": "Work"}}));
        serde_json::from_value(step).unwrap()
    });
    CheckedPlan::new(Plan {
        steps: steps.collect(),
        groups,
        parallelism: Some(parallelism),
        ..Plan::default()
    })
    .unwrap()
}

pub fn request(
    id: &str,
    action: RequestAction,
    step: Option<&str>,
    reason: Option<&str>,
) -> Request {
    Request {
        id: id.into(),
        action,
        step: step.map(Into::into),
        reason: reason.map(Into::into),
        by: Some("jo".into()),
    }
}

pub fn wanting(state: DesiredState) -> Steering {
    Steering {
        control: Control {
            state: Some(state),
            ..Control::default()
        },
        ..Steering::default()
    }
}

pub fn asking(requests: Vec<Request>) -> Steering {
    Steering {
        control: Control {
            requests,
            ..Control::default()
        },
        ..Steering::default()
    }
}

fn failure(class: FailureClass) -> Failure {
    Failure {
        class,
        code: "Simulated".into(),
        message: "it broke".into(),
        remedy: None,
        targets: Vec::new(),
    }
}

fn mended(before: &[Applied], helped: bool) -> Applied {
    assert!(before.len() < 2, "{before:?}");
    Applied {
        name: format!("Remedy{}", before.len()),
        targets: vec!["a".parse().unwrap()],
        helped,
        said: "something was done".into(),
    }
}

fn lost(targets: &str) -> Vec<Exclusion> {
    let target = |name: &str| Exclusion {
        target: name.parse().unwrap(),
        reason: "timed out".into(),
    };
    targets.split(' ').map(target).collect()
}
