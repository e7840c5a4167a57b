//! Laws of merging, on generated values.

use std::collections::BTreeSet;

use proptest::{prelude::*, strategy::ValueTree as _};
use serde_json::{Map, Value, json};

use crate::{cluster, fleet, semantics::strategies};

/// Values whose types follow from their keys, so that no type changes between levels.
pub(crate) fn values() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![(0..9).prop_map(|n| json!(n)), Just(Value::Null)];
    let list = prop::collection::vec((0..6).prop_map(|n| json!(format!("e{n}"))), 0..4);
    let flat = prop::collection::btree_map("n[a-c]", leaf, 0..3);
    let lists = prop::collection::btree_map("l[a-b]", list.prop_map(Value::from), 0..3);
    let map = (flat, lists).prop_map(|(flat, lists)| {
        flat.into_iter()
            .chain(lists)
            .collect::<Map<String, Value>>()
    });
    let below = prop::collection::btree_map("m[a-b]", map.clone().prop_map(Value::from), 0..3);
    (map, below).prop_map(|(map, below)| map.into_iter().chain(below).collect())
}

/// The same, and lists of maps that have a key.
pub(crate) fn values_and_entries() -> impl Strategy<Value = Map<String, Value>> {
    let entries = || {
        let entries = prop::collection::btree_map("[a-c]", 0..9, 0..3);
        let entries = entries.prop_map(|entries| {
            let entries = entries.into_iter();
            let entries = entries.map(|(name, number)| json!({"name": name, "number": number}));
            entries.collect::<Value>()
        });
        prop::collection::btree_map("k[a-b]", entries, 0..3)
    };
    (values(), entries(), entries()).prop_map(|(mut values, own, below)| {
        values.extend(own);
        if let Some(Value::Object(map)) = values.get_mut("ma") {
            map.extend(below);
        }
        values
    })
}

/// One level after another, the cluster last.
pub(crate) fn chain(rules: &Value, levels: &[Map<String, Value>]) -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "inventory.windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let kinds = ["Environment", "Customer", "Site", "InfraProvider"];
    let names = ["environment", "customer", "site", "infraProvider"];
    let (own, above) = levels.split_last().unwrap();
    let mut all = Vec::new();
    let mut parents = Map::new();
    let mut order = Vec::new();
    for (number, values) in above.iter().enumerate() {
        all.push(object(kinds[number], "o", json!({"values": values})));
        order.push(json!({"name": names[number], "kind": kinds[number]}));
        parents.insert(names[number].to_owned(), json!("o"));
    }
    if order.is_empty() {
        order.push(json!({"name": "site", "kind": "Site", "presence": "Optional"}));
    }
    all.push(object(
        "Hierarchy",
        "default",
        json!({"levels": order, "merges": rules}),
    ));
    all.push(object(
        "FleetCluster",
        "c",
        json!({"parents": parents, "template": "t", "values": own}),
    ));
    all.push(object(
        "ClusterTemplate",
        "t",
        json!({"backEnd": "Plain", "documents": [{"object": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}}]}),
    ));
    all
}

fn merged(rules: &Value, levels: &[Map<String, Value>]) -> Value {
    let fleet = inventory::Fleet::read(chain(rules, levels), "default").unwrap();
    fleet.resolve(&cluster("c")).unwrap().values.to_value()
}

/// Rules of every strategy that there is.
fn any_rules() -> impl Strategy<Value = Value> {
    let rule = |path: &'static str| {
        prop_oneof![
            Just(json!({"path": path, "strategy": "First"})),
            Just(json!({"path": path, "strategy": "Deep"})),
            Just(
                json!({"path": path, "strategy": "Deep", "lists": "Unique", "knockoutPrefix": "--"})
            ),
            Just(json!({"path": path, "strategy": "Hash"})),
        ]
    };
    let list = prop_oneof![
        Just(json!({"path": "la", "strategy": "Unique"})),
        Just(json!({"path": "*.la", "strategy": "Unique"})),
        Just(json!({"path": "ka", "strategy": "ListByKey", "key": "name"})),
        Just(
            json!({"path": "*.ka", "strategy": "ListByKey", "key": "name", "knockoutPrefix": "--"})
        ),
    ];
    prop::collection::vec(prop_oneof![rule("ma"), rule("mb"), list], 0..4).prop_map(Value::from)
}

