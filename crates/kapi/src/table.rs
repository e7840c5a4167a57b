//! Tables: what `kubectl get` prints.

use serde_json::Value;

/// A scalar as text, anything else as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => crate::apply::canonical(other),
    }
}
