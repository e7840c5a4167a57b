//! One complaint about one field, in the words of the real API server.

use std::fmt;

use serde_json::Value;

/// Why a field is wrong; `Display` gives the reason of a `Status` cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The value breaks a rule.
    Invalid,
    /// The value has another type than the schema wants.
    TypeInvalid,
    /// A required field is absent.
    Required,
    /// The value is not one of the allowed ones.
    NotSupported,
    /// The value occurs twice where it must be unique.
    Duplicate,
    /// The value may not be given.
    Forbidden,
    /// A string is too long.
    TooLong,
    /// A list or a map has too many entries.
    TooMany,
}

impl Reason {
    /// Whether rules make no sense on such a value.
    pub(super) fn blocks_rules(self) -> bool {
        matches!(
            self,
            Self::TypeInvalid | Self::Required | Self::NotSupported | Self::TooLong | Self::TooMany
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        })
    }
}

/// A complaint about one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field: `spec.hosts[0].name`.
    pub path: String,
    /// The class of the complaint.
    pub reason: Reason,
    /// The complaint without the path: `Invalid value: "x": must be lower case`.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "<nil>"
        } else {
            &self.path
        };
        write!(f, "{path}: {}", self.message)
    }
}

impl FieldError {
    /// A value that breaks a rule.
    pub fn invalid(path: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            path,
            Reason::Invalid,
            format!("Invalid value: {}: {detail}", shown(value)),
        )
    }

    /// A value of the wrong type; `detail` already names the type that is wanted.
    pub fn type_invalid(path: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            path,
            Reason::TypeInvalid,
            format!("Invalid value: {}: {detail}", shown(value)),
        )
    }

    /// A required field that is absent.
    pub fn required(path: impl Into<String>, detail: &str) -> Self {
        Self::new(
            path,
            Reason::Required,
            with_detail("Required value", detail),
        )
    }

    /// A value that is not one of `allowed`.
    pub fn not_supported(path: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let listed: Vec<_> = allowed.iter().map(|value| format!("{value:?}")).collect();
        let mut message = format!("Unsupported value: {}", shown(value));
        if !listed.is_empty() {
            message = format!("{message}: supported values: {}", listed.join(", "));
        }
        Self::new(path, Reason::NotSupported, message)
    }

    /// A value that occurs twice.
    pub fn duplicate(path: impl Into<String>, value: &Value) -> Self {
        Self::new(
            path,
            Reason::Duplicate,
            format!("Duplicate value: {}", shown(value)),
        )
    }

    /// A field that may not be given.
    pub fn forbidden(path: impl Into<String>, detail: &str) -> Self {
        Self::new(path, Reason::Forbidden, with_detail("Forbidden", detail))
    }

    /// A string of more than `most` characters; Kubernetes says bytes.
    pub fn too_long(path: impl Into<String>, most: u64) -> Self {
        let unit = if most == 1 { "byte" } else { "bytes" };
        Self::new(
            path,
            Reason::TooLong,
            format!("Too long: may not be more than {most} {unit}"),
        )
    }

    /// A list or map of `actual` entries where at most `most` may be.
    pub fn too_many(path: impl Into<String>, actual: usize, most: u64) -> Self {
        let unit = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {actual}: must have at most {most} {unit}");
        Self::new(path, Reason::TooMany, message)
    }

    pub(super) fn new(path: impl Into<String>, reason: Reason, message: String) -> Self {
        Self {
            path: path.into(),
            reason,
            message,
        }
    }
}

fn with_detail(what: &str, detail: &str) -> String {
    if detail.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {detail}")
    }
}

/// A value as Go's `%q` and `encoding/json` show it: keys sorted.
pub(super) fn shown(value: &Value) -> String {
    crate::canonical::canonical(value)
}
