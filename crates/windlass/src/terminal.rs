//! What others wrote, as it may stand on a terminal.
//!
//! What Windlass writes into a status has passed the gate for foreign text already. But whoever may write objects of a
//! namespace writes names, reasons and whole statuses too, and an answer of a server is theirs: on the terminal of the person
//! who looks, none of it may hide what stands beside it or steer the terminal. JSON and YAML are for programs and stay whole.

use api::text::{lines, plain};
use comfy_table::{Row, Table, presets};
use controller::hint::placed;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// An object whose every text is one line without control characters, and whose hints name its namespace.
pub(crate) fn shown<K: Serialize + DeserializeOwned>(object: K) -> K {
    let cleaned = serde_json::to_value(&object).ok().and_then(|mut value| {
        let namespace = value.pointer("/metadata/namespace");
        let namespace = namespace.and_then(Value::as_str).map(str::to_owned);
        clean(&mut value, namespace.as_deref().unwrap_or_default());
        serde_json::from_value(value).ok()
    });
    cleaned.unwrap_or(object)
}

/// A text of several lines.
pub(crate) fn text(text: &str) -> String {
    lines(text, usize::MAX)
}

/// A table as kubectl prints one: the first column where the line begins, and nothing after the last.
pub(crate) fn table<R: Into<Row>>(
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    text(&table.trim_fmt())
}

fn clean(value: &mut Value, namespace: &str) {
    let items = |item: &mut Value| clean(item, namespace);
    match value {
        Value::String(text) => {
            if !api::text::is_plain(text) {
                *text = plain(text, usize::MAX);
            }
            *text = placed(text, namespace);
        }
        Value::Array(array) => array.iter_mut().for_each(items),
        Value::Object(fields) => fields.values_mut().for_each(items),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_begins_where_its_lines_begin() {
        let shown = table(["NAME", "READY"], [["first", "True"], ["second-one", ""]]);
        assert_eq!(shown, "NAME         READY\nfirst        True\nsecond-one");
    }

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
