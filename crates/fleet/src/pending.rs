//! What an edit changes, for people. Pure.

use api::inventory::PendingChange;
use inventory::diff::{self, Change, ObjectChange};
use serde_json::Value;

/// What would change.
pub fn told(before: &[Value], after: &[Value]) -> PendingChange {
    let objects = diff::between(before, after);
    let mut lines = Vec::new();
    let mut fields = 0;
    for object in &objects {
        let all = changes(object);
        fields += all.len();
        lines.extend(all.into_iter().take(MOST.saturating_sub(lines.len())));
    }
    PendingChange {
        objects: u32::try_from(objects.len()).unwrap_or(u32::MAX),
        fields: u32::try_from(fields).unwrap_or(u32::MAX),
        changes: lines,
    }
}

/// What an object holds of what is wanted of it: other fields are other people's.
pub fn restricted(live: &Value, wanted: &Value) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let known = wanted.iter().filter_map(|(key, wanted)| {
                let live = live.get(key)?;
                Some((key.clone(), restricted(live, wanted)))
            });
            Value::Object(known.collect())
        }
        _ => live.clone(),
    }
}

/// The changes of an object, a line each.
fn changes(change: &ObjectChange) -> Vec<String> {
    let object = &change.object;
    let title = format!("{}/{}", object.kind, object.name);
    let limited = |line: String| api::text::plain(&line, 500);
    match change.change {
        Change::Added => vec![limited(format!("{title} comes"))],
        Change::Removed => vec![limited(format!("{title} goes"))],
        Change::Changed => {
            let shown = |value: &Option<Value>| {
                let text = value
                    .as_ref()
                    .map_or_else(|| "unset".to_owned(), Value::to_string);
                api::text::plain(&text, 150)
            };
            let leaves = change.leaves.iter();
            leaves
                .map(|leaf| {
                    limited(format!(
                        "{title} {}: {} -> {}",
                        leaf.path,
                        shown(&leaf.before),
                        shown(&leaf.after)
                    ))
                })
                .collect()
        }
    }
}

/// By the schema of the status.
const MOST: usize = 32;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_what_is_there_only_what_is_wanted_is_compared() {
        let live = json!({"spec": {"a": 1, "theirs": {"b": 2}}, "status": {}});
        let wanted = json!({"spec": {"a": 2, "c": 3}});
        assert_eq!(restricted(&live, &wanted), json!({"spec": {"a": 1}}));
    }

    #[test]
    fn changes_are_told_field_by_field_and_are_bounded() {
        let node = |name: &str, address: &str| json!({"apiVersion": "v", "kind": "N", "metadata": {"name": name}, "a": address});
        let told = told(
            &[node("x", "1"), node("y", "1")],
            &[node("x", "2"), node("z", "1")],
        );
        assert_eq!(
            told.changes,
            ["N/x a: \"1\" -> \"2\"", "N/y goes", "N/z comes"]
        );
        assert_eq!((told.objects, told.fields), (3, 3));
        let many: Vec<_> = (0..100).map(|n| node(&n.to_string(), "1")).collect();
        let told = super::told(&[], &many);
        assert_eq!((told.changes.len(), told.fields), (32, 100));
    }
}
