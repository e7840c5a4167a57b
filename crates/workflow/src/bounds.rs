//! The bounds of the API's schema, which everything that goes into the status of a Run is cut to.
//!
//! The schema itself says how long a text and a list may be, so that no number stands twice. A status that goes beyond it is
//! refused as a whole, and the run would never be seen to end.

use std::sync::OnceLock;

use api::{RunStatus, run::Record};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Cuts a record to what the API takes. Once more changes nothing.
pub fn record(record: &mut Record) {
    let schema = schema().pointer("/properties/history/items");
    cut(record, schema.unwrap_or(&Value::Null));
}

/// Cuts a status to what the API takes. Once more changes nothing.
pub fn status(status: &mut RunStatus) {
    cut(status, schema());
}

/// The schema of the status.
fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let definitions = api::custom_resource_definitions();
        let mut runs = definitions
            .iter()
            .filter(|crd| crd.spec.names.kind == "Run");
        let run = runs.next().map(|crd| json!(crd)).unwrap_or_default();
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
        run.pointer(status).cloned().unwrap_or_default()
    })
}

fn cut<T: DeserializeOwned + Serialize>(object: &mut T, schema: &Value) {
    let Ok(mut value) = serde_json::to_value(&object) else {
        return;
    };
    if fit(&mut value, schema)
        && let Ok(cut) = serde_json::from_value(value)
    {
        *object = cut;
    }
}

/// Whether something had to be cut.
fn fit(value: &mut Value, schema: &Value) -> bool {
    let most = |name| usize::try_from(schema.get(name)?.as_u64()?).ok();
    match value {
        Value::String(text) => most("maxLength").is_some_and(|limit| shorten(text, limit)),
        Value::Array(items) => {
            let before = items.len();
            items.truncate(most("maxItems").unwrap_or(before));
            let schema = schema.get("items").unwrap_or(&Value::Null);
            let cut = items
                .iter_mut()
                .filter_map(|item| fit(item, schema).then_some(()));
            cut.count() > 0 || items.len() < before
        }
        Value::Object(fields) => {
            let properties = schema.get("properties");
            let cut = fields.iter_mut().filter_map(|(name, field)| {
                let schema = properties.and_then(|properties| properties.get(name))?;
                fit(field, schema).then_some(())
            });
            cut.count() > 0
        }
        _ => false,
    }
}

/// Cuts a text to that many characters, which is how the API counts.
fn shorten(text: &mut String, limit: usize) -> bool {
    let is_long = text.chars().count() > limit;
    if is_long {
        let kept = text.chars().take(limit.saturating_sub(1));
        *text = kept.chain(['…']).collect();
    }
    is_long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_the_rest_stays() {
        let schema = json!({"type": "object", "properties": {
            "text": {"type": "string", "maxLength": 4},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 3}},
        }});
        let mut value = json!({"text": "äöüäö", "list": ["abcd", "abc", "d"], "other": "as it is"});
        assert!(fit(&mut value, &schema));
        let expected = json!({"text": "äöü…", "list": ["ab…", "abc"], "other": "as it is"});
        assert_eq!(value, expected);
        assert!(!fit(&mut value, &schema), "once more changes nothing");
    }

    #[test]
    fn the_schema_bounds_every_text_and_every_list() {
        fn unbounded(at: &str, schema: &Value, found: &mut Vec<String>) {
            let one_of_few = schema.get("enum").is_some() || schema.get("format").is_some();
            let bound = match schema["type"].as_str() {
                Some("string") if !one_of_few => Some("maxLength"),
                Some("array") => Some("maxItems"),
                _ => None,
            };
            found.extend(
                bound
                    .filter(|bound| schema.get(bound).is_none())
                    .map(|_| at.to_owned()),
            );
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                unbounded(&format!("{at}.{name}"), field, found);
            }
            if let Some(items) = schema.get("items") {
                unbounded(&format!("{at}[]"), items, found);
            }
        }
        let mut found = Vec::new();
        unbounded("status", schema(), &mut found);
        // Of a condition, which is Kubernetes' own.
        found.retain(|field| !field.starts_with("status.conditions[]"));
        assert_eq!(found, Vec::<String>::new());
    }
}
