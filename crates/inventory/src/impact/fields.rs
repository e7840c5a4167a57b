//! Fields of Cluster API's objects, as they are compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::contract;

/// What decides whether machines are replaced, by its path.
pub(super) type Fields = BTreeMap<String, Value>;

/// A reference by what it names; nothing where there is none. Another version of the same template is the same one.
pub(super) fn reference(reference: &Value) -> Value {
    match reference["name"].as_str() {
        Some(name) => json!([
            contract::group_of_reference(reference),
            reference["kind"],
            name
        ]),
        None => Value::Null,
    }
}

/// A text that may be left out; the webhooks of Cluster API put the `v` before a version that has none.
pub(super) fn version(value: &Value) -> Value {
    match value.as_str() {
        Some(text) if !text.is_empty() => {
            json!(format!("v{}", text.trim_start_matches('v')))
        }
        _ => Value::Null,
    }
}

/// Nothing, where a text is empty.
pub(super) fn text(value: &Value) -> Value {
    match value.as_str() {
        Some("") => Value::Null,
        _ => value.clone(),
    }
}

/// The paths at which two differ.
pub(super) fn differing(before: &Fields, after: &Fields) -> Vec<String> {
    let all = before.keys().chain(after.keys());
    let all: std::collections::BTreeSet<_> = all.collect();
    all.into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .cloned()
        .collect()
}

/// The keys of two maps whose values differ, each behind a path, if there is one. What holds nothing is no difference.
pub(super) fn keys(path: &str, before: &Value, after: &Value) -> Vec<String> {
    let fields = |value: &Value| -> Fields {
        let map = value.as_object();
        let known = map.into_iter().flatten().map(|(key, value)| {
            let at = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            (at, filled(value))
        });
        known.filter(|(_, value)| !value.is_null()).collect()
    };
    differing(&fields(before), &fields(after))
}

/// A value without what holds nothing, which the kinds of Cluster API do not tell from what is left out.
pub(super) fn filled(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let known = map.iter().map(|(key, value)| (key.clone(), filled(value)));
            let known: serde_json::Map<_, _> =
                known.filter(|(_, value)| !value.is_null()).collect();
            if known.is_empty() {
                Value::Null
            } else {
                Value::Object(known)
            }
        }
        Value::Array(list) if list.is_empty() => Value::Null,
        Value::Array(list) => Value::Array(list.iter().map(filled).collect()),
        other => text(other),
    }
}

/// A value without some of its keys.
pub(super) fn without(value: &Value, keys: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        for key in keys {
            map.remove(*key);
        }
    }
    value
}
