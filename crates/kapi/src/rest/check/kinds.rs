//! What the built-in kinds ask of their objects beyond their schemas.
//!
//! # Source
//! Kubernetes `pkg/apis/core/validation/{validation,events}.go`, 1.34.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::qualified;
use crate::{
    failure::Cause,
    registry::{Form, Resource},
};

/// What is wrong with an object; `old` is the one that it replaces.
pub(super) fn causes(resource: &Resource, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    if resource.form == Form::Custom {
        return Vec::new();
    }
    let mut causes = finalizers(value);
    match resource.kind.as_str() {
        "ConfigMap" => {
            causes.extend(keys(value));
            causes.extend(size(value, "[]"));
        }
        "Secret" => {
            causes.extend(keys(value));
            causes.extend(size(value, "data"));
            causes.extend(secret(value));
        }
        "Lease" => causes.extend(lease(value)),
        "Event" => {
            causes.extend(event(resource, value));
            if resource.form == Form::NewEvent {
                causes.extend(match old {
                    None => new_event(value),
                    Some(old) => changed_event(old, value),
                });
            }
        }
        _ => {}
    }
    causes
}

fn finalizers(value: &Value) -> Vec<Cause> {
    let finalizers = value["metadata"]["finalizers"].as_array();
    let named = finalizers.into_iter().flatten().enumerate();
    let wrong = named.filter_map(|(index, finalizer)| {
        let text = finalizer.as_str().unwrap_or_default();
        let standard = ["orphan", "foregroundDeletion", "kubernetes"].contains(&text);
        let rule = "name is neither a standard finalizer name nor is it fully qualified";
        (!(standard || text.contains('/') && qualified(text))).then(|| {
            let field = format!("metadata.finalizers[{index}]");
            invalid(&field, &format!("{text:?}: {rule}"))
        })
    });
    wrong.collect()
}

/// The keys of a ConfigMap or Secret.
fn keys(value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    for map in ["data", "binaryData"] {
        for name in value[map].as_object().into_iter().flat_map(Map::keys) {
            let field = format!("{map}[{name}]");
            if name.is_empty() || name.len() > 253 || !name.chars().all(legal) {
                let rule =
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
                causes.push(invalid(&field, &format!("{name:?}: {rule}")));
            } else if map == "data" && value["binaryData"].get(name).is_some() {
                let rule = "duplicate of key present in binaryData";
                causes.push(invalid(&field, &format!("{name:?}: {rule}")));
            }
        }
    }
    causes
}

/// The values of a ConfigMap or Secret together.
fn size(value: &Value, field: &str) -> Option<Cause> {
    let texts = |map: &str| {
        let values = value[map].as_object().into_iter().flat_map(Map::values);
        values.filter_map(Value::as_str).collect::<Vec<_>>()
    };
    let encoded = |text: &&str| STANDARD.decode(text).map_or(0, |bytes| bytes.len());
    let plain = |text: &&str| text.len();
    let data = texts("data");
    let data: usize = if field == "data" {
        data.iter().map(encoded).sum()
    } else {
        data.iter().map(plain).sum()
    };
    let binary: usize = texts("binaryData").iter().map(encoded).sum();
    (data + binary > DATA_MAX).then(|| too_long(field, DATA_MAX))
}

/// What the type of a Secret promises.
fn secret(value: &Value) -> Vec<Cause> {
    let field = |key: &str| format!("data[{key}]");
    let absent = |key: &&str| value["data"].get(*key).is_none();
    let docker = |key: &str| match value["data"][key].as_str() {
        None => vec![required(&field(key))],
        Some(text) if is_json_object(text) => Vec::new(),
        Some(_) => vec![invalid(&field(key), "<secret contents redacted>: no JSON")],
    };
    match value["type"].as_str().unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            let named = !text(&value["metadata"]["annotations"], ACCOUNT).is_empty();
            let cause = || required(&format!("metadata.annotations[{ACCOUNT}]"));
            (!named).then(cause).into_iter().collect()
        }
        "kubernetes.io/dockercfg" => docker(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker(".dockerconfigjson"),
        "kubernetes.io/basic-auth" => {
            let keys = ["username", "password"];
            let missing = keys.iter().all(absent);
            let causes = keys.iter().map(|key| required(&field(key)));
            causes.filter(|_| missing).collect()
        }
        "kubernetes.io/ssh-auth" => {
            const KEY: &str = "ssh-privatekey";
            let missing = text(&value["data"], KEY).is_empty();
            missing.then(|| required(&field(KEY))).into_iter().collect()
        }
        "kubernetes.io/tls" => {
            let missing = ["tls.crt", "tls.key"].into_iter().filter(absent);
            missing.map(|key| required(&field(key))).collect()
        }
        _ => Vec::new(),
    }
}

