//! The main stories, as the journal tells them.

use std::fmt::Write;

use api::run::{Control, DesiredState, FailureClass, RecordEvent, RequestAction};
use workflow::{MemoryJournal, Outcome, Rest, Steering};

use crate::world::{Act, Mortal, Person, World, asking, life, plan_beside, request, wanting};

/// The steps of a plan, and how many of them may run at a time.
struct Steps(u8, &'static str);

impl From<&'static str> for Steps {
    fn from(steps: &'static str) -> Self {
        Self(1, steps)
    }
}

/// A run that rests after a step.
fn resting(after: &str) -> Steering {
    Steering {
        rest: Some(Rest {
            after: after.to_owned(),
            why: "the maintenance window has closed".to_owned(),
        }),
        ..Steering::default()
    }
}

async fn story(
    steps: impl Into<Steps>,
    world: World,
    start: Steering,
    rules: Vec<(RecordEvent, Steering)>,
) -> String {
    let Steps(parallelism, steps) = steps.into();
    let plan = plan_beside(parallelism, steps);
    let journal = MemoryJournal::default();
    let mortal = Mortal {
        journal: journal.clone(),
        lives: usize::MAX,
        lost: false,
    };
    let person = Person {
        rules,
        controls: None,
    };
    let outcome = life(&plan, &world, mortal, person, start).await.unwrap();
    let mut text = String::new();
    for record in journal.records() {
        write!(text, "{:?}", record.event).unwrap();
        let excluded: Vec<_> = record
            .excluded
            .iter()
            .map(|target| target.target.to_string())
            .collect();
        let parts = [
            record.step,
            record.request.map(|id| format!("[{id}]")),
            record.by.map(|by| format!("by {by}")),
            record.detail.map(|detail| format!("({detail})")),
            record
                .failure
                .map(|failure| format!("{}: {}", failure.code, failure.message)),
            (!excluded.is_empty()).then(|| format!("without {}", excluded.join(" "))),
        ];
        parts
            .into_iter()
            .flatten()
            .for_each(|part| write!(text, " {part}").unwrap());
        text.push('\n');
    }
    writeln!(text, "=> {outcome:?}").unwrap();
    text
}

const TARGETS: &str = r#"[{"id":"probe","targets":["a","b","c"],"gate":{"unreachable":1,"onBreach":"Pause"}},{"id":"next","targets":["a","b","c"]}]"#;

/// Two steps side by side, what follows one of them, and what shares a target with both.
const BESIDE: Steps = Steps(
    2,
    r#"[{"id":"left","targets":["a"]},{"id":"right","targets":["b"]},{"id":"left/more","dependsOn":["left"],"targets":["a"]},
        {"id":"both","targets":["a","b"],"dependsOn":["left/more","right"]}]"#,
);

macro_rules! stories {
    ($($name:ident: $steps:expr, $world:expr, $start:expr, $rules:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            insta::assert_snapshot!(story($steps, $world, $start, $rules).await);
        }
    )*};
}

