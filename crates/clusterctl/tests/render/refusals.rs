//! What cannot be rendered is refused with field, value, rule and remedy.

use clusterctl::{Scope, Scopes};

use crate::cases::{self, Case};

#[test]
fn what_cannot_be_rendered_is_refused_with_a_reason() {
    for (case, said) in cases::refused() {
        let error = case.render().expect_err(&case.name).to_string();
        assert!(error.contains(said), "{}: {error}", case.name);
    }
}

#[test]
fn what_an_api_server_would_refuse_is_refused_before() {
    let cases = [
        ("kind: A\nmetadata: {name: a}", "apiVersion is missing"),
        ("apiVersion: v1\nmetadata: {name: a}", "kind is missing"),
        ("apiVersion: v1\nkind: A", "metadata.name is missing"),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: \"\"}",
            "metadata.name is an empty text",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: 1}",
            "metadata.name is a number",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: [a]",
            "metadata.name is missing",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, labels: {b: 1}}",
            "metadata.labels is a mapping with other values",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, annotations: 1}",
            "metadata.annotations is a number",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: 1}",
            "metadata.namespace is a number",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\ntext",
            "document 2 of the file is no object",
        ),
    ];
    for (components, said) in cases {
        let (mut case, _) = cases::scopes().remove(0);
        components.clone_into(&mut case.components);
        let error = case.render().expect_err(components).to_string();
        assert!(error.contains(said), "{components}: {error}");
    }
}

#[test]
fn a_namespace_that_is_none_is_refused() {
    let (mut case, _) = cases::scopes().remove(0);
    for namespace in ["", "A", "a.b", "a/b", "-a", &"a".repeat(64)] {
        case.namespace = Some(namespace.to_owned());
        let error = case.render().expect_err(namespace).to_string();
        assert!(error.contains("is no name of a namespace"), "{error}");
    }
}

#[test]
fn values_of_variables_are_in_no_message() {
    for components in [
        "a: ${V}: ${V}",
        "apiVersion: v1\nkind: ${V}",
        "- ${V}",
        "apiVersion: v1\nkind: A\nmetadata: {name: a, labels: {b: [\"${V}\"]}}",
    ] {
        let (mut case, _) = cases::scopes().remove(0);
        components.clone_into(&mut case.components);
        case.values = cases::owned(&[("V", "hunter2")]);
        let error = case.render().expect_err(components);
        assert!(
            !format!("{error} {error:?}").contains("hunter2"),
            "{error:?}"
        );
    }
}

#[test]
fn files_that_grow_when_they_are_read_are_refused() {
    let (mut case, _) = cases::scopes().remove(0);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        bomb += &format!("a{level}: &a{level} [{before}*a{}]\n", level - 1);
    }
    let deep = "[".repeat(5000);
    for components in [bomb, deep] {
        case.components = components;
        assert!(case.render().is_err());
    }
}

#[test]
fn the_scope_of_a_kind_is_what_is_known_of_it() {
    for (case, kind) in cases::scopes() {
        let rendered = case.render().unwrap();
        let object = rendered
            .objects()
            .iter()
            .find(|object| object.kind() == kind)
            .unwrap();
        // All are of the cluster, but for the one that only has the name of such a kind.
        assert_eq!(object.namespace().is_empty(), kind != "Node", "{kind}");
    }
    // What an API server told counts, but less than the file's own CRDs.
    let known = |kind: &str, scope| ("made.example".to_owned(), kind.to_owned(), scope);
    let scopes = Scopes::new([
        known("Boat", Scope::Namespaced),
        known("Ship", Scope::Cluster),
    ]);
    let (mut case, _) = cases::scopes().remove(0);
    case.components += "---\napiVersion: made.example/v1\nkind: Ship\nmetadata: {name: ship}\n";
    let rendered = render_with(&case, &scopes);
    assert_eq!(rendered, ["", "", "", ""]);
}

/// The namespaces of the objects.
fn render_with(case: &Case, scopes: &Scopes) -> Vec<String> {
    let rendered = case.render_with(scopes).unwrap();
    rendered
        .objects()
        .iter()
        .map(|object| object.namespace().to_owned())
        .collect()
}
