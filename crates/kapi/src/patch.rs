//! The three patch kinds, with the semantics of the Go libraries that Kubernetes uses.
//!
//! JSON patch there is not RFC 6902 to the letter: `test` with null holds on a missing key, which clients rely on, so
//! the `json-patch` crate does not do.

mod strategic;

use serde_json::{Map, Value};

pub use self::strategic::Kind;

/// Why a patch does not apply.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PatchError {
    /// The patch is not a list of operations, or an operation lacks a part: 400.
    #[error("invalid patch: {0}")]
    Malformed(String),
    /// A `test` does not hold: 422.
    #[error("testing value {0} failed: test failed")]
    Test(String),
    /// A path leads nowhere: 422.
    #[error("{operation} operation does not apply: doc is missing {what}: {path}: missing value")]
    Missing {
        /// The operation's name.
        operation: &'static str,
        /// `path`, `key` or `from`.
        what: &'static str,
        /// The JSON pointer.
        path: String,
    },
    /// An index is outside of its list: 422.
    #[error("unable to access invalid index: {0}: invalid index referenced")]
    Index(String),
    /// More operations than one patch may have: 413.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS}, got {0}")]
    TooMany(usize),
    /// The operations copy more than a request may hold: 422.
    #[error("the copies of the patch are larger than {COPIES} bytes")]
    Copies,
    /// A strategic merge patch whose `$retainKeys` leave out what it changes: 422.
    #[error("{0}")]
    Retained(String),
    /// A strategic merge patch with unknown directives, or lists that do not go with the object's: 500, as in Kubernetes.
    #[error("{0}")]
    Strategic(String),
}

/// Applies a JSON patch.
///
/// # Errors
///
/// An operation that does not apply. A `test` for null on a missing key is *not* one, nor is a `replace` or `add` of a
/// key whose parent exists; removing a missing key is.
pub fn json(object: &Value, operations: &Value) -> Result<Value, PatchError> {
    let operations = operations
        .as_array()
        .ok_or_else(|| PatchError::Malformed("not a list of operations".to_owned()))?;
    if operations.len() > OPERATIONS {
        return Err(PatchError::TooMany(operations.len()));
    }
    let mut result = object.clone();
    let mut copied = 0;
    for operation in operations {
        run(&mut result, operation, &mut copied)?;
    }
    Ok(result)
}

/// Applies a JSON merge patch (RFC 7386).
#[must_use]
pub fn merge(object: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut fields = object.as_object().cloned().unwrap_or_default();
    for (name, change) in changes {
        if change.is_null() {
            fields.shift_remove(name);
        } else {
            let merged = merge(fields.get(name).unwrap_or(&Value::Null), change);
            fields.insert(name.clone(), merged);
        }
    }
    Value::Object(fields)
}

/// Applies a strategic merge patch to an object of a built-in kind.
///
/// # Errors
///
/// Directives that do not fit the object.
pub fn strategic(object: &Value, patch: &Value, kind: Kind) -> Result<Value, PatchError> {
    strategic::apply(object, patch, kind)
}

/// Runs one operation. Copies of copies would take all memory after some forty operations, or be nested so deep that nobody
/// can walk through them, so what goes elsewhere is measured.
fn run(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), PatchError> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let needed = |name: &str| {
        text(name).ok_or_else(|| PatchError::Malformed(format!("operation without {name:?}")))
    };
    let path = needed("path")?;
    let value = || {
        let missing = || PatchError::Malformed("operation without \"value\"".to_owned());
        let value = operation.get("value").ok_or_else(missing)?;
        shallow(path, &Extent::of(value))?;
        Ok(value.clone())
    };
    match needed("op")? {
        "add" => add(document, path, value()?, "add"),
        "replace" => replace(document, path, value()?),
        "remove" => remove(document, path, "remove").map(drop),
        "move" => {
            let from = needed("from")?;
            let moved = remove(document, from, "move")?;
            if steps(path) > steps(from) {
                bounded(path, &moved, copied)?;
            }
            add(document, path, moved, "move")
        }
        "copy" => {
            let value = found(document, needed("from")?, "copy")?.unwrap_or(&Value::Null);
            bounded(path, value, copied)?;
            let value = value.clone();
            add(document, path, value, "copy")
        }
        "test" => test(
            document,
            path,
            operation.get("value").unwrap_or(&Value::Null),
        ),
        other => Err(PatchError::Malformed(format!("unexpected kind: {other}"))),
    }
}

/// Takes the measure of a value that goes to a path.
fn bounded(path: &str, value: &Value, copied: &mut usize) -> Result<(), PatchError> {
    let extent = Extent::of(value);
    *copied += extent.bytes;
    if *copied > COPIES {
        return Err(PatchError::Copies);
    }
    shallow(path, &extent)
}

fn shallow(path: &str, extent: &Extent) -> Result<(), PatchError> {
    if steps(path) + extent.depth > DEEPEST {
        return Err(PatchError::Malformed(format!(
            "the object would be nested deeper than {DEEPEST} levels at {path}"
        )));
    }
    Ok(())
}

/// Whether a value is deeper than what could be read again.
pub(crate) fn too_deep(value: &Value) -> bool {
    Extent::of(value).depth > DEEPEST
}

fn steps(path: &str) -> usize {
    path.matches('/').count()
}

