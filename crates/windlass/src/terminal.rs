//! What others wrote, as it may stand on a terminal.
//!
//! What Windlass writes into a status has passed the gate for foreign text already. But whoever may write objects of a
//! namespace writes names, reasons and whole statuses too, and an answer of a server is theirs: on the terminal of the person
//! who looks, none of it may hide what stands beside it or steer the terminal. JSON and YAML are for programs and stay whole.

use api::text::{lines, plain};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// An object whose every text is one line without control characters.
pub(crate) fn shown<K: Serialize + DeserializeOwned>(object: K) -> K {
    let cleaned = serde_json::to_value(&object).ok().and_then(|mut value| {
        clean(&mut value);
        serde_json::from_value(value).ok()
    });
    cleaned.unwrap_or(object)
}

/// A text of several lines.
pub(crate) fn text(text: &str) -> String {
    lines(text, usize::MAX)
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) if !api::text::is_plain(text) => *text = plain(text, usize::MAX),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_of_a_stranger_steers_no_terminal() {
        let cluster: api::Cluster = serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first"}, "spec": {},
            "status": {"lastOperation": {
                "type": "Create", "state": "Running", "progress": 0, "run": "r", "description": "\u{1b}[2J\u{1b}]0;x\u{7}all\nwell\u{202e}",
            }},
        }))
        .unwrap();
        let said = shown(cluster).status.unwrap().last_operation.unwrap();
        assert_eq!(said.description.as_deref(), Some("all well"));
    }
}
