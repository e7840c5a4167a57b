//! Defaults, pruning and validation against answers of a real API server (1.34.4).

#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use kapi::schema::{FieldError, Schema};
use serde_json::{Value, json};

#[test]
fn complains_as_the_real_server_does() {
    let golden: Value = serde_json::from_str(include_str!("golden/validation.json")).unwrap();
    let apply: Value = serde_json::from_str(include_str!("golden/apply.json")).unwrap();
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
