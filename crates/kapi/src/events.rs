//! One store, two Event APIs: `core/v1` is stored, `events.k8s.io/v1` is converted on the way in and out.
//!
//! # Source
//! Kubernetes `pkg/apis/core` and `pkg/apis/events/v1/conversion.go`, 1.33: the same field under two names.

use serde_json::{Value, json};

/// `core/v1` name, `events.k8s.io/v1` name.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The two versions.
const CORE: &str = "v1";
const EVENTS: &str = "events.k8s.io/v1";

/// From the stored form to `events.k8s.io/v1`.
pub(crate) fn to_events(value: &mut Value) {
    rename(value, EVENTS);
    if let Some(object) = value.as_object_mut() {
        // The newer kind leaves out what nobody said of the reporter, the older one does not.
        object.retain(|name, value| !name.starts_with("reporting") || value != "");
    }
}

/// From `events.k8s.io/v1` to the stored form.
pub(crate) fn to_core(value: &mut Value) {
    rename(value, CORE);
}

/// Gives an Event in the stored form the fields that are never absent in Kubernetes. `kubectl get events --sort-by` relies on
/// it: without the field it shows nothing at all.
pub(crate) fn fill(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        for (name, empty) in [
            ("involvedObject", json!({})),
            ("source", json!({})),
            ("firstTimestamp", Value::Null),
            ("lastTimestamp", Value::Null),
            ("eventTime", Value::Null),
            ("reportingComponent", json!("")),
            ("reportingInstance", json!("")),
        ] {
            object.entry(name).or_insert(empty);
        }
        if let Some(Value::Object(series)) = object.get_mut("series") {
            series.entry("lastObservedTime").or_insert(Value::Null);
        }
    }
}

/// An Event of this version before anybody wrote to it; none of another kind.
pub(crate) fn blank(api_version: &Value, kind: &Value) -> Option<Value> {
    let is_event = kind == "Event" && (api_version == CORE || api_version == EVENTS);
    is_event.then(|| {
        let mut blank = json!({"apiVersion": CORE, "kind": "Event"});
        fill(&mut blank);
        if api_version == EVENTS {
            to_events(&mut blank);
        }
        blank
    })
}

fn rename(value: &mut Value, version: &str) {
    let Some(object) = value.as_object_mut() else {
        return;
    };
    let renamed = |name: String| {
        let other = NAMES.iter().find_map(|(core, events)| match version {
            CORE => (*events == name).then_some(*core),
            _ => (*core == name).then_some(*events),
        });
        other.map_or(name, str::to_owned)
    };
    *object = std::mem::take(object)
        .into_iter()
        .map(|(name, value)| (renamed(name), value))
        .collect();
    object.insert("apiVersion".to_owned(), version.into());
}
