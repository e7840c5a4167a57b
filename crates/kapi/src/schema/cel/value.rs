//! Values of rules. What is in the object stays there.

use std::{cmp::Ordering, collections::BTreeMap, rc::Rc, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::core::cel::cel::{
    Value as Plain,
    objects::{Key, OptionalValue},
};
use serde_json::Value as Json;

use super::{
    super::node::{Additional, ListType, Node, Type as Kind},
    eval, price,
    types::escaped,
};

/// A value.
#[derive(Clone, Debug)]
pub(in crate::schema) enum Val<'a> {
    /// A list, a map or an object of the object that is checked.
    Part(&'a Json, &'a Node),
    /// A scalar, or a value of a library.
    Plain(Plain),
    List(Rc<Vec<Val<'a>>>),
    Map(Rc<BTreeMap<Name, Val<'a>>>),
    Optional(Option<Rc<Val<'a>>>),
    /// What `type()` gives.
    Type(String),
}

/// The key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::schema) enum Name {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(Arc<String>),
}

impl<'a> Val<'a> {
    /// A value of the object, by its schema.
    pub fn of(value: &'a Json, node: &'a Node) -> Self {
        Self::Plain(match value {
            Json::Array(_) | Json::Object(_) => return Self::Part(value, node),
            Json::Null => Plain::Null,
            Json::Bool(truth) => Plain::Bool(*truth),
            // Where no schema says what a number is, it is what is written.
            Json::Number(number)
                if node.kind == Kind::Number || node.kind == Kind::Any && number.is_f64() =>
            {
                Plain::Float(number.as_f64().unwrap_or(f64::NAN))
            }
            Json::Number(number) => whole(number),
            Json::String(text) => return text_of(text, node),
        })
    }

    pub fn bool(truth: bool) -> Self {
        Self::Plain(Plain::Bool(truth))
    }

    pub fn int(number: usize) -> Self {
        Self::Plain(Plain::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::Plain(Plain::String(Arc::new(text.into())))
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Plain(Plain::Bool(truth)) => Some(*truth),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Plain(Plain::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The number of elements or characters.
    pub fn size(&self) -> Option<usize> {
        Some(match self {
            Self::Part(Json::Array(items), _) => items.len(),
            Self::Part(Json::Object(fields), _) => fields.len(),
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            Self::Plain(Plain::String(text)) => text.chars().count(),
            Self::Plain(Plain::Bytes(bytes)) => bytes.len(),
            Self::Part(..) | Self::Plain(_) | Self::Optional(_) | Self::Type(_) => return None,
        })
    }

    /// As [`Self::size`], but bytes for characters, and one for what has no size.
    pub fn extent(&self) -> u64 {
        match self {
            Self::Plain(Plain::String(text)) => text.len() as u64,
            _ => self.size().map_or(1, |size| size as u64),
        }
    }

    /// What it costs to look at all of it. What is more than `most` says only that it is more: collections share their parts, so a
    /// small one may have more to look at than there is time to count.
    pub fn weight(&self, most: u64) -> u64 {
        match self {
            Self::Part(value, _) => weight(value),
            Self::Plain(_) | Self::Type(_) => price::characters(self.extent()).max(1),
            Self::List(items) => together(items.iter(), 0, most),
            Self::Map(entries) => together(entries.values(), 1, most),
            Self::Optional(inner) => inner.as_ref().map_or(1, |inner| inner.weight(most)),
        }
    }

    pub fn is_list(&self) -> bool {
        self.collection() == Some(Collection::List)
    }

    /// Whether it is a collection, or an optional one.
    pub fn has_parts(&self) -> bool {
        match self {
            Self::Optional(Some(inner)) => inner.has_parts(),
            _ => self.collection().is_some(),
        }
    }

    /// About how many bytes it takes where it is kept. The parts of a collection count where they were put together.
    pub fn bytes(&self) -> u64 {
        let beside = match self {
            Self::Plain(Plain::String(_) | Plain::Bytes(_)) => TEXT + self.extent(),
            Self::Optional(Some(inner)) => inner.bytes(),
            _ => 0,
        };
        VALUE + beside
    }

    /// The items of a list, or the keys of a map.
    pub fn items(&self) -> Option<Vec<Val<'a>>> {
        Some(match self {
            Self::Part(Json::Array(items), node) => {
                let child = node.items.as_deref().unwrap_or(&eval::ANYTHING);
                items.iter().map(|item| Val::of(item, child)).collect()
            }
            Self::Part(Json::Object(fields), node) => {
                let names = fields.keys();
                names.map(|name| Val::text(named(node, name))).collect()
            }
            Self::List(items) => items.to_vec(),
            Self::Map(entries) => entries.keys().map(Name::value).collect(),
            _ => return None,
        })
    }

    /// The item of a list at a place.
    pub fn item(&self, at: usize) -> Option<Val<'a>> {
        match self {
            Self::Part(Json::Array(items), node) => {
                let child = node.items.as_deref().unwrap_or(&eval::ANYTHING);
                items.get(at).map(|item| Val::of(item, child))
            }
            Self::List(items) => items.get(at).cloned(),
            _ => None,
        }
    }

    /// The value of a field, by its name in the schema, or of a key. A null that is not allowed is none.
    pub fn field(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Self::Part(Json::Object(fields), node) => {
                let child = node.field(name).unwrap_or(&eval::ANYTHING);
                let value = fields.get(name)?;
                (!value.is_null() || child.nullable).then(|| Val::of(value, child))
            }
            Self::Map(entries) => entries.get(&Name::Text(Arc::new(name.to_owned()))).cloned(),
            _ => None,
        }
    }

    /// The value of a key.
    pub fn entry(&self, key: &Val<'a>) -> Option<Val<'a>> {
        match (self, key.as_text()) {
            (Self::Part(..), Some(name)) => self.field(&self.real(name)),
            (Self::Map(entries), _) => entries.get(&Name::of(key)?).cloned(),
            _ => None,
        }
    }

    /// The name in the schema of a field that is known only when the rule runs.
    pub fn real(&self, name: &str) -> String {
        match self {
            Self::Part(_, node) if matches!(node.additional, Additional::None) => {
                super::unescaped(name)
            }
            _ => name.to_owned(),
        }
    }

    /// The value as the libraries take it.
    pub fn plain(&self) -> Plain {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Part(Json::Array(_), _) | Self::List(_) => {
                let items = self.items().unwrap_or_default();
                Plain::List(Arc::new(items.iter().map(Self::plain).collect()))
            }
            Self::Part(..) | Self::Map(_) => {
                let keys = self.items().unwrap_or_default();
                let entry = |key: &Self| Some((Name::of(key)?.key(), self.entry(key)?.plain()));
                let entries: std::collections::HashMap<Key, Plain> =
                    keys.iter().filter_map(entry).collect();
                Plain::from(entries)
            }
            Self::Optional(inner) => {
                let inner = inner.as_ref().map(|inner| inner.plain());
                let inner = inner.map_or_else(OptionalValue::none, OptionalValue::of);
                Plain::Opaque(Arc::new(inner))
            }
            Self::Type(name) => Plain::String(Arc::new(name.clone())),
        }
    }

    /// A value of the libraries.
    pub fn made(value: Plain) -> Self {
        match value {
            Plain::List(items) => {
                Self::List(Rc::new(items.iter().cloned().map(Self::made).collect()))
            }
            Plain::Map(map) => {
                let entries = map
                    .map
                    .iter()
                    .map(|(key, value)| (Name::from_key(key), Self::made(value.clone())));
                Self::Map(Rc::new(entries.collect()))
            }
            Plain::Opaque(ref inner) => match inner.downcast_ref::<OptionalValue>() {
                Some(optional) => {
                    let inner = optional.value().cloned().map(Self::made);
                    Self::Optional(inner.map(Rc::new))
                }
                None => Self::Plain(value),
            },
            value => Self::Plain(value),
        }
    }

    /// Whether two values are equal: numbers by value, sets whatever their order.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(a), Self::Plain(b)) => match (a, b) {
                (Plain::Opaque(_), _) | (_, Plain::Opaque(_)) => a == b,
                _ => {
                    a == b || a.partial_cmp(b) == Some(Ordering::Equal) && numeric(a) && numeric(b)
                }
            },
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (a, b) => a.is_none() && b.is_none(),
            },
            (Self::Part(Json::Array(a), node), Self::Part(Json::Array(b), other))
                if node.list != ListType::Atomic && other.list != ListType::Atomic =>
            {
                sorted(a) == sorted(b)
            }
            _ => self.equals_each(other),
        }
    }

    fn equals_each(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (self.collection(), other.collection()) else {
            return false;
        };
        if a != b || self.size() != other.size() {
            return false;
        }
        let (left, right) = (
            self.items().unwrap_or_default(),
            other.items().unwrap_or_default(),
        );
        if a == Collection::List {
            return left.iter().zip(&right).all(|(a, b)| a.equals(b));
        }
        left.iter()
            .all(|key| match (self.entry(key), other.entry(key)) {
                (Some(a), Some(b)) => a.equals(&b),
                (a, b) => a.is_none() && b.is_none(),
            })
    }

    pub fn collection(&self) -> Option<Collection> {
        match self {
            Self::Part(Json::Array(_), _) | Self::List(_) => Some(Collection::List),
            Self::Part(Json::Object(_), _) | Self::Map(_) => Some(Collection::Map),
            _ => None,
        }
    }

    /// The order of two values that have one.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Plain(Plain::Bytes(a)), Self::Plain(Plain::Bytes(b))) => Some(a.cmp(b)),
            (Self::Plain(a), Self::Plain(b)) => {
                let ordered = numeric(a) && numeric(b)
                    || std::mem::discriminant(a) == std::mem::discriminant(b)
                        && !matches!(a, Plain::Opaque(_) | Plain::Null);
                ordered.then(|| a.partial_cmp(b)).flatten()
            }
            _ => None,
        }
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Plain(value) => match value {
                Plain::Int(_) => "int",
                Plain::UInt(_) => "uint",
                Plain::Float(_) => "double",
                Plain::String(_) => "string",
                Plain::Bytes(_) => "bytes",
                Plain::Bool(_) => "bool",
                Plain::Duration(_) => "google.protobuf.Duration",
                Plain::Timestamp(_) => "google.protobuf.Timestamp",
                Plain::Null => "null_type",
                _ => "dyn",
            },
            Self::Part(Json::Array(_), _) | Self::List(_) => "list",
            Self::Part(..) | Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
        }
    }
}

