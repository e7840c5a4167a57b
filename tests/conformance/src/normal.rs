//! Answers without what differs from run to run.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::play::pattern;

/// Without what a server makes up (ids, revisions, times, generated names, objects that controllers add), and without
/// prose: messages and descriptions are each server's own, while codes, reasons and fields are for programs.
pub(crate) fn normal(value: Value, namespace: &str) -> Value {
    match value {
        Value::String(text) => json!(plain(&text, namespace)),
        Value::Array(items) => items
            .into_iter()
            .filter(|item| !added(item))
            .map(|item| normal(item, namespace))
            .collect(),
        Value::Object(fields) => {
            let generated = fields
                .get("generateName")
                .and_then(Value::as_str)
                .map(|prefix| format!("{prefix}*****"));
            let hidden = hidden(&fields);
            let mut out: Map<String, Value> = fields
                .into_iter()
                .filter(|(name, _)| !hidden.contains(&name.as_str()))
                .map(|(name, field)| {
                    let field = match (name.as_str(), field) {
                        ("resourceVersion", Value::String(text)) if !text.is_empty() => json!("RV"),
                        ("continue", Value::String(text)) if !text.is_empty() => json!("CONTINUE"),
                        (
                            "creationTimestamp" | "deletionTimestamp" | "lastTransitionTime"
                            | "time",
                            Value::String(_),
                        ) => json!("TIME"),
                        ("cells", field) => ageless(&normal(field, namespace)),
                        (_, field) => normal(field, namespace),
                    };
                    (plain(&name, namespace), field)
                })
                .collect();
            if let Some(name) = generated {
                out.insert("name".into(), json!(name));
            }
            if let Some(entries) = out.get_mut("managedFields").and_then(Value::as_array_mut) {
                entries.sort_by_key(|entry| {
                    ["operation", "manager", "subresource"].map(|name| entry[name].to_string())
                });
            }
            // The real server leaves these out in lists of built-in kinds; ours sends objects as they are stored.
            for item in out
                .get_mut("items")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Some(item) = item.as_object_mut() {
                    item.retain(|name, _| !["apiVersion", "kind"].contains(&name.as_str()));
                }
            }
            for name in ["verbs", "causes"] {
                // The real server has no order for these.
                if let Some(list) = out.get_mut(name).and_then(Value::as_array_mut) {
                    list.sort_by_key(ToString::to_string);
                }
            }
            out.sort_keys();
            Value::Object(out)
        }
        scalar => scalar,
    }
}

/// Fields that are not compared.
fn hidden(fields: &Map<String, Value>) -> &'static [&'static str] {
    let is = |name: &str| fields.contains_key(name);
    if fields.get("kind") == Some(&json!("Status")) || is("field") && is("reason") {
        &["message"]
    } else if is("priority") && is("format") {
        // The column of a table.
        &["description"]
    } else if is("storageVersionHash") || is("serverAddressByClientCIDRs") {
        &["storageVersionHash", "serverAddressByClientCIDRs"]
    } else {
        &[]
    }
}

/// What the controllers of a real cluster put into every namespace, and what says nothing.
fn added(item: &Value) -> bool {
    let places = [
        "/metadata/name",
        "/object/metadata/name",
        "/object/object/metadata/name",
        "/cells/0",
    ];
    let name = places
        .into_iter()
        .find_map(|path| item.pointer(path)?.as_str());
    // Progress is told in each server's own time; that the initial events are over is told in an annotation.
    let progress =
        item["type"] == "BOOKMARK" && item.pointer("/object/metadata/annotations").is_none();
    progress || matches!(name, Some("kube-root-ca.crt" | "default"))
}

/// A text without what is made up for each run.
fn plain(text: &str, namespace: &str) -> String {
    UID.replace_all(&text.replace(namespace, "NS"), "UID")
        .into_owned()
}

/// The cells of a row without ages, which grow while the suite runs, and times.
fn ageless(cells: &Value) -> Value {
    let cells = cells.as_array().cloned().unwrap_or_default().into_iter();
    cells
        .map(|cell| match cell.as_str() {
            Some(text) if AGE.is_match(text) => json!("AGE"),
            _ => cell,
        })
        .collect()
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern("^([0-9]{1,2}[sm]|20[0-9-]+T[0-9:]+Z)$"));
