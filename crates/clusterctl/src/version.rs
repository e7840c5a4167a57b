//! Versions of providers: semantic ones, with a leading v.

use std::{fmt, str::FromStr};

use api::VersionPart;

/// A version of a provider, which shows with a leading v.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(semver::Version);

/// Why a text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "version {0:?} is not a semantic version with a leading v; write it as its release is called, such as v1.14.2"
)]
pub struct InvalidVersion(String);

impl Version {
    /// The first number.
    pub fn major(&self) -> u64 {
        self.0.major
    }

    /// The second number.
    pub fn minor(&self) -> u64 {
        self.0.minor
    }

    pub(crate) const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(semver::Version::new(major, minor, patch))
    }

    /// The part by which this version is newer than another one, if it is.
    pub fn newer_by(&self, than: &Self) -> Option<VersionPart> {
        let part = if self.0.major != than.0.major {
            VersionPart::Major
        } else if self.0.minor != than.0.minor {
            VersionPart::Minor
        } else {
            VersionPart::Patch
        };
        (self > than).then_some(part)
    }

    /// Whether it is one before a release, as `v1.14.0-rc.1` is.
    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }
}

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidVersion(text.chars().take(80).collect());
        let numbers = text.strip_prefix('v').ok_or_else(invalid)?;
        semver::Version::parse(numbers)
            .map(Self)
            .map_err(|_| invalid())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_semantic_ones() {
        let ordered = [
            "v0.9.0",
            "v0.10.0-alpha.1",
            "v0.10.0-rc.2",
            "v0.10.0-rc.10",
            "v0.10.0",
            "v1.14.2",
        ];
        let ordered = ordered.map(|text| text.parse::<Version>().unwrap());
        assert!(ordered.is_sorted());
        assert_eq!(
            ordered.map(|version| version.is_prerelease()),
            [false, true, true, true, false, false]
        );
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in [
            "",
            "v",
            "1.2.3",
            "v1.2",
            "v1.2.3.4",
            "v01.2.3",
            "latest",
            "v1.2.3 ",
            "v1.2.3/../..",
            "vv1.2.3",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }
}
