//! Patches of rendered objects: `manifestPatches` and `patches` of the existing operator's custom resources.
//!
//! The older ones are merge patches (RFC 7396) that name their object in themselves. The newer ones have a target beside them and
//! are a merge patch where they are a mapping, or a JSON patch (RFC 6902) where they are a list. What upstream calls a strategic
//! merge is a merge patch there too: a list in it replaces the whole list.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    Object,
    object::Lack,
    selector::{InvalidSelector, Selector},
};

/// Which objects a merge patch that names its object in itself is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// What the documentation of the existing operator says: kind, and apiVersion, name and namespace where the patch has them.
    #[default]
    Documented,
    /// What the existing operator does: kind and name; a patch without apiVersion is for no object, one with any is for all
    /// versions; the namespace is not looked at.
    Existing,
}

/// A merge patch that names its object in itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestPatch(Value);

/// A patch with a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    target: Target,
    change: Change,
}

/// What a patch with a target is for: the objects that have all of these. None of them is every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchTarget {
    /// The group.
    pub group: Option<String>,
    /// The version in its group.
    pub version: Option<String>,
    /// The kind.
    pub kind: Option<String>,
    /// The name.
    pub name: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// Labels, as in `app=a,tier in (b, c)`.
    pub label_selector: Option<String>,
}

/// A patch that cannot be read or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Not YAML.
    #[error("the patch is no YAML at line {line}, column {column}; mend it there")]
    Parse {
        /// The line, from 1; 0 where it is unknown.
        line: u64,
        /// The column, from 1; 0 where it is unknown.
        column: u64,
    },
    /// Neither a mapping nor a list.
    #[error(
        "the patch is {0}; write a mapping for a merge patch, or a list of operations for a JSON patch"
    )]
    Form(&'static str),
    /// A merge patch that names no object.
    #[error(
        "the patch has no kind; a patch of manifestPatches names its object by kind, apiVersion and metadata.name"
    )]
    NoKind,
    /// Operations that are none.
    #[error("the list is no JSON patch: {0}; each entry has op, path and what the op needs")]
    Operations(String),
    /// A list of no operations.
    #[error("the list has no operations; write one, or remove the patch")]
    Empty,
    /// More operations than are looked at.
    #[error("the list has {0} operations; {MOST} are the most: write several patches")]
    Many(usize),
    /// Labels that select nothing.
    #[error("labelSelector: {0}")]
    Selector(InvalidSelector),
    /// Operations that an object does not bear.
    #[error("the patch cannot be applied to {object}: {why}")]
    Apply {
        /// The object.
        object: String,
        /// What is missing or different.
        why: String,
    },
    /// What is left is no object.
    #[error("the patch makes no object of {object}: {lack}")]
    Object {
        /// The object.
        object: String,
        /// What it lacks afterwards.
        lack: Lack,
    },
}

/// How many objects a patch changed or would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Matched(pub usize);

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Merge(Value),
    Operations(json_patch::Patch),
}

#[derive(Clone, Debug, PartialEq)]
struct Target {
    fields: PatchTarget,
    labels: Option<Selector>,
}

impl ManifestPatch {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// Text that is no such patch.
    pub fn parse(text: &str) -> Result<Self, PatchError> {
        let patch = parse(text)?;
        if !patch.is_object() {
            return Err(PatchError::Form(form(&patch)));
        }
        let kind = patch.get("kind").and_then(Value::as_str);
        if kind.is_none_or(str::is_empty) {
            return Err(PatchError::NoKind);
        }
        Ok(Self(patch))
    }

    /// Merges it into the objects that it is for.
    ///
    /// # Errors
    ///
    /// An object that would be none.
    pub fn apply(&self, objects: &mut [Object], matching: Matching) -> Result<Matched, PatchError> {
        let mut matched = 0;
        for object in objects
            .iter_mut()
            .filter(|object| self.is_for(object, matching))
        {
            change(object, |value| {
                json_patch::merge(value, &self.0);
                Ok(())
            })?;
            matched += 1;
        }
        Ok(Matched(matched))
    }

    fn is_for(&self, object: &Object, matching: Matching) -> bool {
        let wanted = |pointer: &str| {
            let wanted = self.0.pointer(pointer).and_then(Value::as_str);
            wanted.filter(|text| !text.is_empty())
        };
        let has = |pointer: &str| object.value().pointer(pointer).and_then(Value::as_str);
        let fits =
            |pointer: &str| wanted(pointer).is_none_or(|wanted| has(pointer) == Some(wanted));
        let is_named = fits("/kind") && fits("/metadata/name");
        match matching {
            Matching::Documented => is_named && fits("/apiVersion") && fits("/metadata/namespace"),
            Matching::Existing => is_named && wanted("/apiVersion").is_some(),
        }
    }
}

