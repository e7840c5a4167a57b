//! Names of what the steps of a run work on.

use std::{fmt, str::FromStr};

use crate::HostName;

/// What a step works on: a host, a release, an object. A name of lower-case letters, digits, `-` and `.`, alone or below a
/// namespace as `NAMESPACE/NAME`. What it names is the engine's affair.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Target(String);

/// Why a text is not the name of a target.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "target {0:?} is neither NAME nor NAMESPACE/NAME: use lower-case letters, digits, '-' and '.', begin and end each \
     part with a letter or digit, at most 253 characters in all"
)]
pub struct InvalidTarget(String);

impl Target {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(2, '/');
        if text.len() <= 253 && parts.all(is_name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidTarget(text.to_owned()))
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&HostName> for Target {
    fn from(host: &HostName) -> Self {
        Self(host.as_str().to_owned())
    }
}

impl PartialEq<HostName> for Target {
    fn eq(&self, host: &HostName) -> bool {
        self.0 == host.as_str()
    }
}

crate::schema::string_newtype!(
    Target,
    "NAME or NAMESPACE/NAME of what a step works on.",
    r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$",
    253
);

fn is_name(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    let within = |b: &u8| edge(Some(b)) || matches!(b, b'-' | b'.');
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_name_or_a_name_below_a_namespace() {
        for name in ["a", "node-1.example.com", "fleet/site-1"] {
            assert!(name.parse::<Target>().is_ok(), "{name}");
        }
        for name in ["", "A", "a/", "/a", "a/b/c", "-a", "a\n", &"a".repeat(254)] {
            let error = name.parse::<Target>().expect_err(name);
            assert!(error.to_string().contains("NAMESPACE/NAME"), "{error}");
        }
    }
}
