//! Defaults, pruning and validation against answers of a real API server (1.34.4).

#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

mod rules;

use kapi::schema::{FieldError, Schema};
use serde_json::{Value, json};

#[test]
fn complains_as_the_real_server_does() {
    let golden: Value = serde_json::from_str(include_str!("../golden/validation.json")).unwrap();
    let apply: Value = serde_json::from_str(include_str!("../golden/apply.json")).unwrap();
    let schema = Schema::compile(&apply["schema"]).unwrap();
    let mut wrong = Vec::new();
    for case in golden.as_array().unwrap() {
        let ours = validate(&schema, case);
        let real = real(case);
        if ours != real {
            wrong.push(format!(
                "{}\n  ours {ours:?}\n  real {real:?}",
                case["object"]
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn validate(schema: &Schema, case: &Value) -> Vec<String> {
    let mut object = case["object"].clone();
    // The server drops the status of a create before.
    object.as_object_mut().unwrap().remove("status");
    let unknown = schema.prune(&mut object);
    if !unknown.is_empty() {
        return unknown;
    }
    schema.default(&mut object);
    let old = case.get("old").map(|old| {
        let mut old = old.clone();
        schema.default(&mut old);
        old
    });
    let errors = schema.validate(&object, old.as_ref());
    let shown = |error: &FieldError| format!("{}: {error}", error.reason);
    sorted(errors.iter().map(shown).collect())
}

/// The causes of a `Status`, or the fields that strict validation names.
fn real(case: &Value) -> Vec<String> {
    if case["code"] == json!(400) {
        let message = case["result"]["message"].as_str().unwrap();
        let fields = message.split("unknown field \"").skip(1);
        return fields
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect();
    }
    let causes = case["result"]["details"]["causes"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let each = causes.iter().map(|cause| {
        format!(
            "{}: {}: {}",
            text(cause, "reason"),
            text(cause, "field"),
            text(cause, "message")
        )
    });
    sorted(each.collect())
}

/// The real server goes through fields in no order.
fn sorted(mut complaints: Vec<String>) -> Vec<String> {
    complaints.sort();
    complaints
}

#[test]
fn what_an_update_leaves_as_it_is_is_not_held_against_it() {
    let schema = tightened();
    let stored = json!({
        "metadata": {"name": "a", "finalizers": ["example.org/hold"]},
        "spec": {
            "size": 101, "names": ["b", "b"],
            "hosts": [{"name": "one", "port": 99}, {"name": "two", "port": 1}],
            "list": [9],
        },
    });
    let after = |pointer: &str, value: Value| {
        let mut object = stored.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        let errors = schema.validate(&object, Some(&stored));
        let mut paths: Vec<_> = errors.into_iter().map(|error| error.path).collect();
        paths.dedup();
        paths
    };
    assert_ne!(schema.validate(&stored, None), [], "as a new object");

    let free = after("/metadata/finalizers", json!([]));
    assert_eq!(free, [""; 0], "the last finalizer goes");
    let moved = after(
        "/spec/hosts",
        json!([{"name": "two", "port": 2}, {"name": "one", "port": 99}]),
    );
    assert_eq!(moved, [""; 0], "the item with the same key has not changed");
    let renamed = after("/spec/hosts/0/name", json!("three"));
    assert_eq!(renamed, ["spec.hosts[0].port"], "another item");
    let changed = after("/spec/hosts/0/port", json!(98));
    assert_eq!(changed, ["spec.hosts[0].port"]);
    let longer = after("/spec/list", json!([9, 1]));
    assert_eq!(longer, ["spec.list[0]"], "a list without keys is one value");
    let larger = after("/spec/size", json!(102));
    assert_eq!(larger, ["spec.size"], "a rule");
    let twice = after("/spec/names", json!(["b", "b", "c"]));
    assert_eq!(twice, [""; 0], "what occurred twice may go on doing so");
}

/// A schema that says more than when objects were stored by it.
fn tightened() -> Schema {
    Schema::compile(&json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self <= 100"}]},
            "names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "integer", "maximum": 5}},
            "hosts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "port": {"type": "integer", "maximum": 10},
                }},
            },
        },
    }}}))
    .unwrap()
}
