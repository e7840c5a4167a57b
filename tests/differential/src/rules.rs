//! What the two servers may do otherwise. Each rule stands with its reason among the deviations of kapi, after `random: `.

use serde_json::Value;

use crate::{
    answer::Answer,
    case::{Case, Step, Verb},
};

/// A rule: its name, and whether it allows the answers to the request of this number to differ as they do.
type Rule = (&'static str, fn(&Case, usize, &Answer, &Answer) -> bool);

/// All of them.
const RULES: [Rule; 4] = [
    ("an apply of empty metadata", empty_metadata),
    ("an empty map in an immutable object", empty_and_immutable),
    ("a null in the data of a Secret", null_data),
    ("a merge key that is no scalar", no_key),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(name, _)| *name)
}

/// The rule that allows the difference.
pub fn allowed(case: &Case, at: usize, ours: &Answer, real: &Answer) -> Option<&'static str> {
    let allows = |(_, rule): &&Rule| rule(case, at, ours, real);
    RULES.iter().find(allows).map(|(name, _)| *name)
}

/// The object is the same, but the real server has written it again.
fn empty_metadata(case: &Case, at: usize, ours: &Answer, real: &Answer) -> bool {
    let applied_empty = case.steps.iter().take(at + 1).any(|step| {
        let fields = step.body["metadata"].as_object();
        applies(step) && fields.is_some_and(|fields| fields.values().any(empty))
    });
    (ours.code, &ours.body) == (real.code, &real.body) && real.written && applied_empty
}

/// The real server takes an empty map, also one that a null leaves empty, for another value than none.
fn empty_and_immutable(case: &Case, at: usize, _: &Answer, real: &Answer) -> bool {
    let nothing = |map: &Value| {
        empty(map)
            || map
                .as_object()
                .is_some_and(|fields| fields.values().all(Value::is_null))
    };
    let of_data = |body: &Value| {
        ["data", "binaryData"]
            .iter()
            .any(|map| body.get(map).is_some_and(nothing))
    };
    let causes = real.body["causes"].as_array();
    let frozen = |cause: &Value| {
        cause
            .as_str()
            .is_some_and(|cause| cause.ends_with(" FieldValueForbidden"))
    };
    causes.is_some_and(|causes| causes.iter().any(frozen))
        && case.steps.get(at).is_some_and(|step| of_data(&step.body))
}

/// The real server keeps no bytes apart from an empty value until the next write.
fn null_data(case: &Case, at: usize, ours: &Answer, real: &Answer) -> bool {
    let nulls = case.steps.iter().take(at + 1).any(|step| {
        let data = step.body["data"].as_object();
        data.is_some_and(|data| data.values().any(Value::is_null))
    });
    case.kind.name == "Secret"
        && nulls
        && (ours.code, &ours.body) == (real.code, &real.body)
        && real.written
}

/// The real server panics over a strategic merge patch whose list items are told apart by a map or a list.
fn no_key(case: &Case, at: usize, _: &Answer, real: &Answer) -> bool {
    let step = case.steps.get(at);
    let step = step.filter(|step| matches!(step.verb, Verb::Strategic));
    real.is_broken_off() && step.is_some_and(|step| has_nested_items(&step.body))
}

/// Whether an item of a list has a field that is no scalar, at any depth.
fn has_nested_items(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| {
            let fields = item.as_object().into_iter().flat_map(|item| item.values());
            fields
                .into_iter()
                .any(|field| field.is_object() || field.is_array())
                || has_nested_items(item)
        }),
        Value::Object(fields) => fields.values().any(has_nested_items),
        _ => false,
    }
}

fn applies(step: &Step) -> bool {
    matches!(step.verb, Verb::Apply | Verb::Force)
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
