//! What a person is told of where a value comes from.

use inventory::explain::{Explanation, Question};

use crate::{cluster, fleet};

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