/// The two shapes of values that have parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schema) enum Collection {
    List,
    Map,
}

impl Name {
    pub fn of(value: &Val<'_>) -> Option<Self> {
        match value {
            Val::Plain(Plain::Bool(truth)) => Some(Self::Bool(*truth)),
            Val::Plain(Plain::Int(number)) => Some(Self::Int(*number)),
            Val::Plain(Plain::UInt(number)) => Some(Self::Uint(*number)),
            Val::Plain(Plain::String(text)) => Some(Self::Text(Arc::clone(text))),
            _ => None,
        }
    }

    fn from_key(key: &Key) -> Self {
        match key {
            Key::Bool(truth) => Self::Bool(*truth),
            Key::Int(number) => Self::Int(*number),
            Key::Uint(number) => Self::Uint(*number),
            Key::String(text) => Self::Text(Arc::clone(text)),
        }
    }

    fn key(&self) -> Key {
        match self {
            Self::Bool(truth) => Key::Bool(*truth),
            Self::Int(number) => Key::Int(*number),
            Self::Uint(number) => Key::Uint(*number),
            Self::Text(text) => Key::String(Arc::clone(text)),
        }
    }

    fn value<'a>(&self) -> Val<'a> {
        Val::Plain(match self {
            Self::Bool(truth) => Plain::Bool(*truth),
            Self::Int(number) => Plain::Int(*number),
            Self::Uint(number) => Plain::UInt(*number),
            Self::Text(text) => Plain::String(Arc::clone(text)),
        })
    }
}

