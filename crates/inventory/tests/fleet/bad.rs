//! Bad input: each problem names level, object, path, rule and remedy.

use crate::{problems, templates::one, two_levels};

const GROUP: &str = "inventory.windlass.dev/v1alpha1";

/// Levels site above rack, by ConfigMaps where the kinds do not suffice; the cluster belongs to rack r.
fn levels(site: &str, customer: &str, own: &str) -> String {
    format!(
        "
{{apiVersion: {GROUP}, kind: Environment, metadata: {{name: prod}}, spec: {{template: t, values: {{version: '1'}}, final: [version]}}}}
---
{{apiVersion: {GROUP}, kind: Customer, metadata: {{name: acme}}, spec: {customer}}}
---
{{apiVersion: {GROUP}, kind: Customer, metadata: {{name: zeta}}, spec: {{parents: {{environment: prod}}}}}}
---
{{apiVersion: {GROUP}, kind: Site, metadata: {{name: fra}}, spec: {site}}}
---
{{apiVersion: {GROUP}, kind: InfraProvider, metadata: {{name: metal}}, spec: {{parents: {{site: fra}}}}}}
---
{{apiVersion: {GROUP}, kind: FleetCluster, metadata: {{name: c}}, spec: {own}}}
---
{{apiVersion: {GROUP}, kind: ClusterTemplate, metadata: {{name: t}}, spec: {{backEnd: Plain, documents: [{{object: {{apiVersion: v1, kind: X, metadata: {{name: x}}}}}}]}}}}
"
    )
}

fn closed(values: &str) -> String {
    two_levels("[]", values, "{}").replace(
        "levels: [{name: site, kind: Site}]",
        "levels: [{name: site, kind: Site, schema: {type: object, additionalProperties: false, properties: {size: {type: integer, maximum: 9}}}}]",
    )
}

fn kubespray(cluster: &str, more: &str) -> String {
    let documents = format!(
        "[{{object: {{apiVersion: kubespray.k8s.io/v1, kind: Cluster, metadata: {{name: x}}, spec: {cluster}}}}}{more}]"
    );
    one("{v: {vault: {path: p, key: k}}}", &documents)
        .replace("backEnd: Plain", "backEnd: Kubespray")
}

