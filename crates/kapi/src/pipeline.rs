//! Where the server meets the pure modules: it hands them values and turns their errors into `Status`es.


mod standin;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Value, json};

pub(crate) use self::standin::{Column, FieldError, Schema};
use crate::{
    failure::{Cause, Failure, Result},
    registry::{Registry, Resource},
    rest::request::Call,
};

/// How a write takes part in the ownership of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Update,
    /// The managed fields were computed by the apply itself.
    Apply,
}

/// How much of the object comes with a row of a Table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    pub fn of(value: Option<&str>) -> Self {
        match value {
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        }
    }
}

pub(crate) fn built_in_schema(_kind: &str) -> Schema {
    Schema::compile(&json!({})).unwrap_or_else(|_| unreachable!())
}

pub(crate) fn builtin_columns(_kind: &str) -> Vec<Column> {
    Vec::new()
}

pub(crate) fn columns(_columns: Option<&[CustomResourceColumnDefinition]>) -> Vec<Column> {
    Vec::new()
}

pub(crate) fn table(_: &Resource, objects: &[Value], _: Include, metadata: &Value) -> Value {
    standin::table(objects, metadata)
}

pub(crate) fn cause(error: &FieldError) -> Cause {
    Cause {
        reason: error.reason.to_string(),
        message: error.message.clone(),
        field: error.path.clone(),
    }
}

pub(crate) fn track(_: Option<&Value>, _: &mut Value, _: &Call, _: &Resource) {}

pub(crate) fn apply(live: Option<&Value>, applied: &Value, _: &Call, _: &Resource) -> Result<Value> {
    Ok(standin::merge(live.unwrap_or(&Value::Null), applied))
}

pub(crate) fn json_patch(_: &Resource, old: &Value, patch: &Value) -> Result<Value> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Failure::bad_request(error.to_string()))?;
    let mut new = old.clone();
    json_patch::patch(&mut new, &patch).map_err(|error| Failure::bad_request(error.to_string()))?;
    Ok(new)
}

pub(crate) fn merge_patch(old: &Value, patch: &Value) -> Value {
    standin::merge(old, patch)
}

pub(crate) fn strategic_patch(_: &Resource, old: &Value, patch: &Value) -> Result<Value> {
    Ok(standin::merge(old, patch))
}

pub(crate) fn protobuf(_: &[u8]) -> Result<Value> {
    Err(Failure::unsupported_media("application/json"))
}

pub(crate) fn openapi_index(_: &Registry) -> Value {
    json!({"paths": {}})
}

pub(crate) fn openapi(_: &Registry, _: &str, _: &str) -> Option<Value> {
    None
}