/// The keys of a map are data; the fields of an object have names of their own in rules.
fn named(node: &Node, name: &str) -> String {
    match node.additional {
        Additional::None => escaped(name).unwrap_or_else(|| name.to_owned()),
        _ => name.to_owned(),
    }
}

fn whole(number: &serde_json::Number) -> Plain {
    if let Some(number) = number.as_i64() {
        return Plain::Int(number);
    }
    let float = number.as_f64().unwrap_or(f64::NAN);
    // An integer may be written `1.0`.
    format!("{float:.0}")
        .parse()
        .map_or(Plain::Float(float), Plain::Int)
}

fn text_of<'a>(text: &str, node: &Node) -> Val<'a> {
    let known = match node.checks.format.as_deref() {
        _ if node.kind != Kind::String => None,
        Some("byte") => STANDARD
            .decode(text)
            .ok()
            .map(|bytes| Plain::Bytes(Arc::new(bytes))),
        Some("date-time") => eval::convert("timestamp", text),
        Some("date") => eval::convert("timestamp", &format!("{text}T00:00:00Z")),
        Some("duration") => eval::convert("duration", text),
        _ => None,
    };
    known.map_or_else(|| Val::text(text), Val::Plain)
}

fn numeric(value: &Plain) -> bool {
    matches!(value, Plain::Int(_) | Plain::UInt(_) | Plain::Float(_))
}

fn sorted(items: &[Json]) -> Vec<String> {
    let mut texts: Vec<_> = items.iter().map(crate::canonical::canonical).collect();
    texts.sort();
    texts
}

/// The weight of a collection: one, and of each part its own and what its place costs.
fn together<'v, 'a: 'v>(parts: impl Iterator<Item = &'v Val<'a>>, place: u64, most: u64) -> u64 {
    let mut sum = 1_u64;
    for part in parts {
        if sum > most {
            break;
        }
        let weight = part.weight(most - sum);
        sum = sum.saturating_add(weight).saturating_add(place);
    }
    sum
}

fn weight(value: &Json) -> u64 {
    match value {
        Json::String(text) => price::characters(text.len() as u64).max(1),
        Json::Array(items) => items.iter().map(weight).sum::<u64>() + 1,
        Json::Object(fields) => fields.values().map(|value| weight(value) + 1).sum::<u64>() + 1,
        _ => 1,
    }
}

/// About the bytes of a value by itself, and of a text beside its characters: two counts, its place and what the allocator adds.
pub(super) const VALUE: u64 = 32;
pub(super) const TEXT: u64 = 48;