impl Patch {
    /// Reads one and its target.
    ///
    /// # Errors
    ///
    /// Text that is no patch, and labels that select nothing.
    pub fn parse(text: &str, target: &PatchTarget) -> Result<Self, PatchError> {
        let patch = parse(text)?;
        let change = match patch {
            Value::Object(_) => Change::Merge(patch),
            Value::Array(entries) if entries.is_empty() => return Err(PatchError::Empty),
            Value::Array(_) => {
                let operations: json_patch::Patch = serde_json::from_value(patch)
                    .map_err(|error| PatchError::Operations(error.to_string()))?;
                if operations.0.len() > MOST {
                    return Err(PatchError::Many(operations.0.len()));
                }
                Change::Operations(operations)
            }
            other => return Err(PatchError::Form(form(&other))),
        };
        let labels = target
            .label_selector
            .as_deref()
            .filter(|text| !text.is_empty());
        let labels = labels
            .map(str::parse)
            .transpose()
            .map_err(PatchError::Selector)?;
        let target = Target {
            fields: target.clone(),
            labels,
        };
        Ok(Self { target, change })
    }

    /// Changes the objects that it is for.
    ///
    /// # Errors
    ///
    /// Operations that an object does not bear, and an object that would be none.
    pub fn apply(&self, objects: &mut [Object]) -> Result<Matched, PatchError> {
        let mut matched = 0;
        for object in objects.iter_mut().filter(|object| self.target.is(object)) {
            change(object, |value| match &self.change {
                Change::Merge(patch) => {
                    json_patch::merge(value, patch);
                    Ok(())
                }
                Change::Operations(operations) => operate(value, operations),
            })?;
            matched += 1;
        }
        Ok(Matched(matched))
    }
}

impl Target {
    fn is(&self, object: &Object) -> bool {
        let PatchTarget {
            group,
            version,
            kind,
            name,
            namespace,
            label_selector: _,
        } = &self.fields;
        let fits = |wanted: &Option<String>, has: &str| {
            wanted
                .as_deref()
                .is_none_or(|wanted| wanted.is_empty() || wanted == has)
        };
        fits(group, object.group())
            && fits(version, object.version())
            && fits(kind, object.kind())
            && fits(name, object.name())
            && fits(namespace, object.namespace())
            && self
                .labels
                .as_ref()
                .is_none_or(|labels| labels.matches(|label| object.label(label)))
    }
}

impl fmt::Display for Matched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", self.0)
    }
}

fn parse(text: &str) -> Result<Value, PatchError> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let location = error.location();
        PatchError::Parse {
            line: location.map_or(0, |location| location.line()),
            column: location.map_or(0, |location| location.column()),
        }
    })
}

/// Changes a copy, so that an object is as it was where the change fails.
fn change(
    object: &mut Object,
    change: impl FnOnce(&mut Value) -> Result<(), String>,
) -> Result<(), PatchError> {
    let title = object.title();
    let mut value = object.value().clone();
    change(&mut value).map_err(|why| PatchError::Apply {
        object: title.clone(),
        why,
    })?;
    *object = Object::new(value).map_err(|lack| PatchError::Object {
        object: title,
        lack,
    })?;
    Ok(())
}

/// One by one, for each can double what there is or how deep it is.
fn operate(value: &mut Value, operations: &json_patch::Patch) -> Result<(), String> {
    for operation in &operations.0 {
        json_patch::patch(value, std::slice::from_ref(operation))
            .map_err(|error| error.to_string())?;
        let Extent { bytes, depth } = Extent::of(value);
        if bytes > HEAVIEST || depth > DEEPEST {
            return Err(format!(
                "it makes the object larger than {HEAVIEST} bytes or deeper than {DEEPEST} levels; add less"
            ));
        }
    }
    Ok(())
}

/// How much a value is.
struct Extent {
    /// About as many as it takes.
    bytes: usize,
    depth: usize,
}

impl Extent {
    fn of(value: &Value) -> Self {
        let around = |inner: &mut dyn Iterator<Item = Self>| {
            let outer = Self {
                bytes: 16,
                depth: 1,
            };
            inner.fold(outer, |outer, inner| Self {
                bytes: outer.bytes.saturating_add(inner.bytes),
                depth: outer.depth.max(inner.depth.saturating_add(1)),
            })
        };
        match value {
            Value::Array(entries) => around(&mut entries.iter().map(Self::of)),
            Value::Object(fields) => around(&mut fields.iter().map(|(name, value)| {
                let Self { bytes, depth } = Self::of(value);
                Self {
                    bytes: bytes.saturating_add(name.len()),
                    depth,
                }
            })),
            Value::String(text) => Self {
                bytes: text.len(),
                depth: 1,
            },
            _ => Self { bytes: 8, depth: 1 },
        }
    }
}

fn form(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
        _ => "a single value",
    }
}

/// No API server stores an object that is larger than some 1.5 MB.
const HEAVIEST: usize = 8 << 20;

/// Schemas of CRDs are some 60 levels deep.
const DEEPEST: usize = 200;

/// Each costs a walk through the object.
const MOST: usize = 1000;
