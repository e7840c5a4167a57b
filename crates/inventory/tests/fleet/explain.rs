//! What a person is told of where a value comes from.

use inventory::explain::Question;

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
    let rules = "[{path: l, strategy: Unique, knockoutPrefix: '--'}, {path: m, strategy: Deep, knockoutPrefix: '--'}]";
    let text = crate::two_levels(
        rules,
        "{l: [a, b], m: {x: 1, y: 2}}",
        "{l: [c, --a], m: {x: '--'}}",
    );
    let rendered = fleet(&text).unwrap().render(&cluster("c")).unwrap();
    let explained = rendered
        .explain(&Question::Values("m".parse().unwrap()))
        .unwrap();
    assert_eq!(
        explained[0].from[0].overrode[0].value,
        serde_json::json!({"x": 1, "y": 2})
    );
    let explained = rendered
        .explain(&Question::Values("l".parse().unwrap()))
        .unwrap();
    assert_eq!(
        explained[0].from[0].overrode[0].value,
        serde_json::json!(["a", "b"])
    );
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
