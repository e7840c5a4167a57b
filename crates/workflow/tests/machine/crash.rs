//! Kills at every journal edge: nothing runs twice to success, nothing is lost, the order holds.

use std::time::Duration;

use api::run::{DesiredState, FailureClass, Record, RecordEvent, RequestAction, RunPhase};
use proptest::prelude::*;
use workflow::{
    CheckedPlan, JournalStore, MemoryJournal, Outcome, State, Steering, runner::end_without_runner,
    state::checkpoint::LONGEST,
};

use crate::world::{
    Act, Epoch, Mortal, Person, World, asking, life, plan, plan_beside, request, wanting,
};

/// Lives of one run: each but the last is killed at its n-th append, the record lost or kept.
async fn survives(
    plan: &CheckedPlan,
    world: World,
    kills: &[(usize, bool)],
    controls: Steering,
) -> MemoryJournal {
    let journal = MemoryJournal::default();
    for (lives, lost) in kills.iter().copied().chain([(usize::MAX, false)]) {
        let mortal = Mortal {
            journal: journal.clone(),
            lives,
            lost,
        };
        let mut approved = controls.clone();
        let approval = request("approval", RequestAction::Approve, None, None);
        approved.control.requests.push(approval);
        let waits = |record: &api::run::Record| record.event == RecordEvent::StepWaiting;
        let asked = journal.records().iter().any(waits);
        let start = if asked { &approved } else { &controls }.clone();
        let person = Person {
            rules: vec![(RecordEvent::StepWaiting, approved)],
            controls: None,
        };
        // Every life but the last ends in an error: it is killed.
        let _ = life(plan, &world, mortal, person, start).await;
    }
    prove(plan, &journal.records());
    journal
}

/// What holds for every journal that no runner is at work on.
pub fn prove(plan: &CheckedPlan, records: &[Record]) {
    let state = State::replay(plan, records).expect("every transition is legal");
    for step in plan.steps() {
        let ends = |event| {
            records
                .iter()
                .filter(|r| r.event == event && r.step.as_ref() == Some(&step.id))
                .count()
        };
        assert!(
            ends(RecordEvent::StepSucceeded) <= 1,
            "{} succeeded twice",
            step.id
        );
        let first = |id: &str, event| {
            records
                .iter()
                .position(|r| r.event == event && r.step.as_deref() == Some(id))
        };
        if let Some(started) = first(&step.id, RecordEvent::StepStarted) {
            for dependency in &step.depends_on {
                let done = first(dependency, RecordEvent::StepSucceeded)
                    .or(first(dependency, RecordEvent::StepSkipped));
                assert!(
                    done.is_some_and(|done| done < started),
                    "{} before {dependency}",
                    step.id
                );
            }
        }
    }
    prove_checkpoints(plan, &state);
    let mut answers: Vec<_> = records.iter().filter_map(|r| r.request.clone()).collect();
    let total = answers.len();
    answers.sort();
    answers.dedup();
    assert_eq!(answers.len(), total, "a request was carried out twice");
    assert!(state.first(api::run::StepPhase::Running).is_none());
    let status = workflow::status::derive(plan, &state, &workflow::status::Live::default());
    let succeeded = state.phase() == api::run::RunPhase::Succeeded;
    assert_eq!(status.progress == Some(100), succeeded);
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready");
    assert_eq!(ready.map(|ready| ready.status == "True"), Some(succeeded));
    assert_eq!(
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == "Stalled"),
        !succeeded
    );
}

/// Wherever a checkpoint takes the place of the oldest records, the run stands as it stood, for runners and for people.
fn prove_checkpoints(plan: &CheckedPlan, state: &State) {
    let shown = |state: &State| {
        let mut status = workflow::status::derive(plan, state, &workflow::status::Live::default());
        status.history.clear();
        status
    };
    for kept in 0..state.records().len() {
        let short = state.checkpointed(plan, kept).unwrap().unwrap();
        assert_eq!(short.records().len(), kept + 1);
        assert_eq!(short.checkpoint(plan), state.checkpoint(plan));
        assert_eq!(short.next_sequence(), state.next_sequence());
        assert_eq!(shown(&short), shown(state));
        let again = short.checkpointed(plan, kept.saturating_sub(1)).unwrap();
        let again = again.unwrap_or(short);
        assert_eq!(again.checkpoint(plan), state.checkpoint(plan));
    }
}

