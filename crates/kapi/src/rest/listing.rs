//! The body of a list: its objects' bytes, one after the other. Nothing is parsed, and no more than a part of it is in memory
//! beside the objects themselves.

use std::{convert::Infallible, iter, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, stream};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::answer::bytes_response;
use crate::{
    registry::{Form, Resource},
    store::Object,
};

/// What is sent at once: several records of TLS, and little beside the list of a thousand objects.
const PART: usize = 64 * 1024;
const END: &[u8] = b"]}";

/// A list of objects as they are stored.
pub(crate) fn respond(
    resource: &Resource,
    metadata: &Value,
    objects: Vec<Arc<Object>>,
) -> Response {
    let head = head(resource, metadata);
    if !resource.serves_as_kept() {
        let resource = resource.clone();
        let objects = objects.into_iter().map(move |object| {
            let mut value = object.value();
            resource.to_served(&mut value);
            value.to_string().into()
        });
        return bytes_response(StatusCode::OK, Body::from_stream(parts(head, objects)));
    }
    let commas = objects.len().saturating_sub(1);
    let size: usize = objects.iter().map(|object| object.json_len()).sum();
    let length = head.len() + size + commas + END.len();
    let objects = objects.into_iter().map(|object| object.json());
    let mut response = bytes_response(StatusCode::OK, Body::from_stream(parts(head, objects)));
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

fn head(resource: &Resource, metadata: &Value) -> Bytes {
    let mut metadata = metadata.clone();
    if resource.form == Form::Custom && metadata.get("continue").is_none() {
        // Lists of custom kinds have it in any case.
        metadata["continue"] = json!("");
    }
    let kind = &resource.list_kind;
    let version = resource.api_version();
    format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata},"items":["#).into()
}

/// Puts a list together, part by part as it is sent.
fn parts(
    head: Bytes,
    objects: impl Iterator<Item = Bytes> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let commas = iter::once(Bytes::new()).chain(iter::repeat(Bytes::from_static(b",")));
    let items = commas
        .zip(objects)
        .flat_map(|(comma, object)| [comma, object]);
    let mut pieces = iter::once(head)
        .chain(items)
        .chain(iter::once(Bytes::from_static(END)));
    stream::iter(iter::from_fn(move || {
        let mut part = BytesMut::with_capacity(PART + PART / 4);
        while part.len() < PART {
            let Some(piece) = pieces.next() else { break };
            part.put(piece);
        }
        (!part.is_empty()).then(|| Ok(part.freeze()))
    }))
}
