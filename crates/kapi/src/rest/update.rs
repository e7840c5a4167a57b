//! replace and patch: optimistic, repeated while somebody else was faster and the client named no revision.

use axum::{extract::Request, response::Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    body::{self, Body},
    check::{
        accept, convertible, drop_repeated_owners, prepare, settle_kind, strictly, undecodable,
        unqualified, validate,
    },
    negotiate::View,
    read::find,
    request::{Call, Sub},
    write::{Stored, draft, insert, retryable},
};
use crate::{
    definitions,
    failure::{Cause, Failure, Result},
    pipeline::{self, Operation},
    registry::{Form, Resource},
    state::Api,
    store::{Expect, Object, Write},
    value::{name_of, remove},
};

pub(crate) async fn replace(
    api: &Api,
    call: &Call,
    view: View,
    request: Request,
) -> Result<Response> {
    let resource = call.resource(api);
    let Body {
        value: mut new,
        faults,
    } = body::object(request).await?;
    if let Some(why) = undecodable(resource, &new) {
        return Err(Failure::undecodable(resource, &why));
    }
    let warnings = strictly(call, resource, faults)?;
    named(call, &new)?;
    accept(call, resource, &mut new)?;
    drop_repeated_owners(&mut new);
    find(api, call)?;
    require_revision(resource, &new)?;
    let stored = modify(api, call, Operation::Update, |_| Ok(new.clone())).await?;
    let stored = stored.warned(warnings);
    Ok(stored.response(resource, view, StatusCode::OK))
}

pub(crate) async fn patch(
    api: &Api,
    call: &Call,
    view: View,
    request: Request,
) -> Result<Response> {
    let resource = call.resource(api);
    let media = body::media_type(&request);
    let bytes = body::read(request).await?;
    if media == "application/apply-patch+yaml" {
        return apply(api, call, view, &bytes).await;
    }
    let (kind, patch, warnings) = read_patch(call, resource, &media, &bytes)?;
    let stored = modify(api, call, Operation::Update, |old| {
        change(call, resource, kind, old, &patch)
    })
    .await?;
    let stored = stored.warned(warnings);
    Ok(stored.response(resource, view, StatusCode::OK))
}

/// A patch that is no apply: its kind, itself, and warnings.
pub(crate) fn read_patch<'a>(
    call: &Call,
    resource: &Resource,
    media: &'a str,
    bytes: &[u8],
) -> Result<(&'a str, Value, Vec<String>)> {
    let kind = kind_of_patch(call, resource, media)?;
    let Body { value, mut faults } = body::yaml(bytes)?;
    if kind == "json" {
        for fault in &mut faults {
            fault.insert_str(0, "json patch ");
        }
    }
    Ok((kind, value, strictly(call, resource, faults)?))
}

/// Which kind of patch a media type is: `json`, `merge` or `strategic-merge`.
fn kind_of_patch<'a>(call: &Call, resource: &Resource, media: &'a str) -> Result<&'a str> {
    let accepted: &[&str] = match resource.form {
        Form::Custom => &["json", "merge"],
        _ => &["json", "merge", "strategic-merge"],
    };
    let kind = media
        .strip_prefix("application/")
        .and_then(|media| media.strip_suffix("-patch+json"))
        .filter(|kind| accepted.contains(kind))
        .ok_or_else(|| {
            let mut list: Vec<String> = accepted
                .iter()
                .map(|kind| format!("application/{kind}-patch+json"))
                .collect();
            if call.sub != Some(Sub::Scale) {
                list.push("application/apply-patch+yaml".to_owned());
            }
            Failure::unsupported_media(&list.join(", "))
        })?;
    if call.query("force").is_some() {
        let cause = Cause {
            reason: "FieldValueForbidden".into(),
            message: "Forbidden: may not be specified for non-apply patch".into(),
            field: "force".into(),
        };
        return Err(Failure::invalid_option(call.options, &cause));
    }
    Ok(kind)
}

/// What a patch makes of an object.
pub(crate) fn change(
    call: &Call,
    resource: &Resource,
    kind: &str,
    old: &Value,
    patch: &Value,
) -> Result<Value> {
    let new = match kind {
        "json" => pipeline::json_patch(old, patch),
        "merge" => Ok(pipeline::merge_patch(old, patch)),
        _ => pipeline::strategic_patch(resource, old, patch),
    }?;
    if !new.is_object() {
        return Err(Failure::bad_request("the patched object is not an object"));
    }
    if let Some(why) = undecodable(resource, &new) {
        return Err(Failure::undecodable_patch(&why));
    }
    named(call, &new)?;
    Ok(new)
}

