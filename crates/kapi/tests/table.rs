//! Tables against those of a real API server (1.34.4).

#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use jiff::Timestamp;
use kapi::table::{self, Column, Include, Options};
use serde_json::Value;

#[test]
fn cells_are_those_of_the_real_server() {
    let golden: Value = serde_json::from_str(include_str!("golden/table.json")).unwrap();
    let columns = |kind: &str| match kind {
        "widgets" => table::crd_columns(&golden["columns"]),
        "Event2" => table::builtin_columns("Event"),
        kind => table::builtin_columns(kind),
    };
    for kind in KINDS {
        let real = &golden[kind];
        let mut object = real["rows"][0]["object"].clone();
        if kind == "widgets" {
            object = golden["widgetObject"].clone();
        }
        compare(kind, &columns(kind), &object, real);
    }
}

/// Ages depend on the hour of the recording, so that only their presence is compared.
fn compare(kind: &str, columns: &[Column], object: &Value, real: &Value) {
    let options = Options {
        wide: true,
        include_object: Include::None,
        now: Timestamp::now(),
    };
    let ours = table::render(columns, &[object], &options);
    let definitions = real["columnDefinitions"].as_array().unwrap();
    let cells = |table: &Value| table["rows"][0]["cells"].as_array().unwrap().clone();
    assert_eq!(cells(&ours).len(), cells(real).len(), "{kind}");
    for (at, definition) in definitions.iter().enumerate() {
        for name in ["name", "type", "format", "priority"] {
            assert_eq!(
                ours["columnDefinitions"][at][name], definition[name],
                "{kind} column {at}"
            );
        }
        let name = definition["name"].as_str().unwrap();
        if ["Age", "Last Seen", "First Seen", "When"].contains(&name) {
            assert!(cells(&ours)[at].is_string(), "{kind} {name}");
        } else {
            assert_eq!(cells(&ours)[at], cells(real)[at], "{kind} {name}");
        }
    }
}

#[test]
fn ages_are_those_of_kubectl() {
    let shown = |seconds: i64| table::duration(jiff::SignedDuration::from_secs(seconds));
    let cases = [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (28_799, "7h59m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (252_288_000, "8y"),
        (-1, "0s"),
        (-5, "<invalid>"),
    ];
    for (seconds, age) in cases {
        assert_eq!(shown(seconds), age, "{seconds}");
    }
}

const KINDS: [&str; 10] = [
    "widgets",
    "Secret",
    "ConfigMap",
    "Namespace",
    "Event",
    "Event2",
    "events.k8s.io/Event",
    "Lease",
    "ServiceAccount",
    "CustomResourceDefinition",
];
