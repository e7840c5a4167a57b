//! Converging on a schedule: when its time has come, in a window, once; and what of a schedule and of a radar is refused.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kubespray::{
    cluster::{decision::Decision, plan, report, resolve},
    operation::converge,
    request::CONVERGE,
};
use serde_json::{Value, from_value, json};

use crate::past::{Past, days, now};

fn converges(schedule: &str) -> Value {
    json!({"operations": {"converge": {"schedule": schedule}}})
}

/// The schedule is written, and the operator sees it at that time.
fn write(past: &mut Past, schedule: &str, seen: Timestamp) {
    past.cluster.spec.operations = from_value(converges(schedule)["operations"].clone()).unwrap();
    see(past, seen);
}

/// A pass remembers the schedule.
fn see(past: &mut Past, seen: Timestamp) {
    let known = converge::schedule(&past.cluster, seen);
    let status = past.cluster.status.get_or_insert_default();
    status.converge_schedule = known;
}

fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

#[tokio::test]
async fn one_begins_when_its_time_has_come_and_is_not_made_up_for_later() {
    let mut past = Past::new(json!({}), &["master", "worker"]).await;
    write(&mut past, "0 23 * * *", now() - days(2));
    past.observed.now = now() - minutes(61);
    assert_eq!(past.rests(), "");
    past.observed.now = now() - minutes(60);
    let new = past.starts();
    assert_eq!((new.operation.name, &new.request), ("Converge", &None));
    let reason = new.plan.reason.clone().unwrap_or_default();
    assert!(
        reason.contains("one was due at 2026-05-31T23:00:00+00:00"),
        "{reason}"
    );
    // Nobody was there to begin it for an hour.
    past.observed.now = now();
    assert_eq!(past.rests(), "");

    past.observed.now = now() - minutes(30);
    past.ran(&new, "Failed", minutes(-31));
    assert!(matches!(past.decision(), Decision::Maintain(..)));
    // It is not repeated before the next time, and then anew.
    past.observed.now = now() + minutes(24 * 60 - 59);
    let next = past.starts();
    assert_ne!(next.name, new.name);
}

#[tokio::test]
async fn a_time_that_had_passed_when_the_schedule_was_written_begins_nothing() {
    let mut past = Past::new(json!({}), &["master"]).await;
    let schedule = converges("0 23 * * *");
    past.cluster.spec.operations = from_value(schedule["operations"].clone()).unwrap();
    past.observed.now = now() - minutes(50);
    assert_eq!(past.rests(), "", "nobody knows since when it stands there");
    let seen = past.observed.now;
    see(&mut past, seen);
    assert_eq!(past.rests(), "");
    // It is remembered once, and not anew with each pass.
    past.observed.now = now() + minutes(23 * 60);
    let seen = past.observed.now;
    see(&mut past, seen);
    assert_eq!(past.starts().operation.name, "Converge");

    // In another zone it is another one.
    let there = json!({"converge": {"schedule": "0 23 * * *", "timeZone": "Europe/Berlin"}});
    past.cluster.spec.operations = from_value(there).unwrap();
    past.observed.now = now() + minutes(21 * 60 + 10);
    assert_eq!(past.rests(), "");
    let seen = past.observed.now;
    see(&mut past, seen);
    assert_eq!(past.rests(), "");
    past.observed.now = now() + minutes(45 * 60);
    assert_eq!(past.starts().operation.name, "Converge");
}

#[tokio::test]
async fn an_upgrade_has_run_the_playbooks_too() {
    let mut past = Past::new(json!({}), &["master"]).await;
    write(&mut past, "0 23 * * *", now() - days(2));
    past.observed.now = now() - minutes(30);
    let mut new = past.starts();
    new.operation = &kubespray::operation::UPGRADE;
    past.ran(&new, "Succeeded", minutes(-31));
    assert_eq!(past.rests(), "");
}