#[test]
fn every_problem_names_level_object_path_rule_and_remedy() {
    let infra = "{parents: {infraProvider: metal}}";
    let customer = "{parents: {environment: prod}}";
    let object = |data: &str| {
        format!("[{{object: {{apiVersion: v1, kind: X, metadata: {{name: x}}, data: {data}}}}}]")
    };
    let mut told = String::new();
    for (name, text) in [
        (
            "a cycle",
            levels(
                "{parents: {customer: acme}}",
                "{parents: {site: fra}}",
                infra,
            ),
        ),
        (
            "a parent of a stronger level",
            levels("{parents: {infraProvider: metal}}", customer, infra),
        ),
        ("a missing level", levels("{}", customer, infra)),
        (
            "a missing object",
            levels("{parents: {customer: acmee}}", customer, infra),
        ),
        (
            "an unknown level",
            levels("{parents: {client: acme}}", customer, infra),
        ),
        (
            "two objects of one level",
            levels(
                "{parents: {customer: acme}}",
                customer,
                "{parents: {infraProvider: metal, customer: zeta}}",
            ),
        ),
        (
            "a locked key",
            levels(
                "{parents: {customer: acme}, values: {version: '2'}}",
                customer,
                infra,
            ),
        ),
        (
            "a locked key by the cluster",
            levels(
                "{parents: {customer: acme}}",
                customer,
                "{parents: {infraProvider: metal}, values: {version: '1'}}",
            ),
        ),
        (
            "another type",
            two_levels("[]", "{a: {b: [1]}}", "{a: {b: x}}"),
        ),
        (
            "a number where a text was",
            two_levels("[]", "{version: '1.30'}", "{version: 1.30}"),
        ),
        (
            "a map in a list",
            two_levels("[{path: a, strategy: Unique}]", "{a: [1]}", "{a: {b: 1}}"),
        ),
        (
            "an entry without its key",
            two_levels(
                "[{path: a, strategy: ListByKey, key: name}]",
                "{a: [{name: x}]}",
                "{a: [{nam: x}]}",
            ),
        ),
        ("an unknown key", closed("{size: 3, sise: 4}")),
        ("a value out of bounds", closed("{size: 10}")),
        (
            "an unknown word of a schema",
            closed("{}").replace("maximum: 9", "maximun: 9"),
        ),
        (
            "a reserved name",
            two_levels("[]", "{cluster: {name: x}}", "{}"),
        ),
        (
            "half a secret",
            two_levels("[]", "{p: {secretKeyRef: {name: x}}}", "{}"),
        ),
        (
            "a template beside others",
            two_levels("[]", "{p: {$template: x, other: y}}", "{}"),
        ),
        (
            "an undefined variable",
            one("{a: {b: 1}}", &object("\"first\\n{{ a.c }}\"")),
        ),
        ("an undefined value", one("{}", &object("'{{ nothing }}'"))),
        (
            "a part of what is not set",
            one("{}", &object("'{{ a.b.c }}'")),
        ),
        (
            "a template that never ends",
            one(
                "{}",
                &object(
                    "'{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}'",
                ),
            ),
        ),
        (
            "a template that is none",
            one("{}", &object("\"ok\\n{{ a b }}\"")),
        ),
        (
            "an unknown filter",
            one("{a: 1}", &object("'{{ a | nofilter }}'")),
        ),
        (
            "values that need each other",
            one(
                "{a: {$template: '{{ b }}'}, b: {$template: '{{ a }}'}}",
                &object("'{{ a }}'"),
            ),
        ),
        (
            "a value that fails",
            one("{a: {$template: '{{ missing }}'}}", &object("'{{ a }}'")),
        ),
        ("a list in a text", one("{a: [1]}", &object("'x{{ a }}'"))),
        (
            "a secret in a text",
            one(
                "{a: {secretKeyRef: {name: s, key: k}}}",
                &object("'x{{ a }}'"),
            ),
        ),
        (
            "a key that is a template",
            one("{}", &object("{'{{ a }}': 1}")),
        ),
        (
            "no name",
            one("{}", "[{object: {apiVersion: v1, kind: X}}]"),
        ),
        (
            "one name twice",
            one(
                "{}",
                "[{object: {apiVersion: v1, kind: X, metadata: {name: x}}}, {object: {apiVersion: v1, kind: X, metadata: {name: x}}}]",
            ),
        ),
        (
            "no list for each",
            one(
                "{a: 1}",
                "[{forEach: {values: a}, object: {apiVersion: v1, kind: X, metadata: {name: x}}}]",
            ),
        ),
        (
            "a field of the wrong type",
            kubespray("{runner: {maxForks: many}}", ""),
        ),
        (
            "a field that is none",
            kubespray("{kubernetesVersoin: 1.34.4}", ""),
        ),
        (
            "a version that is none",
            kubespray("{kubernetesVersion: latest}", ""),
        ),
        (
            "vault where nothing reads it",
            kubespray("{nodes: {all: {deploy: {extraVars: {p: '{{ v }}'}}}}}", ""),
        ),
        (
            "a host without an address",
            kubespray(
                "{}",
                ", {object: {apiVersion: kubespray.k8s.io/v1, kind: ClusterNode, metadata: {name: n1}, spec: {type: worker, inventory: {}}}}",
            ),
        ),
        (
            "no Cluster",
            one("{}", &object("{}")).replace("backEnd: Plain", "backEnd: Kubespray"),
        ),
        (
            "no template",
            two_levels("[]", "{}", "{}").replace("template: t, ", ""),
        ),
        (
            "another template",
            two_levels("[]", "{}", "{}").replace("template: t, ", "template: u, "),
        ),
        (
            "two hierarchies",
            format!(
                "{}\n---\n{}",
                two_levels("[]", "{}", "{}").replace("{name: default}", "{name: a}"),
                format_args!(
                    "{{apiVersion: {GROUP}, kind: Hierarchy, metadata: {{name: b}}, spec: {{levels: [{{name: site, kind: Site}}]}}}}"
                )
            ),
        ),
        (
            "a level twice",
            two_levels("[]", "{}", "{}")
                .replace("kind: Site}]", "kind: Site}, {name: other, kind: Site}]"),
        ),
        (
            "a contradictory rule",
            two_levels("[{path: a, strategy: First, key: b}]", "{}", "{}"),
        ),
        (
            "a field of a kind",
            two_levels("[]", "{}", "{}").replace("parents: {site: s}", "parent: {site: s}"),
        ),
        (
            "an object twice",
            format!(
                "{0}\n---\n{{apiVersion: {GROUP}, kind: Site, metadata: {{name: s}}, spec: {{}}}}",
                two_levels("[]", "{}", "{}")
            ),
        ),
        (
            "an unknown kind",
            format!(
                "{0}\n---\n{{apiVersion: {GROUP}, kind: Sight, metadata: {{name: s}}, spec: {{}}}}",
                two_levels("[]", "{}", "{}")
            ),
        ),
        (
            "a lock of an entry",
            two_levels("[]", "{}", "{}").replace("template: t, ", "template: t, final: ['a[0]'], "),
        ),
        (
            "a lock that a strategy would lose",
            two_levels("[{path: a, strategy: First}]", "{a: {b: 1}}", "{a: {c: 1}}")
                .replace("template: t, ", "template: t, final: [a.b], "),
        ),
    ] {
        told.push_str(&format!(
            "{name}\n  {}\n",
            problems(&text).replace('\n', "\n  ")
        ));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_fleet_with_one_bad_cluster_renders_nothing_but_tells_of_all() {
    let bad = format!(
        "{}\n---\n{{apiVersion: {GROUP}, kind: FleetCluster, metadata: {{name: d}}, spec: {{parents: {{infraProvider: nowhere}}}}}}",
        levels(
            "{parents: {customer: acme}}",
            "{parents: {environment: prod}}",
            "{parents: {infraProvider: metal}, values: {version: '3'}}"
        )
    );
    let fleet = crate::fleet(&bad).unwrap();
    let problems = fleet.render_all(|_| {}).unwrap_err();
    assert_eq!(problems.0.len(), 2, "{problems}");
}

#[test]
fn deep_values_are_refused_and_not_a_broken_stack() {
    let deep = format!("{}1{}", "{a: ".repeat(60), "}".repeat(60));
    assert!(
        problems(&two_levels("[]", &deep, "{}")).contains("deeper"),
        "a deep value"
    );
}

#[test]
fn what_a_cluster_comes_to_has_an_end() {
    let object = "[{object: {apiVersion: v1, kind: X, metadata: {name: x}, data: '{{ big }}'}}]";
    for big in [
        "[0] * 100000000",
        "[[0] * 99999999] * 99999999",
        "(range(20000) | list) * 1000",
    ] {
        let values = format!("{{big: {{$template: \"{{{{ {big} }}}}\"}}}}");
        let told = problems(&one(&values, object));
        let says = "comes to more than 500000 values; make smaller lists";
        assert!(told.contains(says), "{big}: {told}");
    }
    // Nor is a value given again and again without one, nor what stands in the template.
    let each = |part: &str| {
        format!(
            "[{{forEach: {{values: 'range(20000)'}}, object: {{apiVersion: v1, kind: X, metadata: {{name: 'x{{{{ key }}}}'}}, data: {part}}}}}]"
        )
    };
    let list = format!("[{}]", ["0"; 1000].join(", "));
    let plain = format!("{{big: {list}}}");
    let computed = "{big: {$template: \"{{ [0] * 1000 }}\"}}";
    for (values, part) in [
        (plain.as_str(), "'{{ big }}'"),
        (computed, "'{{ big }}'"),
        ("{}", list.as_str()),
    ] {
        let told = problems(&one(values, &each(part)));
        let says = "comes to more than 500000 values; make smaller lists";
        assert!(told.contains(says), "{part}: {told}");
    }
    // To look one entry of it up again and again is no more than that entry.
    let computed = "{big: {$template: \"{{ range(1000) | list }}\"}}";
    let text = one(computed, &each("'{{ big[key] }}'").replace("20000", "900"));
    assert!(crate::fleet(&text).unwrap().render_all(|_| {}).is_ok());
}

#[test]
fn what_templates_give_is_not_deeper_than_a_stack_takes() {
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(50), "]".repeat(50));
    let mut values = format!("v0: {{$template: \"{{{{ {} }}}}\"}}", nested("1"));
    for number in 1..15 {
        let inner = nested(&format!("v{}", number - 1));
        values += &format!(", v{number}: {{$template: \"{{{{ {inner} }}}}\"}}");
    }
    let anew = format!("{{% set x = {} %}}", nested("x")).repeat(180);
    let anew = format!("{{% set x = [] %}}{anew}");
    let object = "[{object: {apiVersion: v1, kind: X, metadata: {name: x}, data: '{{ v14 }}'}}]";
    for (values, says) in [
        (
            values.as_str(),
            "is nested deeper than 64 levels; make it flatter",
        ),
        (
            &format!("v14: {{$template: \"{anew}{{{{ x | tojson }}}}\"}}"),
            "",
        ),
        // What could be put into itself would be printed for ever.
        (
            "v14: {$template: \"{% set n = namespace() %}{% set n.x = n %}{{ n | string }}\"}",
            "namespace",
        ),
    ] {
        // As small as that of a thread of the operator.
        let text = one(&format!("{{{values}}}"), object);
        let render = move || crate::fleet(&text).unwrap().render_all(|_| {});
        let small = std::thread::Builder::new().stack_size(2 << 20);
        let rendered = small.spawn(render).unwrap().join().unwrap();
        let told = rendered.err().map(|told| told.to_string());
        assert!(told.unwrap_or_default().contains(says), "{says}");
    }
}

#[test]
fn all_templates_of_a_cluster_together_have_an_end() {
    let object = "[{object: {apiVersion: v1, kind: X, metadata: {name: x}, data: '{{ v }}'}}]";
    let many = |template: &str| {
        let values = (0..200).map(|number| format!("v{number}: {{$template: \"{template}\"}}"));
        let values = values.collect::<Vec<_>>().join(", ");
        problems(&one(&format!("{{v: {{{values}}}}}"), object))
    };
    let told = many("{% for i in range(12500) %}{{ i * i }}{% endfor %}");
    assert!(
        told.contains("have run for more than 10000000 steps; make loops of it shorter"),
        "{told}"
    );
    let long = "x".repeat(1000);
    let told = many(&format!("{{% for i in range(4000) %}}{long}{{% endfor %}}"));
    assert!(
        told.contains("comes to more than 67108864 bytes; make shorter texts"),
        "{told}"
    );
    let told = many(&format!("{{% for i in range(5000) %}}{long}{{% endfor %}}"));
    assert!(
        told.contains("the text comes to more than 4194304 bytes"),
        "{told}"
    );
}
