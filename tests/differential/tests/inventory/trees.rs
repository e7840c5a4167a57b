//! Random values. Their types follow from their keys, for here a type may not change between levels.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Whether values may be null.
#[derive(Clone, Copy, Debug)]
pub enum Nulls {
    Some,
    None,
}

/// Numbers, booleans, texts, lists of texts, lists of maps and maps, as deep as said.
pub fn map(depth: usize, nulls: Nulls) -> BoxedStrategy<Map<String, Value>> {
    let plain = match nulls {
        Nulls::Some => prop_oneof![(0..4).prop_map(Value::from), Just(Value::Null)].boxed(),
        Nulls::None => (0..4).prop_map(Value::from).boxed(),
    };
    let flat = (
        keyed("n", plain),
        keyed("b", any::<bool>().prop_map(Value::from)),
        keyed("t", text()),
        keyed("l", distinct(text())),
        keyed("o", distinct(entry())),
    );
    let flat = flat.prop_map(|(numbers, booleans, texts, lists, entries)| {
        [numbers, booleans, texts, lists, entries]
            .into_iter()
            .flatten()
            .collect::<Map<_, _>>()
    });
    if depth == 0 {
        return flat.boxed();
    }
    let below = keyed("m", map(depth - 1, nulls).prop_map(Value::from));
    (flat, below)
        .prop_map(|(flat, below)| flat.into_iter().chain(below).collect())
        .boxed()
}

/// A short text, which several levels have in common by chance.
pub fn text() -> impl Strategy<Value = Value> {
    "[a-e]".prop_map(Value::from)
}

/// A map as an entry of a list.
pub fn entry() -> impl Strategy<Value = Value> {
    (0..3).prop_map(|number| json!({"x": number}))
}

/// A list that has nothing twice.
pub fn distinct(entry: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(entry, 0..4).prop_map(|entries| {
        let mut list: Vec<Value> = Vec::new();
        for entry in entries {
            if !list.contains(&entry) {
                list.push(entry);
            }
        }
        list.into()
    })
}

fn keyed(
    kind: &'static str,
    value: impl Strategy<Value = Value>,
) -> impl Strategy<Value = BTreeMap<String, Value>> {
    let key = "[a-b]".prop_map(move |key| format!("{kind}{key}"));
    prop::collection::btree_map(key, value, 0..3)
}
