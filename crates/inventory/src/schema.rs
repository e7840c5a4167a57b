//! The part of JSON Schema that levels and templates may use, checked on values that know where they come from.
//!
//! A schema with a word that is not known here is refused: a rule that is silently not checked is worse than none. A template and a
//! reference to a secret fit any type, since what they will be is not known yet.

use std::{collections::BTreeMap, sync::Arc};

use api::inventory::ValuePath;
use regex::Regex;
use serde_json::Value;

use crate::{
    problem::{Problem, Rule},
    tree::{Leaf, Shape, Source, Tree},
};

/// A schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    name: Arc<str>,
    types: Vec<String>,
    properties: BTreeMap<String, Schema>,
    required: Vec<String>,
    additional: Additional,
    items: Option<Box<Schema>>,
    values: Option<Vec<Value>>,
    pattern: Option<Regex>,
    bounds: BTreeMap<&'static str, f64>,
}

/// What keys without a property of their own may be.
#[derive(Clone, Debug, Default)]
enum Additional {
    #[default]
    Anything,
    Nothing,
    Schema(Box<Schema>),
}

impl Schema {
    /// Reads a schema, which problems call by `name`.
    pub(crate) fn read(name: &str, value: &Value) -> Result<Self, String> {
        let map = value
            .as_object()
            .ok_or_else(|| "a schema is a map".to_owned())?;
        let mut schema = Self {
            name: name.into(),
            ..Self::default()
        };
        for (word, value) in map {
            schema.read_word(name, word, value).ok_or_else(|| {
                format!("the schema's {word} is not known here, or not what it should be")
            })??;
        }
        Ok(schema)
    }

    fn read_word(&mut self, name: &str, word: &str, value: &Value) -> Option<Result<(), String>> {
        let read = |value: &Value| Self::read(name, value);
        match word {
            "description" | "title" => {}
            "type" => {
                self.types = texts(value)
                    .filter(|types| types.iter().all(|name| TYPES.contains(&name.as_str())))?;
            }
            "required" => self.required = texts(value)?,
            "enum" => self.values = Some(value.as_array()?.clone()),
            "pattern" => self.pattern = Some(Regex::new(value.as_str()?).ok()?),
            "items" => match read(value) {
                Ok(items) => self.items = Some(Box::new(items)),
                Err(error) => return Some(Err(error)),
            },
            "properties" => {
                for (key, value) in value.as_object()? {
                    match read(value) {
                        Ok(property) => self.properties.insert(key.clone(), property),
                        Err(error) => return Some(Err(format!("{key}: {error}"))),
                    };
                }
            }
            "additionalProperties" => {
                self.additional = match value {
                    Value::Bool(true) => Additional::Anything,
                    Value::Bool(false) => Additional::Nothing,
                    value => match read(value) {
                        Ok(schema) => Additional::Schema(Box::new(schema)),
                        Err(error) => return Some(Err(error)),
                    },
                };
            }
            word => {
                let bound = BOUNDS.iter().find(|bound| **bound == word)?;
                self.bounds.insert(bound, value.as_f64()?);
            }
        }
        Some(Ok(()))
    }

