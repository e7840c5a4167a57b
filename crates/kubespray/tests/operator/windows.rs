//! What starts by itself keeps to maintenance windows, and the status says what waits for what.

use api::{
    Cluster, ClusterNode, Run,
    cluster::{ClusterState, MaintainRequest, Pending},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use kubespray::{
    operation::{component, converge, renew},
    request::{COMPONENT, CONVERGE, MAINTAIN},
};
use runs::control::RESTS_AFTER;
use serde_json::{Value, json};

use crate::{
    past::{Past, days},
    world::{World, condition, is},
};

/// A window that is months away.
fn far() -> Value {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let month = (now.month() + 5) % 12 + 1;
    json!({"schedule": format!("0 22 1 {month} *"), "duration": "4h", "timeZone": "Europe/Berlin"})
}

impl World {
    pub async fn pending(&self, what: &str, wanted: impl Fn(&[Pending]) -> bool) -> Vec<Pending> {
        let pending = |cluster: &Cluster| {
            let status = cluster.status.clone().unwrap_or_default();
            status.pending
        };
        let cluster = self.until("first", what, |cluster| wanted(&pending(cluster)));
        pending(&cluster.await)
    }

    async fn maintain(&self, request: &str) -> MaintainRequest {
        let patch = json!({"metadata": {"annotations": {MAINTAIN: request}}});
        let clusters = self.all::<Cluster>();
        clusters
            .patch("first", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        let answer = |cluster: &Cluster| cluster.status.as_ref()?.maintain.clone();
        let answered = |cluster: &Cluster| answer(cluster).is_some_and(|is| is.request == request);
        let cluster = self.until("first", "answers", answered).await;
        answer(&cluster).unwrap()
    }

    async fn rests(&self, name: &str, rests: bool) -> Run {
        let runs: Api<Run> = self.all();
        let wanted = move |run: Option<&Run>| {
            run.is_some_and(|run| run.annotations().contains_key(RESTS_AFTER) == rests)
        };
        let waiting = await_condition(runs, name, wanted);
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(20), waiting);
        waiting.await.unwrap().unwrap().unwrap()
    }
}

fn waits_for_window(pending: &[Pending]) -> bool {
    let mut pending = pending.iter();
    pending.any(|pending| pending.reason == "WaitingForWindow")
}

fn told(pending: &[Pending]) -> Vec<(&str, &str, Vec<&str>)> {
    pending
        .iter()
        .map(|one| {
            let hosts = one.hosts.iter().map(api::HostName::as_str);
            (one.operation.as_str(), one.reason.as_str(), hosts.collect())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_for_its_window_and_new_workers_do_not() {
    let world = World::start().await;
    world.built().await;
    world
        .cluster("first", json!({"maintenance": {"windows": [far()]}}))
        .await;
    world.node_held("worker-2").await;
    world.delete::<ClusterNode>("worker-2").await;
    let pending = world.pending("waits", waits_for_window).await;
    assert_eq!(
        told(&pending),
        [("Remove", "WaitingForWindow", vec!["worker-2"])]
    );
    assert!(pending[0].message.contains("T22:00:00+0"), "{pending:?}");
    let waits = |cluster: &Cluster| is(cluster, "AwaitingWindow", "WaitingForWindow");
    let cluster = world.until("first", "says so", waits).await;
    let ready = condition(&cluster, "Ready").unwrap().2;
    assert!(
        ready.contains("Remove of worker-2 waits for the maintenance window"),
        "{ready}"
    );
    assert_eq!(cluster.status.unwrap().state, Some(ClusterState::Created));

    // To converge would not remove it.
    world.ask(&converge::ASKED, "now").await;
    let refused = world.answer(&converge::ASKED, "now").await.refused.unwrap();
    assert!(refused.contains("Remove of worker-2 waits"), "{refused}");

    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let scale = world.run_named("first-scale-2").await;
    let behind = |pending: &[Pending]| pending.iter().any(|one| one.reason == "BehindRun");
    let pending = world.pending("waits behind it", behind).await;
    assert_eq!(told(&pending), [("Remove", "BehindRun", vec!["worker-2"])]);
    // A request to maintain is answered once, and does not wait.
    let refused = world.maintain("1").await.refused.unwrap();
    assert!(refused.contains("first-scale-2 is under way"), "{refused}");
    world
        .run_status(&scale, json!({"phase": "Succeeded"}))
        .await;
    world.pending("waits again", waits_for_window).await;
    assert_eq!(world.run_until(2).await.len(), 2);

    assert_eq!(
        world.maintain("2").await.run.as_deref(),
        Some("first-remove-3")
    );
    let run = world.run_named("first-remove-3").await;
    assert_eq!(run.annotations()[MAINTAIN], "2");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    let gone = |cluster: &Cluster| condition(cluster, "AwaitingWindow").is_none();
    let cluster = world.until("first", "waits for nothing", gone).await;
    assert!(cluster.status.unwrap().pending.is_empty());
    let refused = world.maintain("3").await.refused.unwrap();
    assert!(refused.contains("nothing waits"), "{refused}");
    let events = world.events("WaitingForWindow").await;
    // Once when it began to wait, and once after the run that went first.
    assert_eq!(events.len(), 2, "{events:?}");
}

#[tokio::test]
async fn what_works_on_the_cluster_as_it_is_waits_for_what_changes_its_hosts() {
    let spec = json!({"maintenance": {"windows": [{"schedule": "0 22 * * 6", "duration": "4h"}]}});
    let mut past = Past::new(spec, &["master", "worker", "worker"]).await;
    past.delete("worker-3");
    past.ask(COMPONENT, "container-engine 1");
    past.ask(CONVERGE, "1");
    for asked in [&component::ASKED, &converge::ASKED] {
        let refused = past.refuses(asked);
        for words in [
            "Remove of worker-3 waits for the maintenance window that opens at 2026-06-06T22:00:00+00:00",
            "windlass maintain",
        ] {
            assert!(refused.contains(words), "{words}: {refused}");
        }
        assert!(!refused.contains("cancelled"), "{refused}");
    }

    // Once it was cancelled, that is why.
    past.cluster.spec.maintenance = None;
    let remove = past.starts();
    past.ran(&remove, "Cancelled", days(0));
    let why = format!("run {} was cancelled; to start it anew", remove.name);
    for asked in [&component::ASKED, &converge::ASKED] {
        let refused = past.refuses(asked);
        assert!(refused.contains(&why), "{refused}");
    }
    past.gets_to("Failed");
    let failed = format!("run {0} failed; to go on: windlass retry {0}", remove.name);
    let refused = past.refuses(&component::ASKED);
    assert!(refused.contains(&failed), "{refused}");
}

/// A longer window, three days and a half from now: the one that opens every day at this time is
/// half a day away from it, whatever the time is, so that the two never make one.
fn soon() -> (Value, String) {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let opens = now
        .checked_add(jiff::Span::new().days(3).hours(12))
        .unwrap();
    let schedule = opens.strftime("%-M %-H %-d %-m *").to_string();
    (
        json!({"schedule": schedule, "duration": "4h"}),
        opens.strftime("%Y-%m-%dT%H:%M:00+0").to_string(),
    )
}

/// A window that opened in this minute, and stays open for an hour.
fn open() -> Value {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    json!({"schedule": format!("{} {} * * *", now.minute(), now.hour()), "duration": "1h"})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_took_longer_than_the_window_leaves_waits_for_one_that_is_long_enough() {
    let world = World::start().await;
    world.built().await;
    let (soon, opens) = soon();
    world
        .cluster(
            "first",
            json!({"maintenance": {"windows": [open(), soon], "confine": "All"}}),
        )
        .await;
    // How long it takes is not known yet.
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    let times = json!({"startedAt": "2026-06-01T10:00:00Z", "finishedAt": "2026-06-01T12:00:00Z"});
    let mut status = times.clone();
    status["phase"] = json!("Succeeded");
    let mut step = times;
    step["id"] = json!("drain");
    step["phase"] = json!("Succeeded");
    status["steps"] = json!([step]);
    world.run_status(&run, status).await;

    world.node("worker-4", "worker", "10.0.0.5").await;
    let pending = world.pending("waits", waits_for_window).await;
    assert_eq!(
        told(&pending),
        [("Scale", "WaitingForWindow", vec!["worker-4"])]
    );
    for told in ["Scale took 2h the last time", &opens] {
        assert!(pending[0].message.contains(told), "{pending:?}");
    }
    assert_eq!(
        world.maintain("1").await.run.as_deref(),
        Some("first-scale-3")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_confined_is_what_the_spec_says() {
    let world = World::start().await;
    world.built().await;
    world
        .cluster(
            "first",
            json!({"maintenance": {"windows": [far()], "confine": "All"}}),
        )
        .await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    let pending = world.pending("waits", waits_for_window).await;
    assert_eq!(
        told(&pending),
        [("Scale", "WaitingForWindow", vec!["worker-3"])]
    );
    // To converge would not make it part of the cluster.
    world.ask(&converge::ASKED, "now").await;
    assert!(
        world
            .answer(&converge::ASKED, "now")
            .await
            .refused
            .is_some()
    );
    world
        .cluster(
            "first",
            json!({"maintenance": {"windows": [far()], "confine": "None"}}),
        )
        .await;
    world.run_until(2).await;
    world.run_named("first-scale-2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_is_none_is_refused_by_field() {
    let world = World::start().await;
    world.built().await;
    let window = json!({"schedule": "0 22 30 2 *", "duration": "4h", "timeZone": "Berlin"});
    world
        .cluster(
            "first",
            json!({"maintenance": {"windows": [far(), window]}}),
        )
        .await;
    let stalled = |cluster: &Cluster| is(cluster, "Stalled", "InvalidSpec");
    let cluster = world.until("first", "stalls", stalled).await;
    let message = condition(&cluster, "Stalled").unwrap().2;
    for part in ["spec.maintenance.windows[1].timeZone", "Europe/Berlin"] {
        assert!(message.contains(part), "{message}");
    }
    // The thirtieth of February.
    let never = json!({"schedule": "0 22 30 2 *", "duration": "4h"});
    let spec = json!({"maintenance": {"windows": [never]}});
    world.cluster("first", spec).await;
    let words = "never comes";
    let told = |cluster: &Cluster| {
        condition(cluster, "Stalled").is_some_and(|(_, _, why)| why.contains(words))
    };
    let cluster = world.until("first", words, told).await;
    let message = condition(&cluster, "Stalled").unwrap().2;
    assert!(
        message.contains("spec.maintenance.windows[0].schedule"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_rests_when_its_window_closes_and_goes_on_in_the_next() {
    let world = World::start().await;
    world.built().await;
    world.node_held("worker-2").await;
    world.delete::<ClusterNode>("worker-2").await;
    world.run_until(2).await;
    let run = world.run_named("first-remove-2").await;
    let done = json!([{"id": "prepare/sandbox", "phase": "Succeeded"}]);
    world
        .run_status(&run, json!({"phase": "Running", "steps": done}))
        .await;
    let closed = json!({"windows": [far()], "onWindowEnd": "Pause"});
    world.cluster("first", json!({"maintenance": closed})).await;
    let rests = world.rests("first-remove-2", true).await;
    let rest = runs::control::rest(&rests).unwrap();
    assert_eq!(rest.after, "prepare/probe");
    assert!(rest.why.contains("the next one opens at"), "{}", rest.why);
    world
        .run_status(&run, json!({"phase": "Paused", "steps": done}))
        .await;
    let waits = |cluster: &Cluster| is(cluster, "Reconciling", "WaitingForWindow");
    let cluster = world.until("first", "says so", waits).await;
    let message = condition(&cluster, "Ready").unwrap().2;
    assert!(
        message.contains("windlass -n demo maintain first"),
        "{message}"
    );
    // Nobody wrote into what people steer by.
    assert!(rests.spec.control.is_none());

    assert_eq!(
        world.maintain("1").await.run.as_deref(),
        Some("first-remove-2")
    );
    let goes = world.rests("first-remove-2", false).await;
    assert_eq!(goes.annotations()[MAINTAIN], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_asked_for_does_not_rest() {
    let world = World::start().await;
    world.built().await;
    let closed = json!({"windows": [far()], "onWindowEnd": "Pause"});
    world.cluster("first", json!({"maintenance": closed})).await;
    world.ask(&renew::ASKED, "now").await;
    let run = world.answer(&renew::ASKED, "now").await.run.unwrap();
    let run = world.run_named(&run).await;
    let done = json!([{"id": "prepare/sandbox", "phase": "Succeeded"}]);
    world
        .run_status(&run, json!({"phase": "Running", "steps": done}))
        .await;
    world.state(ClusterState::Renewing).await;
    // Another one is held up by it, which a pass has seen then.
    world.node_held("worker-2").await;
    world.delete::<ClusterNode>("worker-2").await;
    let behind = |pending: &[Pending]| pending.iter().any(|one| one.operation == "Remove");
    world.pending("waits behind it", behind).await;
    let run = world.run_named(&run.name_any()).await;
    assert!(runs::control::rest(&run).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_drained_goes_on_whatever_the_window_says() {
    let world = World::start().await;
    world.built().await;
    world.node_held("worker-2").await;
    world.delete::<ClusterNode>("worker-2").await;
    world.run_until(2).await;
    let run = world.run_named("first-remove-2").await;
    let until_drained = run.spec.plan.steps.iter().map(|step| &step.id);
    let drained = until_drained
        .clone()
        .position(|id| id == "drain/pods")
        .unwrap();
    let done: Vec<_> = until_drained
        .take(drained + 1)
        .map(|id| json!({"id": id, "phase": "Succeeded"}))
        .collect();
    world
        .run_status(&run, json!({"phase": "Running", "steps": done}))
        .await;
    let closed = json!({"windows": [far()], "onWindowEnd": "Pause"});
    world.cluster("first", json!({"maintenance": closed})).await;
    // Until the node is forgotten, there is no safe place.
    let rest = runs::control::rest(&world.rests("first-remove-2", true).await).unwrap();
    assert_eq!(rest.after, "forget/nodes");
    // The window opens: the run goes on.
    world.cluster("first", json!({})).await;
    world.rests("first-remove-2", false).await;
}
