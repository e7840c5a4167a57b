//! Templates: what they give, and what they leave alone.

use serde_json::{Value, json};

use crate::{problems, render};

/// An inventory of one cluster with these values and documents.
pub(crate) fn one(values: &str, documents: &str) -> String {
    format!(
        "
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: Hierarchy, metadata: {{name: default}}, spec: {{levels: [{{name: site, kind: Site, presence: Optional}}]}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: FleetCluster, metadata: {{name: c}}, spec: {{template: t, values: {values}}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: ClusterTemplate, metadata: {{name: t}}, spec: {{backEnd: Plain, documents: {documents}}}}}
"
    )
}

fn data(values: &str, text: &str) -> Value {
    let documents =
        format!("[{{object: {{apiVersion: v1, kind: X, metadata: {{name: x}}, data: {text}}}}}]");
    let text = one(values, &documents);
    let rendered = render(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    rendered.documents[0].to_value()["data"].clone()
}

#[test]
fn an_expression_keeps_its_type_and_a_text_is_a_text() {
    let values = "{n: 3, f: 1.5, t: yes, s: '07', l: [1, {a: b}], m: {x: {y: z}}, nothing: null}";
    for (text, expected) in [
        ("'{{ n }}'", json!(3)),
        ("'{{ n + 1 }}'", json!(4)),
        ("'{{- n }}'", json!(3)),
        ("'{{- n -}}'", json!(3)),
        ("'{{ -n }}'", json!(-3)),
        ("'n{{ n }}'", json!("n3")),
        ("'{{ f }}'", json!(1.5)),
        ("'{{ s }}'", json!("07")),
        ("'{{ l }}'", json!([1, {"a": "b"}])),
        ("'{{ m.x }}'", json!({"y": "z"})),
        ("'{{ nothing }}'", Value::Null),
        ("'{{ m | tojson }}'", json!("{\"x\": {\"y\": \"z\"}}")),
        ("'{{ l | length }}'", json!(2)),
        ("'{{ {\"a\": {}} }}'", json!({"a": {}})),
        ("'{{ n }}{{ n }}'", json!("33")),
        (
            "{a: '{{ missing | default(omit) }}', b: 1}",
            json!({"b": 1}),
        ),
        ("['{{ omit }}', 2]", json!([2])),
        (
            "'{% for e in l if e is number %}<{{ e }}>{% endfor %}'",
            json!("<1>"),
        ),
        ("plain", json!("plain")),
        ("'{{ cluster.name }}'", json!("c")),
        ("\"line\\n{{ n }}\\n\"", json!("line\n3\n")),
    ] {
        assert_eq!(data(values, text), expected, "{text}");
    }
}

#[test]
fn user_data_is_never_looked_into() {
    let values = r#"{cloud: "{{ ds.meta_data.hostname }} {% if x %} ${HOSTNAME} {# no #}", m: {k: "{{ missing }}"}}"#;
    let expected = "{{ ds.meta_data.hostname }} {% if x %} ${HOSTNAME} {# no #}";
    assert_eq!(data(values, "'{{ cloud }}'"), json!(expected));
    assert_eq!(
        data(values, "'<{{ cloud }}>'"),
        json!(format!("<{expected}>"))
    );
    assert_eq!(data(values, "'{{ m }}'"), json!({"k": "{{ missing }}"}));
    assert_eq!(
        data("{}", "'{% raw %}{{ ds }} ${x}{% endraw %}'"),
        json!("{{ ds }} ${x}")
    );
    assert_eq!(
        data("{}", "'${HOSTNAME:-x} $$'"),
        json!("${HOSTNAME:-x} $$")
    );
}

#[test]
fn a_value_cannot_break_the_yaml_around_it() {
    let values = r#"{evil: "a\nkind: Secret\n---\n- {x: [\"'"}"#;
    assert_eq!(
        data(values, "{k: 'x{{ evil }}'}"),
        json!({"k": "xa\nkind: Secret\n---\n- {x: [\"'"})
    );
}

#[test]
fn values_that_are_templates_see_what_the_cluster_ends_up_with() {
    let values = "{a: {$template: '{{ b }}!'}, b: {$template: '{{ c.d }}?'}, c: {d: end}, n: {$template: '{{ 1 + 1 }}'}, l: [{$template: '{{ cluster.name }}'}]}";
    assert_eq!(
        data(values, "['{{ a }}', '{{ n }}', '{{ l }}', '{{ l[0] }}']"),
        json!(["end?!", 2, ["c"], "c"])
    );
}

#[test]
fn references_to_secrets_are_handed_on_and_nothing_else() {
    let values = "{p: {secretKeyRef: {name: s, key: k}}, m: {p: {secretKeyRef: {name: s, key: k}}}, t: {$template: '{{ p }}'}}";
    assert_eq!(
        data(values, "['{{ p }}', '{{ m }}', '{{ t }}']"),
        json!([
            {"secretKeyRef": {"name": "s", "key": "k"}},
            {"p": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"secretKeyRef": {"name": "s", "key": "k"}},
        ])
    );
    for text in [
        "'x{{ p }}'",
        "'{{ p ~ 1 }}'",
        "'{{ p | upper }}'",
        "'{{ p | string }}'",
        "'{{ t ~ 1 }}'",
        "'{{ m.p ~ 1 }}'",
    ] {
        let documents = format!(
            "[{{object: {{apiVersion: v1, kind: X, metadata: {{name: x}}, data: {text}}}}}]"
        );
        let told = problems(&one(values, &documents));
        assert!(told.contains("secret"), "{text}: {told}");
    }
    let told = problems(&one(
        values,
        "[{object: {apiVersion: v1, kind: X, metadata: {name: x}, d: '{{ p.secretKeyRef.name }}'}}]",
    ));
    assert!(
        told.contains("secretKeyRef") || told.contains("not"),
        "{told}"
    );
}

#[test]
fn documents_are_made_for_each_entry_and_only_when_wanted() {
    let documents = "[{forEach: {values: nodes, as: node}, when: node.on, object: {apiVersion: v1, kind: X, metadata: {name: '{{ key }}'}, ip: '{{ node.ip }}'}},
      {forEach: {values: 'range(2)'}, object: {apiVersion: v1, kind: W, metadata: {name: 'y-{{ item }}'}}},
      {forEach: {values: list}, object: {apiVersion: v1, kind: Z, metadata: {name: '{{ item }}-{{ key }}'}}}]";
    let values =
        "{nodes: {b: {ip: 2, on: true}, a: {ip: 1, on: true}, c: {ip: 3, on: false}}, list: [x]}";
    let rendered = render(&one(values, documents)).unwrap();
    let names: Vec<_> = rendered
        .documents
        .iter()
        .map(|document| document.object.name.clone())
        .collect();
    assert_eq!(names, ["a", "b", "y-0", "y-1", "x-0"]);
}

