//! Where the server meets the pure modules: it hands them values and turns their errors into `Status`es.

use serde_json::{Map, Value, json};

use crate::{
    apply as ssa, events,
    failure::{Cause, Failure, Result},
    openapi, patch,
    registry::{Form, Registry, Resource},
    table,
};
pub(crate) use crate::{
    schema::{FieldError, Schema},
    table::Include,
};

/// How a write takes part in the ownership of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Update,
    /// The managed fields were computed by the apply itself.
    Apply,
}

/// Stored objects as a Table with the metadata of their list.
pub(crate) fn table(
    resource: &Resource,
    objects: &[Value],
    include: Include,
    metadata: &Value,
) -> Value {
    let options = table::Options {
        wide: true,
        include_object: include,
        now: jiff::Timestamp::now(),
    };
    let converted: Vec<Value>;
    let objects: Vec<&Value> = if resource.kept.is_some() {
        let served = |object: &Value| {
            let mut object = object.clone();
            resource.to_served(&mut object);
            object
        };
        converted = objects.iter().map(served).collect();
        converted.iter().collect()
    } else {
        objects.iter().collect()
    };
    let mut table = table::render(&resource.columns, &objects, &options);
    table["metadata"] = metadata.clone();
    if resource.form == Form::NewEvent && include == Include::Object {
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            events::to_events(&mut row["object"]);
        }
    }
    table
}

pub(crate) fn cause(error: &FieldError) -> Cause {
    Cause {
        reason: error.reason.to_string(),
        message: error.message.clone(),
        field: error.path.clone(),
    }
}

/// Notes who owns the fields of an object that is about to be stored.
pub(crate) fn track(
    old: Option<&Value>,
    new: &mut Value,
    options: &ssa::Options<'_>,
    resource: &Resource,
) {
    if resource.form != Form::NewEvent {
        return ssa::track_update(old, new, options, &resource.schema);
    }
    let old = old.cloned().map(|mut old| {
        events::to_events(&mut old);
        old
    });
    events::to_events(new);
    ssa::track_update(old.as_ref(), new, options, published_schema(resource));
    events::to_core(new);
    events::fill(new);
}

/// Server-side apply. Both values and the result are in the stored form, except a live Event of the newer API.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    options: &ssa::Options<'_>,
    resource: &Resource,
) -> Result<Value> {
    let result = if resource.form == Form::NewEvent {
        let mut applied = applied.clone();
        events::to_events(&mut applied);
        let result = ssa::apply(live, &applied, options, published_schema(resource));
        result.map(|mut result| {
            events::to_core(&mut result);
            result
        })
    } else {
        ssa::apply(live, applied, options, &resource.schema)
    };
    result.map_err(|error| apply_failure(&error))
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
        ssa::Error::Configuration { .. } | ssa::Error::Decode(_) => Failure::new(
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "",
            error.to_string(),
        ),
        _ => Failure::bad_request(error.to_string()),
    }
}

pub(crate) fn json_patch(old: &Value, operations: &Value) -> Result<Value> {
    patch::json(old, operations).map_err(|error| patch_failure(&error))
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
    patch::strategic(old, changes, kind).map_err(|error| patch_failure(&error))
}

fn patch_failure(error: &patch::PatchError) -> Failure {
    use patch::PatchError::{Malformed, Retained, Strategic, TooMany};
    match error {
        TooMany(_) => Failure::too_large(format!("Request entity too large: {error}")),
        Malformed(_) => Failure::bad_request(error.to_string()),
        Strategic(_) => Failure::new(
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "",
            error.to_string(),
        ),
        Retained(_) => Failure::new(
            http::StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            error.to_string(),
        ),
        _ => {
            let mut failure = Failure::new(
                http::StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                format!("the server rejected our request due to an error in our request: {error}"),
            );
            failure.details = Some(Box::new(json!({})));
            failure
        }
    }
}

pub(crate) fn protobuf(bytes: &[u8]) -> Result<Value> {
    crate::protobuf::decode(bytes).map_err(|error| Failure::bad_request(error.to_string()))
}

/// The index of the OpenAPI documents.
pub(crate) fn openapi_index(registry: &Registry) -> Value {
    let documents: Vec<(String, Value)> = registry
        .groups()
        .iter()
        .flat_map(|(group, versions)| versions.iter().map(move |version| (*group, *version)))
        .filter_map(|(group, version)| {
            let path = match group {
                "" => format!("api/{version}"),
                group => format!("apis/{group}/{version}"),
            };
            Some((path, openapi(registry, group, version)?))
        })
        .collect();
    let documents: Vec<(&str, &Value)> = documents
        .iter()
        .map(|(path, document)| (path.as_str(), document))
        .collect();
    openapi::index(&documents)
}

/// The OpenAPI document of one group and version, if it is served.
pub(crate) fn openapi(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<openapi::Resource<'_>> = registry
        .of_version(group, version)
        .map(|resource| openapi::Resource {
            plural: &resource.plural,
            kind: &resource.kind,
            namespaced: resource.namespaced,
            status: resource.status,
            scale: resource
                .scale
                .as_ref()
                .map(|scale| scale.resource.schema.source()),
            schema: published_schema(resource).source(),
        })
        .collect();
    if resources.is_empty() {
        return None;
    }
    let mut document = openapi::group_version(group, version, &resources);
    let custom = registry
        .of_version(group, version)
        .all(|resource| resource.form == Form::Custom);
    if custom {
        // kubectl chooses the kind of its patches by this list, and custom kinds take no strategic ones.
        for path in document["paths"]
            .as_object_mut()
            .into_iter()
            .flat_map(Map::values_mut)
        {
            let content = path.pointer_mut("/patch/requestBody/content");
            if let Some(content) = content.and_then(Value::as_object_mut) {
                content.shift_remove("application/strategic-merge-patch+json");
            }
        }
    }
    Some(document)
}

/// Events of the newer API are stored, and so checked, in the form of the older; they are described in their own.
fn published_schema(resource: &Resource) -> &Schema {
    match resource.form {
        Form::NewEvent => crate::schema::builtin("events.k8s.io/Event").unwrap_or(&resource.schema),
        _ => &resource.schema,
    }
}