fn is_json_object(encoded: &str) -> bool {
    let decoded = STANDARD.decode(encoded).unwrap_or_default();
    serde_json::from_slice::<Map<String, Value>>(&decoded).is_ok()
}

fn lease(value: &Value) -> Option<Cause> {
    let seconds = value["spec"]["leaseDurationSeconds"].as_i64()?;
    let rule = || format!("{seconds}: must be greater than 0");
    (seconds <= 0).then(|| invalid("spec.leaseDurationSeconds", &rule()))
}

/// What every Event must be. One with an `eventTime` comes from a newer client, of whom more is asked.
fn event(resource: &Resource, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let namespace = text(&value["metadata"], "namespace");
    let subject = text(&value["involvedObject"], "namespace");
    let timed = is_set(&value["eventTime"]);
    let agrees = match (timed, subject) {
        (true, "") => ["default", "kube-system"].contains(&namespace),
        (true, _) => true,
        (false, "") => namespace == "default",
        (false, subject) => subject == namespace,
    };
    if !agrees {
        let rule = format!("{subject:?}: does not match event.namespace");
        causes.push(invalid("involvedObject.namespace", &rule));
    }
    if !timed {
        return causes;
    }
    let reporter = text(value, "reportingComponent");
    let field = match resource.form {
        Form::NewEvent => "reportingController",
        _ => "reportingComponent",
    };
    if reporter.is_empty() {
        // In Kubernetes too these are three.
        let rules = ["must be non-empty", "must be a qualified name"];
        causes.push(required(field));
        causes.extend(rules.map(|rule| invalid(field, rule)));
    } else if !qualified(reporter) {
        let rule = format!("{reporter:?}: must be a qualified name");
        causes.push(invalid(field, &rule));
    }
    for field in ["reportingInstance", "action", "reason"] {
        match text(value, field).len() {
            0 => causes.push(required(field)),
            1..=128 => {}
            _ => causes.push(invalid(field, "can have at most 128 characters")),
        }
    }
    if text(value, "message").len() > 1024 {
        causes.push(invalid("message", "can have at most 1024 characters"));
    }
    causes
}

/// What an Event must be when it is made by the newer API.
fn new_event(value: &Value) -> Vec<Cause> {
    let mut causes = series(value);
    if !is_set(&value["eventTime"]) {
        causes.push(required("eventTime"));
    }
    let kind = text(value, "type");
    if !["Normal", "Warning"].contains(&kind) {
        causes.push(invalid("type", &format!("has invalid value: {kind}")));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if is_set(&value[field]) {
            causes.push(invalid(field, "needs to be unset"));
        }
    }
    causes
}

/// What the newer API lets nobody change.
fn changed_event(old: &Value, new: &Value) -> Vec<Cause> {
    let changed = |field: &&str| {
        let (before, after) = (&old[*field], &new[*field]);
        before != after && (is_set(before) || is_set(after))
    };
    let mut causes = if changed(&"series") {
        series(new)
    } else {
        Vec::new()
    };
    let fixed = FIXED.iter().filter(|(field, _)| changed(field));
    causes.extend(fixed.map(|(_, name)| invalid(name, "field is immutable")));
    causes
}

fn series(value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let series = &value["series"];
    if series.is_object() {
        if series["count"].as_i64().unwrap_or_default() < 2 {
            causes.push(invalid("series.count", "should be at least 2"));
        }
        if !is_set(&series["lastObservedTime"]) {
            causes.push(required("series.lastObservedTime"));
        }
    }
    causes
}

/// Whether a field has a value that Go would not leave out.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Object(fields) => fields.values().any(is_set),
        _ => true,
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn required(field: &str) -> Cause {
    Cause {
        reason: "FieldValueRequired".into(),
        message: "Required value".into(),
        field: field.into(),
    }
}

pub(super) fn too_long(field: &str, most: usize) -> Cause {
    Cause {
        reason: "FieldValueTooLong".into(),
        message: format!("Too long: may not be more than {most} bytes"),
        field: field.into(),
    }
}

fn invalid(field: &str, rule: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {rule}"),
        field: field.into(),
    }
}

/// What a ConfigMap or a Secret holds at most, in bytes.
const DATA_MAX: usize = 1 << 20;

/// Fields of an Event as they are stored, and as a refusal names them. The reason is checked twice.
const FIXED: &[(&str, &str)] = &[
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "firstTimestamp"),
    ("lastTimestamp", "lastTimestamp"),
    ("count", "count"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];
