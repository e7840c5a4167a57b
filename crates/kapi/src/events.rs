//! One store, two Event APIs: `core/v1` is stored, `events.k8s.io/v1` is converted on the way in and out.
//!
//! # Source
//! Kubernetes `pkg/apis/core` and `pkg/apis/events/v1/conversion.go`, 1.33: the same field under two names.

use serde_json::{Map, Value};

/// `core/v1` name, `events.k8s.io/v1` name.
const NAMES: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
/// The same for the one field that is nowhere else.
const REPORTER: (&str, &str) = ("reportingComponent", "reportingController");

/// From the stored form to `events.k8s.io/v1`.
pub(crate) fn to_events(value: &mut Value) {
    rename(value, "events.k8s.io/v1", false);
}

/// From `events.k8s.io/v1` to the stored form.
pub(crate) fn to_core(value: &mut Value) {
    rename(value, "v1", true);
    let Some(object) = value.as_object_mut() else {
        return;
    };
    // Kubernetes always writes these two, as null where they are not set, and `kubectl get events --sort-by` relies on it:
    // without the field it shows nothing at all.
    for time in ["firstTimestamp", "lastTimestamp"] {
        object.entry(time).or_insert(Value::Null);
    }
}

fn rename(value: &mut Value, version: &str, to_core: bool) {
    let Some(object) = value.as_object_mut() else {
        return;
    };
    let mut renamed = Map::new();
    for (name, value) in std::mem::take(object) {
        let other = NAMES.iter().chain([&REPORTER]).find_map(|(core, events)| {
            let (from, to) = if to_core {
                (events, core)
            } else {
                (core, events)
            };
            (*from == name).then_some(*to)
        });
        let value = if name == "apiVersion" {
            version.into()
        } else {
            value
        };
        renamed.insert(other.map_or(name, str::to_owned), value);
    }
    *object = renamed;
}
