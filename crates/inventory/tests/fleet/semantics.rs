//! The table of `docs/fleets.md`: how values of two levels become one.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use crate::{cluster, fleet, two_levels};

/// The rows of the table: rule, weaker, stronger, result.
fn rows() -> Vec<[String; 4]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleets.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("<!-- merge table -->").nth(1).unwrap();
    let mut rows = Vec::new();
    let lines = table.lines().skip_while(|line| !line.starts_with('|'));
    let lines = lines.take_while(|line| line.starts_with('|'));
    for line in lines.filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").collect();
        let cell = |number: usize| cells[number].trim().trim_matches('`').to_owned();
        rows.push([cell(0), cell(1), cell(2), cell(3)]);
    }
    rows
}

/// What the API takes for a strategy.
pub(crate) fn strategies() -> Vec<String> {
    let schema = schemars::schema_for!(api::inventory::Strategy).to_value();
    let all = schema["oneOf"].as_array().unwrap().iter();
    let all: Vec<_> = all
        .map(|one| one["const"].as_str().unwrap().to_owned())
        .collect();
    assert!(all.len() >= 5, "{schema}");
    all
}

#[test]
fn every_row_of_the_guide_is_so() {
    let rows = rows();
    let mut seen = BTreeSet::new();
    for [rule, weak, strong, expected] in &rows {
        let rules = if rule == "none" {
            "[]".to_owned()
        } else {
            format!("[{{path: a, {rule}}}]")
        };
        let text = two_levels(
            &rules,
            &format!("{{a: {weak}}}"),
            &format!("{{a: {strong}}}"),
        );
        let resolved = fleet(&text).and_then(|fleet| fleet.resolve(&cluster("c")));
        let row = format!("{rule}: {weak} and {strong}");
        if expected == "refused" {
            assert!(resolved.is_err(), "{row}");
            continue;
        }
        let values = resolved
            .unwrap_or_else(|error| panic!("{row}: {error}"))
            .values
            .to_value();
        let expected: Value = serde_saphyr::from_str(expected).unwrap();
        assert_eq!(values["a"], expected, "{row}");
        seen.insert(rule.split(',').next().unwrap().to_owned());
    }
    let all = strategies();
    let all = all.iter().map(|strategy| format!("strategy: {strategy}"));
    for strategy in all.chain(["none".to_owned()]) {
        assert!(
            seen.contains(&strategy),
            "the table has no row of {strategy}"
        );
    }
    assert!(rows.len() >= 20, "{}", rows.len());
}

#[test]
fn the_first_rule_that_fits_is_taken_and_others_stand_above() {
    let rules = "[{path: a.list, strategy: First}, {path: 'a.*', strategy: Unique}, {path: a, strategy: Deep, lists: Unique}]";
    let text = two_levels(
        rules,
        "{a: {list: [1], other: [1], deep: [1]}, b: [1]}",
        "{a: {list: [2], other: [2], deep: [2]}, b: [2]}",
    );
    let values = fleet(&text)
        .unwrap()
        .resolve(&cluster("c"))
        .unwrap()
        .values
        .to_value();
    assert_eq!(
        values,
        serde_json::json!({"a": {"list": [2], "other": [2, 1], "deep": [2, 1]}, "b": [2]})
    );
}
