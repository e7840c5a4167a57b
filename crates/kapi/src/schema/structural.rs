//! Which schemas are structural, and so accepted.
//!
//! # Source
//!
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>

use serde_json::{Map, Value};

use super::convert::{flag, object, strings, text};

/// Every reason why the schema is refused.
pub(super) fn problems(schema: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(fields) = schema.as_object() else {
        return vec!["openAPIV3Schema: Required value: schemas are required".to_owned()];
    };
    match text(fields, "type") {
        Some("object") => {}
        None => problems
            .push("openAPIV3Schema.type: Required value: must not be empty at the root".to_owned()),
        Some(other) => problems.push(format!(
            "openAPIV3Schema.type: Invalid value: {other:?}: must be object at the root"
        )),
    }
    visit(fields, "openAPIV3Schema", &mut problems);
    problems
}

fn visit(fields: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    let mut complain =
        |place: &str, message: &str| problems.push(format!("{path}{place}: {message}"));
    let loose = flag(fields, "x-kubernetes-int-or-string")
        || flag(fields, "x-kubernetes-preserve-unknown-fields");
    let kind = text(fields, "type");
    match kind {
        None if !loose => complain(
            ".type",
            "Required value: must not be empty for specified object fields",
        ),
        Some("array") if !fields.contains_key("items") => {
            complain(".items", "Required value: must be specified");
        }
        Some(kind) if !TYPES.contains(&kind) => {
            complain(
                ".type",
                &format!(
                    "Unsupported value: {kind:?}: supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
                ),
            );
        }
        _ => {}
    }
    if fields.get("items").is_some_and(Value::is_array) {
        complain(
            ".items",
            "Forbidden: items must be a schema object and not an array",
        );
    }
    if fields.contains_key("$ref") {
        complain(".$ref", "Forbidden: $ref is not supported");
    }
    if flag(fields, "uniqueItems") {
        complain(
            ".uniqueItems",
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    if fields.get("additionalProperties") == Some(&Value::Bool(false)) {
        complain(
            ".additionalProperties",
            "Forbidden: additionalProperties cannot be set to false",
        );
    }
    if fields.contains_key("additionalProperties") && object(fields, "properties").next().is_some()
    {
        complain(
            ".additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        );
    }
    if flag(fields, "x-kubernetes-embedded-resource") && kind != Some("object") {
        complain(
            ".type",
            "Invalid value: must be object if x-kubernetes-embedded-resource is true",
        );
    }
    lists(fields, path, problems);
    junctors(fields, fields, path, problems);
    children(fields, path, problems);
}

fn children(fields: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    for (name, child) in object(fields, "properties") {
        // The API owns metadata; only constraints on its name are allowed there.
        if name == "metadata" && path == "openAPIV3Schema" {
            continue;
        }
        if let Some(child) = child.as_object() {
            visit(child, &format!("{path}.properties[{name}]"), problems);
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(child) = fields.get(name).and_then(Value::as_object) {
            visit(child, &format!("{path}.{name}"), problems);
        }
    }
}

fn lists(fields: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    let keys = strings(fields, "x-kubernetes-list-map-keys");
    let list = text(fields, "x-kubernetes-list-type");
    if list.is_some() && text(fields, "type") != Some("array") {
        problems.push(format!(
            "{path}.type: Invalid value: must be array if x-kubernetes-list-type is specified"
        ));
    }
    let items = fields.get("items").and_then(Value::as_object);
    match list {
        Some("map") if keys.is_empty() => problems.push(format!(
            "{path}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
        )),
        Some("map") => {
            let known: Vec<_> = items.into_iter().flat_map(|items| object(items, "properties")).map(|(name, _)| name).collect();
            for key in keys.iter().filter(|key| !known.contains(key)) {
                problems.push(format!("{path}.x-kubernetes-list-map-keys: Invalid value: {key:?}: entries must all be names of item properties"));
            }
        }
        Some("set") => {
            let kind = items.and_then(|items| text(items, "type"));
            let atomic = items.is_some_and(|items| {
                text(items, "x-kubernetes-map-type") == Some("atomic") || text(items, "x-kubernetes-list-type") == Some("atomic")
            });
            if matches!(kind, Some("object" | "array")) && !atomic {
                problems.push(format!("{path}.items: Invalid value: items of a set must be scalars or atomic"));
            }
        }
        None | Some("atomic") => {}
        Some(other) => problems.push(format!(
            "{path}.x-kubernetes-list-type: Unsupported value: {other:?}: supported values: \"atomic\", \"map\", \"set\""
        )),
    }
    if list != Some("map") && !keys.is_empty() {
        problems.push(format!("{path}.x-kubernetes-list-map-keys: Forbidden: must be used with x-kubernetes-list-type=map"));
    }
}

/// What stands inside `allOf`, `anyOf`, `oneOf` and `not` may only constrain: no types, defaults or new fields.
fn junctors(
    outer: &Map<String, Value>,
    fields: &Map<String, Value>,
    path: &str,
    problems: &mut Vec<String>,
) {
    let int_or_string = flag(outer, "x-kubernetes-int-or-string");
    let mut inner: Vec<(String, &Map<String, Value>)> = Vec::new();
    for name in ["allOf", "anyOf", "oneOf"] {
        let branches = fields
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        inner.extend(branches.enumerate().filter_map(|(at, branch)| {
            Some((format!("{path}.{name}[{at}]"), branch.as_object()?))
        }));
    }
    inner.extend(
        fields
            .get("not")
            .and_then(Value::as_object)
            .map(|not| (format!("{path}.not"), not)),
    );
    for (place, branch) in inner {
        constrains(outer, branch, &place, int_or_string, problems);
    }
}

fn constrains(
    outer: &Map<String, Value>,
    branch: &Map<String, Value>,
    path: &str,
    types: bool,
    problems: &mut Vec<String>,
) {
    for name in [
        "default",
        "nullable",
        "additionalProperties",
        "type",
        "title",
        "description",
    ] {
        let set = branch
            .get(name)
            .is_some_and(|value| *value != Value::Bool(false));
        if set && !(types && name == "type") {
            problems.push(format!(
                "{path}.{name}: Forbidden: must be undefined to be structural"
            ));
        }
    }
    for (name, child) in object(branch, "properties") {
        let place = format!("{path}.properties[{name}]");
        let known = outer
            .get("properties")
            .and_then(|properties| properties.get(name))
            .and_then(Value::as_object);
        match (known, child.as_object()) {
            (Some(known), Some(child)) => constrains(
                known,
                child,
                &place,
                flag(known, "x-kubernetes-int-or-string"),
                problems,
            ),
            (None, _) if !outer.contains_key("additionalProperties") => {
                let outside = path.split(".allOf[").next().unwrap_or(path);
                let outside = outside.split(".anyOf[").next().unwrap_or(outside);
                let outside = outside.split(".oneOf[").next().unwrap_or(outside);
                let outside = outside.split(".not").next().unwrap_or(outside);
                problems.push(format!(
                    "{outside}.properties[{name}]: Required value: because it is defined in {place}"
                ));
            }
            _ => {}
        }
    }
    junctors(outer, branch, path, problems);
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
