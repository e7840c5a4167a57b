//! The four walks over values: which fields there are, what differs, merging, and removing.

use std::{collections::BTreeMap, fmt};

use serde_json::{Map, Value};

use super::{
    set::{Element, Set},
    shape::Shape,
};

/// Whether an item of a set or a keyed list may occur twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twice {
    Allowed,
    Refused,
}

/// Where a walk is. It becomes text only where something is wrong.
#[derive(Clone, Copy)]
enum Place<'a> {
    Root,
    At(&'a Place<'a>, Step<'a>),
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item(&'a Element),
    Index(usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::At(parent, step) = self else {
            return Ok(());
        };
        parent.fmt(f)?;
        match step {
            Step::Field(name) => write!(f, ".{name}"),
            Step::Item(element) => write!(f, "{element}"),
            Step::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// Checks a configuration: no unknown fields, nothing of another type, no item twice.
pub(super) fn check(shape: Shape<'_>, value: &Value, twice: Twice) -> Result<(), String> {
    check_at(Place::Root, shape, value, twice)
}

fn check_at(path: Place<'_>, shape: Shape<'_>, value: &Value, twice: Twice) -> Result<(), String> {
    if let Some(wanted) = shape.refuses(value) {
        return Err(format!("{path}: expected {wanted}, got {value}"));
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let place = Place::At(&path, Step::Field(name));
                if !shape.allows(name) {
                    return Err(format!("{place}: field not declared in schema"));
                }
                check_at(place, shape.field(name), field, twice)?;
            }
        }
        Value::Array(items) if !shape.atomic_list() => {
            let mut seen = std::collections::BTreeSet::new();
            for (at, item) in items.iter().enumerate() {
                let element = shape
                    .identify(item)
                    .map_err(|why| format!("{path}: element {at}: {why}"))?;
                if twice == Twice::Refused && seen.contains(&element) {
                    return Err(format!("{path}: duplicate entries for key {element}"));
                }
                let place = Place::At(&path, Step::Item(&element));
                check_at(place, shape.items(), item, twice)?;
                seen.insert(element);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let place = Place::At(&path, Step::Index(at));
                check_at(place, shape.items(), item, twice)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The fields that a configuration sets.
pub(super) fn fields(shape: Shape<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    collect(shape, value, &mut Vec::new(), &mut set);
    set
}

fn collect(shape: Shape<'_>, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    match value {
        Value::Object(fields) if !shape.atomic_map() => {
            for (name, field) in fields {
                path.push(Element::Field(name.clone()));
                collect(shape.field(name), field, path, set);
                let empty = field.is_null() || field.as_object().is_some_and(Map::is_empty);
                if empty || !shape.names(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Value::Array(items) if !shape.atomic_list() => {
            let counts = indexed(shape, items);
            for (element, same) in &counts {
                path.push(element.clone());
                if let [only] = same.as_slice() {
                    collect(shape.items(), only, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Value::Null => {}
        _ => set.insert(path),
    }
}

fn indexed<'a>(shape: Shape<'_>, items: &'a [Value]) -> BTreeMap<Element, Vec<&'a Value>> {
    let mut index: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = shape.identify(item) {
            index.entry(element).or_default().push(item);
        }
    }
    index
}

/// What changed from one value to another.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

impl Comparison {
    pub fn map(self, keep: impl Fn(Set) -> Set) -> Self {
        Self {
            added: keep(self.added),
            modified: keep(self.modified),
            removed: keep(self.removed),
        }
    }

    /// The fields that have a new value.
    pub fn set(&self) -> Set {
        self.added.union(&self.modified)
    }

    pub fn into_set(mut self) -> Set {
        self.added.extend(self.modified);
        self.added
    }
}

pub(super) fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Comparison {
    let mut found = Comparison::default();
    differ(shape, Some(old), Some(new), &mut Vec::new(), &mut found);
    found
}

/// How a pair of values is walked. Null goes with anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Map,
    List,
    Leaf,
}

fn form(value: Option<&Value>) -> Option<Form> {
    match value? {
        Value::Null => None,
        Value::Object(_) => Some(Form::Map),
        Value::Array(_) => Some(Form::List),
        _ => Some(Form::Leaf),
    }
}

/// The forms that a pair is walked in: two when the type changed.
fn forms(old: Option<&Value>, new: Option<&Value>) -> Vec<Form> {
    match (form(old), form(new)) {
        (Some(one), Some(two)) if one != two => vec![one, two],
        (_, Some(form)) | (Some(form), None) => vec![form],
        (None, None) => vec![Form::Leaf],
    }
}

fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value
        .and_then(Value::as_object)
        .filter(|fields| !fields.is_empty())
}

fn list(value: Option<&Value>) -> Option<&Vec<Value>> {
    value
        .and_then(Value::as_array)
        .filter(|items| !items.is_empty())
}

fn differ(
    shape: Shape<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<Element>,
    found: &mut Comparison,
) {
    let mut leaf = false;
    for form in forms(old, new) {
        match form {
            Form::Map if !shape.atomic_map() && (map(old).is_some() || map(new).is_some()) => {
                differ_maps(shape, map(old), map(new), path, found);
            }
            Form::List if !shape.atomic_list() && (list(old).is_some() || list(new).is_some()) => {
                differ_lists(shape, list(old), list(new), path, found);
            }
            _ => leaf = true,
        }
    }
    match (old, new) {
        (None, Some(_)) => found.added.insert(path),
        (Some(_), None) => found.removed.insert(path),
        (old, new) if leaf && !same(old, new) => found.modified.insert(path),
        _ => {}
    }
}

/// Equality that does not tell `1` from `1.0`, nor the order of keys.
fn same(one: Option<&Value>, two: Option<&Value>) -> bool {
    one == two
}

fn differ_maps(
    shape: Shape<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    path: &mut Vec<Element>,
    found: &mut Comparison,
) {
    let names: std::collections::BTreeSet<_> = old
        .into_iter()
        .flatten()
        .chain(new.into_iter().flatten())
        .map(|(name, _)| name)
        .collect();
    for name in names {
        path.push(Element::Field(name.clone()));
        let before = old.and_then(|fields| fields.get(name));
        let after = new.and_then(|fields| fields.get(name));
        differ(shape.field(name), before, after, path, found);
        path.pop();
    }
}

fn differ_lists(
    shape: Shape<'_>,
    old: Option<&Vec<Value>>,
    new: Option<&Vec<Value>>,
    path: &mut Vec<Element>,
    found: &mut Comparison,
) {
    let before = indexed(shape, old.map_or(&[], Vec::as_slice));
    let after = indexed(shape, new.map_or(&[], Vec::as_slice));
    let elements: std::collections::BTreeSet<_> =
        before.keys().chain(after.keys()).cloned().collect();
    for element in elements {
        let olds = before.get(&element).map_or(&[][..], Vec::as_slice);
        let news = after.get(&element).map_or(&[][..], Vec::as_slice);
        path.push(element);
        match (olds, news) {
            ([] | [_], [] | [_]) => {
                differ(
                    shape.items(),
                    olds.first().copied(),
                    news.first().copied(),
                    path,
                    found,
                );
            }
            ([_, _, ..], [_, _, ..]) => {
                if olds != news {
                    found.modified.insert(path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(item) = news.first() {
                    differ(shape.items(), None, Some(item), path, found);
                }
                found.removed.insert(path);
            }
            (_, _) => {
                if let Some(item) = olds.first() {
                    differ(shape.items(), Some(item), None, path, found);
                }
                found.added.insert(path);
            }
        }
        path.pop();
    }
}

/// Lays a configuration over a value.
pub(super) fn merge(
    shape: Shape<'_>,
    live: Option<&Value>,
    config: Option<&Value>,
) -> Option<Value> {
    let last = forms(live, config).pop().unwrap_or(Form::Leaf);
    match last {
        Form::Map if !shape.atomic_map() && (map(live).is_some() || map(config).is_some()) => {
            let merged = merge_maps(shape, map(live), map(config));
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Form::List if !shape.atomic_list() && (list(live).is_some() || list(config).is_some()) => {
            let live = list(live).map_or(&[][..], Vec::as_slice);
            let config = list(config).map_or(&[][..], Vec::as_slice);
            let merged = merge_lists(shape, live, config);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        _ => config.or(live).cloned(),
    }
}

fn merge_maps(
    shape: Shape<'_>,
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let mut merged = Map::new();
    for (name, before) in live.into_iter().flatten() {
        let after = config.and_then(|fields| fields.get(name));
        if let Some(value) = merge(shape.field(name), Some(before), after) {
            merged.insert(name.clone(), value);
        }
    }
    for (name, after) in config.into_iter().flatten() {
        if live.is_none_or(|fields| !fields.contains_key(name))
            && let Some(value) = merge(shape.field(name), None, Some(after))
        {
            merged.insert(name.clone(), value);
        }
    }
    merged
}

/// The configuration's order wins for its own items; items that only the live list has keep their place before the
/// next shared one.
fn merge_lists(shape: Shape<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let identified = |items: &[Value]| -> Vec<Element> {
        items
            .iter()
            .filter_map(|item| shape.identify(item).ok())
            .collect()
    };
    let (lefts, rights) = (identified(live), identified(config));
    if lefts.len() != live.len() || rights.len() != config.len() {
        return if config.is_empty() {
            live.to_vec()
        } else {
            config.to_vec()
        };
    }
    let (left_index, right_index) = (indexed(shape, live), indexed(shape, config));
    let mut shared = rights
        .iter()
        .filter(|element| left_index.contains_key(element));
    let mut next = shared.next();
    let mut out = Vec::new();
    let mut done = std::collections::BTreeSet::new();
    let (mut left, mut right) = (0, 0);
    // Duplicates in the live list do not merge: the configuration's item replaces them.
    let pair = |element: &Element| {
        let before = left_index
            .get(element)
            .and_then(|same| (same.len() == 1).then(|| same[0]));
        let after = right_index
            .get(element)
            .and_then(|same| same.first().copied());
        merge(shape.items(), before, after)
    };
    while left < lefts.len() || right < rights.len() {
        if let (Some(one), Some(two)) = (lefts.get(left), rights.get(right)) {
            if one == two {
                out.extend(pair(one));
                done.insert(one.clone());
                left += 1;
                right += 1;
                next = shared.next();
                continue;
            }
            if right_index.contains_key(one) && next.is_some_and(|next| next != one) {
                left += 1;
                continue;
            }
        }
        if let Some(one) = lefts.get(left) {
            if !right_index.contains_key(one) {
                out.extend(live.get(left).cloned());
                left += 1;
                continue;
            }
            if done.contains(one) {
                left += 1;
            }
        }
        if let Some(two) = rights.get(right) {
            out.extend(pair(two));
            done.insert(two.clone());
            right += 1;
            if next == Some(two) {
                next = shared.next();
            }
        }
    }
    out
}

/// Removes the fields of a set. What is left without any field becomes null, as in Kubernetes.
pub(super) fn remove(shape: Shape<'_>, value: &Value, set: &Set) -> Value {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            if shape.atomic_map() {
                return Value::Null;
            }
            let mut left = Map::new();
            for (name, field) in fields {
                let element = Element::Field(name.clone());
                if set.members.contains(&element) {
                    continue;
                }
                let field = match set.children.get(&element).filter(|below| !below.is_empty()) {
                    Some(below) => remove(shape.field(name), field, below),
                    None => field.clone(),
                };
                left.insert(name.clone(), field);
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Object(left)
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if shape.atomic_list() {
                return Value::Null;
            }
            let mut left = Vec::new();
            for item in items {
                let Ok(element) = shape.identify(item) else {
                    left.push(item.clone());
                    continue;
                };
                if set.members.contains(&element) {
                    continue;
                }
                left.push(
                    match set.children.get(&element).filter(|below| !below.is_empty()) {
                        Some(below) => remove(shape.items(), item, below),
                        None => item.clone(),
                    },
                );
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Array(left)
            }
        }
        Value::Object(_) | Value::Array(_) => Value::Null,
        scalar => scalar.clone(),
    }
}