/// A replaced or patched object says its name; one that is applied may leave it to the path.
pub(crate) fn named(call: &Call, new: &Value) -> Result<()> {
    if new["metadata"]["name"]
        .as_str()
        .is_some_and(|name| !name.is_empty())
    {
        return Ok(());
    }
    let name = call.name.as_deref().unwrap_or_default();
    Err(Failure::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )))
}

async fn apply(api: &Api, call: &Call, view: View, bytes: &[u8]) -> Result<Response> {
    let resource = call.resource(api);
    if call.query("fieldManager").is_none() {
        let cause = Cause {
            reason: "FieldValueRequired".into(),
            message: "Required value: is required for apply patch".into(),
            field: "fieldManager".into(),
        };
        return Err(Failure::invalid_option(call.options, &cause));
    }
    if call.sub.is_some() {
        find(api, call)?;
    }
    let Body {
        value: mut applied,
        faults,
    } = body::yaml(bytes)?;
    let warnings = strictly(call, resource, faults)?;
    for field in ["apiVersion", "kind"] {
        if applied.get(field).and_then(Value::as_str).is_none() {
            return Err(Failure::bad_request(format!(
                "{field} is required in an apply patch"
            )));
        }
    }
    if let Some(metadata) = applied.get("metadata")
        && !(metadata.is_object() || metadata.is_null())
    {
        return Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "",
            format!("failed to create typed patch object: .metadata: expected map, got {metadata}"),
        ));
    }
    accept(call, resource, &mut applied)?;
    if applied["metadata"]
        .get("managedFields")
        .is_some_and(|fields| !fields.is_null())
    {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    loop {
        if find(api, call).is_ok() {
            let result = modify(api, call, Operation::Apply, |old| {
                named_revision(resource, &applied, old)?;
                pipeline::apply(
                    Some(old),
                    &applied,
                    &call.ownership(&resource.api_version()),
                    resource,
                )
            })
            .await;
            match result {
                // Deleted meanwhile: then this is a creation.
                Err(failure) if failure.code == StatusCode::NOT_FOUND => continue,
                result => {
                    let applied = result?.warned(warnings);
                    return Ok(applied.response(resource, view, StatusCode::OK));
                }
            }
        }
        if call.sub.is_some() {
            return Err(Failure::not_found(
                resource,
                call.name.as_deref().unwrap_or_default(),
            ));
        }
        if let Some(uid) = applied["metadata"]["uid"].as_str() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Failure::conflict(
                resource,
                call.name.as_deref().unwrap_or_default(),
                &why,
            ));
        }
        let new = pipeline::apply(
            None,
            &applied,
            &call.ownership(&resource.api_version()),
            resource,
        )?;
        match insert(api, call, new, Operation::Apply).await {
            Err(failure) if failure.reason == "AlreadyExists" => {}
            result => {
                let created = result?.warned(warnings);
                return Ok(created.response(resource, view, StatusCode::CREATED));
            }
        }
    }
}

/// Reads, changes and writes an object; again if it changed meanwhile and the caller named no revision.
pub(crate) async fn modify(
    api: &Api,
    call: &Call,
    operation: Operation,
    mut change: impl FnMut(&Value) -> Result<Value>,
) -> Result<Stored> {
    let resource = call.resource(api);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let current = find(api, call)?;
        let stored = current.value();
        let old_view = converted(resource, &stored);
        let mut new = change(&old_view)?;
        accept_changed(resource, call, &mut new)?;
        preconditions(resource, &current, &new)?;
        // Events are checked in the form in which they are kept, custom objects in the version of the request.
        let old = match resource.form {
            Form::Custom => &old_view,
            _ => &stored,
        };
        let mut warnings = settle(call, resource, old, &mut new, operation)?;
        resource.keep_custom(&mut new);
        if unchanged(&stored, &new) {
            return Ok(Stored::Object(current, warnings));
        }
        if call.dry_run()? {
            if call.sub.is_none() {
                warnings.extend(api.advice.about(&new).await);
            }
            return Ok(Stored::Shown(new, warnings));
        }
        let gone = finished(resource, &new);
        let write = Write {
            kind: resource.stored,
            key: current.key.clone(),
            expect: Expect::Revision(current.revision),
            // Of what goes, watches are told how it was stored last, with the finalizer that held it.
            draft: draft(resource, if gone { &stored } else { &new })?,
            delete: gone,
        };
        match api.store.write(write).await {
            Ok(object) if gone => {
                new["metadata"]["resourceVersion"] = json!(object.revision.to_string());
                return Ok(Stored::Shown(new, warnings));
            }
            Ok(object) => return Ok(Stored::Object(object, warnings)),
            Err(error) if retryable(&error) && attempts < ATTEMPTS => {}
            Err(error) => return Err(Failure::of_write(&error, resource, &current.key.name)),
        }
    }
}

