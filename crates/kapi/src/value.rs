//! Parts of objects as they are stored.

use jiff::Timestamp;
use serde_json::{Map, Value};

pub(crate) fn remove(value: &mut Value, name: &str) -> Option<Value> {
    // Not `swap_remove`: the order of fields is the user's.
    value
        .as_object_mut()
        .and_then(|map: &mut Map<String, Value>| map.shift_remove(name))
}

pub(crate) fn name_of(value: &Value) -> &str {
    value["metadata"]["name"].as_str().unwrap_or_default()
}

/// The time as Kubernetes writes it, in whole seconds.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
