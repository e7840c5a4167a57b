//! Which objects a label selector is for.

use serde_json::Value;

/// Whether it selects an object, as ClusterResourceSets select: one that names nothing is for none.
pub(super) fn selects(selector: &Value, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let equal = equal.map(|(key, value)| value.is_string() && labels[key] == *value);
    let expressions = selector["matchExpressions"].as_array();
    let expressions = expressions.into_iter().flatten();
    let all: Vec<_> = equal
        .chain(expressions.map(|one| holds(one, labels)))
        .collect();
    !all.is_empty() && all.into_iter().all(|holds| holds)
}

fn holds(expression: &Value, labels: &Value) -> bool {
    let label = expression["key"].as_str().map(|key| &labels[key]);
    let label = label.filter(|label| label.is_string());
    let is_among = |label: &Value| {
        let mut values = expression["values"].as_array().into_iter().flatten();
        values.any(|value| value == label)
    };
    match expression["operator"].as_str() {
        Some("In") => label.is_some_and(is_among),
        Some("NotIn") => !label.is_some_and(is_among),
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        _ => false,
    }
}
