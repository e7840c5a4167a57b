//! People who meddle at random edges, in runs that are killed at random edges, over a journal in a file.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use api::run::{
    Control, DesiredState, FailureClass, OnBreach, Record, RecordEvent, RequestAction, RunPhase,
    StepPhase,
};
use proptest::prelude::*;
use tokio::sync::watch;
use workflow::{
    CheckedPlan, FileJournal, JournalStore, Observer, Outcome, State, Steering,
    journal::JournalError,
};

use crate::{
    crash::prove,
    world::{Act, World, life_with, plan_beside, request},
};

/// What a person does once a record appears.
#[derive(Clone, Copy, Debug)]
enum Meddling {
    Pause,
    Resume,
    Cancel,
    RunUntil(usize),
    Approve,
    Retry,
    /// Of a step, by its place.
    Skip(usize),
}

/// What is left of the record that a runner was writing when it died.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    All,
    /// So many bytes of its line, or all but the last where it is shorter.
    Bytes(u64),
}

/// One life of a runner: killed at that append, if it gets so far.
#[derive(Clone, Debug)]
struct Life {
    appends: usize,
    left: Left,
    /// What people do, and after how many more records.
    meddling: Vec<(usize, Meddling)>,
}

#[derive(Clone, Debug)]
struct Case {
    steps: Vec<serde_json::Value>,
    acts: Vec<Vec<Act>>,
    lives: Vec<Life>,
    parallelism: u8,
}

/// A journal in a file whose writer dies in the middle of an append.
struct Dying {
    journal: FileJournal,
    path: PathBuf,
    appends: usize,
    left: Left,
}

impl JournalStore for Dying {
    fn load(&mut self) -> Result<Vec<Record>, JournalError> {
        self.journal.load()
    }

    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        if self.appends > 0 {
            self.appends -= 1;
            return self.journal.append(record);
        }
        let before = std::fs::metadata(&self.path).unwrap().len();
        self.journal.append(record)?;
        let file = File::options().write(true).open(&self.path).unwrap();
        let whole = file.metadata().unwrap().len();
        let length = match self.left {
            Left::Nothing => before,
            Left::All => whole,
            Left::Bytes(bytes) => (before + bytes).min(whole - 1),
        };
        file.set_len(length).unwrap();
        Err(JournalError::Refused("killed".into()))
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.journal.replace(records)
    }
}

/// People at a run: they do what they meant to do, and in the end do not leave it waiting for them.
struct People {
    steps: Vec<String>,
    rest: std::vec::IntoIter<(usize, Meddling)>,
    next: Option<(usize, Meddling)>,
    control: Control,
    controls: Option<watch::Sender<Steering>>,
}

impl People {
    fn new(plan: &CheckedPlan, control: Control, meddling: Vec<(usize, Meddling)>) -> Self {
        let mut rest = meddling.into_iter();
        Self {
            steps: plan.steps().iter().map(|step| step.id.clone()).collect(),
            next: rest.next(),
            rest,
            control,
            controls: None,
        }
    }

    fn ask(&mut self, action: RequestAction, step: Option<&str>) {
        let id = format!("{}", self.control.requests.len());
        let reason = Some("by hand");
        self.control
            .requests
            .push(request(&id, action, step, reason));
    }

    fn meddle(&mut self, meddling: Meddling) {
        let step = |steps: &[String], at: usize| steps[at % steps.len()].clone();
        match meddling {
            Meddling::Pause => self.control.state = Some(DesiredState::Paused),
            Meddling::Resume => self.go(),
            Meddling::Cancel => self.control.state = Some(DesiredState::Cancelled),
            Meddling::RunUntil(at) => self.control.run_until = Some(step(&self.steps, at)),
            Meddling::Approve => self.ask(RequestAction::Approve, None),
            Meddling::Retry => self.ask(RequestAction::Retry, None),
            Meddling::Skip(at) => {
                let step = step(&self.steps, at);
                self.ask(RequestAction::Skip, Some(&step));
            }
        }
    }

    fn go(&mut self) {
        if self.control.state != Some(DesiredState::Cancelled) {
            self.control.state = None;
        }
        self.control.run_until = None;
    }

    /// Does what a run that waits for people, or has failed, asks for.
    fn help(&mut self, phase: RunPhase) {
        self.go();
        match phase {
            RunPhase::Waiting => self.ask(RequestAction::Approve, None),
            RunPhase::Paused | RunPhase::Failed => self.ask(RequestAction::Retry, None),
            _ => {}
        }
    }

