//! One stored object: its JSON, and the metadata that reads decide by.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use serde_json::Value;

use super::{
    StoredKind, lock,
    packed::{Damaged, Packed, Text},
};

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
    pub uid: Arc<str>,
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub block: bool,
}

/// The part of the metadata that is kept parsed.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    pub uid: Arc<str>,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Values of the kind's selectable fields, in its order; an absent field is empty.
    pub fields: Box<[Box<str>]>,
    pub owners: Box<[Owner]>,
    pub finalizers: Box<[Box<str>]>,
    pub deleting: bool,
}

/// One version of an object; immutable and shared.
#[derive(Debug)]
pub(crate) struct Object {
    pub key: Key,
    pub revision: u64,
    pub meta: Meta,
    packed: Packed,
    /// As it was written, where reading made something else of it. It is what the next change of its kind reads.
    written: Option<Packed>,
    /// As it is sent, while it is new: then whoever wrote it and all who watch want it at once.
    fresh: Mutex<Fresh>,
}

/// What is kept of an object beside its packed form.
#[derive(Debug, Default)]
enum Fresh {
    #[default]
    Settled,
    /// Nobody has wanted it yet: the writer has more urgent things to do.
    Text(Text),
    Json(Bytes),
}

impl Object {
    /// An object out of the store, as its kind reads it.
    pub fn read(
        key: Key,
        revision: u64,
        stored: &Packed,
        kind: &StoredKind,
    ) -> Result<Self, Damaged> {
        let mut value: Value = serde_json::from_slice(&stored.json(revision)?)?;
        let (mut packed, mut written) = (stored.clone(), None);
        if let Some(read) = &kind.read {
            let before = value.clone();
            read.0(&mut value);
            if value != before {
                written = Some(packed);
                packed = Text::new(&value).pack();
            }
        }
        Ok(Self {
            key,
            revision,
            meta: meta(&value, &kind.fields),
            packed,
            written,
            fresh: Mutex::default(),
        })
    }

    /// As the backend has it.
    pub fn written(&self) -> &Packed {
        self.written.as_ref().unwrap_or(&self.packed)
    }

    /// The object as it is sent.
    pub fn json(&self) -> Bytes {
        let mut fresh = lock(&self.fresh);
        if let Fresh::Text(text) = &*fresh {
            *fresh = Fresh::Json(text.at(self.revision).into());
        }
        if let Fresh::Json(json) = &*fresh {
            return json.clone();
        }
        drop(fresh);
        // It was packed here, or read as a whole when it was loaded.
        self.packed.json(self.revision).unwrap_or_default().into()
    }

    /// How long [`Self::json`] is.
    pub fn json_len(&self) -> usize {
        self.packed.len_at(self.revision)
    }

    /// How much is kept of it.
    pub fn size(&self) -> usize {
        self.packed.as_bytes().len()
    }

    /// From now on it is unpacked for whoever wants it.
    pub fn settle(&self) {
        *lock(&self.fresh) = Fresh::Settled;
    }

    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json()).unwrap_or(Value::Null)
    }
}

/// An object that only lacks its revision.
#[derive(Debug)]
pub(crate) struct Draft {
    text: Text,
    packed: Packed,
    meta: Meta,
    epoch: u64,
}

impl Draft {
    pub fn new(value: &Value, fields: &[String]) -> Self {
        let text = Text::new(value);
        Self {
            packed: text.pack(),
            text,
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
        self.text.len()
    }

    pub fn finish(self, key: Key, revision: u64) -> Object {
        Object {
            key,
            revision,
            meta: self.meta,
            packed: self.packed,
            written: None,
            fresh: Mutex::new(Fresh::Text(self.text)),
        }
    }
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
        let value = reference.get(name).and_then(Value::as_str);
        value.unwrap_or_default()
    };
    Owner {
        uid: text("uid").into(),
        api_version: text("apiVersion").into(),
        kind: text("kind").into(),
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
