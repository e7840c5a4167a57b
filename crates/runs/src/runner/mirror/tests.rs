use std::sync::atomic::{AtomicUsize, Ordering};

use controller::lease::BootClock;
use kapi::{
    Server,
    fault::{Fault, Faults},
};
use kube::{Client, api::PostParams};
use tokio::time::timeout;
use tower::Layer;
use workflow::CheckedPlan;

use super::*;
use crate::Layout;

const NAMESPACE: &str = "default";
const CALLED: Words = Words {
    targets: "nodes",
    excluded: "HostsExcluded",
    own_logs: "own",
};

/// A run whose only step failed with many words.
struct World {
    server: Server,
    directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let server = Server::in_memory(&api::custom_resource_definitions())
            .await
            .unwrap();
        let run: Run = serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "first-create-1"},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"}, "operation": "Create", "generation": 1,
                "plan": {"digest": "d", "steps": [{"id": "prepare/probe", "action": {"engine": {"name": "kubespray", "type": "Probe"}}}]},
            },
        }))
        .unwrap();
        runs(&Client::new(server.router(), NAMESPACE))
            .create(&PostParams::default(), &run)
            .await
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        Self { server, directory }
    }

    async fn run(&self) -> Run {
        let api = runs(&Client::new(self.server.router(), NAMESPACE));
        api.get("first-create-1").await.unwrap()
    }

    async fn work(&self, faults: &Faults) -> Arc<Work> {
        let run = self.run().await;
        Arc::new(Work {
            client: Client::new(faults.layer(self.server.router()), NAMESPACE),
            layout: Layout::new(self.directory.path()),
            directory: self.directory.path().to_owned(),
            plan: CheckedPlan::new(run.spec.plan.clone()).unwrap(),
            identity: serde_json::from_value(json!({"id": "test"})).unwrap(),
            run,
            beside: None,
        })
    }

    /// Mirrors a failed run to its end.
    async fn mirror(&self, faults: &Faults, proof: Proof) {
        let work = self.work(faults).await;
        let mut journal = FileJournal::open(self.directory.path().join("journal.jsonl")).unwrap();
        for record in history(&"x".repeat(4000)) {
            journal.append(&record).unwrap();
        }
        let records = journal.load().unwrap();
        let state = State::replay(&work.plan, &records).unwrap();
        let (mirror, tell) = Mirror::start(Arc::clone(&work), CALLED, &mut journal, proof).unwrap();
        drop(tell);
        let ended = timeout(Duration::from_mins(10), mirror.finish(state)).await;
        assert!(ended.is_ok(), "the runner never ends");
    }
}

fn runs(client: &Client) -> Api<Run> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn history(words: &str) -> Vec<Record> {
    let record = |sequence: u32, event: &str, rest: Value| {
        let mut record =
            json!({"sequence": sequence, "time": "2026-01-01T00:00:00Z", "event": event});
        record
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        serde_json::from_value(record).unwrap()
    };
    let step = json!({"step": "prepare/probe", "attempt": 1});
    let failure =
        json!({"class": "External", "code": "Broken", "message": words, "remedy": "mend"});
    let failed = json!({"step": "prepare/probe", "attempt": 1, "failure": failure});
    vec![
        record(1, "RunStarted", json!({})),
        record(2, "StepStarted", step),
        record(3, "StepFailed", failed),
        record(
            4,
            "RunFailed",
            json!({"step": "prepare/probe", "failure": failure}),
        ),
    ]
}

fn held() -> Proof {
    Proof::until(BootClock::of(|| Duration::ZERO), Duration::MAX)
}

/// The first so many statuses of a form are refused for what they say.
fn refusing(times: usize, merges: bool) -> Faults {
    let refused = AtomicUsize::new(0);
    Faults::when(move |request| {
        let status = request.method == "PATCH" && request.uri.path().ends_with("/status");
        let kind = request.headers.get("content-type");
        let applies = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply"));
        let meant = status && (applies || merges);
        (meant && refused.fetch_add(1, Ordering::SeqCst) < times).then_some(Fault::Invalid)
    })
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_api_refuses_is_written_shorter() {
    let world = World::new().await;
    world.mirror(&refusing(1, false), held()).await;
    let status = world.run().await.status.unwrap();
    assert_eq!(status.phase, api::run::RunPhase::Failed);
    assert_eq!(status.history.len(), 4);
    let failure = status.history[2].failure.clone().unwrap();
    assert_eq!(failure.code, "Broken");
    assert!(failure.message.len() <= WORDS, "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_api_refuses_in_every_form_says_at_least_how_the_run_stands() {
    let world = World::new().await;
    world.mirror(&refusing(usize::MAX, false), held()).await;
    let status = world.run().await.status.unwrap();
    assert_eq!(status.phase, api::run::RunPhase::Failed);
    let message = status.message.unwrap();
    assert!(
        message.contains("the API refused the whole status"),
        "{message}"
    );
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
    assert_eq!(ready.unwrap().message, message);
}

#[tokio::test(start_paused = true)]
async fn a_runner_ends_although_its_api_takes_no_status() {
    let world = World::new().await;
    let faults = refusing(usize::MAX, true);
    world.mirror(&faults, held()).await;
    assert!(faults.met()["invalid"] > 3, "{:?}", faults.met());
    assert!(world.run().await.status.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_does_not_hold_the_lease_writes_nothing() {
    let world = World::new().await;
    let over = Proof::until(BootClock::of(|| Duration::ZERO), Duration::ZERO);
    world.mirror(&Faults::when(|_| None), over).await;
    assert!(world.run().await.status.is_none());
}

/// As long as a journal may make it, in characters that take several bytes: the real schema takes it.
#[tokio::test]
async fn what_is_derived_from_any_journal_fits_the_schema() {
    let world = World::new().await;
    let work = world.work(&Faults::when(|_| None)).await;
    for words in [
        "x".repeat(100_000),
        "ä".repeat(5000),
        "\u{1f4a9}".repeat(4097),
    ] {
        let mut records = history(&words);
        records[2].excluded = (0..1500)
            .map(|host| {
                // All of them with many words are too large, which another test is about.
                let bytes = if host < 50 { 1200 * 4 } else { 12 };
                let host = json!({"target": format!("host-{host}"), "reason": words.get(..bytes)});
                serde_json::from_value(host).unwrap()
            })
            .collect();
        records.insert(3, {
            let mut paused = records[0].clone();
            (paused.sequence, paused.event) = (4, RecordEvent::RunPaused);
            (paused.detail, paused.step) = (Some(words.clone()), Some("prepare/probe".to_owned()));
            paused
        });
        records.truncate(4);
        let state = State::replay(&work.plan, &records).unwrap();
        let progress = StepProgress {
            activity: Some(words.clone()),
            ..StepProgress::default()
        };
        let live = Live {
            steps: [("prepare/probe".to_owned(), progress)].into(),
            runner: Some(serde_json::from_value(json!({"id": words})).unwrap()),
            now: Timestamp::UNIX_EPOCH,
        };
        let status = derive(&work.plan, &state, &live);
        write(&work, &status, &Tries::default()).await.unwrap();
    }
}