    fn steering(&self) -> Steering {
        Steering {
            control: self.control.clone(),
            ..Steering::default()
        }
    }
}

impl Observer for &mut People {
    fn recorded(&mut self, record: &Record, state: &State) {
        let before = self.control.clone();
        let meddles = matches!(self.next, Some((0, _)));
        if let Some((0, meddling)) = self.next {
            self.meddle(meddling);
            self.next = self.rest.next();
        } else if let Some((wait, _)) = &mut self.next {
            *wait -= 1;
        }
        // Who waits now waits for ever. An answer to a request is no reason to ask again, unless another step has failed too.
        let edge = matches!(
            record.event,
            RecordEvent::RunStarted
                | RecordEvent::RunPaused
                | RecordEvent::RunResumed
                | RecordEvent::StepWaiting
                | RecordEvent::StepRetried
        );
        let waits = matches!(state.phase(), RunPhase::Paused | RunPhase::Waiting);
        if waits && (edge || meddles) {
            self.help(state.phase());
        }
        if let Some(controls) = self.controls.as_ref().filter(|_| before != self.control) {
            controls.send_replace(self.steering());
        }
    }
}

/// A run from its first runner to its last, which nobody kills.
async fn lived(plan: &CheckedPlan, world: &World, lives: Vec<Life>, path: &Path) -> State {
    let mut control = Control::default();
    let mut shortest = 0;
    for Life {
        appends,
        left,
        meddling,
    } in lives
    {
        let mut people = People::new(plan, control.clone(), meddling);
        let dying = Dying {
            journal: FileJournal::open(path).unwrap(),
            path: path.to_owned(),
            appends,
            left,
        };
        // A life that is killed ends in an error.
        let _ = attend(plan, world, dying, &mut people).await;
        control = people.control;
        // What was durable once stays, whatever happened to the line after it.
        let kept = FileJournal::open(path).unwrap().load().unwrap();
        assert!(kept.len() >= shortest, "records are lost");
        shortest = kept.len();
    }
    // People help it on until it is over: every script has an end.
    loop {
        let records = FileJournal::open(path).unwrap().load().unwrap();
        let state = State::replay(plan, &records).unwrap();
        if state.is_over() {
            return state;
        }
        let mut people = People::new(plan, control.clone(), Vec::new());
        people.help(state.phase());
        let immortal = Dying {
            journal: FileJournal::open(path).unwrap(),
            path: path.to_owned(),
            appends: usize::MAX,
            left: Left::All,
        };
        attend(plan, world, immortal, &mut people).await.unwrap();
        control = people.control;
    }
}

async fn attend(
    plan: &CheckedPlan,
    world: &World,
    journal: Dying,
    people: &mut People,
) -> Result<Outcome, workflow::RunError> {
    let (sender, controls) = watch::channel(people.steering());
    people.controls = Some(sender);
    life_with(plan, world, journal, people, controls).await
}

/// What holds whatever people and crashes did.
fn prove_meddled(plan: &CheckedPlan, world: &World, state: &State) {
    let records = state.records();
    let done = world.done();
    for (step, now) in plan.steps().iter().zip(state.steps()) {
        let of = |event| {
            let own = records.iter().filter(move |record| record.event == event);
            own.filter(|record| record.step.as_ref() == Some(&step.id))
        };
        let succeeded = of(RecordEvent::StepSucceeded).count();
        let skipped = of(RecordEvent::StepSkipped).count();
        assert!(succeeded + skipped <= 1, "{} ended twice", step.id);
        if now.phase == StepPhase::Succeeded && step.id != APPROVAL {
            assert!(done.contains(&step.id), "{} was never done", step.id);
        }
        let (started, ended) = (of(RecordEvent::StepStarted), |event| of(event).count());
        let ends = [
            RecordEvent::StepSucceeded,
            RecordEvent::StepFailed,
            RecordEvent::StepInterrupted,
            RecordEvent::StepWaiting,
        ];
        let ends: usize = ends.map(ended).iter().sum();
        assert_eq!(started.count(), ends, "{} was started and lost", step.id);
    }
    let last = records.last().map(|record| record.event);
    match state.phase() {
        RunPhase::Succeeded => assert!(
            state
                .steps()
                .iter()
                .all(workflow::state::StepState::is_done)
        ),
        RunPhase::Cancelled => assert_eq!(last, Some(RecordEvent::RunCancelled)),
        phase => unreachable!("the run ended {phase:?}"),
    }
}

