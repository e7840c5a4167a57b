//! Validation against the schema, in the order and words of the real API server.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use super::{
    error::FieldError,
    formats,
    node::{Checks, Node, Type},
    old::{Former, identity, unchanged},
    prune::child_path,
};

/// Checks a whole object. Of an update, nothing is said about values that it leaves as they are: `old` was stored by a schema
/// that may have been another.
pub(super) fn validate(node: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(node, object, None, "", &mut errors);
    if !errors.is_empty() && old.is_some() {
        errors.clear();
        check(node, object, old, "", &mut errors);
    }
    errors
}

/// Checks a part of an object that stands at `path`.
pub(super) fn part(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(node, value, None, path, &mut errors);
    list_items(node, value, path, &mut errors);
    errors
}

/// Items that occur twice in sets and keyed lists.
pub(super) fn twice(node: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    list_items(node, object, "", &mut errors);
    errors
}

fn check(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let before = errors.len();
    check_value(node, value, old, path, errors);
    // Compared only where something is wrong: most values are right.
    if errors.len() > before && old.is_some_and(|old| unchanged(path, old, value)) {
        errors.truncate(before);
    }
}

fn check_value(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() && (node.nullable || node.kind == Type::Any) {
        return;
    }
    if !fits(node.kind, value) {
        errors.push(wrong_type(node, value, path));
        return;
    }
    branches(&node.checks, value, path, errors);
    match value {
        Value::String(text) => check_text(&node.checks, text, path, errors),
        Value::Number(number) => check_number(&node.checks, number, path, errors),
        Value::Array(items) => check_items(node, items, old, path, errors),
        Value::Object(fields) => check_fields(node, fields, old, path, errors),
        Value::Bool(_) | Value::Null => {}
    }
    if !node.checks.values.is_empty() && !node.checks.values.contains(value) {
        errors.push(unsupported(&node.checks.values, value, path));
    }
}

fn unsupported(values: &[Value], value: &Value, path: &str) -> FieldError {
    let allowed: Vec<_> = values.iter().map(crate::table::text).collect();
    FieldError::not_supported(path, value, &allowed)
}

fn fits(kind: Type, value: &Value) -> bool {
    match kind {
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => whole(value),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || whole(value),
    }
}

/// An integer, also when it is written `1.0`.
fn whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn wrong_type(node: &Node, value: &Value, path: &str) -> FieldError {
    let wanted = match node.kind {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
        Type::Any => "any",
    };
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if whole(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let detail = format!("{path} in body must be of type {wanted}: {found:?}");
    FieldError::type_invalid(path, &Value::from(found), &detail)
}

fn check_text(checks: &Checks, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let value = Value::from(text);
    let length = text.chars().count() as u64;
    if let Some(most) = checks.max_length.filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, most));
        return;
    }
    if let Some(least) = checks.min_length.filter(|least| length < *least) {
        let detail = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, &value, &detail));
        return;
    }
    if let Some((source, _)) = checks
        .pattern
        .as_ref()
        .filter(|(_, regex)| !regex.is_match(text))
    {
        let detail = format!("{path} in body should match '{source}'");
        errors.push(FieldError::invalid(path, &value, &detail));
    }
    if let Some(format) = checks
        .format
        .as_ref()
        .filter(|format| !formats::holds(format, text))
    {
        let detail = format!("{path} in body must be of type {format}: {text:?}");
        errors.push(FieldError::type_invalid(path, &value, &detail));
    }
}

fn check_number(checks: &Checks, number: &Number, path: &str, errors: &mut Vec<FieldError>) {
    let actual = float(number);
    // Bounds are told as floating-point numbers print: 1, where the schema may say 1.0.
    let mut complain = |detail: String| {
        let detail = format!("{path} in body should be {detail}");
        errors.push(FieldError::invalid(
            path,
            &Value::Number(number.clone()),
            &detail,
        ));
    };
    if let Some(factor) = &checks.multiple_of
        && (actual / float(factor)).fract() != 0.0
    {
        complain(format!("a multiple of {}", float(factor)));
    }
    if let Some(most) = &checks.maximum {
        if checks.exclusive_maximum && actual >= float(most) {
            complain(format!("less than {}", float(most)));
        } else if actual > float(most) {
            complain(format!("less than or equal to {}", float(most)));
        }
    }
    if let Some(least) = &checks.minimum {
        if checks.exclusive_minimum && actual <= float(least) {
            complain(format!("greater than {}", float(least)));
        } else if actual < float(least) {
            complain(format!("greater than or equal to {}", float(least)));
        }
    }
    if let Some(range) = checks
        .format
        .as_deref()
        .and_then(|format| overflow(format, number))
    {
        complain(range);
    }
}

