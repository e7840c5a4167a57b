//! Events go after an hour, as in kube-apiserver (`--event-ttl`): they say what happens, and are no archive. The reason of
//! a failure is kept in the history of its Run.
//!
//! One task that follows the history of the Events and remembers when each is due. It deletes the versions that it has
//! read, so that one that was written anew lives on; watchers see the deletions. At rest it sleeps and writes nothing.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Duration;

use crate::{
    definitions::Live,
    failure::Failure,
    registry::Form,
    rest::delete::{self, Options, Preconditions},
    state::Api,
    store::{Edge, Events, Key, Object},
};

/// Tells the time.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Follows the store until it is dropped.
pub(crate) async fn expire(live: Weak<Live>, clock: Clock) {
    let now = || live.upgrade().map(|live| live.now());
    let Some(mut expiry) = now().and_then(|api| Expiry::new(&api)) else {
        return;
    };
    let Some(mut changed) = now().and_then(|api| api.store.subscribe(expiry.kind)) else {
        return;
    };
    loop {
        changed.mark_unchanged();
        match now() {
            Some(api) => expiry.run(&api, clock()).await,
            None => return,
        }
        let wait = expiry.wait(clock());
        tokio::select! {
            woken = changed.changed() => if woken.is_err() { return },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

struct Expiry {
    kind: usize,
    /// Position in the history; 0 before the first full pass.
    position: u64,
    /// When which version is due.
    due: BTreeSet<(Timestamp, Key, u64)>,
}

impl Expiry {
    fn new(api: &Api) -> Option<Self> {
        Some(Self {
            kind: api.registry.of_form(Form::Event)?.stored,
            position: 0,
            due: BTreeSet::new(),
        })
    }

    async fn run(&mut self, api: &Api, now: Timestamp) {
        self.follow(api);
        while let Some((_, key, revision)) = self.next_due(now) {
            if let Err(failure) = remove(api, self.kind, &key, revision).await {
                tracing::warn!(event = %key.name, message = failure.message, "an Event stays beyond its time");
            }
        }
    }

    fn next_due(&mut self, now: Timestamp) -> Option<(Timestamp, Key, u64)> {
        self.due.first().filter(|(due, ..)| *due <= now)?;
        self.due.pop_first()
    }

    /// Until the next is due, if there is any; not longer than [`LOOK_EVERY`].
    fn wait(&self, now: Timestamp) -> Option<Duration> {
        let (due, ..) = self.due.first()?;
        let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
        Some(wait.clamp(LOOK_AGAIN, LOOK_EVERY))
    }

    fn follow(&mut self, api: &Api) {
        match api.store.events(self.kind, self.position) {
            Events::Some(events, revision) if self.position > 0 => {
                for event in events {
                    if event.edge != Edge::Deleted {
                        self.learn(&event.object);
                    }
                }
                self.position = revision;
            }
            _ => {
                let snapshot = api.store.snapshot(self.kind);
                self.due.clear();
                for object in snapshot.objects.values() {
                    self.learn(object);
                }
                self.position = snapshot.revision;
            }
        }
    }

    fn learn(&mut self, object: &Object) {
        // Without a time it cannot be told how old it is.
        if let Some(due) = written(&object.value()).and_then(|time| time.checked_add(TTL).ok()) {
            self.due.insert((due, object.key.clone(), object.revision));
        }
    }
}

/// When an object was last written, by what the server notes at each write.
fn written(value: &Value) -> Option<Timestamp> {
    let metadata = value.get("metadata")?;
    let entries = metadata.get("managedFields").and_then(Value::as_array);
    entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("time"))
        .chain(metadata.get("creationTimestamp"))
        .filter_map(|time| time.as_str()?.parse().ok())
        .max()
}

/// Deletes the version; one that is gone or newer is left to its own time.
async fn remove(api: &Api, kind: usize, key: &Key, revision: u64) -> Result<(), Failure> {
    let Some(resource) = api.registry.of_stored(kind) else {
        return Ok(());
    };
    let options = Options {
        preconditions: Some(Preconditions {
            uid: None,
            resource_version: Some(revision.to_string()),
        }),
        ..Options::default()
    };
    let current = || {
        api.store
            .object(kind, key)
            .ok_or_else(|| Failure::not_found(resource, &key.name))
    };
    match delete::delete(api, resource, &options, current).await {
        Err(failure) if failure.code.is_server_error() => Err(failure),
        _ => Ok(()),
    }
}

/// How long an Event lives after it was last written: the default of kube-apiserver.
const TTL: SignedDuration = SignedDuration::from_hours(1);
/// The wall clock may be set, and timers stand still while a laptop sleeps: never trust a longer timer.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// The times are whole seconds.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures::StreamExt;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use serde_json::json;
    use tokio::time::Instant;
    use tower::ServiceExt;

    use super::*;
    use crate::{
        Server,
        store::{Draft, Expect, Write},
    };

    const EVENTS: &str = "/api/v1/namespaces/default/events";

    /// The time of the runtime, which a test may pause.
    fn runtime_clock() -> Clock {
        let (start, begin) = (Timestamp::now(), Instant::now());
        Arc::new(move || start + begin.elapsed())
    }

    async fn create(server: &Server, name: &str) {
        let body = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "ConfigMap", "name": "m", "namespace": "default"}, "reason": "Tried",
        });
        let request = Request::post(EVENTS)
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = server.router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_goes_after_an_hour_and_watchers_see_it() {
        let server = Server::with_clock(runtime_clock()).await.unwrap();
        let path = format!("{EVENTS}?watch=true&timeoutSeconds=7200");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = server.router().oneshot(request).await.unwrap();
        let mut lines = response.into_body().into_data_stream();
        let begin = Instant::now();
        create(&server, "one").await;
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let line = lines.next().await.unwrap().unwrap();
            let event: Value = serde_json::from_slice(&line).unwrap();
            seen.push((event["type"].clone(), begin.elapsed()));
        }
        assert_eq!([&seen[0].0, &seen[1].0], ["ADDED", "DELETED"]);
        // The times in objects are whole seconds, rounded down.
        let (early, late) = (Duration::from_secs(3599), Duration::from_secs(3602));
        assert!(early <= seen[1].1 && seen[1].1 <= late, "{seen:?}");

        let revision = server.api().store.revision();
        tokio::time::sleep(Duration::from_hours(24)).await;
        assert_eq!(server.api().store.revision(), revision, "a write at rest");
    }

    #[tokio::test]
    async fn one_that_was_written_anew_lives_an_hour_from_then() {
        let server = Server::in_memory(&[]).await.unwrap();
        let api = &*server.api();
        let mut expiry = Expiry::new(api).unwrap();
        let kind = expiry.kind;
        let start: Timestamp = Timestamp::now();
        let minutes = |minutes| start + SignedDuration::from_mins(minutes);
        let key = Key::new("default", "one");
        let version = |expect, time: Timestamp| Write {
            kind,
            key: key.clone(),
            expect,
            draft: Draft::new(
                &json!({
                    "apiVersion": "v1", "kind": "Event",
                    "metadata": {
                        "name": "one", "namespace": "default", "creationTimestamp": start.to_string(),
                        "managedFields": [{"manager": "m", "time": time.to_string()}],
                    },
                }),
                &[],
            ),
            delete: false,
        };
        let first = version(Expect::Absent, start);
        let first = api.store.write(first).await.unwrap().revision;
        expiry.run(api, minutes(1)).await;
        let second = version(Expect::Revision(first), minutes(30));
        let second = api.store.write(second).await.unwrap().revision;
        for (now, there) in [(61, true), (89, true), (90, false)] {
            expiry.run(api, minutes(now)).await;
            let object = api.store.object(kind, &key);
            assert_eq!(object.is_some(), there, "after {now} minutes");
        }
        assert_eq!(api.store.revision(), second + 1);
    }

    /// After a restart the first look is at what is there.
    #[tokio::test]
    async fn what_was_there_before_is_due_as_well() {
        let server = Server::in_memory(&[]).await.unwrap();
        create(&server, "one").await;
        let mut expiry = Expiry::new(&server.api()).unwrap();
        let later = Timestamp::now() + SignedDuration::from_mins(61);
        expiry.run(&server.api(), later).await;
        let request = Request::get(EVENTS).body(Body::empty()).unwrap();
        let response = server.router().oneshot(request).await.unwrap();
        let list = response.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(list["items"], json!([]));
    }
}
