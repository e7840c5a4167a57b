//! The compiled form of a schema: a tree of nodes.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Number, Value};

/// One place of a schema.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a keyword of the schema language"
)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub kind: Type,
    pub nullable: bool,
    /// Unknown fields stay.
    pub preserve: bool,
    /// A whole object with `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    pub properties: BTreeMap<String, Node>,
    pub additional: Additional,
    pub items: Option<Box<Node>>,
    pub list: ListType,
    /// A map or a struct that is owned as a whole.
    pub atomic: bool,
    pub default: Option<Value>,
    pub checks: Checks,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// No type is given.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// What an object may have beside its properties.
#[derive(Clone, Debug, Default)]
pub(crate) enum Additional {
    /// Nothing.
    #[default]
    None,
    /// Anything.
    Any,
    /// Values of one form.
    Node(Box<Node>),
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// They are not: the list is one value.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Map(Vec<String>),
}

/// The constraints on a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    pub required: Vec<String>,
    pub one_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub all_of: Vec<Node>,
    pub not: Option<Box<Node>>,
    pub values: Vec<Value>,
    pub pattern: Option<(String, Regex)>,
    pub format: Option<String>,
    pub max_length: Option<u64>,
    pub min_length: Option<u64>,
    pub max_items: Option<u64>,
    pub min_items: Option<u64>,
    pub unique_items: bool,
    pub max_properties: Option<u64>,
    pub min_properties: Option<u64>,
    pub maximum: Option<Number>,
    pub minimum: Option<Number>,
    pub exclusive_maximum: bool,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<Number>,
}

impl Node {
    /// The form of one field: its own, that of all others, or none.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Additional::Node(node) => Some(node),
            Additional::Any | Additional::None => None,
        })
    }
}