#[tokio::test]
async fn a_schedule_that_overlaps_itself_begins_nothing_twice() {
    let mut past = Past::new(json!({}), &["master"]).await;
    write(&mut past, "*/10 * * * *", now() - days(2));
    past.observed.now = now() - minutes(20);
    let new = past.starts();
    past.ran(&new, "Running", minutes(0));
    past.observed.now = now() - minutes(9);
    assert!(matches!(past.decision(), Decision::Maintain(..)));
    past.observed.runs.pop();
    past.ran(&new, "Succeeded", minutes(-5));
    // What passed while it was at work is over with it.
    past.observed.now = now() - minutes(4);
    assert_eq!(past.rests(), "");
    past.observed.now = now();
    assert_eq!(past.starts().operation.name, "Converge");
}

#[tokio::test]
async fn one_waits_for_its_window_and_begins_in_it() {
    let mut past = Past::new(json!({}), &["master"]).await;
    write(&mut past, "0 23 * * *", now() - days(2));
    let windows = json!({"windows": [{"schedule": "0 12 * * 6", "duration": "2h"}]});
    past.cluster.spec.maintenance = from_value(windows).unwrap();
    past.observed.now = now();
    match past.decision() {
        Decision::Keep(built) => {
            let waiting = built.waiting.unwrap().told();
            assert!(waiting.contains("2026-06-06T12:00:00"), "{waiting}");
        }
        other => panic!("{other:?}"),
    }
    let saturday: Timestamp = "2026-06-06T12:10:00Z".parse().unwrap();
    past.observed.now = saturday;
    let new = past.starts();
    past.ran(
        &new,
        "Succeeded",
        saturday.duration_since(now()) + minutes(20),
    );
    past.observed.now = saturday + minutes(30);
    assert_eq!(past.rests(), "");
}

/// The reason and the message of a converge that waits.
fn converge_waits(past: &Past) -> (String, String) {
    let pending = past.planned().pending;
    let mut pending = pending.into_iter();
    let found = pending.find(|pending| pending.operation == "Converge");
    let found = found.unwrap();
    (found.reason, found.message)
}

#[tokio::test]
async fn nobody_is_told_to_ask_for_what_would_be_refused() {
    let mut past = Past::new(json!({}), &["master", "worker"]).await;
    let vars = json!({"all": {"deploy": {"extraVars": {"node_labels": {"a": "b"}}}}});
    past.cluster.spec.nodes = from_value(vars).unwrap();
    let (reason, message) = converge_waits(&past);
    assert_eq!(reason, "NotRequested", "{message}");

    // A worker joins, which leaves the variables of the others as they were.
    past.declare("worker", 3);
    let scale = past.starts();
    assert_eq!(scale.operation.name, "Scale");
    let behind = |past: &mut Past, expected: &str| {
        let (reason, message) = converge_waits(past);
        assert_eq!(reason, expected, "{message}");
        for told in [&scale.name, "windlass converge", "node_labels"] {
            assert!(message.contains(told), "{message}");
        }
        past.ask(CONVERGE, expected);
        let refused = past.refuses(&converge::ASKED);
        assert!(refused.contains(&scale.name), "{refused}");
        past.cluster.annotations_mut().clear();
    };
    behind(&mut past, "BehindRun");
    past.ran(&scale, "Running", days(0));
    behind(&mut past, "BehindRun");
    past.gets_to("Failed");
    behind(&mut past, "RunFailed");

    past.gets_to("Succeeded");
    let (reason, message) = converge_waits(&past);
    assert_eq!(reason, "NotRequested", "{message}");
    past.ask(CONVERGE, "at last");
    assert_eq!(past.starts().operation.name, "Converge");
}

