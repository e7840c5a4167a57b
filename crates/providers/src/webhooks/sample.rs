//! The smallest value that fits a schema, as far as that is told by its structure: who judges an object is asked only about one that fits.
//!
//! Rules in CEL and what `not`, `oneOf` and the like forbid are not looked at. An object that they refuse is still given to those that change
//! objects, which come first.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::{Map, Value, json};

/// So deep goes what has to be there.
const DEPTH: usize = 16;
/// So long and so many is what has to be there.
const MOST: i64 = 256;
/// What texts of a pattern are tried with.
const TEXTS: [&str; 14] = [
    "a",
    "windlass",
    "1",
    "v1.30.0",
    "1.30.0",
    "a.example",
    "a.example/a",
    "10.0.0.1",
    "10.0.0.0/8",
    "https://a.example",
    "1s",
    "A",
    "/a",
    "sha256:0000000000000000000000000000000000000000000000000000000000000000",
];

/// The smallest value.
pub(super) fn sample(schema: &JSONSchemaProps) -> Value {
    of(schema, DEPTH)
}

fn of(schema: &JSONSchemaProps, depth: usize) -> Value {
    if let Some(first) = schema.enum_.iter().flatten().next() {
        return first.0.clone();
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        return number(schema);
    }
    match schema.type_.as_deref() {
        _ if depth == 0 => Value::Null,
        Some("string") => json!(text(schema)),
        Some("integer" | "number") => number(schema),
        Some("boolean") => json!(false),
        Some("array") => {
            let items = match &schema.items {
                Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items.as_ref()),
                Some(JSONSchemaPropsOrArray::Schemas(all)) => all.first(),
                None => None,
            };
            let count = usize::try_from(bounded(schema.min_items)).unwrap_or_default();
            let item = items.map_or(json!({}), |items| of(items, depth - 1));
            Value::Array(vec![item; count])
        }
        _ => Value::Object(object(schema, depth)),
    }
}

/// What is required and not filled in, and further fields until there are enough.
fn object(schema: &JSONSchemaProps, depth: usize) -> Map<String, Value> {
    let properties = schema.properties.as_ref();
    let mut found = Map::new();
    for name in schema.required.iter().flatten() {
        if let Some(property) = properties.and_then(|properties| properties.get(name))
            && property.default.is_none()
        {
            found.insert(name.clone(), of(property, depth - 1));
        }
    }
    let least = usize::try_from(bounded(schema.min_properties)).unwrap_or_default();
    for (name, property) in properties.into_iter().flatten() {
        let is_filled_in = property.default.is_some();
        if found.len() >= least {
            break;
        }
        if !is_filled_in && !found.contains_key(name) {
            found.insert(name.clone(), of(property, depth - 1));
        }
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties
        && found.len() < least
    {
        found.insert("a".to_owned(), of(value, depth - 1));
    }
    found
}

fn text(schema: &JSONSchemaProps) -> String {
    let format = match schema.format.as_deref() {
        Some("date-time") => Some("2026-01-01T00:00:00Z"),
        Some("date") => Some("2026-01-01"),
        Some("duration") => Some("1s"),
        Some("ipv4") => Some("10.0.0.1"),
        Some("ipv6") => Some("fd00::1"),
        Some("cidr") => Some("10.0.0.0/8"),
        Some("uri") => Some("https://a.example"),
        Some("uuid") => Some("00000000-0000-4000-8000-000000000000"),
        Some("byte") => Some("YQ=="),
        _ => None,
    };
    if let Some(format) = format {
        return format.to_owned();
    }
    let shortest = usize::try_from(bounded(schema.min_length)).unwrap_or_default();
    let longest = schema.max_length.unwrap_or(i64::MAX);
    let is_short = |text: &str| i64::try_from(text.len()).is_ok_and(|length| length <= longest);
    let pattern = schema.pattern.as_deref();
    let pattern = pattern.and_then(|pattern| Regex::new(pattern).ok());
    let fits = |text: &str| {
        pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(text))
    };
    let mut texts = TEXTS.into_iter().map(|text| format!("{text:a<shortest$}"));
    let found = texts.find(|text| is_short(text) && fits(text));
    found.unwrap_or_else(|| "a".repeat(shortest))
}

fn number(schema: &JSONSchemaProps) -> Value {
    let least = schema.minimum.unwrap_or_default();
    let most = schema.maximum.unwrap_or(f64::MAX);
    let step = if schema.exclusive_minimum == Some(true) {
        1.0
    } else {
        0.0
    };
    let number = (least + step).ceil().max(0.0).min(most);
    // The API tells whole numbers from others by how they are written.
    match format!("{number:.0}").parse::<i64>() {
        Ok(number) => json!(number),
        Err(_) => json!(0),
    }
}

fn bounded(least: Option<i64>) -> i64 {
    least.unwrap_or_default().clamp(0, MOST)
}
