//! From `openAPIV3Schema` to nodes.

use regex::Regex;
use serde_json::{Map, Value};

use super::node::{Additional, Checks, ListType, Node, Type};

/// Reads one schema; `path` is for the problems that are found.
pub(super) fn node(schema: &Value, path: &str, problems: &mut Vec<String>) -> Node {
    let Some(fields) = schema.as_object() else {
        return Node::default();
    };
    let mut properties = std::collections::BTreeMap::new();
    for (name, child) in object(fields, "properties") {
        let place = format!("{path}.properties[{name}]");
        properties.insert(name.clone(), node(child, &place, problems));
    }
    let items = fields.get("items").map(|items| {
        let place = format!("{path}.items");
        Box::new(node(items, &place, problems))
    });
    Node {
        kind: kind(fields),
        nullable: flag(fields, "nullable"),
        preserve: flag(fields, "x-kubernetes-preserve-unknown-fields"),
        embedded: flag(fields, "x-kubernetes-embedded-resource"),
        properties,
        additional: additional(fields, path, problems),
        items,
        list: list(fields),
        atomic: fields.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
        default: fields.get("default").cloned(),
        checks: checks(fields, path, problems),
    }
}

fn kind(fields: &Map<String, Value>) -> Type {
    if flag(fields, "x-kubernetes-int-or-string") {
        return Type::IntOrString;
    }
    match text(fields, "type") {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") if text(fields, "format") == Some("int-or-string") => Type::IntOrString,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}

fn additional(fields: &Map<String, Value>, path: &str, problems: &mut Vec<String>) -> Additional {
    match fields.get("additionalProperties") {
        Some(Value::Bool(true)) => Additional::Any,
        Some(schema @ Value::Object(_)) => {
            let place = format!("{path}.additionalProperties");
            Additional::Node(Box::new(node(schema, &place, problems)))
        }
        _ => Additional::None,
    }
}

fn list(fields: &Map<String, Value>) -> ListType {
    match text(fields, "x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(fields, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn checks(fields: &Map<String, Value>, path: &str, problems: &mut Vec<String>) -> Checks {
    let mut branches = |name: &str| -> Vec<Node> {
        let listed = fields
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let each = listed.enumerate();
        each.map(|(at, branch)| node(branch, &format!("{path}.{name}[{at}]"), problems))
            .collect()
    };
    let (one_of, any_of, all_of) = (branches("oneOf"), branches("anyOf"), branches("allOf"));
    let not = fields
        .get("not")
        .map(|not| Box::new(node(not, &format!("{path}.not"), problems)));
    Checks {
        required: strings(fields, "required"),
        one_of,
        any_of,
        all_of,
        not,
        values: fields
            .get("enum")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        pattern: pattern(fields, path, problems),
        format: text(fields, "format").map(str::to_owned),
        max_length: count(fields, "maxLength"),
        min_length: count(fields, "minLength"),
        max_items: count(fields, "maxItems"),
        min_items: count(fields, "minItems"),
        unique_items: flag(fields, "uniqueItems"),
        max_properties: count(fields, "maxProperties"),
        min_properties: count(fields, "minProperties"),
        maximum: fields.get("maximum").and_then(Value::as_number).cloned(),
        minimum: fields.get("minimum").and_then(Value::as_number).cloned(),
        exclusive_maximum: flag(fields, "exclusiveMaximum"),
        exclusive_minimum: flag(fields, "exclusiveMinimum"),
        multiple_of: fields.get("multipleOf").and_then(Value::as_number).cloned(),
    }
}

fn pattern(
    fields: &Map<String, Value>,
    path: &str,
    problems: &mut Vec<String>,
) -> Option<(String, Regex)> {
    let pattern = text(fields, "pattern").filter(|pattern| !pattern.is_empty())?;
    match Regex::new(pattern) {
        Ok(regex) => Some((pattern.to_owned(), regex)),
        Err(error) => {
            let shown = format!("{path}.pattern: Invalid value: {pattern:?}");
            problems.push(format!(
                "{shown}: must be a valid regular expression, but isn't: {error}"
            ));
            None
        }
    }
}

pub(super) fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str)
}

pub(super) fn flag(fields: &Map<String, Value>, name: &str) -> bool {
    fields
        .get(name)
        .and_then(Value::as_bool)
        .unwrap_or_default()
}

pub(super) fn strings(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let listed = fields
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    listed
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

pub(super) fn object<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    fields
        .get(name)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn count(fields: &Map<String, Value>, name: &str) -> Option<u64> {
    fields.get(name).and_then(Value::as_u64)
}
