//! The three patch kinds against `kubectl patch --local` (1.34.4), and the laws that hold for any value.

#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use kapi::patch::{self, Kind, PatchError};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

#[test]
fn patches_as_kubectl_does() {
    let golden: Value = serde_json::from_str(include_str!("golden/patch.json")).unwrap();
    let mut wrong = Vec::new();
    for case in golden.as_array().unwrap() {
        let ours = run(case);
        let agrees = match (&ours, case.get("result")) {
            (Ok(ours), Some(real)) => tidy(ours) == tidy(real),
            (Err(_), None) => true,
            _ => false,
        };
        if !agrees {
            let real = case.get("result").unwrap_or(&case["error"]);
            wrong.push(format!(
                "{} {}\n  ours {ours:?}\n  real {real}",
                case["type"], case["patch"]
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

fn run(case: &Value) -> Result<Value, PatchError> {
    let (object, patch) = (&case["object"], &case["patch"]);
    let kind = match case["kind"].as_str().unwrap() {
        "ConfigMap" => Kind::ConfigMap,
        "Secret" => Kind::Secret,
        "Namespace" => Kind::Namespace,
        _ => Kind::ServiceAccount,
    };
    match case["type"].as_str().unwrap() {
        "json" => patch::json(object, patch),
        "merge" => Ok(patch::merge(object, patch)),
        _ => patch::strategic(object, patch, kind),
    }
}

/// kubectl reads the result into a type, which drops what is empty, and times that are null.
fn tidy(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, field)| (name.clone(), tidy(field)));
            let full = |field: &Value| {
                !field.is_null()
                    && *field != json!({})
                    && *field != json!([])
                    && *field != json!("")
            };
            Value::Object(
                fields
                    .filter(|(_, field)| full(field))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(tidy).collect()),
        scalar => scalar.clone(),
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[a-d~/]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

#[test]
fn copies_of_copies_end() {
    let copy = json!({"op": "copy", "from": "", "path": "/more"});
    let wide = patch::json(
        &json!({"data": "0123456789"}),
        &json!(vec![
            json!({"op": "copy", "from": "/data", "path": "/more"});
            40
        ]),
    );
    assert!(wide.is_ok(), "copies of one small value");
    // Each is as large as all before it.
    let doubling = |at: usize| json!({"op": "copy", "from": "", "path": format!("/more{at}")});
    let doubling: Vec<_> = (0..40).map(doubling).collect();
    let answer = patch::json(&json!({"data": "0123456789"}), &json!(doubling));
    assert_eq!(answer, Err(PatchError::Copies));
    // Each is as deep as all before it.
    let deep = |at: usize| json!({"op": "copy", "from": "", "path": "/a".repeat(1 << at)});
    let deep: Vec<_> = (0..16).map(deep).collect();
    for operations in [
        json!(deep),
        json!(vec![copy; 200]),
        nesting("add"),
        nesting("move"),
    ] {
        let answer = patch::json(&json!({"a": null, "b": {}}), &operations);
        let Err(PatchError::Malformed(why)) = answer else {
            panic!("{operations}");
        };
        assert!(why.contains("nested deeper than 127 levels"), "{why}");
    }
}

/// Operations that put each object into the next.
fn nesting(operation: &str) -> Value {
    let each = |at: usize| match operation {
        "add" => vec![json!({"op": "add", "path": "/a".repeat(at + 1), "value": {}})],
        _ => vec![
            json!({"op": "add", "path": "/c", "value": {}}),
            json!({"op": "move", "from": "/b", "path": "/c/b"}),
            json!({"op": "move", "from": "/c", "path": "/b"}),
        ],
    };
    (0..200).flat_map(each).collect()
}

proptest! {
    /// Applying a merge patch again changes nothing more.
    #[test]
    fn merge_is_idempotent(object in value(), change in value()) {
        let once = patch::merge(&object, &change);
        prop_assert_eq!(patch::merge(&once, &change), once);
    }

    /// The empty patch of every kind keeps the object.
    #[test]
    fn empty_patches_keep(fields in prop::collection::btree_map("[a-d]", value(), 0..4)) {
        let object = Value::Object(fields.into_iter().collect());
        prop_assert_eq!(patch::json(&object, &json!([])).unwrap(), object.clone());
        prop_assert_eq!(patch::merge(&object, &json!({})), object.clone());
        prop_assert_eq!(patch::strategic(&object, &json!({}), Kind::Secret).unwrap(), object);
    }

    /// What is added can be tested and removed.
    #[test]
    fn add_then_remove_keeps(fields in prop::collection::btree_map("[a-d]", value(), 0..4), added in value()) {
        let object = Value::Object(fields.into_iter().collect());
        let operations = json!([
            {"op": "add", "path": "/new~1~0key", "value": added},
            {"op": "test", "path": "/new~1~0key", "value": added},
            {"op": "remove", "path": "/new~1~0key"},
        ]);
        prop_assert_eq!(patch::json(&object, &operations).unwrap(), object);
    }

    /// Whatever operations do one after the other, what comes of them can be stored and read again.
    #[test]
    fn any_operations_end_in_an_object_that_can_be_read(object in value(), operations in operations()) {
        if let Ok(patched) = patch::json(&object, &operations) {
            let text = patched.to_string();
            prop_assert!(text.len() < 4 << 20);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), patched);
        }
    }

    /// Nonsense gives errors, never a panic.
    #[test]
    fn never_panics(object in value(), change in value(), path in "[/a-d0-9~-]{0,6}") {
        let operation = json!([{"op": "add", "path": path, "value": 1}, {"op": "remove", "path": path}]);
        let _ = patch::json(&object, &operation);
        let _ = patch::json(&object, &change);
        let _ = patch::strategic(&object, &change, Kind::Event);
    }
}

/// Operations that mostly apply.
fn operations() -> impl Strategy<Value = Value> {
    let path = prop_oneof![
        Just(String::new()),
        prop::collection::vec("[a-d]|-|[0-3]", 1..5)
            .prop_map(|steps| format!("/{}", steps.join("/"))),
    ];
    let name = prop::sample::select(vec![
        "add", "replace", "remove", "move", "copy", "copy", "copy", "test",
    ]);
    let one = (name, path.clone(), path, value());
    let one = one.prop_map(
        |(op, from, path, value)| json!({"op": op, "from": from, "path": path, "value": value}),
    );
    prop::collection::vec(one, 0..60).prop_map(Value::Array)
}
