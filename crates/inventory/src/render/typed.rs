//! Objects held against their types, field by field.

use api::inventory::ValuePath;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Reads a value as its type, and says which of its fields that does not have: path, what is wrong, what to do.
pub(super) fn problems<K: Serialize + DeserializeOwned>(
    value: &Value,
) -> Vec<(ValuePath, String, &'static str)> {
    let read: Result<K, _> = serde_path_to_error::deserialize(value.clone());
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            let text = error.path().to_string();
            let path = text.parse().unwrap_or_default();
            let what = api::text::plain(&error.inner().to_string(), 300);
            return vec![(path, what, "mend the template or the value")];
        }
    };
    let known = serde_json::to_value(read).unwrap_or_default();
    let mut unknown = Vec::new();
    compare(value, &known, &ValuePath::default(), &mut unknown);
    unknown
        .into_iter()
        .map(|path| {
            let what = "is no field of it".to_owned();
            (
                path,
                what,
                "correct the name; docs/reference/custom-resources.md has all",
            )
        })
        .collect()
}

/// What stands in a value and not in what its type kept of it.
fn compare(value: &Value, known: &Value, path: &ValuePath, unknown: &mut Vec<ValuePath>) {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) => {
            for (key, value) in value.iter().filter(|(_, value)| !is_nothing(value)) {
                match known.get(key) {
                    Some(known) => compare(value, known, &path.key(key), unknown),
                    None => unknown.push(path.key(key)),
                }
            }
        }
        (Value::Array(value), Value::Array(known)) => {
            for (number, (value, known)) in value.iter().zip(known).enumerate() {
                compare(value, known, &path.index(number), unknown);
            }
        }
        _ => {}
    }
}

/// What a type may leave out when it is written again.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
