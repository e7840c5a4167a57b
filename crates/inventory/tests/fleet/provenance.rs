//! Origin, proved by mutation: after a change of the value that is claimed to be the origin exactly those leaves are others that
//! claim it.

use std::collections::{BTreeMap, BTreeSet};

use api::inventory::{Segment, ValuePath};
use inventory::{Fleet, Rendered, Shape};
use lab::Extent;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{cluster, laws};

/// An object and a path in it.
type Place = (String, String);

/// A template whose every leaf is another value for another input: each value as it is, in a text, and through a value that is a
/// template.
fn template() -> Value {
    let data = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ cluster.name }}"},
        "whole": "{{ ma | default(omit) }}",
        "maps": "{{ [mb] if mb is defined else omit }}",
        "text": "a={{ na | default('none') | tojson }} b={{ (ma.na | default('none') | tojson) if ma is defined else 'none' }}",
        "through": "{{ through }}",
        "list": "{{ la | default(omit) }}",
    });
    json!({"apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "ClusterTemplate", "metadata": {"name": "t"},
        "spec": {"backEnd": "Plain", "documents": [{"object": data}]}})
}

fn inventory(rules: &Value, levels: &[Map<String, Value>]) -> Vec<Value> {
    let mut levels = levels.to_vec();
    levels[0].insert(
        "through".into(),
        json!({"$template": "{{ nb | default('none') | tojson }}/{{ (mb.na if mb is defined else 'none') | default('none') | tojson }}"}),
    );
    let mut objects = laws::chain(rules, &levels);
    objects.retain(|object| object["kind"] != "ClusterTemplate");
    objects.push(template());
    objects
}

fn render(objects: &[Value]) -> Rendered {
    let fleet = Fleet::read(objects.to_vec(), "default").unwrap();
    fleet.render(&cluster("c")).unwrap()
}

fn leaves(rendered: &Rendered) -> BTreeMap<String, Value> {
    let document = &rendered.documents[0];
    let leaves = document.content.leaves().into_iter();
    leaves
        .map(|(path, made)| (path.to_string(), made.to_value()))
        .collect()
}

/// Which leaves claim which places.
fn claims(rendered: &Rendered) -> BTreeMap<Place, BTreeSet<String>> {
    let mut claims: BTreeMap<Place, BTreeSet<String>> = BTreeMap::new();
    let document = &rendered.documents[0];
    for (path, made) in document.content.leaves() {
        for held in made.uses.iter() {
            let Some(tree) = rendered.resolved.values.at(&held.path.0) else {
                continue;
            };
            if matches!(tree.shape, Shape::Leaf(_)) {
                let origin = &tree.origin;
                let place = (origin.source.object.to_string(), origin.at.to_string());
                claims.entry(place).or_default().insert(path.to_string());
            }
        }
    }
    claims
}

/// Puts another value of the same type at a place; whether there is a plain one.
fn mutate(objects: &mut [Value], place: &Place) -> bool {
    let path: ValuePath = place.1.parse().unwrap();
    for object in objects {
        let name = format!(
            "{}/{}",
            object["kind"].as_str().unwrap(),
            object["metadata"]["name"].as_str().unwrap()
        );
        if name != place.0 {
            continue;
        }
        let mut value = object;
        for step in &path.0 {
            value = match step {
                Segment::Key(key) => &mut value[key.as_ref()],
                Segment::Index(number) => &mut value[*number],
                Segment::Any => panic!("no place"),
            };
        }
        match value {
            Value::Number(_) | Value::Null => *value = json!(12345),
            Value::String(_) => *value = json!("another"),
            _ => return false,
        }
        return true;
    }
    false
}

fn check(rules: &Value, levels: &[Map<String, Value>]) -> Result<(), TestCaseError> {
    let objects = inventory(rules, levels);
    let before = render(&objects);
    let values = leaves(&before);
    for (place, claimed) in claims(&before) {
        let mut changed = objects.clone();
        if !mutate(&mut changed, &place) {
            continue;
        }
        let after = leaves(&render(&changed));
        let all: BTreeSet<_> = values.keys().chain(after.keys()).collect();
        let differing: BTreeSet<String> = all
            .into_iter()
            .filter(|path| values.get(*path) != after.get(*path))
            .cloned()
            .collect();
        prop_assert_eq!(&differing, &claimed, "{:?} of {:?}", place, objects);
    }
    // And what nobody claims changes nothing.
    let claimed: BTreeSet<Place> = claims(&before).into_keys().collect();
    for object in &objects {
        let kind = object["kind"].as_str().unwrap();
        let Some(own) = object["spec"]["values"].as_object() else {
            continue;
        };
        let name = format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap());
        for (key, value) in own {
            let place = (name.clone(), format!("spec.values.{key}"));
            let mut changed = objects.clone();
            if value.is_number() && !claimed.contains(&place) && mutate(&mut changed, &place) {
                prop_assert_eq!(leaves(&render(&changed)), values.clone(), "{:?}", place);
            }
        }
    }
    Ok(())
}

/// Rules, and levels whose values they merge.
fn any_hierarchy() -> impl Strategy<Value = (Value, Vec<Map<String, Value>>)> {
    let maps = json!([{"path": "ma", "strategy": "Hash"}, {"path": "mb", "strategy": "First"}]);
    let lists = json!([
        {"path": "la", "strategy": "Unique"},
        {"path": "*.la", "strategy": "Unique"},
        {"path": "mb", "strategy": "Deep", "lists": "Unique"},
    ]);
    let levels = || prop::collection::vec(laws::values(), 1..5);
    prop_oneof![
        levels().prop_map(|levels| (json!([]), levels)),
        levels().prop_map(move |levels| (maps.clone(), levels)),
        levels().prop_map(move |levels| (lists.clone(), apart(levels))),
    ]
}

/// No entry of a list in another level too: of one that two levels say, each is the origin, and a change of either adds one.
fn apart(levels: Vec<Map<String, Value>>) -> Vec<Map<String, Value>> {
    let levels = levels.into_iter().enumerate();
    levels
        .map(|(number, mut level)| {
            level.values_mut().for_each(|value| mark(value, number));
            level
        })
        .collect()
}

fn mark(value: &mut Value, level: usize) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| mark(value, level)),
        Value::Array(list) => {
            let mut seen = BTreeSet::new();
            list.retain(|entry| seen.insert(entry.to_string()));
            for entry in list {
                *entry = json!(format!("{}-{level}", entry.as_str().unwrap_or_default()));
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(Extent::of_this_run().hierarchies()))]

    #[test]
    fn exactly_the_leaves_change_that_claim_an_origin((rules, levels) in any_hierarchy()) {
        check(&rules, &levels)?;
    }
}

#[test]
fn the_entries_of_a_merged_list_come_from_where_they_stand() {
    let rules = json!([{"path": "la", "strategy": "Unique"}]);
    let level = |list: Value| Map::from_iter([("la".to_owned(), list)]);
    let levels = [
        level(json!(["a", "b"])),
        level(json!(["c"])),
        level(json!(["d", "e"])),
    ];
    check(&rules, &levels).unwrap();
}