/// What the condition `Drifted` says, where nobody looks at hosts.
fn told(past: &Past) -> Option<(String, String, String)> {
    let decision = past.decision();
    assert!(matches!(decision, Decision::Keep(_)), "{decision:?}");
    let view = report::View {
        decision: &decision,
        pending: &[],
        run: None,
        health: None,
        radar: None,
        nodes: 1,
        now: past.observed.now,
    };
    let status = report::status(&past.cluster, &view);
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|condition| condition.type_ == "Drifted");
    found.map(|is| (is.status.clone(), is.reason.clone(), is.message.clone()))
}

/// A converge of that day succeeds, and changed that many things in its step, which are recorded so.
fn converges_and_changes(past: &mut Past, day: i64, changed: u32, recorded: &str) -> String {
    past.observed.now = now() + days(day);
    let new = past.starts();
    let begun = past.observed.now.duration_since(now());
    past.ran(&new, "Succeeded", begun + minutes(1));
    past.observed.now += minutes(2);
    let status = past.observed.runs.last_mut().unwrap().status.as_mut();
    let status = status.unwrap();
    status.steps = from_value(json!([
        {"id": "prepare/sandbox", "phase": "Succeeded"},
        {"id": "etcd/install", "phase": "Succeeded", "results": {"ok": 9, "changed": changed}},
    ]))
    .unwrap();
    status.history = from_value(json!([
        {"sequence": 1, "time": now().to_string(), "event": "StepSucceeded", "step": "prepare/sandbox", "detail": "ansible-core 2.17"},
        {"sequence": 2, "time": now().to_string(), "event": "StepSucceeded", "step": "etcd/install", "detail": recorded},
    ]))
    .unwrap();
    new.name
}

#[tokio::test]
async fn what_a_converge_changed_is_held_against_the_one_before() {
    const HABIT: &str = "changed on master-1: etcd : Restart";
    let mut past = Past::new(json!({}), &["master"]).await;
    write(&mut past, "0 0 * * *", now() - days(2));
    converges_and_changes(&mut past, 0, 0, "");
    assert_eq!(told(&past).unwrap().1, "NothingChanged");

    // Nobody knows yet whether it is so each time.
    past.observed.runs.pop();
    let first = converges_and_changes(&mut past, 0, 1, HABIT);
    let (status, reason, message) = told(&past).unwrap();
    assert_eq!((&*status, &*reason), ("Unknown", "NothingToCompare"));
    let expected = format!(
        "1 task of run {first} changed something, and no converge before it with the same spec tells whether they do so each time: \
         etcd/install: master-1: etcd : Restart"
    );
    assert_eq!(message, expected);

    let second = converges_and_changes(&mut past, 1, 1, HABIT);
    let (status, reason, message) = told(&past).unwrap();
    assert_eq!((&*status, &*reason), ("False", "AsBefore"));
    let expected = format!(
        "1 task of run {second} changed something; 1 of these changes the converge before made too: what the playbooks change each time, \
         or what something takes back each time"
    );
    assert_eq!(message, expected);

    let both = format!("{HABIT}; master-1, worker-1: etcd : Write etcd.env");
    converges_and_changes(&mut past, 2, 3, &both);
    let (status, reason, message) = told(&past).unwrap();
    assert_eq!((&*status, &*reason), ("True", "ConvergeChanged"));
    assert!(
        message.contains("; 1 of these changes the converge before made too"),
        "{message}"
    );
    let new = "; new: etcd/install: master-1, worker-1: etcd : Write etcd.env";
    assert!(message.ends_with(new), "{message}");

    // What was not recorded cannot be compared.
    converges_and_changes(&mut past, 3, 4, &format!("{HABIT}; and 3 more"));
    converges_and_changes(&mut past, 4, 4, "");
    let (status, _, message) = told(&past).unwrap();
    assert_eq!(status, "True", "{message}");
    assert!(
        message.ends_with(": and 4 more that were not recorded"),
        "{message}"
    );

    // Without a schedule nobody expects that it changes nothing.
    past.cluster.spec.operations = None;
    assert_eq!(told(&past), None);
}

