//! Where the server meets the pure modules: it hands them values and turns their errors into `Status`es.


mod standin;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Value, json};

pub(crate) use self::standin::Column;
pub(crate) use crate::schema::{FieldError, Schema};
use crate::{
    apply as ssa, events, patch,
    failure::{Cause, Failure, Result},
    registry::{Form, Registry, Resource},
    rest::request::{Call, Sub},
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

/// The schema of a resource: compiled from its definition, or one of those that are built in.
#[derive(Debug)]
pub(crate) enum Shape {
    BuiltIn(&'static Schema),
    Defined(Box<Schema>),
}

impl std::ops::Deref for Shape {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::BuiltIn(schema) => schema,
            Self::Defined(schema) => schema,
        }
    }
}

/// The schema in which a built-in kind is stored.
pub(crate) fn built_in_schema(kind: &str) -> Result<Shape, Vec<String>> {
    if let Some(schema) = crate::schema::builtin(kind) {
        return Ok(Shape::BuiltIn(schema));
    }
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Schema::compile(&anything).map(|schema| Shape::Defined(Box::new(schema)))
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

/// Notes who owns the fields of an object that is about to be stored.
pub(crate) fn track(old: Option<&Value>, new: &mut Value, call: &Call, resource: &Resource) {
    let version = stored_version(resource);
    ssa::track_update(old, new, &ownership(call, &version), &resource.schema);
}

/// Server-side apply. Both values and the result are in the stored form, except a live Event of the newer API.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    call: &Call,
    resource: &Resource,
) -> Result<Value> {
    let mut live = live.cloned();
    if resource.form == Form::NewEvent
        && let Some(live) = &mut live
    {
        events::to_core(live);
    }
    let version = stored_version(resource);
    ssa::apply(live.as_ref(), applied, &ownership(call, &version), &resource.schema)
        .map_err(|error| apply_failure(&error))
}

fn apply_failure(error: &ssa::Error) -> Failure {
    match error {
        ssa::Error::Conflict(conflicts) => {
            let causes: Vec<Cause> = conflicts
                .iter()
                .map(|conflict| Cause {
                    reason: "FieldManagerConflict".into(),
                    message: conflict.message(),
                    field: conflict.path.clone(),
                })
                .collect();
            Failure::apply_conflict(error.to_string(), &causes)
        }
        ssa::Error::Configuration { .. } | ssa::Error::Decode(_) => {
            Failure::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", error.to_string())
        }
        _ => Failure::bad_request(error.to_string()),
    }
}

fn ownership<'a>(call: &'a Call, api_version: &'a str) -> ssa::Options<'a> {
    ssa::Options {
        manager: &call.manager,
        force: call.flag("force"),
        subresource: call.sub.map(Sub::name),
        api_version,
        time: jiff::Timestamp::now(),
    }
}

fn stored_version(resource: &Resource) -> String {
    match resource.form {
        Form::NewEvent => "v1".into(),
        _ => resource.api_version(),
    }
}

pub(crate) fn json_patch(resource: &Resource, old: &Value, operations: &Value) -> Result<Value> {
    patch::json(old, operations).map_err(|error| patch_failure(&error, resource, old))
}

pub(crate) fn merge_patch(old: &Value, changes: &Value) -> Value {
    patch::merge(old, changes)
}

pub(crate) fn strategic_patch(resource: &Resource, old: &Value, changes: &Value) -> Result<Value> {
    let kind = match resource.kind.as_str() {
        "Namespace" => patch::Kind::Namespace,
        "Secret" => patch::Kind::Secret,
        "ConfigMap" => patch::Kind::ConfigMap,
        "Lease" => patch::Kind::Lease,
        "ServiceAccount" => patch::Kind::ServiceAccount,
        "CustomResourceDefinition" => patch::Kind::CustomResourceDefinition,
        _ => patch::Kind::Event,
    };
    patch::strategic(old, changes, kind).map_err(|error| patch_failure(&error, resource, old))
}

fn patch_failure(error: &patch::PatchError, resource: &Resource, old: &Value) -> Failure {
    use patch::PatchError::{Malformed, Strategic};
    match error {
        Malformed(_) | Strategic(_) => Failure::bad_request(error.to_string()),
        _ => {
            let name = old["metadata"]["name"].as_str().unwrap_or_default();
            let mut failure = Failure::invalid(resource, name, &[]);
            failure.message = format!("the server rejected our request due to an error in our request: {error}");
            failure
        }
    }
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
