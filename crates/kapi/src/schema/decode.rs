//! What becomes of values in Go's structs: types that the decoder insists on, and what is left out when they are encoded.
//!
//! Null goes with every type there. What is unknown is not looked at: pruning removes it.

use serde_json::{Map, Value};

use super::{
    formats,
    node::{Additional, Node, Type},
    prune::child_path,
};

/// The first value of another type than its node, and what is wrong with it.
pub(super) fn wrong(node: &Node, value: &Value, path: &str) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let mismatch = || {
        let found = match value {
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) | Value::Null => "bool",
        };
        Some(format!(
            "json: cannot unmarshal {found} into the field {path}"
        ))
    };
    match (node.kind, value) {
        (Type::Any | Type::IntOrString, _)
        | (Type::Number, Value::Number(_))
        | (Type::Boolean, Value::Bool(_)) => None,
        (Type::Object, Value::Object(fields)) => fields
            .iter()
            .find_map(|(name, field)| wrong(node.field(name)?, field, &child_path(path, name))),
        (Type::Array, Value::Array(items)) => {
            let child = node.items.as_ref()?;
            let mut places = items.iter().enumerate();
            places.find_map(|(at, item)| wrong(child, item, &format!("{path}[{at}]")))
        }
        // Bytes may also be given as numbers.
        (Type::String, Value::Array(items)) if items.is_empty() && is_bytes(node) => None,
        (Type::String, Value::String(text)) => {
            let format = node.checks.format.as_deref()?;
            (!formats::holds(format, text)).then(|| format!("{path}: {text:?} is no {format}"))
        }
        (Type::Integer, Value::Number(number)) if number.is_i64() => None,
        _ => mismatch(),
    }
}

/// Leaves out what is empty where a struct leaves it out (nulls, maps, lists, and texts that are not required), and makes an
/// empty value of each null that stays.
pub(super) fn tidy(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) if matches!(node.additional, Additional::Node(_)) => {
            for (name, field) in fields.iter_mut() {
                if let Some(child) = node.field(name) {
                    fill(child, field);
                }
            }
        }
        Value::Object(fields) => fields.retain(|name, field| {
            let Some(child) = node.properties.get(name) else {
                return true;
            };
            tidy(child, field);
            match field {
                Value::Null => false,
                Value::Array(items) => !items.is_empty() || child.kind != Type::Array,
                Value::Object(inner) => {
                    !inner.is_empty() || !matches!(child.additional, Additional::Node(_))
                }
                // A text that may be null is a pointer in Go, which keeps an empty one.
                Value::String(text) => {
                    !text.is_empty() || child.nullable || node.checks.required.contains(name)
                }
                _ => true,
            }
        }),
        Value::Array(items) => {
            let Some(child) = node.items.as_deref() else {
                return;
            };
            for item in items {
                fill(child, item);
            }
        }
        _ => {}
    }
}

fn is_bytes(node: &Node) -> bool {
    node.checks.format.as_deref() == Some("byte")
}

fn fill(node: &Node, value: &mut Value) {
    if value.is_array() && is_bytes(node) {
        *value = Value::from("");
    }
    if value.is_null() {
        match node.kind {
            Type::String if !node.nullable => *value = Value::from(""),
            Type::Object => *value = Value::Object(Map::new()),
            _ => {}
        }
    }
    tidy(node, value);
}