/// Each runner is killed some edges after it took the run up: before, while and after it compacts the journal too.
#[tokio::test(start_paused = true)]
async fn a_run_whose_runner_dies_a_thousand_times_stays_small_and_ends() {
    let plan = plan(r#"[{"id":"a"},{"id":"b","dependsOn":["a"]},{"id":"c"}]"#);
    let journal = MemoryJournal::default();
    let world = World::default().script("b", &vec![Act::Hang; 2000]);
    let asked = asking(vec![request("1", RequestAction::Retry, Some("c"), None)]);
    let mut last = 0;
    for number in 0..1000_usize {
        let mortal = Mortal {
            journal: journal.clone(),
            lives: number % 7,
            lost: number % 2 == 0,
        };
        let life = life(&plan, &world, mortal, Person::default(), asked.clone());
        // Killed at an edge, or else at work.
        let killed = tokio::time::timeout(Duration::from_secs(10), life).await;
        assert!(!matches!(killed, Ok(Ok(_))), "{killed:?}");
        let records = journal.records();
        assert!(records.len() <= LONGEST + 1, "{} records", records.len());
        let now = records.last().map_or(0, |record| record.sequence);
        assert!(now >= last, "numbers do not go back");
        last = now;
    }
    assert!(last > 2048, "more than the schema takes: {last} records");
    let records = journal.records();
    assert_eq!(records[0].event, RecordEvent::Checkpoint);

    // It can be ended without a runner, from what the API has of it, ...
    let state = State::replay(&plan, &records).unwrap();
    let status = workflow::status::derive(&plan, &state, &workflow::status::Live::default());
    let cancelled = wanting(DesiredState::Cancelled);
    let ended = end_without_runner(&plan, &status.history, &cancelled, &Epoch);
    assert_eq!(ended.unwrap().unwrap().phase(), RunPhase::Cancelled);
    // ... and by one, which does nothing twice.
    let done = world.done();
    world.scripts.lock().unwrap().clear();
    let mortal = Mortal {
        journal: journal.clone(),
        lives: usize::MAX,
        lost: false,
    };
    let outcome = life(&plan, &world, mortal, Person::default(), asked).await;
    assert_eq!(outcome.unwrap(), Outcome::Succeeded);
    assert_eq!(world.done()[done.len()..], ["b", "c"]);
    let records = journal.records();
    assert!(
        records.iter().all(|record| record.request.is_none()),
        "answered once, long ago"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_killed_at_every_edge_ends_as_the_undisturbed_one() {
    let steps = r#"[{"id":"a"},{"id":"b","dependsOn":["a"],"retry":{"limit":2}},{"id":"c","batch":"x"},{"id":"d","batch":"x","dependsOn":["c"]},
            {"id":"ok","action":{"approve":{"question":"go on?"}}},{"id":"e","dependsOn":["b","d","ok"]},{"id":"f"}]"#;
    for parallelism in 1..=3 {
        kill_at_every_edge(&plan_beside(parallelism, steps)).await;
    }
}

async fn kill_at_every_edge(plan: &CheckedPlan) {
    let world = || {
        World::default()
            .script("b", &[Act::Fail(FailureClass::Transient)])
            .script("e", &vec![Act::Fail(FailureClass::Permanent); 9])
    };
    let controls = asking(vec![request(
        "1",
        RequestAction::Skip,
        Some("f"),
        Some("not needed"),
    )]);
    let undisturbed = survives(plan, world(), &[], controls.clone()).await;
    let undisturbed_state = State::replay(plan, &undisturbed.records()).unwrap();
    assert_eq!(undisturbed_state.phase(), api::run::RunPhase::Failed);
    for kill in 0..undisturbed.records().len() + 2 {
        for lost in [true, false] {
            for second in 0..4 {
                let journal = survives(
                    plan,
                    world(),
                    &[(kill, lost), (second, !lost)],
                    controls.clone(),
                )
                .await;
                let phases = |j: &MemoryJournal| {
                    let state = State::replay(plan, &j.records()).unwrap();
                    (
                        state.phase(),
                        state
                            .steps()
                            .iter()
                            .map(|step| step.phase)
                            .collect::<Vec<_>>(),
                    )
                };
                assert_eq!(
                    phases(&journal),
                    phases(&undisturbed),
                    "killed at {kill}, lost {lost}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_graph_with_any_kills_and_passing_failures_succeeds(
        edges in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..3), 1..9),
        batches in prop::collection::vec(prop::option::of(0..2_u8), 9),
        failures in prop::collection::vec(0..3_usize, 9),
        targets in prop::collection::vec(0..4_usize, 9),
        parallelism in 1..4_u8,
        kills in prop::collection::vec((0..12_usize, any::<bool>()), 0..6),
    ) {
        let steps: Vec<_> = edges.iter().enumerate().map(|(at, on)| {
            let on: Vec<_> = on.iter().filter(|_| at > 0).map(|on| format!("s{}", on.index(at))).collect();
            serde_json::json!({"id": format!("s{at}"), "dependsOn": on, "retry": {"limit": 10}, "batch": batches[at].map(|b| b.to_string()),
                "targets": &["a", "b", "c"][..targets[at]]})
        }).rev().collect();
        let plan = plan_beside(parallelism, &serde_json::to_string(&steps).unwrap());
        let world = (0..edges.len()).fold(World::default(), |world, at| {
            world.script(&format!("s{at}"), &vec![Act::Fail(FailureClass::Transient); failures[at]])
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let journal = runtime.block_on(survives(&plan, world.clone(), &kills, Steering::default()));
        let state = State::replay(&plan, &journal.records()).unwrap();
        prop_assert_eq!(state.phase(), api::run::RunPhase::Succeeded);
        prop_assert!(plan.steps().iter().all(|step| world.done().contains(&step.id)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_goes_on_by_a_request_that_is_carried_out_once() {
    let plan = plan(r#"[{"id":"a"},{"id":"b"}]"#);
    let world = World::default().script("a", &[Act::Fail(FailureClass::Permanent)]);
    let journal = MemoryJournal::default();
    let take_up = async |controls| {
        let mortal = Mortal {
            journal: journal.clone(),
            lives: usize::MAX,
            lost: false,
        };
        life(&plan, &world, mortal, Person::default(), controls)
            .await
            .unwrap()
    };
    assert_eq!(take_up(Steering::default()).await, Outcome::Failed);
    let length = journal.records().len();
    assert_eq!(take_up(Steering::default()).await, Outcome::Failed);
    assert_eq!(
        journal.records().len(),
        length,
        "nothing is written without a reason"
    );
    let retry = asking(vec![request("1", RequestAction::Retry, None, None)]);
    assert_eq!(take_up(retry.clone()).await, Outcome::Succeeded);
    assert_eq!(take_up(retry).await, Outcome::Succeeded);
    prove(&plan, &journal.records());
}

/// Wherever a run is left, its end needs no runner, and one that comes after it finds the run over.
#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_executes_ends_where_it_was_left() {
    let steps = r#"[{"id":"a","retry":{"limit":1}},{"id":"ok","action":{"approve":{"question":"go on?"}}},{"id":"b"}]"#;
    let plan = plan(steps);
    let world = World::default().script("a", &[Act::Fail(FailureClass::Transient)]);
    let records = survives(&plan, world, &[], Steering::default())
        .await
        .records();
    let cancelled = wanting(DesiredState::Cancelled);
    for left in 0..records.len() {
        let records = &records[..left];
        let end =
            |steering: &Steering| end_without_runner(&plan, records, steering, &Epoch).unwrap();
        assert_eq!(end(&Steering::default()), None, "nobody wants its end");
        let ended = end(&cancelled).unwrap();
        assert_eq!(ended.phase(), RunPhase::Cancelled);
        assert!(ended.records().starts_with(records));
        prove(&plan, ended.records());

        let again = end_without_runner(&plan, ended.records(), &cancelled, &Epoch).unwrap();
        assert_eq!(again, None, "it has ended");
        let mut journal = MemoryJournal::default();
        for record in ended.records() {
            journal.append(record).unwrap();
        }
        let late = Mortal {
            journal: journal.clone(),
            lives: 0,
            lost: true,
        };
        let world = World::default();
        let outcome = life(&plan, &world, late, Person::default(), cancelled.clone()).await;
        assert_eq!(outcome.unwrap(), Outcome::Cancelled);
        assert_eq!(world.done(), [""; 0]);
    }
    // A run that is over is left as it is.
    assert_eq!(
        end_without_runner(&plan, &records, &cancelled, &Epoch).unwrap(),
        None
    );
}
