//! watch: the events of a kind as a stream of JSON lines.
//!
//! A watcher has a position in the history of its kind and reads from there whenever it is woken. It cannot slow a
//! writer down: one that falls out of the history is told 410 and lists again.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use serde_json::json;
use tokio::{
    sync::watch::Receiver,
    time::{Duration, Instant},
};

use super::{
    answer::bytes_response,
    negotiate::{View, include, present, present_value},
    options,
    read::within,
    request::Call,
};
use crate::{
    failure::{Failure, Result},
    pipeline::{self, Include},
    registry::{Form, Resource},
    selector::Selector,
    state::Api,
    store::{Edge, Event, Events, Object, Previous},
};

pub(crate) fn watch(api: Arc<Api>, call: &Call, view: View) -> Result<Response> {
    let watcher = Watcher::new(api, call, view)?;
    let stream = futures::stream::unfold(watcher, |mut watcher| async {
        let chunk = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), watcher))
    });
    let mut response = bytes_response(StatusCode::OK, Body::from_stream(stream));
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// Marks an answer that goes on until the client has enough of it, or the server ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endless;

struct Watcher {
    api: Arc<Api>,
    resource: usize,
    namespace: Option<String>,
    selector: Selector,
    view: View,
    include: Include,
    bookmarks: bool,
    /// Everything up to here was sent.
    position: u64,
    first: Option<Bytes>,
    changed: Receiver<u64>,
    end: Instant,
    bookmark: Instant,
    ended: bool,
}

impl Watcher {
    fn new(api: Arc<Api>, call: &Call, view: View) -> Result<Self> {
        let resource = call.resource(&api);
        let mut selector = call.selector(resource)?;
        if let Some(name) = &call.name {
            let field = format!("metadata.name={name}");
            selector = Selector::parse(call.query("labelSelector"), Some(&field), resource)?;
        }
        options::check_watch(call)?;
        let include = include(call, view)?;
        let initial = initial_events(call);
        let changed = api
            .store
            .subscribe(resource.stored)
            .ok_or_else(Failure::no_route)?;
        let now = Instant::now();
        let end = now + timeout(call)?;
        let index = api
            .registry
            .resources
            .iter()
            .position(|other| std::ptr::eq(other.as_ref(), resource))
            .ok_or_else(Failure::no_route)?;
        let mut watcher = Self {
            resource: index,
            namespace: call.namespace.clone(),
            selector,
            view,
            include,
            bookmarks: call.flag("allowWatchBookmarks"),
            position: 0,
            first: None,
            changed,
            bookmark: next_bookmark(now, end),
            end,
            ended: false,
            api,
        };
        match (initial, call.revision()?) {
            (Initial::Never, None) => watcher.position = watcher.api.store.revision(),
            (Initial::Never | Initial::Default, Some(revision)) => watcher.position = revision,
            (Initial::Default, None) => watcher.send_state(false),
            (Initial::Always, _) => watcher.send_state(true),
        }
        Ok(watcher)
    }

