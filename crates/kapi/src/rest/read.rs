//! get and list.

use std::{ops::Bound, sync::Arc};

use axum::response::Response;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    answer::{bytes_response, json_response},
    listing,
    negotiate::{View, include, metadata_only, present},
    options,
    request::Call,
};
use crate::{
    failure::{Failure, Result},
    pipeline,
    registry::Resource,
    selector::Selector,
    state::Api,
    store::{Event, Events, Key, Object, Previous, Snapshot},
};

pub(crate) fn get(api: &Api, call: &Call, view: View) -> Result<Response> {
    let resource = call.resource(api);
    let include = include(call, view)?;
    let object = find(api, call)?;
    let body = present(resource, &object, view, include);
    Ok(bytes_response(StatusCode::OK, body))
}

/// The object that a call names.
pub(crate) fn find(api: &Api, call: &Call) -> Result<Arc<Object>> {
    let resource = call.resource(api);
    let name = call.name.as_deref().unwrap_or_default();
    let key = Key::new(call.namespace.as_deref().unwrap_or_default(), name);
    api.store
        .object(resource.stored, &key)
        .ok_or_else(|| Failure::not_found(resource, name))
}

/// A position in a list: its snapshot, and the last object of the page before.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    /// None to go on with what is there by then.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    #[serde(rename = "ns")]
    namespace: String,
    #[serde(rename = "n")]
    name: String,
}

struct Page {
    revision: u64,
    objects: Vec<Arc<Object>>,
    next: Option<String>,
    remaining: Option<usize>,
}

pub(crate) fn list(api: &Api, call: &Call, view: View) -> Result<Response> {
    let resource = call.resource(api);
    let selector = call.selector(resource)?;
    options::check_list(call)?;
    let include = include(call, view)?;
    let page = page(api, call, resource, &selector)?;
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = page.remaining.filter(|_| selector.is_empty()) {
        metadata["remainingItemCount"] = json!(remaining);
    }
    match view {
        View::Table => {
            let values: Vec<Value> = page.objects.iter().map(|object| object.value()).collect();
            let table = pipeline::table(resource, &values, include, &metadata);
            Ok(json_response(StatusCode::OK, &table))
        }
        View::Metadata => {
            let items: Vec<Value> = page
                .objects
                .iter()
                .map(|object| metadata_only(&object.value()))
                .collect();
            Ok(json_response(
                StatusCode::OK,
                &json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata, "items": items,
                }),
            ))
        }
        View::Plain => Ok(listing::respond(resource, &metadata, page.objects)),
    }
}

fn page(api: &Api, call: &Call, resource: &Resource, selector: &Selector) -> Result<Page> {
    let limit: usize = match call.query("limit") {
        None => 0,
        // A negative one is no limit.
        Some(text) => text
            .parse::<i64>()
            .map(|limit| usize::try_from(limit).unwrap_or_default())
            .map_err(|_| Failure::bad_request(format!("invalid limit {text:?}: not a number")))?,
    };
    let (snapshot, after) = match call.query("continue") {
        Some(token) => {
            if call.revision()?.is_some() {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = parse_continue(token)?;
            let after = Key::new(&token.namespace, &token.name);
            let snapshot = match token.revision {
                Some(revision) => {
                    list_at(api, resource, revision).ok_or_else(|| outdated(token))?
                }
                None => api.store.snapshot(resource.stored),
            };
            (snapshot, Some(after))
        }
        None => (snapshot_at(api, call, resource, limit)?, None),
    };
    let namespace = call.namespace.as_deref();
    let mut wanted =
        within(&snapshot, namespace, after.as_ref()).filter(|object| selector.matches(object));
    let mut objects: Vec<Arc<Object>> = Vec::new();
    while limit == 0 || objects.len() < limit {
        match wanted.next() {
            Some(object) => objects.push(Arc::clone(object)),
            None => break,
        }
    }
    let remaining = wanted.count();
    let next = objects.last().filter(|_| remaining > 0).map(|last| {
        print_continue(&Continue {
            revision: Some(snapshot.revision),
            namespace: last.key.namespace.to_string(),
            name: last.key.name.to_string(),
        })
    });
    if next.is_some() {
        api.store.keep_page(resource.stored, &snapshot);
    }
    Ok(Page {
        revision: snapshot.revision,
        objects,
        remaining: next.is_some().then_some(remaining),
        next,
    })
}

/// The objects of a snapshot in a namespace, or in all, after a key.
pub(crate) fn within<'a>(
    snapshot: &'a Snapshot,
    namespace: Option<&'a str>,
    after: Option<&Key>,
) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    let start = match (after, namespace) {
        (Some(after), _) => Bound::Excluded(after.clone()),
        (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
        (None, None) => Bound::Unbounded,
    };
    snapshot
        .objects
        .range((start, Bound::Unbounded))
        .map(|(_, object)| object)
        .take_while(move |object| namespace.is_none_or(|wanted| *object.key.namespace == *wanted))
}

fn print_continue(token: &Continue) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).unwrap_or_default())
}

fn parse_continue(token: &str) -> Result<Continue> {
    URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| Failure::bad_request("continue key is not valid"))
}

/// The page cannot come from the list of the one before. Whoever does not mind goes on with what is there now.
fn outdated(token: Continue) -> Failure {
    let mut failure = Failure::expired(
        "the provided continue parameter is too old for a consistent list: start a new list without it, or take the continue token of this answer for the rest as it is now",
    );
    failure.next = Some(print_continue(&Continue {
        revision: None,
        ..token
    }));
    failure
}

/// The snapshot that satisfies `resourceVersion` and `resourceVersionMatch`.
fn snapshot_at(api: &Api, call: &Call, resource: &Resource, limit: usize) -> Result<Snapshot> {
    let snapshot = api.store.snapshot(resource.stored);
    let Some(wanted) = call.revision()? else {
        return Ok(snapshot);
    };
    if wanted > snapshot.revision {
        return Err(too_new(wanted, snapshot.revision));
    }
    let exact = match call.query("resourceVersionMatch") {
        Some(rule) => rule == "Exact",
        // As Kubernetes has it since before there was that option.
        None => limit > 0,
    };
    if !exact {
        return Ok(snapshot);
    }
    list_at(api, resource, wanted).ok_or_else(|| {
        Failure::expired(format!(
            "The resourceVersion for the provided list is too old: {wanted} (current: {})",
            snapshot.revision
        ))
    })
}

/// The list as it was at a revision: kept for its next page, or the current one with what happened since undone. None
/// when the history does not reach back that far.
fn list_at(api: &Api, resource: &Resource, revision: u64) -> Option<Snapshot> {
    if let Some(kept) = api.store.page(resource.stored, revision) {
        return Some(kept);
    }
    let current = api.store.snapshot(resource.stored);
    let Events::Some(events, _) = api.store.events(resource.stored, revision) else {
        return None;
    };
    // What was written since the snapshot was taken is not in it.
    let seen = |event: &&Arc<Event>| event.object.revision <= current.revision;
    let mut objects = current.objects.clone();
    for event in events.iter().filter(seen).rev() {
        match &event.previous {
            Previous::Absent => {
                objects.remove_mut(&event.object.key);
            }
            Previous::Known(object) => objects.insert_mut(object.key.clone(), Arc::clone(object)),
            Previous::Unknown => return None,
        }
    }
    Some(Snapshot { revision, objects })
}

fn too_new(wanted: u64, current: u64) -> Failure {
    let message = format!("Too large resource version: {wanted}, current: {current}");
    let mut failure = Failure::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
    let details = json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    });
    failure.details = Some(Box::new(details));
    failure
}
