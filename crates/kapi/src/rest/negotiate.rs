//! The form of an answer: the object itself, a Table for kubectl, or only the metadata.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::request::Call;
use crate::{
    failure::{Failure, Result},
    pipeline::{self, Include},
    registry::Resource,
    store::Object,
};

/// What the client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Plain,
    Metadata,
    Table,
}

impl View {
    /// The first form that a client accepts and that there is.
    pub fn of(headers: &HeaderMap) -> Result<Self> {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if accept.trim().is_empty() {
            return Ok(Self::Plain);
        }
        let mut forms = accept.split(',').filter_map(form);
        forms.next().ok_or_else(Failure::not_acceptable)
    }
}

/// The form that one choice asks for, if there is such a form.
fn form(choice: &str) -> Option<View> {
    let mut parts = choice.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    if !["application/json", "application/*", "*/*"].contains(&media.as_str()) {
        return None;
    }
    let (mut kind, mut group, mut version) = ("", "", "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            "stream" if !["", "watch"].contains(&value) => return None,
            "sv" if !value.is_empty() => return None,
            _ => {}
        }
    }
    match (kind, group, version) {
        ("", "", "") => Some(View::Plain),
        ("Table", "meta.k8s.io", "v1") => Some(View::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Some(View::Metadata)
        }
        _ => None,
    }
}

/// How much of each object a Table carries.
pub(crate) fn include(call: &Call, view: View) -> Result<Include> {
    match call.query("includeObject") {
        Some("None") => Ok(Include::None),
        Some("Object") => Ok(Include::Object),
        Some(other) if view == View::Table && other != "Metadata" => {
            Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            )))
        }
        _ => Ok(Include::Metadata),
    }
}

/// One object in the form asked for.
pub(crate) fn present(resource: &Resource, object: &Object, view: View, include: Include) -> Bytes {
    if view == View::Plain && resource.serves_as_kept() {
        return object.json();
    }
    present_value(resource, object.value(), view, include)
        .to_string()
        .into()
}

pub(crate) fn present_value(
    resource: &Resource,
    mut value: Value,
    view: View,
    include: Include,
) -> Value {
    match view {
        View::Table => {
            let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
            pipeline::table(resource, &[value], include, &metadata)
        }
        View::Metadata => metadata_only(&value),
        View::Plain => {
            resource.to_served(&mut value);
            value
        }
    }
}

pub(crate) fn metadata_only(value: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": value.get("metadata"),
    })
}
