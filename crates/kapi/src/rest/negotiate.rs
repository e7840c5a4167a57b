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
    pub fn of(headers: &HeaderMap) -> Self {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        for choice in accept.split(',') {
            let has = |wanted: &str| choice.split(';').any(|part| part.trim() == wanted);
            let json = choice.trim().starts_with("application/json");
            if !json {
                continue;
            }
            if has("as=Table") && has("v=v1") {
                return Self::Table;
            }
            if has("as=PartialObjectMetadata") || has("as=PartialObjectMetadataList") {
                return Self::Metadata;
            }
            return Self::Plain;
        }
        Self::Plain
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