/// How large a value is: about its bytes in JSON, and how deep it goes.
struct Extent {
    bytes: usize,
    depth: usize,
}

impl Extent {
    fn of(value: &Value) -> Self {
        let (own, inner) = match value {
            Value::String(text) => (text.len() + 2, Vec::new()),
            Value::Array(items) => (items.len() + 2, items.iter().collect()),
            Value::Object(fields) => {
                let names = fields.keys().map(|name| name.len() + 4).sum::<usize>();
                (names + 2, fields.values().collect())
            }
            _ => (5, Vec::new()),
        };
        inner.into_iter().map(Self::of).fold(
            Self {
                bytes: own,
                depth: 1,
            },
            |all, one| Self {
                bytes: all.bytes + one.bytes,
                depth: all.depth.max(one.depth + 1),
            },
        )
    }
}

/// A missing key equals null as long as its parent exists.
fn test(document: &mut Value, path: &str, wanted: &Value) -> Result<(), PatchError> {
    let actual = found(document, path, "test")?;
    if actual.unwrap_or(&Value::Null) == wanted {
        Ok(())
    } else {
        Err(PatchError::Test(path.to_owned()))
    }
}

/// The value at a pointer whose parent exists; none for a missing key.
fn found<'a>(
    document: &'a mut Value,
    path: &str,
    operation: &'static str,
) -> Result<Option<&'a Value>, PatchError> {
    if path.is_empty() {
        return Ok(Some(document));
    }
    Ok(match parent(document, path, operation)? {
        None => None,
        Some((Value::Array(items), key)) => {
            let at = index(&key, items.len())?;
            Some(items.get(at).ok_or(PatchError::Index(key))?)
        }
        Some((other, key)) => other.get(&key),
    })
}

fn add(
    document: &mut Value,
    path: &str,
    value: Value,
    operation: &'static str,
) -> Result<(), PatchError> {
    match parent(document, path, operation)? {
        None => *document = value,
        Some((Value::Array(items), key)) => {
            if key == "-" {
                items.push(value);
                return Ok(());
            }
            // One more than the last is allowed; -1 counts from there.
            let at = index(&key, items.len() + 1)?;
            if at > items.len() {
                return Err(PatchError::Index(key));
            }
            items.insert(at, value);
        }
        Some((Value::Object(fields), key)) => {
            fields.insert(key, value);
        }
        Some(_) => return Err(missing(operation, "path", path)),
    }
    Ok(())
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    match parent(document, path, "replace")? {
        None => *document = value,
        Some((Value::Array(items), key)) => {
            let at = index(&key, items.len())?;
            *items.get_mut(at).ok_or(PatchError::Index(key))? = value;
        }
        Some((Value::Object(fields), key)) => {
            fields.insert(key, value);
        }
        Some(_) => return Err(missing("replace", "path", path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, operation: &'static str) -> Result<Value, PatchError> {
    match parent(document, path, operation)? {
        Some((Value::Array(items), key)) => {
            let at = index(&key, items.len())?;
            if at >= items.len() {
                return Err(PatchError::Index(key));
            }
            Ok(items.remove(at))
        }
        Some((Value::Object(fields), key)) => fields
            .shift_remove(&key)
            .ok_or_else(|| missing(operation, "path", path)),
        _ => Err(missing(operation, "path", path)),
    }
}

/// The container of the last step of a pointer, and that step; none for the whole document.
fn parent<'a>(
    document: &'a mut Value,
    path: &str,
    operation: &'static str,
) -> Result<Option<(&'a mut Value, String)>, PatchError> {
    let Some((head, last)) = path.rsplit_once('/') else {
        return if path.is_empty() {
            Ok(None)
        } else {
            Err(missing(operation, "path", path))
        };
    };
    let unescaped = |step: &str| step.replace("~1", "/").replace("~0", "~");
    let mut container = document;
    for step in head.split('/').skip(1) {
        let key = unescaped(step);
        let next = match container {
            Value::Array(items) => {
                let at = index(&key, items.len())?;
                items.get_mut(at)
            }
            other => other.get_mut(&key),
        };
        container = next.ok_or_else(|| missing(operation, "path", path))?;
    }
    if !container.is_object() && !container.is_array() {
        return Err(missing(operation, "path", path));
    }
    Ok(Some((container, unescaped(last))))
}

/// An index; negative ones count from the end.
fn index(key: &str, length: usize) -> Result<usize, PatchError> {
    let wrong = || PatchError::Index(key.to_owned());
    match key.strip_prefix('-') {
        Some(back) => {
            let back: usize = back.parse().map_err(|_| wrong())?;
            length
                .checked_sub(back)
                .filter(|_| back > 0)
                .ok_or_else(wrong)
        }
        None => key.parse().map_err(|_| wrong()),
    }
}

fn missing(operation: &'static str, what: &'static str, path: &str) -> PatchError {
    PatchError::Missing {
        operation,
        what,
        path: path.to_owned(),
    }
}

pub(crate) type Fields = Map<String, Value>;

/// As many as Kubernetes takes.
const OPERATIONS: usize = 10_000;

/// Kubernetes' `JSONPatchMaxCopyBytes`.
const COPIES: usize = 3 * 1024 * 1024;

/// As deep as bodies are read.
pub(crate) const DEEPEST: usize = 127;
