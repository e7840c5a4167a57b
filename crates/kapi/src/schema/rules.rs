//! Rules in CEL.
//!
//! They run in the task of the request. No rule of the definitions that the program was built with goes through a list of
//! the user's, so the cost is that of handing the object over and grows with its size: for one of a megabyte 1 to 5 ms
//! (ClusterNode) or about 20 ms (Cluster) were measured, as much as it takes to parse it. The rules of other definitions
//! run beside the other tasks. They have no budget, as Kubernetes gives them: the only clients are administrators.

use kube::core::cel::{CompiledSchema, ErrorKind, ValidationError, validate_compiled};
use serde_json::{Value, json};

use super::{
    error::{FieldError, Reason, shown},
    old::unchanged,
};

/// Whether the schema has any rule.
pub(super) fn present(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.contains_key("x-kubernetes-validations") || fields.values().any(present)
        }
        Value::Array(items) => items.iter().any(present),
        _ => false,
    }
}

/// The rules that do not compile.
pub(super) fn problems(schema: &CompiledSchema, path: &str, problems: &mut Vec<String>) {
    for (at, rule) in schema.validations.iter().enumerate() {
        if let Err(error) = rule {
            problems.push(format!(
                "{path}.x-kubernetes-validations[{at}].rule: Invalid value: compilation failed: {error}"
            ));
        }
    }
    for (name, child) in &schema.properties {
        self::problems(child, &format!("{path}.properties[{name}]"), problems);
    }
    if let Some(items) = &schema.items {
        self::problems(items, &format!("{path}.items"), problems);
    }
    if let Some(values) = &schema.additional_properties {
        self::problems(values, &format!("{path}.additionalProperties"), problems);
    }
}

/// Runs the rules; those with `oldSelf` only on update.
pub(super) fn validate(
    schema: &CompiledSchema,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let object = named(object);
    let Err(errors) = validate_compiled(schema, &object, old) else {
        return Vec::new();
    };
    let stays = |error: &ValidationError| {
        let before = old.and_then(|old| at(old, &error.field_path));
        let now = at(&object, &error.field_path);
        !error.rule.contains("oldSelf")
            && before
                .zip(now)
                .is_some_and(|(before, now)| unchanged(&error.field_path, before, now))
    };
    errors
        .into_vec()
        .into_iter()
        .filter(|error| !stays(error))
        .map(|error| complaint(&object, error))
        .collect()
}

fn complaint(object: &Value, error: ValidationError) -> FieldError {
    let path = error.field_path;
    let value = at(object, &path).cloned().unwrap_or(Value::Null);
    let message = match error.kind {
        ErrorKind::ValidationFailure => error.message,
        _ => format!("rule evaluation error: {}", error.message),
    };
    let reason = match error.reason.as_deref() {
        Some("FieldValueForbidden") => return FieldError::forbidden(path, &message),
        Some("FieldValueRequired") => return FieldError::required(path, &message),
        Some("FieldValueDuplicate") => Reason::Duplicate,
        _ => Reason::Invalid,
    };
    // The real server names the type instead of showing the value.
    let value = Value::from(match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Null => "null",
    });
    match reason {
        Reason::Duplicate => FieldError::new(
            path,
            reason,
            format!("Duplicate value: {}: {message}", shown(&value)),
        ),
        _ => FieldError::invalid(path, &value, &message),
    }
}

/// Rules on the whole object may use `metadata.name`, which a request may not have yet.
fn named(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(fields) = &mut object {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.entry("name").or_insert_with(|| json!(""));
        }
    }
    object
}

/// The value at a path like `spec.hosts[0].name`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let steps = path.split(['.', '[', ']']).filter(|step| !step.is_empty());
    steps
        .into_iter()
        .try_fold(object, |value, step| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            other => other.get(step),
        })
}
