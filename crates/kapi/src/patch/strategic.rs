//! Strategic merge patch, for the kinds that are built in.

use serde_json::Value;

use super::{Fields, PatchError};

/// The kinds whose list semantics are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `v1` Namespace.
    Namespace,
    /// `v1` Secret.
    Secret,
    /// `v1` ConfigMap.
    ConfigMap,
    /// Event of either group.
    Event,
    /// `coordination.k8s.io/v1` Lease.
    Lease,
    /// `v1` ServiceAccount.
    ServiceAccount,
    /// `apiextensions.k8s.io/v1` CustomResourceDefinition.
    CustomResourceDefinition,
}

/// How a list is merged.
#[derive(Clone, Copy)]
enum List {
    Replace,
    Values,
    Keyed(&'static str),
}

impl Kind {
    /// The `patchStrategy` and `patchMergeKey` of the Go types.
    fn list(self, path: &[&str]) -> List {
        match (self, path) {
            (_, ["metadata", "finalizers"]) => List::Values,
            (_, ["metadata", "ownerReferences"]) => List::Keyed("uid"),
            (Self::Namespace, ["status", "conditions"]) => List::Keyed("type"),
            (Self::ServiceAccount, ["secrets"]) => List::Keyed("name"),
            _ => List::Replace,
        }
    }
}

pub(super) fn apply(object: &Value, patch: &Value, kind: Kind) -> Result<Value, PatchError> {
    let (Value::Object(fields), Value::Object(patch)) = (object, patch) else {
        return Err(PatchError::Malformed(
            "a strategic merge patch is an object".to_owned(),
        ));
    };
    Ok(Value::Object(merge_map(
        fields,
        patch,
        kind,
        &mut Vec::new(),
    )?))
}

fn merge_map<'a>(
    original: &Fields,
    changes: &'a Fields,
    kind: Kind,
    path: &mut Vec<&'a str>,
) -> Result<Fields, PatchError> {
    match changes.get("$patch").and_then(Value::as_str) {
        Some("replace") => return Ok(without_directives(changes)),
        Some("delete") => return Ok(Fields::new()),
        None => {}
        Some(other) => {
            return Err(PatchError::Strategic(format!(
                "unknown patch type: {other} in map"
            )));
        }
    }
    let mut result = original.clone();
    retain(&mut result, changes)?;
    delete_primitives(&mut result, changes);
    for (name, change) in changes.iter().filter(|(name, _)| !name.starts_with('$')) {
        path.push(name);
        let merged = merge_field(result.get(name), change, order(changes, name), kind, path)?;
        path.pop();
        match merged {
            Some(value) => {
                result.insert(name.clone(), value);
            }
            None => {
                result.shift_remove(name);
            }
        }
    }
    // An order may stand alone, for a list that the patch does not otherwise touch.
    for (directive, wanted) in changes {
        let Some(name) = directive.strip_prefix("$setElementOrder/") else {
            continue;
        };
        path.push(name);
        if !changes.contains_key(name)
            && let Some(Value::Array(items)) = result.get(name)
        {
            let sorted = ordered(items.clone(), items, wanted.as_array(), kind.list(path));
            result.insert(name.to_owned(), Value::Array(sorted));
        }
        path.pop();
    }
    Ok(result)
}

fn merge_field<'a>(
    original: Option<&Value>,
    change: &'a Value,
    order: Option<&Value>,
    kind: Kind,
    path: &mut Vec<&'a str>,
) -> Result<Option<Value>, PatchError> {
    if original.is_none() {
        // Where nothing was, nulls say nothing, and neither does what has a directive.
        let empty = change.is_null() || change.get("$patch").is_some();
        return Ok((!empty).then(|| undirected(change)));
    }
    Ok(match (original, change) {
        (_, Value::Null) => None,
        (original, Value::Object(change)) => {
            let empty = Fields::new();
            let fields = original.and_then(Value::as_object).unwrap_or(&empty);
            if change.get("$patch").and_then(Value::as_str) == Some("delete") {
                return Ok(None);
            }
            Some(Value::Object(merge_map(fields, change, kind, path)?))
        }
        (original, Value::Array(items)) => {
            let live = original
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            let list = kind.list(path);
            let merged = merge_list(live, items, list)?;
            let order = order.and_then(Value::as_array).unwrap_or(items);
            Some(Value::Array(ordered(merged, live, Some(order), list)))
        }
        (_, scalar) => Some(scalar.clone()),
    })
}