    /// Checks values; whatever is wrong is a problem of who sets it, what is missing one of `owner`.
    pub(crate) fn check(&self, tree: &Arc<Tree>, owner: &Arc<Source>) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        self.walk(tree, owner, &mut problems);
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }

    fn walk(&self, tree: &Arc<Tree>, owner: &Arc<Source>, problems: &mut Vec<Problem>) {
        let mut fails = |tree: &Tree, what: String, remedy| {
            let origin = &tree.origin;
            problems.push(origin.source.problem(
                ValuePath::clone(&origin.at),
                Rule::Schema {
                    schema: self.name.to_string(),
                    what,
                    remedy,
                },
            ));
        };
        if let Shape::Leaf(Leaf::Template(_) | Leaf::Secret(_)) = tree.shape {
            return;
        }
        if !self.types.is_empty() && !self.types.iter().any(|wanted| is_of(tree, wanted)) {
            let what = format!("is not of type {}", self.types.join(" or "));
            return fails(tree, what, "write a value of that type");
        }
        if let Some(what) = self.leaf(tree) {
            fails(tree, what, "write another value");
        }
        if let Shape::Map(map) = &tree.shape {
            for (key, child) in map {
                if self.is_closed_to(key) {
                    let known: Vec<_> = self.properties.keys().map(String::as_str).collect();
                    let what = format!("is no key that may be set there: {}", known.join(", "));
                    fails(
                        child,
                        what,
                        "correct the key, set it at another level, or open the schema",
                    );
                }
            }
            for key in self
                .required
                .iter()
                .filter(|key| !map.contains_key(key.as_str()))
            {
                problems.push(owner.problem(
                    ValuePath::clone(&tree.origin.at).key(key),
                    Rule::Schema {
                        schema: self.name.to_string(),
                        what: "is set by no level".into(),
                        remedy: "set it",
                    },
                ));
            }
        }
        self.below(tree, owner, problems);
    }

    fn below(&self, tree: &Arc<Tree>, owner: &Arc<Source>, problems: &mut Vec<Problem>) {
        match &tree.shape {
            Shape::Map(map) => {
                for (key, child) in map {
                    let schema = self.properties.get(key.as_ref());
                    match (schema, &self.additional) {
                        (Some(schema), _) => schema.walk(child, owner, problems),
                        (None, Additional::Schema(schema)) => schema.walk(child, owner, problems),
                        (None, Additional::Anything | Additional::Nothing) => {}
                    }
                }
            }
            Shape::List(list) => {
                for child in list {
                    if let Some(schema) = &self.items {
                        schema.walk(child, owner, problems);
                    }
                }
            }
            Shape::Leaf(_) => {}
        }
    }

    fn is_closed_to(&self, key: &str) -> bool {
        matches!(self.additional, Additional::Nothing) && !self.properties.contains_key(key)
    }

    fn leaf(&self, tree: &Arc<Tree>) -> Option<String> {
        let value = match &tree.shape {
            Shape::Leaf(Leaf::Plain(value)) => value.clone(),
            _ if self.values.is_some() => tree.to_value(),
            _ => Value::Null,
        };
        if let Some(values) = self
            .values
            .as_ref()
            .filter(|values| !values.contains(&value))
        {
            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
            return Some(format!("is none of {}", values.join(", ")));
        }
        if let (Some(pattern), Some(text)) = (&self.pattern, value.as_str())
            && !pattern.is_match(text)
        {
            return Some(format!("does not match {pattern}"));
        }
        let sizes = [
            ("minimum", "maximum", value.as_f64()),
            (
                "minLength",
                "maxLength",
                value.as_str().map(|text| count(text.chars().count())),
            ),
            ("minItems", "maxItems", items(tree)),
        ];
        for (least, most, size) in sizes {
            let Some(size) = size else { continue };
            if let Some(bound) = self.bounds.get(least).filter(|bound| size < **bound) {
                return Some(format!("is below its {least} {bound}"));
            }
            if let Some(bound) = self.bounds.get(most).filter(|bound| size > **bound) {
                return Some(format!("is above its {most} {bound}"));
            }
        }
        None
    }
}

fn items(tree: &Tree) -> Option<f64> {
    match &tree.shape {
        Shape::List(list) => Some(count(list.len())),
        _ => None,
    }
}

/// Sizes are far below where this would lose anything.
fn count(size: usize) -> f64 {
    u32::try_from(size).map_or(f64::INFINITY, f64::from)
}

fn is_of(tree: &Tree, wanted: &str) -> bool {
    match &tree.shape {
        Shape::Map(_) => wanted == "object",
        Shape::List(_) => wanted == "array",
        Shape::Leaf(Leaf::Plain(value)) => match value {
            Value::String(_) => wanted == "string",
            Value::Bool(_) => wanted == "boolean",
            Value::Null => wanted == "null",
            Value::Number(number) => {
                wanted == "number" || (wanted == "integer" && !number.is_f64())
            }
            _ => false,
        },
        Shape::Leaf(_) => true,
    }
}

/// One text, or a list of them.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(ToOwned::to_owned))
            .collect(),
        _ => None,
    }
}

const TYPES: [&str; 7] = [
    "object", "array", "string", "boolean", "null", "number", "integer",
];

const BOUNDS: [&str; 6] = [
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];