#[test]
fn hashed_names_follow_the_content_and_references_follow_them() {
    let documents = "[{naming: Hashed, object: {apiVersion: infra/v1, kind: MachineTemplate, metadata: {name: w}, spec: {flavor: '{{ flavor }}', b: 1, a: 2}}},
      {object: {apiVersion: c/v1, kind: MachineDeployment, metadata: {name: w}, spec: {replicas: '{{ replicas | default(omit) }}', infrastructureRef: {kind: MachineTemplate, name: w}, other: {kind: Other, name: w}}}}]";
    let names = |values: &str| {
        let rendered = render(&one(values, documents)).unwrap();
        let reference = rendered.documents[1].to_value()["spec"].clone();
        assert_eq!(reference["other"]["name"], "w");
        assert_eq!(
            reference["infrastructureRef"]["name"],
            json!(rendered.documents[0].object.name)
        );
        assert_eq!(
            rendered.documents[0].to_value()["metadata"]["name"],
            json!(rendered.documents[0].object.name)
        );
        rendered.documents[0].object.name.clone()
    };
    let small = names("{flavor: small}");
    // The same for ever: another one would roll every machine.
    assert_eq!(small, "w-e00dc00990");
    assert_eq!(names("{flavor: small, replicas: 7, unused: 1}"), small);
    assert_ne!(names("{flavor: large}"), small);
}

/// Pieces of which templates are made, right and wrong.
fn pieces() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let piece = prop_oneof![
        prop::sample::select(vec![
            "{{",
            "}}",
            "{%",
            "%}",
            "{#",
            "#}",
            "{{ a }}",
            "{{ p }}",
            "{{ m.k }}",
            "{{ omit }}",
            "{{ cluster }}",
            " ~ ",
            " | ",
            "default(omit)",
            "tojson",
            "[0]",
            "range(9)",
            "{% for x in l %}",
            "{% endfor %}",
            "{% set a = ",
            "{% raw %}",
            "{% endraw %}",
            "a",
            "m",
            "l",
            "p",
            "\n",
            "(",
            ")",
            "loop.index",
            "namespace()",
            "dict(a=1)",
            "-1",
            "0",
            "1 // 0",
            "'",
            "\"",
        ])
        .prop_map(ToOwned::to_owned),
        ".{0,3}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_a_template_is_it_gives_a_value_or_says_what_is_wrong(text in pieces(), value in pieces()) {
        let spec = json!({"template": "t", "values": {"a": 1, "m": {"k": "v"}, "l": [1, 2], "v": {"$template": value},
            "p": {"secretKeyRef": {"name": "s", "key": "k"}}}});
        let objects = vec![
            json!({"apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Hierarchy", "metadata": {"name": "default"},
                "spec": {"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]}}),
            json!({"apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetCluster", "metadata": {"name": "c"}, "spec": spec}),
            json!({"apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "ClusterTemplate", "metadata": {"name": "t"},
                "spec": {"backEnd": "Plain", "documents": [{"object": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"},
                    "text": text, "value": "{{ v }}"}}]}}),
        ];
        let rendered = inventory::Fleet::read(objects, "default").and_then(|fleet| fleet.render(&crate::cluster("c")));
        match rendered {
            Ok(rendered) => proptest::prop_assert_eq!(&rendered.documents[0].to_value()["kind"], "X"),
            Err(problems) => proptest::prop_assert!(!problems.to_string().is_empty()),
        }
    }
}
