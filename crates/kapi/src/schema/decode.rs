//! Types that Go's decoder insists on.
//!
//! Null goes with every type there. What is unknown is not looked at: pruning removes it.

use serde_json::Value;

use super::{
    formats,
    node::{Node, Type},
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
        (Type::String, Value::String(text)) => {
            let format = node.checks.format.as_deref()?;
            (!formats::holds(format, text)).then(|| format!("{path}: {text:?} is no {format}"))
        }
        (Type::Integer, Value::Number(number)) if number.is_i64() => None,
        _ => mismatch(),
    }
}
