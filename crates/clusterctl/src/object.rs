//! A Kubernetes object of any kind, read and changed by path.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A Kubernetes object. It has an apiVersion, a kind and a name; everything else is as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Object(Value);

/// What an object lacks to be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// It is a list, a number, a text.
    #[error("it is no mapping; an object of Kubernetes is one")]
    Mapping,
    /// A field that each object has.
    #[error("{field} is {value}; each object has one, a text that is not empty")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// Labels or annotations that are no texts.
    #[error("{field} is {value}, which is no mapping of texts; put its values in quotes")]
    Texts {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A namespace that is none.
    #[error(
        "metadata.namespace is {value}, which is no text; write the name of a namespace or leave it out"
    )]
    Namespace {
        /// Its value.
        value: String,
    },
}

impl Object {
    /// An object from its value.
    ///
    /// # Errors
    ///
    /// What it lacks to be one.
    pub fn new(value: Value) -> Result<Self, Lack> {
        if !value.is_object() {
            return Err(Lack::Mapping);
        }
        for (field, pointer) in [
            ("apiVersion", "/apiVersion"),
            ("kind", "/kind"),
            ("metadata.name", "/metadata/name"),
        ] {
            let found = value.pointer(pointer).unwrap_or(&Value::Null);
            if found.as_str().is_none_or(str::is_empty) {
                let value = shown(found);
                return Err(Lack::Field { field, value });
            }
        }
        for (field, pointer) in [
            ("metadata.labels", "/metadata/labels"),
            ("metadata.annotations", "/metadata/annotations"),
        ] {
            let found = value.pointer(pointer).unwrap_or(&Value::Null);
            let is_fine = match found {
                Value::Null => true,
                Value::Object(texts) => texts.values().all(Value::is_string),
                _ => false,
            };
            if !is_fine {
                let value = shown(found);
                return Err(Lack::Texts { field, value });
            }
        }
        match value.pointer("/metadata/namespace") {
            None | Some(Value::Null | Value::String(_)) => Ok(Self(value)),
            Some(other) => Err(Lack::Namespace {
                value: shown(other),
            }),
        }
    }

    /// The whole of it.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The whole of it.
    pub fn into_value(self) -> Value {
        self.0
    }

    /// The kind, as in `Deployment`.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// The group, empty for the first one.
    pub fn group(&self) -> &str {
        let version = self.text("/apiVersion");
        version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version in its group.
    pub fn version(&self) -> &str {
        let version = self.text("/apiVersion");
        version
            .split_once('/')
            .map_or(version, |(_, version)| version)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// The namespace, empty where it says none.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.0.get("metadata")?.get("labels")?.get(name)?.as_str()
    }

    /// Its kind and its name, as people write them.
    pub fn title(&self) -> String {
        match self.namespace() {
            "" => format!("{} {}", self.kind(), self.name()),
            namespace => format!("{} {namespace}/{}", self.kind(), self.name()),
        }
    }

    pub(crate) fn value_mut(&mut self) -> &mut Value {
        &mut self.0
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        self.set("name", name);
    }

    pub(crate) fn set_namespace(&mut self, namespace: &str) {
        self.set("namespace", namespace);
    }

    pub(crate) fn set_label(&mut self, name: &str, value: &str) {
        self.set_text("labels", name, value);
    }

    pub(crate) fn set_annotation(&mut self, name: &str, value: &str) {
        self.set_text("annotations", name, value);
    }

    fn set(&mut self, field: &str, text: &str) {
        if let Some(metadata) = self.0.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(field.to_owned(), json!(text));
        }
    }

    fn set_text(&mut self, field: &str, name: &str, value: &str) {
        let Some(metadata) = self.0.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        let texts = metadata.entry(field).or_insert(Value::Null);
        if texts.is_null() {
            *texts = Value::Object(Map::new());
        }
        if let Some(texts) = texts.as_object_mut() {
            texts.insert(name.to_owned(), json!(value));
        }
    }

    fn text(&self, pointer: &str) -> &str {
        self.0
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// A value in a message: nothing of it where it could be long or secret.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "missing".to_owned(),
        Value::String(_) => "an empty text".to_owned(),
        Value::Bool(_) => "true or false".to_owned(),
        Value::Number(_) => "a number".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping with other values".to_owned(),
    }
}
