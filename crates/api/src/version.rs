//! Versions of kubespray and Kubernetes.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of a version by which a newer one differs, the smallest first.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum VersionPart {
    /// The third number.
    Patch,
    /// The second number.
    Minor,
    /// The first number.
    Major,
}

/// Why a text is not a version.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("version {0:?} is not MAJOR.MINOR.PATCH: write three numbers, for example 1.34.3")]
pub struct InvalidVersion(String);

macro_rules! version {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name {
            /// The first number.
            pub major: u16,
            /// The second number.
            pub minor: u16,
            /// The third number.
            pub patch: u16,
        }

        impl $name {
            /// A version from its three numbers.
            pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
                Self { major, minor, patch }
            }

            /// The part by which this version is newer than another one, if it is.
            pub fn newer_by(self, than: Self) -> Option<VersionPart> {
                let part = match self {
                    Self { major, .. } if major != than.major => VersionPart::Major,
                    Self { minor, .. } if minor != than.minor => VersionPart::Minor,
                    _ => VersionPart::Patch,
                };
                (self > than).then_some(part)
            }
        }

        impl FromStr for $name {
            type Err = InvalidVersion;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let [major, minor, patch] =
                    parse(text).ok_or_else(|| InvalidVersion(text.to_owned()))?;
                Ok(Self { major, minor, patch })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
            }
        }

        crate::schema::string_newtype!(
            $name,
            "MAJOR.MINOR.PATCH; a leading v is accepted.",
            r"^v?[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$",
            16
        );
    };
}

version!(
    /// A Kubernetes version, shown without the leading `v`.
    KubernetesVersion
);
version!(
    /// A kubespray release, shown without the leading `v`.
    KubesprayVersion
);

fn parse(text: &str) -> Option<[u16; 3]> {
    let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
    let mut number = || {
        let part = parts.next()?;
        let plain = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| part.parse().ok()).flatten()
    };
    let numbers = [number()?, number()?, number()?];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leading_v_is_accepted_and_not_shown() {
        for text in ["1.34.3", "v1.34.3"] {
            assert_eq!(
                text.parse::<KubernetesVersion>().unwrap().to_string(),
                "1.34.3"
            );
        }
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |text: &str| text.parse::<KubernetesVersion>().unwrap();
        assert!(version("1.9.10") < version("1.34.3") && version("1.34.3") < version("1.34.10"));
    }

    #[test]
    fn a_newer_version_differs_by_its_greatest_part() {
        let version = |text: &str| text.parse::<KubernetesVersion>().unwrap();
        for (newer, than, part) in [
            ("1.34.3", "1.34.1", Some(VersionPart::Patch)),
            ("1.34.0", "1.33.9", Some(VersionPart::Minor)),
            ("2.0.0", "1.34.3", Some(VersionPart::Major)),
            ("1.34.3", "1.34.3", None),
            ("1.33.9", "1.34.0", None),
        ] {
            let found = version(newer).newer_by(version(than));
            assert_eq!(found, part, "{newer} after {than}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "1",
            "1.34",
            "1.34.3.4",
            "1.34.x",
            "latest",
            "1.34.-3",
            "+1.3.4",
            "1.34.3-rc.1",
        ] {
            assert!(text.parse::<KubesprayVersion>().is_err(), "{text}");
        }
    }
}
