//! What a person is told of where a value comes from.

use api::inventory::{Segment, ValuePath};
use inventory::{
    Fleet,
    explain::{Explanation, Question},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{cluster, fleet, laws};

const FLEET: &str = r#"
{apiVersion: inventory.windlass.dev/v1alpha1, kind: Environment, metadata: {name: prod}, spec: {template: t, values: {
  version: "1", size: 3, list: [a, b], host: {$template: "api.{{ domain }}"}, domain: example}}}
---
{apiVersion: inventory.windlass.dev/v1alpha1, kind: Customer, metadata: {name: acme}, spec: {parents: {environment: prod}, values: {version: "2", list: [c]}}}
---
{apiVersion: inventory.windlass.dev/v1alpha1, kind: Site, metadata: {name: fra}, spec: {parents: {customer: acme}, values: {domain: fra.example}}}
---
{apiVersion: inventory.windlass.dev/v1alpha1, kind: InfraProvider, metadata: {name: metal}, spec: {parents: {site: fra}}}
---
{apiVersion: inventory.windlass.dev/v1alpha1, kind: FleetCluster, metadata: {name: c}, spec: {parents: {infraProvider: metal}, values: {version: "3"}}}
---
{apiVersion: inventory.windlass.dev/v1alpha1, kind: ClusterTemplate, metadata: {name: t}, spec: {backEnd: Plain, documents: [
  {when: "size > 2", object: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ cluster.name }}"},
    data: {version: "v{{ version }}", host: "{{ host }}", port: "{{ port | default(6443) }}", list: "{{ list }}"}}}]}}
"#;

fn explain(question: &str) -> Vec<inventory::explain::Explanation> {
    let rendered = fleet(FLEET).unwrap().render(&cluster("c")).unwrap();
    rendered
        .explain(&question.parse::<Question>().unwrap())
        .unwrap()
}

#[test]
fn a_value_tells_of_its_level_and_of_all_that_it_overrode() {
    insta::assert_yaml_snapshot!(explain("version"));
}

#[test]
fn a_list_that_was_replaced_is_told_of_at_its_entries() {
    insta::assert_yaml_snapshot!(explain("list"));
}

#[test]
fn a_value_that_is_a_template_tells_what_it_was_made_of() {
    insta::assert_yaml_snapshot!(explain("host"));
}

#[test]
fn a_field_of_an_object_tells_of_template_and_values() {
    insta::assert_yaml_snapshot!(explain("ConfigMap/c:data"));
}