#[tokio::test]
async fn a_converge_with_another_spec_is_no_measure() {
    const HABIT: &str = "changed on master-1: etcd : Restart";
    let mut past = Past::new(json!({}), &["master"]).await;
    write(&mut past, "0 0 * * *", now() - days(2));
    converges_and_changes(&mut past, 0, 1, HABIT);
    converges_and_changes(&mut past, 1, 1, HABIT);
    assert_eq!(told(&past).unwrap().1, "AsBefore");
    let inputs = &mut past.observed.runs.last_mut().unwrap().spec.plan.inputs;
    inputs.insert("variables".to_owned(), json!({"kube_log_level": 4}));
    assert_eq!(
        converge::converged(&past.observed.runs).unwrap().again,
        None
    );
}

#[tokio::test]
async fn what_cannot_be_kept_to_is_refused_with_field_value_rule_and_remedy() {
    let mut past = Past::new(json!({}), &["master"]).await;
    for (spec, words) in [
        (
            converges("0 25 * * *"),
            &[
                "spec.operations.converge.schedule",
                "0 25 * * *",
                "no schedule of cron",
                "write for example",
            ][..],
        ),
        (
            converges("0 3 30 2 *"),
            &[
                "spec.operations.converge.schedule",
                "never comes",
                "write days",
            ],
        ),
        (
            json!({"operations": {"converge": {"schedule": "0 3 * * *", "timeZone": "Berlin"}}}),
            &[
                "spec.operations.converge.timeZone",
                "Berlin",
                "Europe/Berlin",
            ],
        ),
        (
            json!({"radar": {"every": "1s"}}),
            &[
                "spec.radar.every",
                "1s",
                "10s to 1d",
                "write for example 5m",
            ],
        ),
        (
            json!({"radar": {"every": "25h"}}),
            &["spec.radar.every", "1d1h"],
        ),
    ] {
        past.cluster.spec = from_value(spec.clone()).unwrap();
        past.cluster.spec.kubespray =
            from_value(json!({"source": {"path": crate::world::BUNDLE}})).unwrap();
        let problems = resolve::resolve(&past.cluster, &past.observed).unwrap_err();
        let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
        for word in words {
            assert!(told.join("; ").contains(word), "{word}: {told:?}");
        }
    }
}

/// Hosts are looked at once more before a run writes what is looked at, and not before one that leaves that as it was. Until then nothing is at rest, and
/// who asked is not answered.
#[tokio::test]
async fn hosts_are_looked_at_before_a_run_changes_them() {
    let mut past = Past::new(json!({}), &["master"]).await;
    past.cluster.spec.radar = from_value(json!({"every": "5m"})).unwrap();
    past.observed.unlooked = true;
    assert_eq!(past.rests(), "");
    past.ask("kubespray.k8s.io/converge", "once");
    let planned = |past: &Past| {
        let wanted = resolve::resolve(&past.cluster, &past.observed).unwrap();
        plan::planned(&past.cluster, Ok(&wanted), &past.observed).decision
    };
    let decision = planned(&past);
    let Decision::Keep(built) = &decision else {
        panic!("{decision:?}")
    };
    let run = built.looks_before.as_ref().unwrap().name.clone();
    let view = report::View {
        decision: &decision,
        pending: &[],
        run: None,
        health: None,
        radar: None,
        nodes: 1,
        now: now(),
    };
    let status = report::status(&past.cluster, &view);
    assert_eq!(status.converge, None);
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready");
    let ready = ready.unwrap();
    assert_eq!(ready.status, "False");
    let expected = format!("hosts are looked at before run {run} changes them");
    assert_eq!(ready.message, expected);

    past.observed.unlooked = false;
    assert!(matches!(planned(&past), Decision::Start(new) if new.name == run));

    past.observed.unlooked = true;
    past.cluster.metadata.annotations = None;
    past.ask("kubespray.k8s.io/toolbox", "cordon master-1 1");
    assert!(matches!(planned(&past), Decision::Start(new) if new.operation.name == "Toolbox"));
}
