//! The columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Column, UNKNOWN, age, at, since};

/// The columns of a built-in kind; any other shows name and age. `events.k8s.io/Event` has those of `Event`.
pub fn builtin_columns(kind: &str) -> Vec<Column> {
    let mut columns = vec![Column::name()];
    match kind {
        "Namespace" => columns.push(Column::new("Status", "string", |it, _| {
            at(it, "/status/phase")
        })),
        "Secret" => {
            columns.push(Column::new("Type", "string", |it, _| at(it, "/type")));
            columns.push(Column::new("Data", "string", |it, _| size(it, &["data"])));
        }
        "ConfigMap" => {
            columns.push(Column::new("Data", "string", |it, _| {
                size(it, &["data", "binaryData"])
            }));
        }
        "ServiceAccount" => columns.push(Column::new("Secrets", "string", |it, _| {
            it.get("secrets")
                .and_then(Value::as_array)
                .map_or(0, Vec::len)
                .into()
        })),
        "Lease" => {
            columns.push(Column::new("Holder", "string", |it, _| {
                at(it, "/spec/holderIdentity")
            }));
        }
        "CustomResourceDefinition" => {
            let created = |it: &Value, _: Timestamp| at(it, "/metadata/creationTimestamp");
            columns.push(Column::new("Created At", "date", created));
            return columns;
        }
        "Event" | "events.k8s.io/Event" => return event(),
        _ => {}
    }
    let created = |it: &Value, now: Timestamp| age(it, "/metadata/creationTimestamp", now);
    columns.push(Column::new("Age", "string", created));
    columns
}

fn event() -> Vec<Column> {
    let wide = |column: Column| Column {
        priority: 1,
        ..column
    };
    vec![
        Column::new("Last Seen", "string", |it, now| last_seen(it, now).into()),
        Column::new("Type", "string", |it, _| at(it, "/type")),
        Column::new("Reason", "string", |it, _| at(it, "/reason")),
        Column::new("Object", "string", |it, _| object(it).into()),
        wide(Column::new("Subobject", "string", |it, _| {
            either(it, "/involvedObject/fieldPath", "/regarding/fieldPath")
        })),
        wide(Column::new("Source", "string", |it, _| source(it).into())),
        Column::new("Message", "string", |it, _| {
            let message = either(it, "/message", "/note");
            message.as_str().unwrap_or_default().trim().into()
        }),
        wide(Column::new("First Seen", "string", |it, now| {
            first_seen(it, now).into()
        })),
        wide(Column::new("Count", "string", |it, _| count(it).into())),
        wide(Column::name()),
    ]
}

fn either(event: &Value, one: &str, two: &str) -> Value {
    event
        .pointer(one)
        .or_else(|| event.pointer(two))
        .cloned()
        .unwrap_or_else(|| "".into())
}

fn string(event: &Value, one: &str, two: &str) -> String {
    either(event, one, two)
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The first of these times that is set.
fn time(event: &Value, pointers: &[&str], now: Timestamp) -> String {
    let mut times = pointers
        .iter()
        .filter_map(|pointer| event.pointer(pointer)?.as_str());
    times
        .next()
        .map_or_else(|| UNKNOWN.to_owned(), |time| since(time, now))
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    time(
        event,
        &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"],
        now,
    )
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    let pointers = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/deprecatedLastTimestamp",
        "/eventTime",
        "/firstTimestamp",
    ];
    time(event, &pointers, now)
}

fn count(event: &Value) -> i64 {
    let counts = ["/series/count", "/count", "/deprecatedCount"];
    let count = counts
        .iter()
        .find_map(|pointer| event.pointer(pointer)?.as_i64());
    count.filter(|count| *count > 0).unwrap_or(1)
}

fn object(event: &Value) -> String {
    let kind = string(event, "/involvedObject/kind", "/regarding/kind").to_lowercase();
    let name = string(event, "/involvedObject/name", "/regarding/name");
    if name.is_empty() {
        kind
    } else {
        format!("{kind}/{name}")
    }
}

fn source(event: &Value) -> String {
    let old = string(event, "/source/component", "/deprecatedSource/component");
    let (component, host) = if old.is_empty() {
        (
            string(event, "/reportingComponent", "/reportingController"),
            string(event, "/reportingInstance", "/reportingInstance"),
        )
    } else {
        (old, string(event, "/source/host", "/deprecatedSource/host"))
    };
    if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    }
}

fn size(object: &Value, names: &[&str]) -> Value {
    let sizes = names
        .iter()
        .filter_map(|name| object.get(name)?.as_object().map(Map::len));
    sizes.sum::<usize>().into()
}
