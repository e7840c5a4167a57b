//! What ownership needs to know of a schema: which maps and lists are one value, and how list items are told apart.

use std::collections::BTreeMap;

use serde_json::Value;

use super::set::{Element, Scalar, Set};
use crate::schema::{Additional, ListType, Node, Type};

/// The view of one place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// The schema says.
    Known(&'a Node),
    /// Nothing is known: maps are granular, lists are one value.
    Deduced,
}

impl<'a> Shape<'a> {
    pub fn field(self, name: &str) -> Self {
        match self {
            Self::Known(node) => node.field(name).map_or(Self::Deduced, Self::of),
            Self::Deduced => Self::Deduced,
        }
    }

    pub fn items(self) -> Self {
        match self {
            Self::Known(node) => node.items.as_deref().map_or(Self::Deduced, Self::of),
            Self::Deduced => Self::Deduced,
        }
    }

    /// Whether the schema names this field, so that its presence alone is not worth owning.
    pub fn names(self, name: &str) -> bool {
        matches!(self, Self::Known(node) if node.properties.contains_key(name))
    }

    /// Whether the field may be given at all.
    pub fn allows(self, name: &str) -> bool {
        match self {
            Self::Known(node) => {
                node.field(name).is_some()
                    || node.preserve
                    || matches!(node.additional, Additional::Any)
                    || node.embedded && matches!(name, "apiVersion" | "kind" | "metadata")
            }
            Self::Deduced => true,
        }
    }

    /// What is wanted instead of a value of another type.
    pub fn refuses(self, value: &Value) -> Option<&'static str> {
        let Self::Known(node) = self else { return None };
        let (wanted, fits) = match node.kind {
            Type::Any | Type::IntOrString => return None,
            Type::Object => ("map", value.is_object()),
            Type::Array => ("list", value.is_array()),
            Type::String => ("string", value.is_string()),
            Type::Integer | Type::Number => ("numeric (int or float)", value.is_number()),
            Type::Boolean => ("boolean", value.is_boolean()),
        };
        (!fits && !value.is_null()).then_some(wanted)
    }

    pub fn atomic_map(self) -> bool {
        matches!(self, Self::Known(node) if node.atomic)
    }

    pub fn atomic_list(self) -> bool {
        match self {
            Self::Known(node) => node.list == ListType::Atomic,
            Self::Deduced => true,
        }
    }

    /// How one item of a set or a keyed list is told apart.
    pub fn identify(self, item: &Value) -> Result<Element, String> {
        let Self::Known(node) = self else {
            return Err("invalid indexing of non-associative list".to_owned());
        };
        match (&node.list, item) {
            (ListType::Atomic, _) => Err("invalid indexing of non-associative list".to_owned()),
            (ListType::Map(keys), Value::Object(fields)) => {
                let default = |key: &str| node.items.as_ref()?.properties.get(key)?.default.clone();
                let found = keys.iter().filter_map(|key| {
                    let value = fields.get(key).cloned().or_else(|| default(key))?;
                    Some((key.clone(), Scalar(value)))
                });
                let found: BTreeMap<_, _> = found.collect();
                if found.is_empty() {
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields {keys:?} (and doesn't have default values for any key fields)"
                    ));
                }
                Ok(Element::Key(found))
            }
            (ListType::Map(_), Value::Null) => {
                Err("associative list with keys may not have a null element".to_owned())
            }
            (ListType::Map(_), _) => {
                Err("associative list with keys may not have non-map elements".to_owned())
            }
            (ListType::Set, Value::Object(_)) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            (ListType::Set, Value::Array(_)) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            (ListType::Set, Value::Null) => Err(
                "associative list without keys has an element that's an explicit null".to_owned(),
            ),
            (ListType::Set, scalar) => Ok(Element::Value(Scalar(scalar.clone()))),
        }
    }

    /// Adds to a set the named fields on the way to its members.
    pub fn with_named(self, set: &Set) -> Set {
        let mut named = set.clone();
        for (element, child) in &set.children {
            let below = match element {
                Element::Field(name) => {
                    if self.names(name) {
                        named.members.insert(element.clone());
                    }
                    self.field(name)
                }
                _ => self.items(),
            };
            named
                .children
                .insert(element.clone(), below.with_named(child));
        }
        named
    }

    pub fn of(node: &'a Node) -> Self {
        let untyped = node.kind == Type::Any && node.properties.is_empty() && node.items.is_none();
        if untyped || node.kind == Type::IntOrString {
            Self::Deduced
        } else {
            Self::Known(node)
        }
    }
}