#[test]
fn the_laws_are_of_every_strategy() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..256 {
        let rules = any_rules().new_tree(&mut runner).unwrap().current();
        let rules = rules.as_array().cloned().unwrap_or_default();
        seen.extend(
            rules
                .iter()
                .map(|rule| rule["strategy"].as_str().unwrap().to_owned()),
        );
    }
    assert_eq!(seen, strategies().into_iter().collect());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_level_that_says_nothing_changes_nothing(rules in any_rules(), one in values_and_entries(), other in values_and_entries()) {
        let expected = merged(&rules, &[one.clone(), other.clone()]);
        prop_assert_eq!(merged(&rules, &[one.clone(), Map::new(), other.clone()]), expected.clone());
        prop_assert_eq!(merged(&rules, &[Map::new(), one.clone(), other.clone()]), expected.clone());
        prop_assert_eq!(merged(&rules, &[one, other, Map::new()]), expected);
    }

    #[test]
    fn what_is_said_twice_is_said_once(rules in any_rules(), one in values_and_entries()) {
        let alone = merged(&rules, std::slice::from_ref(&one));
        prop_assert_eq!(merged(&rules, &[one.clone(), one]), alone);
    }

    #[test]
    fn the_strongest_value_of_a_plain_key_wins(levels in prop::collection::vec(values_and_entries(), 1..5)) {
        let result = merged(&json!([]), &levels);
        for key in ["na", "nb", "nc"] {
            let expected = levels.iter().rev().find_map(|level| level.get(key));
            prop_assert_eq!(result.get(key), expected);
        }
    }

    #[test]
    fn deep_merging_is_associative(one in values_and_entries(), two in values_and_entries(), three in values_and_entries()) {
        // What two levels come to, written down as one level, is as good as the two.
        let rules = json!([]);
        let written = merged(&rules, &[one.clone(), two.clone()]).as_object().unwrap().clone();
        prop_assert_eq!(merged(&rules, &[written, three.clone()]), merged(&rules, &[one, two, three]));
    }

    #[test]
    fn what_is_knocked_out_is_gone_and_no_mark_is_left(
        weak in prop::collection::vec("[a-d]", 0..5),
        strong in prop::collection::vec("[a-d]", 0..3),
        gone in prop::collection::vec("[a-d]", 0..3),
    ) {
        let rules = json!([{"path": "list", "strategy": "Unique", "knockoutPrefix": "--"}]);
        let level = |list: Value| Map::from_iter([("list".to_owned(), list)]);
        let marks: Vec<_> = gone.iter().map(|gone| format!("--{gone}")).collect();
        let all: Vec<_> = strong.iter().cloned().chain(marks).collect();
        let result = merged(&rules, &[level(json!(weak)), level(json!(all))]);
        let result: Vec<String> = serde_json::from_value(result["list"].clone()).unwrap();
        for entry in &result {
            prop_assert!(!entry.starts_with("--"));
            prop_assert!(strong.contains(entry) || (weak.contains(entry) && !gone.contains(entry)));
        }
        let wanted = weak.iter().filter(|entry| !gone.contains(entry)).chain(&strong);
        for entry in wanted {
            prop_assert_eq!(result.iter().filter(|held| *held == entry).count(), 1, "{}", entry);
        }
    }
}

#[test]
fn a_key_is_knocked_out_with_all_below_it() {
    let rules = "[{path: a, strategy: Deep, knockoutPrefix: '--'}]";
    let text = crate::two_levels(rules, "{a: {b: {c: 1}, d: 2}}", "{a: {b: '--', e: '--'}}");
    let values = fleet(&text).unwrap().resolve(&cluster("c")).unwrap().values;
    assert_eq!(values.to_value(), json!({"a": {"d": 2}}));
}
