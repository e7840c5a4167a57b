//! Sets of fields, and their `FieldsV1` form.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Map, Value};

use crate::canonical::canonical;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    /// A field of a map, `f:`.
    Field(String),
    /// An item of a keyed list, `k:`.
    Key(BTreeMap<String, Scalar>),
    /// An item of a set, `v:`.
    Value(Scalar),
    /// An item by its place, `i:`.
    Index(i64),
}

/// A JSON value with an order: by type first.
#[derive(Clone, Debug)]
pub(super) struct Scalar(pub Value);

/// Fields that belong together. A member is owned itself; a child only has owned fields below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    pub members: BTreeSet<Element>,
    pub children: BTreeMap<Element, Set>,
}

impl Set {
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.extend(other.clone());
        union
    }

    /// Takes in the fields of `other`.
    pub fn extend(&mut self, other: Self) {
        self.members.extend(other.members);
        for (element, set) in other.children {
            self.children.entry(element).or_default().extend(set);
        }
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let both = |(element, set): (&Element, &Self)| {
            let shared = set.intersection(other.children.get(element)?);
            (!shared.is_empty()).then(|| (element.clone(), shared))
        };
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(both).collect(),
        }
    }

    pub fn difference(&self, other: &Self) -> Self {
        let mut difference = self.clone();
        difference.remove(other);
        difference
    }

    /// Takes away the fields of `other`, not what is below them.
    pub fn remove(&mut self, other: &Self) {
        self.members
            .retain(|member| !other.members.contains(member));
        self.children.retain(|element, set| {
            if let Some(taken) = other.children.get(element) {
                set.remove(taken);
            }
            !set.is_empty()
        });
    }

    /// Only what is at or below one field of the root; or all but that.
    pub fn only(mut self, name: &str, keep: bool) -> Self {
        let element = Element::Field(name.to_owned());
        self.members.retain(|member| (*member == element) == keep);
        self.children.retain(|child, _| (*child == element) == keep);
        self
    }

    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        paths.extend(
            self.members
                .iter()
                .map(|member| format!("{prefix}{member}")),
        );
        for (element, set) in &self.children {
            set.collect(&format!("{prefix}{element}"), paths);
        }
    }

    /// The `FieldsV1` form.
    pub fn encode(&self) -> Value {
        let mut fields = Map::new();
        let elements: BTreeSet<_> = self.members.iter().chain(self.children.keys()).collect();
        for element in elements {
            let mut below = match self.children.get(element) {
                Some(set) => set.encode(),
                None => Value::Object(Map::new()),
            };
            if let (true, Some(Value::Object(children))) =
                (self.members.contains(element), Some(&mut below))
                && !children.is_empty()
            {
                children.shift_insert(0, ".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.encode(), below);
        }
        Value::Object(fields)
    }

    /// Reads the `FieldsV1` form.
    pub fn decode(fields: &Value) -> Result<Self, String> {
        let mut set = Self::default();
        let fields = fields.as_object().ok_or("fieldsV1 is not an object")?;
        for (name, below) in fields.iter().filter(|(name, _)| *name != ".") {
            let Some(element) = Element::decode(name)? else {
                continue;
            };
            let children = below
                .as_object()
                .ok_or_else(|| format!("{name}: not an object"))?;
            if children.is_empty() || children.contains_key(".") {
                set.members.insert(element.clone());
            }
            if children.keys().any(|child| child != ".") {
                set.children.insert(element, Self::decode(below)?);
            }
        }
        Ok(set)
    }
}

impl Element {
    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let fields = keys
                    .iter()
                    .map(|(name, value)| (name.clone(), value.0.clone()));
                format!("k:{}", canonical(&Value::Object(fields.collect())))
            }
            Self::Value(value) => format!("v:{}", canonical(&value.0)),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    /// Kinds of elements that are not known are skipped.
    fn decode(text: &str) -> Result<Option<Self>, String> {
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("missing colon: {text}"))?;
        let json =
            || serde_json::from_str::<Value>(rest).map_err(|error| format!("{text}: {error}"));
        Ok(Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(Scalar(json()?)),
            "k" => match json()? {
                Value::Object(keys) => Self::Key(
                    keys.into_iter()
                        .map(|(name, value)| (name, Scalar(value)))
                        .collect(),
                ),
                _ => return Err(format!("{text}: not an object")),
            },
            "i" => Self::Index(rest.parse().map_err(|error| format!("{text}: {error}"))?),
            _ => return Ok(None),
        }))
    }
}

/// As a path is shown in conflicts: `.name`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={}", canonical(&value.0)));
                write!(f, "[{}]", keys.collect::<Vec<_>>().join(","))
            }
            Self::Value(value) => write!(f, "[={}]", canonical(&value.0)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        };
        let same = match (&self.0, &other.0) {
            (Value::Number(one), Value::Number(two)) => match (one.as_i64(), two.as_i64()) {
                (Some(one), Some(two)) => one.cmp(&two),
                _ => one
                    .as_f64()
                    .partial_cmp(&two.as_f64())
                    .unwrap_or(Ordering::Equal),
            },
            (Value::String(one), Value::String(two)) => one.cmp(two),
            (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
            (one, two) => canonical(one).cmp(&canonical(two)),
        };
        rank(&self.0).cmp(&rank(&other.0)).then(same)
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}