/// The step that waits for people, where a plan has one.
const APPROVAL: &str = "approval";

fn steps() -> impl Strategy<Value = Vec<serde_json::Value>> {
    let step = (
        prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        prop::option::of(0..2_u8),
        0..2_u8,
        any::<bool>(),
        prop::option::of(any::<bool>()),
        prop_oneof![3 => Just(vec!["a", "b"]), 1 => Just(vec!["a"]), 1 => Just(vec!["b"]), 1 => Just(vec![])],
    );
    (prop::collection::vec(step, 1..8), prop::option::of(0..8_usize)).prop_map(|(all, approval)| {
        let mut steps: Vec<_> = Vec::new();
        let mut ids: Vec<String> = Vec::new();
        for (at, (on, batch, retries, never, pauses, targets)) in all.into_iter().enumerate() {
            let id = if approval == Some(at) { APPROVAL.to_owned() } else { format!("s{at}") };
            let on: Vec<_> = on.iter().filter(|_| at > 0).map(|on| ids[on.index(at)].clone()).collect();
            let on_breach = if pauses == Some(true) { OnBreach::Pause } else { OnBreach::Fail };
            let mut step = serde_json::json!({
                "id": id, "dependsOn": on, "targets": targets, "retry": {"limit": retries},
                "gate": pauses.map(|_| serde_json::json!({"unreachable": 0, "onBreach": on_breach})),
                "batch": batch.map(|batch| batch.to_string()),
                "interrupt": if never { "Never" } else { "AtTask" },
            });
            if id == APPROVAL {
                step["action"] = serde_json::json!({"approve": {"question": "go on?"}});
            }
            ids.push(id);
            steps.push(step);
        }
        steps
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Fail(FailureClass::Transient)),
        Just(Act::Fail(FailureClass::Permanent)),
        Just(Act::Fail(FailureClass::External)),
        Just(Act::Unreachable("a")),
        Just(Act::Without("b")),
        Just(Act::Work),
    ]
}

fn meddling() -> impl Strategy<Value = Meddling> {
    prop_oneof![
        3 => Just(Meddling::Pause),
        3 => Just(Meddling::Resume),
        1 => Just(Meddling::Cancel),
        2 => (0..8_usize).prop_map(Meddling::RunUntil),
        2 => Just(Meddling::Approve),
        3 => Just(Meddling::Retry),
        1 => (0..8_usize).prop_map(Meddling::Skip),
    ]
}

fn left() -> impl Strategy<Value = Left> {
    prop_oneof![
        Just(Left::Nothing),
        Just(Left::All),
        (1..400_u64).prop_map(Left::Bytes),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let life = (
        0..20_usize,
        left(),
        prop::collection::vec((0..6_usize, meddling()), 0..5),
    );
    let life = life.prop_map(|(appends, left, meddling)| Life {
        appends,
        left,
        meddling,
    });
    (
        steps(),
        prop::collection::vec(prop::collection::vec(act(), 0..3), 8),
        prop::collection::vec(life, 0..5),
        1..4_u8,
    )
        .prop_map(|(steps, acts, lives, parallelism)| Case {
            steps,
            acts,
            lives,
            parallelism,
        })
}

/// Every record is synced: where there is a file system in memory, that costs nothing.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn whatever_people_and_crashes_do_no_step_is_lost_or_done_twice(case in case()) {
        let Case { steps, acts, lives, parallelism } = case;
        let plan = plan_beside(parallelism, &serde_json::to_string(&steps).unwrap());
        let world = plan.steps().iter().zip(acts).fold(World::default(), |world, (step, acts)| world.script(&step.id, &acts));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let directory = directory();
        let path = directory.path().join("journal.jsonl");
        let state = runtime.block_on(lived(&plan, &world, lives, &path));
        prove(&plan, state.records());
        prove_meddled(&plan, &world, &state);
        // What is over stays over, whatever is asked of it.
        let mut people = People::new(&plan, Control::default(), Vec::new());
        people.ask(RequestAction::Retry, None);
        people.ask(RequestAction::Skip, Some(&plan.steps()[0].id));
        let again = Dying { journal: FileJournal::open(&path).unwrap(), path: path.clone(), appends: usize::MAX, left: Left::All };
        runtime.block_on(attend(&plan, &world, again, &mut people)).unwrap();
        prop_assert_eq!(FileJournal::read(&path).unwrap(), state.records());
    }
}