fn overflow(format: &str, number: &Number) -> Option<String> {
    let narrow = number
        .as_i64()
        .is_none_or(|number| i32::try_from(number).is_err());
    (format == "int32" && narrow && number.as_f64().is_some_and(|number| number.fract() == 0.0))
        .then(|| "a valid int32".to_owned())
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

fn check_items(
    node: &Node,
    items: &[Value],
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let checks = &node.checks;
    let length = items.len() as u64;
    if let Some(child) = &node.items {
        let former = Former::of(node, old);
        for (at, item) in items.iter().enumerate() {
            check(
                child,
                item,
                former.item(item),
                &format!("{path}[{at}]"),
                errors,
            );
        }
    }
    if let Some(least) = checks.min_items.filter(|least| length < *least) {
        let detail = format!("{path} in body should have at least {least} items");
        errors.push(FieldError::invalid(path, &Value::from(length), &detail));
    }
    if let Some(most) = checks.max_items.filter(|most| length > *most) {
        errors.push(FieldError::too_many(path, items.len(), most));
    }
    if checks.unique_items && (1..items.len()).any(|at| items[..at].contains(&items[at])) {
        let detail = format!("{path} in body shouldn't contain duplicates");
        errors.push(FieldError::invalid(
            path,
            &Value::Array(items.to_vec()),
            &detail,
        ));
    }
}

fn check_fields(
    node: &Node,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let checks = &node.checks;
    let length = fields.len() as u64;
    if let Some(least) = checks.min_properties.filter(|least| length < *least) {
        let detail = format!("{path} in body should have at least {least} properties");
        errors.push(FieldError::invalid(path, &Value::from(length), &detail));
    }
    if let Some(most) = checks.max_properties.filter(|most| length > *most) {
        errors.push(FieldError::too_many(path, fields.len(), most));
    }
    for name in checks
        .required
        .iter()
        .filter(|name| !fields.contains_key(*name))
    {
        errors.push(FieldError::required(child_path(path, name), ""));
    }
    let mut names: Vec<_> = fields.keys().collect();
    names.sort();
    for name in names {
        // The types in metadata are checked when it is decoded; neither sets nor keys nor required fields are.
        if path.is_empty() && name == "metadata" {
            continue;
        }
        if let (Some(child), Some(field)) = (node.field(name), fields.get(name)) {
            let former = old.and_then(|old| old.get(name));
            check(child, field, former, &child_path(path, name), errors);
        }
    }
}

/// `anyOf`, `oneOf`, `not`, `allOf`: the complaints of a branch that nearly fits are more use than "none fits".
fn branches(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let complaints = |node: &Node| {
        let mut found = Vec::new();
        // As in Kubernetes, a change of one field is a change of all that a branch says.
        check(node, value, None, path, &mut found);
        found
    };
    let none = |kind: &str| {
        let place = if path.is_empty() { "<nil>" } else { path };
        let detail = format!("{place:?} must validate {kind}");
        FieldError::invalid("", &Value::from(""), &detail)
    };
    if !checks.any_of.is_empty() {
        let found: Vec<_> = checks.any_of.iter().map(complaints).collect();
        if found.iter().all(|found| !found.is_empty()) {
            errors.push(none("at least one schema (anyOf)"));
            errors.extend(found.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    if !checks.one_of.is_empty() {
        let found: Vec<_> = checks.one_of.iter().map(complaints).collect();
        match found.iter().filter(|found| found.is_empty()).count() {
            1 => {}
            0 => {
                errors.push(none("one and only one schema (oneOf). Found none valid"));
                errors.extend(found.into_iter().min_by_key(Vec::len).unwrap_or_default());
            }
            valid => {
                errors.push(none(&format!(
                    "one and only one schema (oneOf). Found {valid} valid alternatives"
                )));
            }
        }
    }
    if checks
        .not
        .as_ref()
        .is_some_and(|not| complaints(not).is_empty())
    {
        errors.push(none("the schema (not)").with_not());
    }
    if !checks.all_of.is_empty() {
        let found: Vec<_> = checks.all_of.iter().flat_map(complaints).collect();
        if !found.is_empty() {
            errors.push(none("all the schemas (allOf)"));
            errors.extend(found);
        }
    }
}

impl FieldError {
    /// Turns the complaint about a branch that must fit into one that must not.
    fn with_not(mut self) -> Self {
        self.message = self.message.replace("must validate", "must not validate");
        self
    }
}

fn list_items(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort();
            names.retain(|name| !path.is_empty() || *name != "metadata");
            for name in names {
                if let (Some(child), Some(field)) = (node.field(name), fields.get(name)) {
                    list_items(child, field, &child_path(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let mut seen = BTreeMap::new();
            for (at, item) in items.iter().enumerate() {
                let Some(identity) = identity(node, item) else {
                    break;
                };
                let times: &mut usize = seen
                    .entry(crate::canonical::canonical(&identity))
                    .or_default();
                *times += 1;
                // Kubernetes names the second of several.
                if *times == 2 {
                    errors.push(FieldError::duplicate(format!("{path}[{at}]"), &identity));
                }
            }
            let Some(child) = &node.items else { return };
            for (at, item) in items.iter().enumerate() {
                list_items(child, item, &format!("{path}[{at}]"), errors);
            }
        }
        _ => {}
    }
}
