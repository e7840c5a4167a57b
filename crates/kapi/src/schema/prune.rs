//! Defaults and pruning.

use serde_json::Value;

use super::node::{Additional, Node, Type};

/// Fills in defaults, depth first, so that a default object gets the defaults of its own fields. A null that is not allowed
/// and has no default goes.
pub(super) fn default(node: &Node, value: &mut Value) {
    fill(node, value, Nulls::Drop);
}

/// Fills in defaults, and leaves a null that is not allowed and has no default.
pub(super) fn default_keeping_nulls(node: &Node, value: &mut Value) {
    fill(node, value, Nulls::Keep);
}

/// What becomes of a null that is not allowed and has no default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    Drop,
    Keep,
}

fn fill(node: &Node, value: &mut Value, nulls: Nulls) {
    match value {
        Value::Object(fields) => {
            for (name, child) in &node.properties {
                let absent = match fields.get(name) {
                    None => true,
                    Some(Value::Null) => !child.nullable && child.default.is_some(),
                    Some(_) => false,
                };
                if let (true, Some(default)) = (absent, &child.default) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            fields.retain(|name, field| {
                let Some(child) = node.field(name) else {
                    return true;
                };
                if field.is_null() && !child.nullable {
                    let Some(default) = &child.default else {
                        return nulls == Nulls::Keep || child.kind == Type::Any;
                    };
                    *field = default.clone();
                }
                fill(child, field, nulls);
                true
            });
        }
        Value::Array(items) => {
            let Some(child) = &node.items else { return };
            for item in items {
                if item.is_null()
                    && !child.nullable
                    && let Some(default) = &child.default
                {
                    *item = default.clone();
                }
                fill(child, item, nulls);
            }
        }
        _ => {}
    }
}

/// Removes unknown fields and returns their paths.
pub(super) fn prune(node: &Node, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(node, value, "", &mut unknown);
    unknown.sort();
    unknown
}

fn walk(node: &Node, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.retain(|name, field| {
            let place = child_path(path, name);
            match (node.field(name), &node.additional) {
                (Some(child), _) => walk(child, field, &place, unknown),
                (None, Additional::Any) => {}
                (None, _) if node.preserve => {}
                (None, _) if implied(node, path, name) => {}
                (None, _) => {
                    unknown.push(place);
                    return false;
                }
            }
            true
        }),
        Value::Array(items) => {
            let Some(child) = &node.items else { return };
            for (at, item) in items.iter_mut().enumerate() {
                walk(child, item, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

/// The three fields that every whole object has, at the root and where one is embedded.
fn implied(node: &Node, path: &str, name: &str) -> bool {
    (path.is_empty() || node.embedded) && matches!(name, "apiVersion" | "kind" | "metadata")
}

pub(super) fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
