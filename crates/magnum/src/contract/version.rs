//! Microversions.

use std::fmt;

use super::Fault;

/// The header that asks for a version and tells which one was taken.
pub const HEADER: &str = "openstack-api-version";
/// The header with the lowest version.
pub const MINIMUM_HEADER: &str = "openstack-api-minimum-version";
/// The header with the highest version.
pub const MAXIMUM_HEADER: &str = "openstack-api-maximum-version";
/// The service's word in answers.
pub const SERVICE: &str = "container-infrastructure-management";

/// What clients may call the service: older ones know the first alone.
const WORDS: [&str; 3] = ["container-infra", "container-infrastructure", SERVICE];

/// A version 1.N, by its N.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version(u8);

impl Version {
    /// The lowest, which is taken where none is asked for.
    pub const MINIMUM: Self = Self(1);
    /// Groups of nodes are served from here on.
    pub const NODE_GROUPS: Self = Self(9);
    /// Clusters are changed by actions: resize.
    pub const RESIZE: Self = Self(7);
    /// And upgrade.
    pub const UPGRADE: Self = Self(8);
    /// A group may be empty.
    pub const EMPTY_GROUPS: Self = Self(10);
    /// Credentials can be rotated.
    pub const CREDENTIALS: Self = Self(12);
    /// `cluster_id` is where `stack_id` was.
    pub const CLUSTER_ID: Self = Self(13);
    /// Groups have labels and taints for their nodes.
    pub const NODE_LABELS: Self = Self(14);
    /// The highest: the newest of these.
    pub const MAXIMUM: Self = Self::NODE_LABELS;

    /// What the header asks for.
    ///
    /// # Errors
    ///
    /// It is not `SERVICE 1.N` or `SERVICE latest`, or the version is not one of these.
    pub fn requested(header: Option<&str>) -> Result<Self, Fault> {
        let Some(header) = header else {
            return Ok(Self::MINIMUM);
        };
        let mut words = header.split_whitespace();
        let (Some(service), Some(version), None) = (words.next(), words.next(), words.next())
        else {
            return Err(Fault::NOT_ACCEPTABLE);
        };
        if !WORDS.contains(&service) {
            return Err(Fault::NOT_ACCEPTABLE);
        }
        if version == "latest" {
            return Ok(Self::MAXIMUM);
        }
        let (major, minor) = version.split_once('.').ok_or(Fault::NOT_ACCEPTABLE)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| Fault::NOT_ACCEPTABLE);
        let (major, minor) = (number(major)?, number(minor)?);
        let minor = u8::try_from(minor).ok().filter(|_| major == 1);
        minor
            .map(Self)
            .filter(|version| (Self::MINIMUM..=Self::MAXIMUM).contains(version))
            .ok_or_else(|| Fault::UnsupportedVersion(version.to_owned()))
    }

    /// Lets a request pass that is served from a version on.
    ///
    /// # Errors
    ///
    /// This version is an earlier one.
    pub fn from_on(self, first: Self) -> Result<(), Fault> {
        if self < first {
            return Err(Fault::NOT_ACCEPTABLE);
        }
        Ok(())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_words_of_the_service_and_no_other_are_taken() {
        for word in WORDS {
            let version = Version::requested(Some(&format!("{word} 1.9"))).unwrap();
            assert_eq!(version, Version::NODE_GROUPS);
        }
        for header in [
            "compute 1.9",
            "container-infra",
            "container-infra 1.9 x",
            "container-infra 1",
            "",
        ] {
            let fault = Version::requested(Some(header)).unwrap_err();
            assert!(matches!(fault, Fault::Blank(_)), "{header}: {fault:?}");
        }
    }

    #[test]
    fn latest_is_the_highest_and_none_the_lowest() {
        let latest = Version::requested(Some("container-infra latest")).unwrap();
        assert_eq!(latest, Version::MAXIMUM);
        assert_eq!(Version::requested(None).unwrap(), Version::MINIMUM);
    }

    #[test]
    fn the_guide_names_the_lowest_and_the_highest() {
        let root = env!("CARGO_MANIFEST_DIR");
        let guide = std::fs::read_to_string(format!("{root}/../../docs/magnum.md")).unwrap();
        let (lowest, highest) = (Version::MINIMUM, Version::MAXIMUM);
        let told = format!("microversions {lowest} to {highest},");
        assert!(guide.contains(&told), "docs/magnum.md does not say {told}");
    }

    #[test]
    fn a_version_that_is_not_served_is_named() {
        for version in ["1.0", "1.15", "2.1", "1.4294967295", "0.3"] {
            let fault = Version::requested(Some(&format!("container-infra {version}")));
            let Err(Fault::UnsupportedVersion(named)) = fault else {
                panic!("{version}: {fault:?}");
            };
            assert_eq!(named, version);
        }
    }
}