stories! {
    happy: r#"[{"id":"a"},{"id":"b","dependsOn":["a"]}]"#, World::default(), Steering::default(), vec![];
    gate_excludes: TARGETS, World::default().script("probe", &[Act::Without("b")]), Steering::default(), vec![];
    gate_tries_again_without: TARGETS, World::default().script("probe", &[Act::Unreachable("b")]), Steering::default(), vec![];
    gate_pauses_and_a_retry_resumes: TARGETS, World::default().script("probe", &[Act::Unreachable("b c")]), Steering::default(),
        vec![(RecordEvent::RunPaused, asking(vec![request("1", RequestAction::Retry, None, Some("hosts are back"))]))];
    retry_passes: r#"[{"id":"a","retry":{"limit":1}}]"#, World::default().script("a", &[Act::Fail(FailureClass::Transient)]), Steering::default(), vec![];
    retry_runs_out: r#"[{"id":"a","retry":{"limit":1}}]"#,
        World::default().script("a", &[Act::Fail(FailureClass::External), Act::Fail(FailureClass::External)]), Steering::default(), vec![];
    a_remedy_helps_without_a_retry: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Mend(true), Act::Mend(true)]),
        Steering::default(), vec![];
    a_remedy_that_does_not_help_changes_nothing: r#"[{"id":"a"}]"#, World::default().script("a", &[Act::Mend(true), Act::Mend(false)]),
        Steering::default(), vec![(RecordEvent::RunFailed, asking(vec![request("1", RequestAction::Retry, None, None)]))];
    config_fails_at_once: r#"[{"id":"a","retry":{"limit":5}}]"#, World::default().script("a", &[Act::Fail(FailureClass::Config)]), Steering::default(), vec![];
    timeout: r#"[{"id":"a","timeout":"5m"}]"#, World::default().script("a", &[Act::Hang]), Steering::default(), vec![];
    cancel_at_a_task: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, wanting(DesiredState::Cancelled))];
    cancel_waits_for_a_step_that_never_stops: r#"[{"id":"a","interrupt":"Never"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, wanting(DesiredState::Cancelled))];
    pause_at_a_task_and_resume: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, wanting(DesiredState::Paused)), (RecordEvent::RunPaused, wanting(DesiredState::Running))];
    pause_again_as_it_resumes: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, wanting(DesiredState::Paused)), (RecordEvent::RunPaused, wanting(DesiredState::Running)),
            (RecordEvent::RunResumed, wanting(DesiredState::Paused)), (RecordEvent::RunPaused, wanting(DesiredState::Running))];
    leave_at_a_task: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, Steering { left: Some("it goes on elsewhere".into()), ..Steering::default() })];
    leave_a_paused_step: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, wanting(DesiredState::Paused)),
            (RecordEvent::RunPaused, Steering { left: Some("it goes on elsewhere".into()), ..wanting(DesiredState::Paused) })];
    run_until: r#"[{"id":"a"},{"id":"b"}]"#, World::default(),
        Steering { control: Control { run_until: Some("a".into()), ..Control::default() }, ..Steering::default() },
        vec![(RecordEvent::RunPaused, Steering::default())];
    rest_after_the_step_at_work_and_go_on: r#"[{"id":"a","batch":"x"},{"id":"b","batch":"x"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, resting("a")), (RecordEvent::RunPaused, Steering::default())];
    approve: r#"[{"id":"ok","action":{"approve":{"question":"go on?"}}},{"id":"b","dependsOn":["ok"]}]"#, World::default(), Steering::default(),
        vec![(RecordEvent::StepWaiting, asking(vec![request("1", RequestAction::Approve, None, None)]))];
    skip_and_refusals: r#"[{"id":"a"},{"id":"b"}]"#, World::default(),
        asking(vec![request("1", RequestAction::Skip, Some("a"), None), request("2", RequestAction::Approve, None, None),
            request("3", RequestAction::Retry, Some("zz"), None), request("4", RequestAction::Skip, Some("a"), Some("done by hand"))]), vec![];
    supersede: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, Steering { superseded: Some("the version changed".into()), ..Steering::default() })];
    side_by_side: BESIDE, World::default().script("right", &[Act::Work]), Steering::default(), vec![];
    side_by_side_pause_and_resume: BESIDE, World::default().script("left", &[Act::Work]).script("right", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, Steering::default()), (RecordEvent::StepStarted, wanting(DesiredState::Paused)),
            (RecordEvent::RunPaused, wanting(DesiredState::Running))];
    side_by_side_cancel: BESIDE, World::default().script("left", &[Act::Work]).script("right", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, Steering::default()), (RecordEvent::StepStarted, wanting(DesiredState::Cancelled))];
    side_by_side_one_fails: BESIDE, World::default().script("left", &[Act::Fail(FailureClass::Config)]).script("right", &[Act::Work]),
        Steering::default(), vec![];
    side_by_side_one_fails_and_is_retried_at_once: BESIDE, World::default().script("left", &[Act::Fail(FailureClass::Config)]).script("right", &[Act::Work]),
        Steering::default(), vec![(RecordEvent::StepFailed, asking(vec![request("1", RequestAction::Retry, None, None)]))];
    side_by_side_timeout: Steps(2, r#"[{"id":"a","timeout":"5m"},{"id":"b","timeout":"7m"}]"#),
        World::default().script("a", &[Act::Hang]).script("b", &[Act::Hang]), Steering::default(), vec![];
    side_by_side_one_never_stops: Steps(2, r#"[{"id":"a","interrupt":"Never"},{"id":"b"},{"id":"c"}]"#),
        World::default().script("a", &[Act::Work]).script("b", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, Steering::default()), (RecordEvent::StepStarted, wanting(DesiredState::Paused)),
            (RecordEvent::RunPaused, wanting(DesiredState::Running))];
    side_by_side_approve: Steps(2, r#"[{"id":"a"},{"id":"ok","action":{"approve":{"question":"go on?"}}},{"id":"b"},{"id":"c","dependsOn":["ok"]}]"#),
        World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepWaiting, asking(vec![request("1", RequestAction::Approve, None, None)]))];
    side_by_side_leave: BESIDE, World::default().script("left", &[Act::Work]).script("right", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, Steering::default()),
            (RecordEvent::StepStarted, Steering { left: Some("it goes on elsewhere".into()), ..Steering::default() })];
}

/// The bound is used, and not more than that.
#[tokio::test(start_paused = true)]
async fn as_many_steps_as_the_plan_lets_run_side_by_side() {
    let steps: Vec<_> = (0..7).map(|at| format!(r#"{{"id":"s{at}"}}"#)).collect();
    let steps = format!("[{}]", steps.join(","));
    for bound in 1..=4_u8 {
        let work = |world: World, at| world.script(&format!("s{at}"), &[Act::Work]);
        let world = (0..7).fold(World::default(), work);
        let mortal = Mortal {
            journal: MemoryJournal::default(),
            lives: usize::MAX,
            lost: false,
        };
        let (plan, person) = (plan_beside(bound, &steps), Person::default());
        let outcome = life(&plan, &world, mortal, person, Steering::default()).await;
        assert_eq!(outcome.unwrap(), Outcome::Succeeded);
        assert_eq!(world.most_at_work(), usize::from(bound));
    }
}