/// The object in the version of the request.
pub(crate) fn converted(resource: &Resource, old: &Value) -> Value {
    let mut value = old.clone();
    resource.to_served(&mut value);
    value
}

fn accept_changed(resource: &Resource, call: &Call, new: &mut Value) -> Result<()> {
    // A replaced body was converted when it was accepted.
    if resource.form == Form::NewEvent && new["apiVersion"] == "v1" {
        return Ok(());
    }
    accept(call, resource, new)
}

/// The revision and uid that the new object names must be those of the current one.
fn preconditions(resource: &Resource, current: &Object, new: &Value) -> Result<()> {
    let metadata = &new["metadata"];
    let given = |name: &str| {
        metadata
            .get(name)
            .and_then(Value::as_str)
            .filter(|v| !v.is_empty())
    };
    if let Some(uid) = given("uid").filter(|uid| **uid != *current.meta.uid) {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            current.meta.uid
        );
        return Err(Failure::conflict(resource, &current.key.name, &why));
    }
    match given("resourceVersion") {
        Some(revision) if revision != current.revision.to_string() => {
            Err(Failure::modified(resource, &current.key.name))
        }
        _ => Ok(()),
    }
}

/// The revision that an apply names must be the current one. An apply to a subresource keeps the metadata of the object, so
/// that [`preconditions`] cannot see it any more.
fn named_revision(resource: &Resource, applied: &Value, old: &Value) -> Result<()> {
    let revision = |value: &Value| {
        value["metadata"]["resourceVersion"]
            .as_str()
            .filter(|revision| !revision.is_empty())
            .map(str::to_owned)
    };
    match revision(applied) {
        Some(named) if Some(&named) != revision(old).as_ref() => {
            Err(Failure::modified(resource, name_of(old)))
        }
        _ => Ok(()),
    }
}

/// Kinds whose clients must say what they have read.
fn require_revision(resource: &Resource, new: &Value) -> Result<()> {
    let conditional =
        matches!(resource.form, Form::Custom | Form::Definition) || resource.kind == "Lease";
    let given = new["metadata"]["resourceVersion"].as_str();
    if !conditional || given.is_some_and(|revision| !revision.is_empty()) {
        return Ok(());
    }
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: "Invalid value: 0x0: must be specified for an update".into(),
        field: "metadata.resourceVersion".into(),
    };
    let mut failure = Failure::invalid(resource, name_of(new), &[cause]);
    if let Some(details) = &mut failure.details {
        details["kind"] = json!(resource.plural);
    }
    Err(failure)
}

/// Brings a changed object into the state in which it is stored: what may not change is taken from the old one.
fn settle(
    call: &Call,
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    operation: Operation,
) -> Result<Vec<String>> {
    convertible(resource, new, operation)?;
    let mut warnings = prepare(call, resource, new, operation)?;
    warnings.extend(unqualified(resource, Some(old), new));
    if operation == Operation::Update {
        // Before what the request may not change is put back, as Kubernetes does.
        pipeline::track(
            Some(old),
            new,
            &call.ownership(&resource.api_version()),
            resource,
        );
    }
    settle_kind(resource, new);
    keep(call, resource, old, new);
    if resource.form == Form::Definition && call.sub.is_none() {
        let spec = new["spec"].clone();
        definitions::status::store_version(&mut new["status"], &spec);
    }
    validate(resource, new, Some(old), immutable(resource, old, new))?;
    no_new_finalizers(resource, old, new)?;
    if matches!(resource.form, Form::Custom | Form::Definition) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
        let changed = without(old, resource.status) != without(new, resource.status);
        new["metadata"]["generation"] = json!(generation + i64::from(changed));
    }
    Ok(warnings)
}

