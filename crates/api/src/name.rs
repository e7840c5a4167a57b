//! Host names.

use std::{fmt, str::FromStr};

/// The name of a host as Kubernetes and kubespray accept it: a lower-case RFC 1123 subdomain of at most 253 characters,
/// each label at most 63.
///
/// # Source
/// RFC 1123 section 2.1; kubespray `roles/validate_inventory`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostName(String);

/// Why a text is not a host name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "host name {0:?} is not RFC 1123: use lower-case letters, digits, '-' and '.', begin and end each label with a \
     letter or digit, at most 63 characters a label and 253 in all"
)]
pub struct InvalidHostName(String);

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = InvalidHostName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = text.len() <= 253 && text.split('.').all(is_label);
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidHostName(text.to_owned()))
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::schema::string_newtype!(
    HostName,
    "A lower-case RFC 1123 host name.",
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$",
    253
);

fn is_label(label: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = label.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_rfc_1123_accepts() {
        for name in [
            "a",
            "master-1",
            "10-0-0-1",
            "node.example.com",
            &"a".repeat(63),
        ] {
            assert!(name.parse::<HostName>().is_ok(), "{name}");
        }
    }

    #[test]
    fn names_the_value_and_the_rule() {
        for name in [
            "",
            "Master",
            "a_b",
            "-a",
            "a-",
            "a..b",
            ".a",
            "ä",
            &"a".repeat(64),
            &"a.".repeat(127),
        ] {
            let error = name.parse::<HostName>().expect_err(name);
            assert!(error.to_string().contains("RFC 1123"), "{error}");
        }
    }
}
