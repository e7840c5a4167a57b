//! Versions of kubespray and Kubernetes.

use std::{fmt, str::FromStr};

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
