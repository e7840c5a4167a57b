//! The main stories, as the journal tells them.

use std::fmt::Write;

use api::run::{Control, DesiredState, FailureClass, RecordEvent, RequestAction};
use workflow::{MemoryJournal, Steering};

use crate::world::{Act, Mortal, Person, World, asking, life, plan, request, wanting};

async fn story(
    steps: &str,
    world: World,
    start: Steering,
    rules: Vec<(RecordEvent, Steering)>,
) -> String {
    let plan = plan(steps);
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
    approve: r#"[{"id":"ok","action":{"approve":{"question":"go on?"}}},{"id":"b","dependsOn":["ok"]}]"#, World::default(), Steering::default(),
        vec![(RecordEvent::StepWaiting, asking(vec![request("1", RequestAction::Approve, None, None)]))];
    skip_and_refusals: r#"[{"id":"a"},{"id":"b"}]"#, World::default(),
        asking(vec![request("1", RequestAction::Skip, Some("a"), None), request("2", RequestAction::Approve, None, None),
            request("3", RequestAction::Retry, Some("zz"), None), request("4", RequestAction::Skip, Some("a"), Some("done by hand"))]), vec![];
    supersede: r#"[{"id":"a"},{"id":"b"}]"#, World::default().script("a", &[Act::Work]), Steering::default(),
        vec![(RecordEvent::StepStarted, Steering { superseded: Some("the version changed".into()), ..Steering::default() })];
}