fn merge_list(live: &[Value], items: &[Value], list: List) -> Result<Vec<Value>, PatchError> {
    let directive =
        |item: &Value, name: &str| item.get("$patch").and_then(Value::as_str) == Some(name);
    let mut kinds = live.iter().chain(items).map(std::mem::discriminant);
    let first = kinds.next();
    if !matches!(list, List::Replace) && kinds.any(|kind| Some(kind) != first) {
        return Err(PatchError::Strategic(
            "list element types are not identical".to_owned(),
        ));
    }
    let plain = || {
        items
            .iter()
            .filter(|item| item.get("$patch").is_none())
            .cloned()
    };
    if matches!(list, List::Keyed(_)) && items.iter().any(|item| directive(item, "replace")) {
        return Ok(plain().collect());
    }
    Ok(match list {
        List::Replace => items.to_vec(),
        List::Values => {
            let mut merged: Vec<Value> = Vec::new();
            for item in live.iter().chain(items) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            merged
        }
        List::Keyed(key) => {
            let keyed = |item: &Value| {
                item.get(key).cloned().ok_or_else(|| {
                    let item = crate::canonical::canonical(item);
                    PatchError::Strategic(format!(
                        "map: {item} does not contain declared merge key: {key}"
                    ))
                })
            };
            live.iter().try_for_each(|item| keyed(item).map(drop))?;
            let mut merged = live.to_vec();
            // What is deleted goes first, wherever it stands.
            for item in items.iter().filter(|item| directive(item, "delete")) {
                let id = keyed(item)?;
                merged.retain(|live| live.get(key) != Some(&id));
            }
            for item in items.iter().filter(|item| !directive(item, "delete")) {
                let id = &keyed(item)?;
                let at = merged.iter().position(|live| live.get(key) == Some(id));
                match at.and_then(|at| merged.get_mut(at)) {
                    Some(place) => *place = super::merge(place, &stripped(item)),
                    None => merged.push(super::merge(&Value::Null, &stripped(item))),
                }
            }
            merged
        }
    })
}

/// A part of a patch without nulls and directives, at any depth.
fn undirected(change: &Value) -> Value {
    match change {
        Value::Object(fields) => {
            let kept = fields
                .iter()
                .filter(|(name, field)| !name.starts_with('$') && !field.is_null());
            Value::Object(
                kept.map(|(name, field)| (name.clone(), undirected(field)))
                    .collect(),
            )
        }
        Value::Array(items) => {
            let kept = items.iter().filter(|item| item.get("$patch").is_none());
            Value::Array(kept.map(undirected).collect())
        }
        scalar => scalar.clone(),
    }
}

fn stripped(item: &Value) -> Value {
    match item {
        Value::Object(fields) => Value::Object(without_directives(fields)),
        other => other.clone(),
    }
}

/// The items that the order names in its order (the patch's own where it gives none); the others keep their place
/// before what followed them in the live list, and new items come first.
fn ordered(
    items: Vec<Value>,
    live: &[Value],
    order: Option<&Vec<Value>>,
    list: List,
) -> Vec<Value> {
    let Some(order) = order else {
        return items;
    };
    let same = |one: &Value, two: &Value| match list {
        List::Replace => false,
        List::Values => one == two,
        List::Keyed(key) => one.get(key) == two.get(key),
    };
    if matches!(list, List::Replace) {
        return items;
    }
    let place = |item: &Value| {
        let mut wanted = order.iter().filter(|wanted| wanted.get("$patch").is_none());
        wanted.position(|wanted| same(wanted, item))
    };
    let before = |item: &Value| live.iter().position(|live| same(live, item));
    let (mut named, mut others): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| place(item).is_some());
    named.sort_by_key(|item| place(item));
    // Items with the same key, which the live list may have, come to stand together, behind what is new.
    others.sort_by_key(|item| before(item));
    let mut result = Vec::new();
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let next = match (named.peek(), others.peek()) {
            (Some(one), Some(two)) if before(one) < before(two) => named.next(),
            (_, Some(_)) => others.next(),
            (_, None) => named.next(),
        };
        match next {
            Some(item) => result.push(item),
            None => return result,
        }
    }
}

fn order<'a>(patch: &'a Fields, name: &str) -> Option<&'a Value> {
    patch.get(&format!("$setElementOrder/{name}"))
}

/// `$retainKeys`: fields that it does not name go.
fn retain(result: &mut Fields, patch: &Fields) -> Result<(), PatchError> {
    let Some(keys) = patch.get("$retainKeys") else {
        return Ok(());
    };
    let keys = keys
        .as_array()
        .ok_or_else(|| PatchError::Malformed("invalid patch format of retainKeys".to_owned()))?;
    let kept = |name: &String| keys.iter().any(|key| key.as_str() == Some(name));
    if patch
        .iter()
        .any(|(name, value)| !name.starts_with('$') && !value.is_null() && !kept(name))
    {
        let message =
            "the keys in the $retainKeys directive are not a superset of the keys in the patch";
        return Err(PatchError::Retained(message.to_owned()));
    }
    result.retain(|name, _| kept(name));
    Ok(())
}

fn delete_primitives(result: &mut Fields, patch: &Fields) {
    for (directive, gone) in patch {
        let Some(name) = directive.strip_prefix("$deleteFromPrimitiveList/") else {
            continue;
        };
        let gone = gone.as_array().map_or(&[][..], Vec::as_slice);
        if let Some(Value::Array(items)) = result.get_mut(name) {
            items.retain(|item| !gone.contains(item));
        }
    }
}

fn without_directives(fields: &Fields) -> Fields {
    let kept = fields.iter().filter(|(name, _)| !name.starts_with('$'));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
