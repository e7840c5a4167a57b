//! Converging on a schedule: when its time has come, in a window, once; and what of a schedule and of a radar is refused.

use jiff::{SignedDuration, Timestamp};
use kubespray::{
    cluster::{decision::Decision, report, resolve},
    operation::converge,
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

#[tokio::test]
async fn what_one_changed_is_told_by_step_and_host() {
    let mut past = Past::new(json!({}), &["master"]).await;
    write(&mut past, "0 0 * * *", now() - days(2));
    let new = past.starts();
    past.ran(&new, "Succeeded", minutes(1));
    assert_eq!(converge::converged(&past.observed.runs).unwrap().changed, 0);
    let told = |past: &Past| {
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
        found.map(|found| (found.reason.clone(), found.message.clone()))
    };
    past.observed.now = now() + minutes(2);
    assert_eq!(told(&past).unwrap().0, "NothingChanged");

    let status = past.observed.runs.last_mut().unwrap().status.as_mut();
    let status = status.unwrap();
    status.steps = from_value(json!([
        {"id": "etcd/install", "phase": "Succeeded", "results": {"ok": 9, "changed": 2}},
        {"id": "network", "phase": "Succeeded", "results": {"ok": 1, "changed": 1}},
    ]))
    .unwrap();
    status.history = from_value(json!([
        {"sequence": 1, "time": now().to_string(), "event": "StepSucceeded", "step": "prepare/sandbox", "detail": "ansible-core 2.17"},
        {
            "sequence": 2, "time": now().to_string(), "event": "StepSucceeded", "step": "etcd/install",
            "detail": "changed on master-1: etcd : Write etcd.env, master-1: etcd : Restart",
        },
    ]))
    .unwrap();
    let (reason, message) = told(&past).unwrap();
    assert_eq!(reason, "ConvergeChanged");
    assert_eq!(
        message,
        format!(
            "3 tasks of run {} changed something: etcd/install: master-1: etcd : Write etcd.env, master-1: etcd : Restart",
            new.name
        )
    );
    // Without a schedule nobody expects that it changes nothing.
    past.cluster.spec.operations = None;
    assert_eq!(told(&past), None);
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