    /// The next chunk, or nothing when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(first);
        }
        while !self.ended {
            self.changed.mark_unchanged();
            match self.api.store.events(self.resource().stored, self.position) {
                Events::Gone(oldest) => {
                    self.ended = true;
                    let failure = Failure::expired(format!(
                        "too old resource version: {} ({oldest})",
                        self.position
                    ));
                    return Some(line("ERROR", failure.status().to_string().as_bytes()));
                }
                Events::Some(events, revision) => {
                    self.position = revision;
                    let chunk = self.chunk(&events);
                    if !chunk.is_empty() {
                        return Some(chunk);
                    }
                }
            }
            tokio::select! {
                woken = self.changed.changed() => self.ended |= woken.is_err(),
                () = tokio::time::sleep_until(self.end) => self.ended = true,
                () = tokio::time::sleep_until(self.bookmark), if self.bookmarks => {
                    self.bookmark = next_bookmark(Instant::now(), self.end);
                    return Some(self.bookmark_line(false));
                }
            }
        }
        None
    }

    fn resource(&self) -> &Resource {
        &self.api.registry.resources[self.resource]
    }

    /// Sends what is there as additions, from the same snapshot whose revision the watch goes on from.
    fn send_state(&mut self, mark_end: bool) {
        let snapshot = self.api.store.snapshot(self.resource().stored);
        let mut out = BytesMut::new();
        for object in within(&snapshot, self.namespace.as_deref(), None) {
            if self.selector.matches(object) {
                self.put(&mut out, "ADDED", object);
            }
        }
        self.position = snapshot.revision;
        if mark_end {
            out.extend_from_slice(&self.bookmark_line(true));
        }
        self.first = Some(out.freeze());
    }

    fn chunk(&self, events: &[Arc<Event>]) -> Bytes {
        let mut out = BytesMut::new();
        for event in events {
            self.put_event(&mut out, event);
        }
        out.freeze()
    }

    /// An event as this watcher's selection sees it: entering it is an addition, leaving it a deletion.
    fn put_event(&self, out: &mut BytesMut, event: &Event) {
        if self
            .namespace
            .as_deref()
            .is_some_and(|namespace| namespace != &*event.object.key.namespace)
        {
            return;
        }
        if self.selector.is_empty() {
            let kind = match event.edge {
                Edge::Added => "ADDED",
                Edge::Modified => "MODIFIED",
                Edge::Deleted => "DELETED",
            };
            return self.put(out, kind, &event.object);
        }
        let now = event.edge != Edge::Deleted && self.selector.matches(&event.object);
        let before = match &event.previous {
            Previous::Absent => false,
            Previous::Known(object) => self.selector.matches(object),
            // A client ignores the deletion of what it does not know, so the safe guess is that it knew.
            Previous::Unknown => !now,
        };
        match (before, now) {
            (false, true) => self.put(out, "ADDED", &event.object),
            (true, true) => self.put(out, "MODIFIED", &event.object),
            (true, false) => match &event.previous {
                Previous::Known(previous) if event.edge != Edge::Deleted => {
                    let mut value = previous.value();
                    value["metadata"]["resourceVersion"] = json!(event.object.revision.to_string());
                    let value = present_value(self.resource(), value, self.view, self.include);
                    put_line(out, "DELETED", value.to_string().as_bytes());
                }
                _ => self.put(out, "DELETED", &event.object),
            },
            (false, false) => {}
        }
    }

    fn put(&self, out: &mut BytesMut, kind: &str, object: &Object) {
        let body = present(self.resource(), object, self.view, self.include);
        put_line(out, kind, &body);
    }

    fn bookmark_line(&self, initial_end: bool) -> Bytes {
        let resource = self.resource();
        // Empty maps are left out: clients refuse `annotations: null`.
        let mut metadata = json!({"resourceVersion": self.position.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.view {
            View::Metadata => (
                "PartialObjectMetadata".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            View::Table => {
                let table = pipeline::table(resource, &[], self.include, &metadata);
                return line("BOOKMARK", table.to_string().as_bytes());
            }
            View::Plain => (resource.kind.clone(), resource.api_version()),
        };
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        // Typed clients insist on what is never left out of a kind, also in a bookmark.
        let fields: &[&str] = match (resource.form, resource.kind.as_str()) {
            (Form::Event, _) => &["involvedObject"],
            (Form::NewEvent, _) => &["regarding"],
            (Form::Namespace, _) => &["spec", "status"],
            (Form::Plain, "Lease") => &["spec"],
            _ => &[],
        };
        for field in fields {
            object[*field] = json!({});
        }
        line("BOOKMARK", object.to_string().as_bytes())
    }
}

#[derive(Clone, Copy)]
enum Initial {
    Default,
    Always,
    Never,
}

fn initial_events(call: &Call) -> Initial {
    match call.query("sendInitialEvents") {
        None => Initial::Default,
        Some("true" | "1") => Initial::Always,
        Some(_) => Initial::Never,
    }
}

/// When the next bookmark is due: after a minute, or before the watch ends, so that the next one begins near its end.
fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let regular = now + BOOKMARK_EVERY;
    match end.checked_sub(BOOKMARK_BEFORE_END) {
        Some(last) if last > now => regular.min(last),
        _ => regular,
    }
}

fn timeout(call: &Call) -> Result<Duration> {
    match call.query("timeoutSeconds") {
        None => Ok(TIMEOUT),
        Some(text) => text
            .parse()
            .map(Duration::from_secs)
            .map_err(|_| Failure::bad_request(format!("invalid timeoutSeconds {text:?}"))),
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    put_line(&mut out, kind, object);
    out.freeze()
}

fn put_line(out: &mut BytesMut, kind: &str, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}

/// How long a watch lasts if the client does not say; between the 30 and 60 minutes of Kubernetes.
const TIMEOUT: Duration = Duration::from_mins(45);
/// As in Kubernetes.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// As in Kubernetes.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