#[test]
fn what_was_knocked_out_is_told_of() {
    let rules = "[{path: l, strategy: Unique, knockoutPrefix: '--'}, {path: m, strategy: Deep, knockoutPrefix: '--'}, \
                 {path: k, strategy: ListByKey, key: name, knockoutPrefix: '--'}]";
    let text = crate::two_levels(
        rules,
        "{l: [a, b], m: {x: {z: 1}, y: 2}, k: [{name: a, v: 1}, {name: b, v: 1}], n: {x: 1}, o: [a]}",
        "{l: [c, --a], m: {x: '--'}, k: [{name: --a}, {name: b, v: 2}], o: [a, b]}",
    );
    let rendered = fleet(&text).unwrap().render(&cluster("c")).unwrap();
    let told = |path: &str| {
        let question = Question::Values(path.parse().unwrap());
        let explained = rendered.explain(&question).unwrap();
        let of_one = |explanation: &Explanation| {
            let from = &explanation.from[0];
            let overrode = from.overrode.iter().map(|lower| lower.value.to_string());
            let removed = from
                .removed
                .iter()
                .map(|gone| format!("{} = {}, by {}", gone.path, gone.value, gone.removed_at));
            (
                explanation.path.clone(),
                overrode.collect::<Vec<_>>(),
                removed.collect::<Vec<_>>(),
            )
        };
        explained.iter().map(of_one).collect::<Vec<_>>()
    };
    let row = |path: &str, overrode: &[&str], removed: &[&str]| {
        let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        (path.to_owned(), all(overrode), all(removed))
    };
    let list = r#"l = "a", by spec.values.l"#;
    assert_eq!(
        told("l"),
        [row("l[0]", &[], &[list]), row("l[1]", &[], &[list])]
    );
    assert_eq!(
        told("m"),
        [row("m.y", &[], &[r#"m.x = {"z":1}, by spec.values.m"#])]
    );
    let keyed = r#"k = {"name":"a","v":1}, by spec.values.k"#;
    assert_eq!(
        told("k"),
        [
            row("k[0].name", &[r#""b""#], &[keyed]),
            row("k[0].v", &["1"], &[keyed])
        ]
    );
    // A list that was replaced whole stands in place of the other one, though they have an entry in common.
    assert_eq!(
        told("o"),
        [
            row("o[0]", &[r#"["a"]"#], &[]),
            row("o[1]", &[r#"["a"]"#], &[])
        ]
    );

    let removed = |path: &str| {
        let removed = rendered.removed(&Question::Values(path.parse().unwrap()));
        removed
            .into_iter()
            .map(|gone| gone.path)
            .collect::<Vec<_>>()
    };
    assert_eq!(removed("m.x.z"), ["m.x"]);
    for never in ["l[7]", "l[0].x", "m.z", "n.y", "nothing"] {
        assert_eq!(removed(never), Vec::<String>::new(), "{never}");
    }
}

#[test]
fn what_was_knocked_out_is_told_of_after_a_merge_above_it() {
    let rules = json!([{"path": "l", "strategy": "Unique", "knockoutPrefix": "--"},
        {"path": "m", "strategy": "Deep", "knockoutPrefix": "--"},
        {"path": "k", "strategy": "ListByKey", "key": "name", "knockoutPrefix": "--"},
        {"path": "h", "strategy": "Hash"}]);
    let levels = [
        json!({"l": ["a", "b"], "m": {"x": {"z": 1}, "y": 2}, "k": [{"name": "a"}, {"name": "b"}], "h": {"a": 1}}),
        json!({"l": ["--a"], "m": {"x": "--"}, "k": [{"name": "--a"}], "h": {"a": 2}}),
        json!({"l": ["c"], "m": {"w": 3}, "k": [{"name": "c"}], "h": {"b": 3}}),
    ];
    let levels = levels.map(|level| level.as_object().unwrap().clone());
    let rendered = Fleet::read(laws::chain(&rules, &levels), "default").unwrap();
    let rendered = rendered.render(&cluster("c")).unwrap();
    for (path, gone) in [
        ("l[0]", r#"l = "a""#),
        ("m.w", r#"m.x = {"z":1}"#),
        ("k[1].name", r#"k = {"name":"a"}"#),
    ] {
        let explained = rendered.explain(&Question::Values(path.parse().unwrap()));
        let [explanation] = explained.unwrap().try_into().unwrap();
        let removed = &explanation.from[0].removed;
        let [removed] = removed.as_slice() else {
            panic!("{path}: {removed:?}");
        };
        assert_eq!(format!("{} = {}", removed.path, removed.value), gone);
        assert_eq!(
            (removed.by.as_str(), removed.removed_by.as_str()),
            ("Environment/o", "Customer/o"),
            "{path}"
        );
        // What was merged is in the place of nothing.
        assert!(explanation.from[0].overrode.is_empty(), "{path}");
    }
}

#[test]
fn an_entry_that_was_replaced_whole_was_not_taken_out() {
    let rules = "[{path: 'k.*', strategy: First}, {path: k, strategy: ListByKey, key: name, knockoutPrefix: '--'}]";
    let text = crate::two_levels(
        rules,
        "{k: [{name: a}, {name: b, v: 1}]}",
        "{k: [{name: --a}, {name: b, v: 2}]}",
    );
    let rendered = fleet(&text).unwrap().render(&cluster("c")).unwrap();
    let explained = rendered.explain(&Question::Values("k[0].v".parse().unwrap()));
    let from = &explained.unwrap()[0].from[0];
    assert_eq!(from.overrode[0].value, json!({"name": "b", "v": 1}));
    let removed: Vec<_> = from.removed.iter().map(|gone| &gone.value).collect();
    assert_eq!(removed, [&json!({"name": "a"})]);
}

#[test]
fn a_map_of_several_levels_that_is_gone_is_told_by_each_of_its_parts() {
    let rules = json!([{"path": "a", "strategy": "Deep", "knockoutPrefix": "--"}]);
    let levels = [
        json!({"a": {"b": {"x": 1}}}),
        json!({"a": {"b": {"y": 2}}}),
        json!({"a": {"b": "--"}}),
    ];
    let levels = levels.map(|level| level.as_object().unwrap().clone());
    let rendered = Fleet::read(laws::chain(&rules, &levels), "default").unwrap();
    let rendered = rendered.render(&cluster("c")).unwrap();
    for (path, wanted) in [
        ("a.b", &["a.b.x", "a.b.y"][..]),
        ("a.b.y", &["a.b.y"]),
        ("a.bb", &[]),
    ] {
        let removed = rendered.removed(&Question::Values(path.parse().unwrap()));
        let removed: Vec<_> = removed.iter().map(|gone| gone.path.as_str()).collect();
        assert_eq!(removed, wanted, "{path}");
    }
}

#[test]
fn what_can_be_rendered_can_be_explained() {
    // Given once it is less than half of what a cluster may come to.
    let values = r#"{few: {$template: "{{ range(40000) | list }}"}, big: {$template: "{{ [few, few, few, few] }}"}}"#;
    let text = crate::two_levels("[]", values, "{}").replace(
        "metadata: {name: c}}}]}}",
        r#"metadata: {name: c}, data: {big: "{{ big }}"}}}]}}"#,
    );
    assert!(text.contains("data: "), "{text}");
    let rendered = fleet(&text).unwrap().render(&cluster("c")).unwrap();
    for _ in 0..2 {
        let explained = rendered.explain(&Question::Values("big".parse().unwrap()));
        assert_eq!(explained.unwrap().len(), 1);
    }
}

/// Rules with marks that take out, and levels that use them.
fn any_knockouts() -> impl Strategy<Value = (Value, Vec<Map<String, Value>>)> {
    let others = prop_oneof![Just("First"), Just("Hash"), Just("Deep")];
    let rules = others.prop_map(|other| {
        json!([{"path": "la", "strategy": "Unique", "knockoutPrefix": "--"},
            {"path": "ma", "strategy": "Deep", "lists": "Unique", "knockoutPrefix": "--"},
            {"path": "ka", "strategy": "ListByKey", "key": "name", "knockoutPrefix": "--"},
            {"path": "mb", "strategy": other}])
    });
    let marks = || prop::option::of(prop_oneof![Just("na"), Just("la"), Just("ka")]);
    let level = (
        laws::values_and_entries(),
        prop::option::of(0..6),
        marks(),
        prop::option::of("[a-c]"),
    );
    let level = level.prop_map(|(mut level, entry, key, name)| {
        if let (Some(Value::Array(list)), Some(entry)) = (level.get_mut("la"), entry) {
            list.push(json!(format!("--e{entry}")));
        }
        if let (Some(Value::Object(map)), Some(key)) = (level.get_mut("ma"), key) {
            map.insert(key.to_owned(), json!("--"));
        }
        if let (Some(Value::Array(list)), Some(name)) = (level.get_mut("ka"), name) {
            list.push(json!({"name": format!("--{name}")}));
        }
        level
    });
    (rules, prop::collection::vec(level, 1..5))
}

/// The values without parts that an object sets, each with its path there.
fn written(value: &Value, path: &ValuePath, found: &mut Vec<(ValuePath, Value)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                written(value, &path.key(key), found);
            }
        }
        Value::Array(list) => {
            for (number, value) in list.iter().enumerate() {
                written(value, &path.index(number), found);
            }
        }
        Value::String(text) if text.starts_with("--") => {}
        leaf => found.push((path.clone(), leaf.clone())),
    }
}

/// A path, wherever in their lists its entries stand.
fn in_lists(path: &ValuePath) -> Vec<Segment> {
    let steps = path.0.iter().map(|step| match step {
        Segment::Index(_) => Segment::Any,
        step => step.clone(),
    });
    steps.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// All that any level says is there, or stands where an explanation says what was overridden or taken out.
    #[test]
    fn nothing_that_a_level_says_is_forgotten((rules, levels) in any_knockouts()) {
        let objects = laws::chain(&rules, &levels);
        let rendered = Fleet::read(objects.clone(), "default").unwrap().render(&cluster("c")).unwrap();
        let explained = rendered.explain(&Question::Values(ValuePath::default())).unwrap();
        let mut told: Vec<(String, ValuePath, Value)> = Vec::new();
        for contribution in explained.into_iter().flat_map(|explanation| explanation.from) {
            let place = |at: &str| at.parse().unwrap();
            let at = contribution.at.as_deref().map(place).unwrap();
            let mut tell = |by: String, at: ValuePath, value: &Value| {
                let mut all = Vec::new();
                written(value, &at, &mut all);
                told.extend(all.into_iter().map(|(at, value)| (by.clone(), at, value)));
            };
            tell(contribution.by, at, &contribution.value.unwrap_or_default());
            for it in contribution.overrode {
                tell(it.by, place(&it.at), &it.value);
            }
            for it in contribution.removed {
                tell(it.by, place(&it.at), &it.value);
            }
        }
        for object in objects.iter().filter(|object| object["spec"]["values"].is_object()) {
            let by = format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
            let mut all = Vec::new();
            let root = ValuePath::default().key("spec").key("values");
            written(&object["spec"]["values"], &root, &mut all);
            for (at, value) in all {
                let is_there = told.iter().any(|(teller, place, said)| *teller == by && *place == at && *said == value);
                // Of an entry that several levels have in one list, one is told of.
                let mut others = told.iter().filter(|(_, place, said)| *said == value && in_lists(place) == in_lists(&at));
                let is_entry = at.0.iter().any(|step| matches!(step, Segment::Index(_)));
                prop_assert!(is_there || (is_entry && others.next().is_some()), "{by} {at} = {value} of {objects:?}");
            }
        }
    }
}

#[test]
fn what_is_not_there_is_nothing() {
    assert!(explain("nothing.there").is_empty());
    assert!(explain("ConfigMap/other").is_empty());
    for question in ["a..b", "Cluster/x:a..b", "Cluster/x: y"] {
        assert!(question.parse::<Question>().is_err(), "{question}");
    }
    assert_eq!(
        r#"labels["a/b"]"#.parse::<Question>().unwrap(),
        Question::Values(r#"labels["a/b"]"#.parse().unwrap())
    );
}

/// The engine looks at some values only when the list or map that it gave is read.
#[test]
fn what_is_looked_at_late_is_told_as_well() {
    for (name, of_values, template) in [
        ("reversed alone", "few", "{{ few | reverse }}"),
        ("cut", "few", "{{ few[1:] }}"),
        ("items", "map", "{{ map | items }}"),
        ("reversed items", "map", "{{ map | items | reverse }}"),
        ("in a list", "few", "{{ [1, few | reverse] }}"),
        ("in a map", "few", "{{ {'k': few[::-1]} }}"),
    ] {
        let values = "{few: [a, b], map: {k: v}}";
        let data = format!("data: {{made: \"{template}\"}}");
        let text = crate::two_levels("[]", values, "{}").replace(
            "metadata: {name: c}}}]}}",
            &format!("metadata: {{name: c}}, {data}}}}}]}}}}"),
        );
        assert!(text.contains(&data), "{text}");
        let rendered = fleet(&text).unwrap().render(&cluster("c")).unwrap();
        let question = "ConfigMap/c:data.made".parse::<Question>().unwrap();
        let explained = rendered.explain(&question).unwrap();
        assert!(!explained.is_empty(), "{name}");
        let wanted = match of_values {
            "map" => "map.k",
            _ => "few[1]",
        };
        for leaf in explained {
            let is_told = leaf
                .from
                .iter()
                .any(|from| from.path == wanted && from.what == "value");
            assert!(is_told, "{name}: {leaf:?}");
        }
    }
}

#[test]
fn what_a_loop_runs_over_late_is_told_as_well() {
    for (each, name, told) in [
        ("few | reverse", "{{ item }}", "few[0]"),
        ("few[:1]", "{{ item }}", "few[0]"),
        ("map | items", "{{ item[1] }}", "map.k"),
        ("{few[0]: 1}", "{{ key }}", "few[0]"),
    ] {
        let values = "{few: [a, b], map: {k: v}}";
        let text = crate::two_levels("[]", values, "{}").replace(
            "{object: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}}",
            &format!(
                "{{forEach: {{values: \"{each}\"}}, object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: \"{name}\"}}}}}}"
            ),
        );
        assert!(text.contains("forEach"), "{text}");
        let rendered = fleet(&text).unwrap().render(&cluster("c"));
        let rendered = rendered
            .map_err(|error| format!("{each}: {error}"))
            .unwrap();
        for document in &rendered.documents {
            for (path, made) in document.content.leaves() {
                let is_told = made.uses.iter().any(|used| used.path.to_string() == told);
                assert!(
                    is_told || path.to_string() != "metadata.name",
                    "{each}: {made:?}"
                );
            }
        }
        assert!(!rendered.documents.is_empty(), "{each}");
    }
}

#[test]
fn a_map_that_a_template_gives_is_told_with_each_level_that_made_it() {
    let rules = "[{path: b, strategy: Deep}]";
    let weak = "{a: {$template: '{{ b }}'}, b: {x: 1}}";
    let text = crate::two_levels(rules, weak, "{b: {v: 2}}");
    let rendered = fleet(&text).unwrap().render(&cluster("c")).unwrap();
    let explained = rendered.explain(&Question::Values("a".parse().unwrap()));
    let explained = explained.unwrap();
    let from = explained.iter().flat_map(|one| &one.from);
    let told: Vec<_> = from
        .map(|from| format!("{} {}", from.path, from.by))
        .collect();
    for wanted in ["b.x Site/default/s", "b.v FleetCluster/default/c"] {
        let (path, by) = wanted.split_once(' ').unwrap();
        let kind = by.split('/').next().unwrap();
        let is_told = |told: &String| told.starts_with(&format!("{path} {kind}"));
        assert!(told.iter().any(is_told), "{wanted}: {told:?}");
    }
}

#[test]
fn what_was_in_a_value_that_was_replaced_whole_is_told() {
    let rules = "[{path: a, strategy: First}]";
    let text = crate::two_levels(rules, "{a: {b: {x: 1}}, l: [p, q]}", "{a: {k: 2}, l: [p]}");
    let rendered = fleet(&text).unwrap().render(&cluster("c")).unwrap();
    for (path, wanted) in [
        ("a.b", &["a by spec.values.a"][..]),
        ("a.b.x", &["a by spec.values.a"]),
        ("a.other", &[]),
        ("l[1]", &["l by spec.values.l"]),
        ("l[2]", &[]),
    ] {
        let removed = rendered.removed(&Question::Values(path.parse().unwrap()));
        let removed: Vec<_> = removed
            .iter()
            .map(|gone| format!("{} by {}", gone.path, gone.removed_at))
            .collect();
        assert_eq!(removed, wanted, "{path}");
    }
}