fn keep(call: &Call, resource: &Resource, old: &Value, new: &mut Value) {
    if call.sub == Some(Sub::Status) && resource.form != Form::Custom {
        // Of the built-in kinds only the spec is somebody else's.
        set(new, "spec", old.get("spec").cloned());
    } else if call.sub == Some(Sub::Status) {
        let status = new.get("status").cloned();
        let managed = new["metadata"].get("managedFields").cloned();
        *new = old.clone();
        set(new, "status", status);
        set(&mut new["metadata"], "managedFields", managed);
    } else if call.sub == Some(Sub::Finalize) {
        set(new, "status", old.get("status").cloned());
        if !new["spec"].is_object() {
            new["spec"] = json!({});
        }
    } else if resource.status {
        set(new, "status", old.get("status").cloned());
        if resource.form == Form::Namespace {
            set(new, "spec", old.get("spec").cloned());
        }
    }
    for name in [
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "selfLink",
    ] {
        let value = old["metadata"].get(name).cloned();
        set(&mut new["metadata"], name, value);
    }
}

/// Sets or removes a field.
fn set(object: &mut Value, name: &str, value: Option<Value>) {
    match value {
        Some(value) => object[name] = value,
        None => {
            remove(object, name);
        }
    }
}

/// What is on its way out takes no more finalizers.
fn no_new_finalizers(resource: &Resource, old: &Value, new: &Value) -> Result<()> {
    let list = |value: &Value| {
        value["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let before = list(old);
    let added = list(new).into_iter().any(|f| !before.contains(&f));
    if !added || old["metadata"].get("deletionTimestamp").is_none() {
        return Ok(());
    }
    let cause = Cause {
        reason: "FieldValueForbidden".into(),
        message: "Forbidden: no new finalizers can be added if the object is being deleted".into(),
        field: "metadata.finalizers".into(),
    };
    Err(Failure::invalid(resource, name_of(new), &[cause]))
}

fn immutable(resource: &Resource, old: &Value, new: &Value) -> Vec<Cause> {
    let locked = old["immutable"] == json!(true);
    let frozen: &[&str] = match resource.kind.as_str() {
        "Secret" if locked => &["data", "type", "immutable"],
        "Secret" => &["type"],
        "ConfigMap" if locked => &["data", "binaryData", "immutable"],
        _ => return Vec::new(),
    };
    frozen
        .iter()
        .filter(|field| old.get(**field) != new.get(**field))
        .map(|field| {
            // As in Kubernetes, which has another check for this one.
            let (reason, word) = match *field {
                "type" => ("FieldValueInvalid", "Invalid value"),
                _ => ("FieldValueForbidden", "Forbidden"),
            };
            Cause {
                reason: reason.into(),
                message: format!("{word}: field is immutable"),
                field: (*field).into(),
            }
        })
        .collect()
}

/// The part of an object whose change is a new generation.
fn without(value: &Value, status: bool) -> Value {
    let mut value = value.clone();
    remove(&mut value, "metadata");
    if status {
        remove(&mut value, "status");
    }
    value
}

/// Whether a write would change nothing but the times in the managed fields. Then none is made: otherwise every
/// server-side apply of a controller would wake that controller.
fn unchanged(old: &Value, new: &Value) -> bool {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    before.len() == after.len()
        && before.iter().all(|(name, value)| {
            if name == "metadata" {
                timeless(value) == timeless(&new["metadata"])
            } else {
                after.get(name) == Some(value)
            }
        })
}

fn timeless(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    remove(&mut metadata, "resourceVersion");
    for entry in metadata["managedFields"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        remove(entry, "time");
    }
    if metadata["managedFields"].is_null() {
        remove(&mut metadata, "managedFields");
    }
    metadata
}

/// Whether nothing holds a deleted object any more: it goes in the same write that removed the last finalizer.
pub(crate) fn finished(resource: &Resource, value: &Value) -> bool {
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    value["metadata"]
        .get("deletionTimestamp")
        .is_some_and(Value::is_string)
        && empty(&value["metadata"]["finalizers"])
        && (resource.form != Form::Namespace || empty(&value["spec"]["finalizers"]))
}

/// Tries of one request against faster writers.
const ATTEMPTS: u32 = 32;
