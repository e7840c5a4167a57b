//! One stored object: its JSON as bytes, and the metadata that reads decide by.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::StoredKind;

/// Where an object is: its namespace (empty for cluster-scoped kinds) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// A reference to the owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub uid: Box<str>,
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub block: bool,
}

/// The part of the metadata that is kept parsed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meta {
    pub uid: Box<str>,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Values of the kind's selectable fields, in its order; an absent field is empty.
    pub fields: Box<[Box<str>]>,
    pub owners: Box<[Owner]>,
    pub finalizers: Box<[Box<str>]>,
    pub deleting: bool,
}

/// One version of an object; immutable and shared.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub key: Key,
    pub revision: u64,
    pub meta: Meta,
    pub bytes: Bytes,
    /// As it was written, where reading made something else of it. It is what the next change of its kind reads.
    pub written: Option<Bytes>,
}

impl Object {
    /// An object out of the store, as its kind reads it.
    pub fn read(
        key: Key,
        revision: u64,
        bytes: Bytes,
        kind: &StoredKind,
    ) -> Result<Self, serde_json::Error> {
        let mut value: Value = serde_json::from_slice(&bytes)?;
        let (mut bytes, mut written) = (bytes, None);
        if let Some(read) = &kind.read {
            let before = value.clone();
            read.0(&mut value);
            if value != before {
                written = Some(bytes);
                bytes = serde_json::to_vec(&value)?.into();
            }
        }
        Ok(Self {
            key,
            revision,
            meta: meta(&value, &kind.fields),
            bytes,
            written,
        })
    }

    /// As the backend has it.
    pub fn written(&self) -> &Bytes {
        self.written.as_ref().unwrap_or(&self.bytes)
    }

    /// The object as a value. What is stored was written by [`Draft`], so it is JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or(Value::Null)
    }
}

/// An object that only lacks its revision: serialised around the place where it goes.
#[derive(Debug)]
pub(crate) struct Draft {
    head: Vec<u8>,
    tail: Vec<u8>,
    meta: Meta,
    epoch: u64,
}

impl Draft {
    pub fn new(value: &Value, fields: &[String]) -> Self {
        let empty = Map::new();
        let object = value.as_object().unwrap_or(&empty);
        let mut head = b"{".to_vec();
        for name in ["apiVersion", "kind"] {
            if let Some(value) = object.get(name) {
                head.extend_from_slice(format!("\"{name}\":{value},").as_bytes());
            }
        }
        head.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
        let mut tail = b"\"".to_vec();
        let metadata = object.get("metadata").and_then(Value::as_object);
        for (name, value) in metadata.unwrap_or(&empty) {
            if name != "resourceVersion" {
                member(&mut tail, name, value);
            }
        }
        tail.push(b'}');
        for (name, value) in object {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                member(&mut tail, name, value);
            }
        }
        tail.push(b'}');
        Self {
            head,
            tail,
            meta: meta(value, fields),
            epoch: 0,
        }
    }

    /// Notes as what its kind was when it was made; see [`super::Opened`].
    pub fn of_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    pub fn finish(self, key: Key, revision: u64) -> Object {
        let revision_text = revision.to_string();
        let mut bytes = Vec::with_capacity(self.len() + revision_text.len());
        bytes.extend_from_slice(&self.head);
        bytes.extend_from_slice(revision_text.as_bytes());
        bytes.extend_from_slice(&self.tail);
        Object {
            key,
            revision,
            meta: self.meta,
            bytes: bytes.into(),
            written: None,
        }
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: &Value) {
    out.push(b',');
    // Writing JSON into a vector cannot fail: there is no I/O, and keys of a value are strings.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

fn meta(value: &Value, fields: &[String]) -> Meta {
    let metadata = value.get("metadata");
    let text = |name: &str| metadata?.get(name)?.as_str();
    let list = |name: &str| {
        metadata
            .and_then(|metadata| metadata.get(name))
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    };
    Meta {
        uid: text("uid").unwrap_or_default().into(),
        labels: metadata
            .and_then(|metadata| metadata.get("labels"))
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
            .collect(),
        fields: fields.iter().map(|path| field(value, path)).collect(),
        owners: list("ownerReferences").iter().map(owner).collect(),
        finalizers: list("finalizers")
            .iter()
            .filter_map(|finalizer| Some(finalizer.as_str()?.into()))
            .collect(),
        deleting: text("deletionTimestamp").is_some(),
    }
}

fn owner(reference: &Value) -> Owner {
    let text = |name: &str| {
        reference
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .into()
    };
    Owner {
        uid: text("uid"),
        api_version: text("apiVersion"),
        kind: text("kind"),
        block: reference.get("blockOwnerDeletion") == Some(&Value::Bool(true)),
    }
}

/// The text of the field at a dotted path, as field selectors compare it.
fn field(value: &Value, path: &str) -> Box<str> {
    let found = path
        .split('.')
        .filter(|step| !step.is_empty())
        .try_fold(value, |value, step| value.get(step));
    match found {
        Some(Value::String(text)) => text.as_str().into(),
        None | Some(Value::Null | Value::Object(_) | Value::Array(_)) => "".into(),
        Some(scalar) => scalar.to_string().into(),
    }
}
