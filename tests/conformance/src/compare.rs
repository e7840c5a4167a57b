//! Two answers side by side.

use serde_json::Value;

/// Where two values differ: a line each, with the path.
pub fn differences(ours: &Value, real: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", ours, real, &mut found);
    found
}

fn walk(path: &str, ours: &Value, real: &Value, found: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(a), Value::Object(b)) => {
            let only_real = b.keys().filter(|name| !a.contains_key(*name));
            for name in a.keys().chain(only_real) {
                let side = |of: &serde_json::Map<String, Value>| of.get(name).cloned();
                let path = format!("{path}/{name}");
                match (side(a), side(b)) {
                    (Some(ours), Some(real)) => walk(&path, &ours, &real, found),
                    (ours, real) => found.push(line(&path, ours.as_ref(), real.as_ref())),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (ours, real)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}/{at}"), ours, real, found);
            }
        }
        (ours, real) if ours != real => found.push(line(path, Some(ours), Some(real))),
        _ => {}
    }
}

fn line(path: &str, ours: Option<&Value>, real: Option<&Value>) -> String {
    let text = |value: Option<&Value>| value.map_or_else(|| "nothing".into(), ToString::to_string);
    format!("{path}: ours {}, real {}", text(ours), text(real))
}
