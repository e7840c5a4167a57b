//! Which defaults are taken: those that fit the schema that they stand in.
//!
//! One that does not would be refused in every object that gets it.

use serde_json::Value;

use super::{
    error::FieldError,
    node::{Additional, Node},
    prune,
    rules::{Rules, Step},
    validate,
};

/// What is wrong with the defaults of a schema; `rules` are those of the same place.
pub(super) fn problems(node: &Node, rules: Option<&Rules>, path: &str, problems: &mut Vec<String>) {
    if let Some(default) = &node.default {
        let place = format!("{path}.default");
        let found = misfits(node, rules, default, &place);
        problems.extend(found.iter().map(ToString::to_string));
    }
    for (name, child) in &node.properties {
        let below = rules.and_then(|rules| rules.below(Step::Property(name)));
        self::problems(
            child,
            below,
            &format!("{path}.properties[{name}]"),
            problems,
        );
    }
    if let Some(items) = &node.items {
        let below = rules.and_then(|rules| rules.below(Step::Items));
        self::problems(items, below, &format!("{path}.items"), problems);
    }
    if let Additional::Node(values) = &node.additional {
        let below = rules.and_then(|rules| rules.below(Step::Values));
        self::problems(
            values,
            below,
            &format!("{path}.additionalProperties"),
            problems,
        );
    }
}

fn misfits(node: &Node, rules: Option<&Rules>, default: &Value, place: &str) -> Vec<FieldError> {
    let mut pruned = default.clone();
    if !prune::prune(node, &mut pruned).is_empty() {
        let why = "must not have unknown fields";
        return vec![FieldError::invalid(place, default, why)];
    }
    let mut found = validate::part(node, default, place);
    if found.is_empty()
        && let Some(rules) = rules
    {
        // In an object that is new, and in one that has it already.
        for old in [None, Some(default)] {
            if found.is_empty() {
                found = rules.validate_part(node, default, old, place);
            }
        }
    }
    found
}
