//! One text for each value.

use serde_json::Value;

/// JSON with sorted keys, so that equal values have equal texts.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields.iter().map(|(name, field)| {
                format!("{}:{}", Value::from(name.as_str()), canonical(field))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(canonical).collect::<Vec<_>>().join(",")
            )
        }
        scalar => scalar.to_string(),
    }
}
