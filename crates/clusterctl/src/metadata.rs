//! `metadata.yaml`: which series of releases a provider has, and which contract with Cluster API each keeps.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde_json::Value;

use crate::Version;

/// A version of the contract between Cluster API and its providers, as in `v1beta2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Contract(String);

/// The releases of a minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReleaseSeries {
    /// The first number of the version.
    pub major: u64,
    /// The second number of the version.
    pub minor: u64,
}

/// What a provider says of its releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    series: BTreeMap<ReleaseSeries, Contract>,
}

/// Series that somebody knows better than a `metadata.yaml`, as in `1.15=v1beta2,1.16=v1beta2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay(BTreeMap<ReleaseSeries, Contract>);

/// Why a text is no such series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOverlay {
    /// A part of it.
    #[error("{0:?} is no series; each is MAJOR.MINOR=CONTRACT, and a comma stands between two")]
    Series(String),
    /// One stands there twice.
    #[error("{0} stands there twice; remove one")]
    Twice(ReleaseSeries),
}

impl FromStr for Overlay {
    type Err = InvalidOverlay;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut overlay = Self::default();
        for part in text.split(',').map(str::trim) {
            let invalid = || InvalidOverlay::Series(part.chars().take(80).collect());
            let (series, contract) = part.split_once('=').ok_or_else(invalid)?;
            let (major, minor) = series.split_once('.').ok_or_else(invalid)?;
            let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number <= MOST);
            let series = ReleaseSeries {
                major: number(major).ok_or_else(invalid)?,
                minor: number(minor).ok_or_else(invalid)?,
            };
            let contract: Contract = contract.parse().map_err(|_| invalid())?;
            if overlay.0.insert(series, contract).is_some() {
                return Err(InvalidOverlay::Twice(series));
            }
        }
        Ok(overlay)
    }
}

impl FromIterator<(ReleaseSeries, Contract)> for Overlay {
    fn from_iter<T: IntoIterator<Item = (ReleaseSeries, Contract)>>(series: T) -> Self {
        Self(series.into_iter().collect())
    }
}

/// What is wrong with a `metadata.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Not YAML.
    #[error("metadata.yaml is no YAML at line {line}, column {column}: {what}")]
    Parse {
        /// The line, from 1; 0 where it is unknown.
        line: u64,
        /// The column, from 1; 0 where it is unknown.
        column: u64,
        /// What the parser says.
        what: String,
    },
    /// A field with another value than it may have.
    #[error("{field} of metadata.yaml is {value}; {rule}")]
    Field {
        /// The field.
        field: String,
        /// Its value, as JSON, cut.
        value: String,
        /// What it may be.
        rule: &'static str,
    },
    /// Two contracts for one series.
    #[error(
        "releaseSeries of metadata.yaml names {series} twice, with {first} and with {second}; remove one"
    )]
    Twice {
        /// The series.
        series: ReleaseSeries,
        /// The contract that it has first.
        first: Contract,
        /// The contract that it has then.
        second: Contract,
    },
    /// A version whose series is not listed.
    #[error(
        "releaseSeries of metadata.yaml has no {series} for version {version}, only {known}; use a release whose metadata.yaml has \
         it, or add the series yourself"
    )]
    NoSeries {
        /// The version.
        version: Version,
        /// Its series.
        series: ReleaseSeries,
        /// Those that are listed, newest first.
        known: String,
    },
}

/// Why a text is no contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("contract {0:?} is no version of an API; write one such as v1beta2")]
pub struct InvalidContract(String);

impl Contract {
    /// The contracts of cores that are known.
    pub const KNOWN: [&'static str; 2] = ["v1beta1", "v1beta2"];

    /// Whether a core of this contract is known.
    pub fn is_known(&self) -> bool {
        Self::KNOWN.contains(&self.0.as_str())
    }

    /// The contracts that a management cluster of this one may have beside it.
    ///
    /// # Source
    ///
    /// clusterctl 1.14: under `v1beta2` providers of `v1beta1` go on working.
    pub fn is_compatible(&self, other: &Self) -> bool {
        self == other || (self.0 == "v1beta2" && other.0 == "v1beta1")
    }
}

impl FromStr for Contract {
    type Err = InvalidContract;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_version = text.len() <= 32
            && text.strip_prefix('v').is_some_and(|rest| {
                rest.starts_with(|first: char| matches!(first, '1'..='9'))
                    && rest
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            });
        if is_version {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidContract(text.chars().take(80).collect()))
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&Version> for ReleaseSeries {
    fn from(version: &Version) -> Self {
        Self {
            major: version.major(),
            minor: version.minor(),
        }
    }
}

impl fmt::Display for ReleaseSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Metadata {
    /// Reads a `metadata.yaml`.
    ///
    /// It is as strict as clusterctl, which lets `kind` be missing, for some providers never wrote it; and stricter where
    /// clusterctl would go on with a contract that is none or take the first of two.
    ///
    /// # Errors
    ///
    /// A file that is none, with the field and what it may be.
    pub fn parse(text: &str) -> Result<Self, MetadataError> {
        let options = serde_saphyr::options! { with_snippet: false };
        let document: Value =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                let location = error.location();
                MetadataError::Parse {
                    line: location.map_or(0, |location| location.line()),
                    column: location.map_or(0, |location| location.column()),
                    what: error.to_string(),
                }
            })?;
        let of = |field: &str| document.get(field).unwrap_or(&Value::Null);
        if of("apiVersion") != API_VERSION {
            return Err(refused("apiVersion", of("apiVersion"), RULE_API_VERSION));
        }
        let kind = of("kind");
        if !kind.is_null() && kind != "Metadata" && kind != "" {
            return Err(refused("kind", kind, "it is Metadata, or left out"));
        }
        let listed = of("releaseSeries");
        let series = listed
            .as_array()
            .filter(|series| !series.is_empty())
            .ok_or_else(|| refused("releaseSeries", listed, RULE_SERIES))?;
        let mut metadata = Self {
            series: BTreeMap::new(),
        };
        for (index, entry) in series.iter().enumerate() {
            let (series, contract) = read(index, entry)?;
            if let Some(first) = metadata.series.insert(series, contract.clone())
                && first != contract
            {
                return Err(MetadataError::Twice {
                    series,
                    first,
                    second: contract,
                });
            }
        }
        Ok(metadata)
    }

    /// The same with series that somebody knows better: they replace those of the file and are added to them.
    #[must_use]
    pub fn overlaid(mut self, overlay: &Overlay) -> Self {
        let series = overlay.0.iter();
        self.series
            .extend(series.map(|(series, contract)| (*series, contract.clone())));
        self
    }

    /// The contract of a version.
    ///
    /// # Errors
    ///
    /// A version whose series is not listed.
    pub fn contract(&self, version: &Version) -> Result<&Contract, MetadataError> {
        let series = ReleaseSeries::from(version);
        self.series.get(&series).ok_or_else(|| {
            let known: Vec<_> = self.series.keys().rev().map(ToString::to_string).collect();
            MetadataError::NoSeries {
                version: version.clone(),
                series,
                known: known.join(", "),
            }
        })
    }

    /// The series and their contracts, oldest first.
    pub fn series(&self) -> impl DoubleEndedIterator<Item = (ReleaseSeries, &Contract)> {
        self.series
            .iter()
            .map(|(series, contract)| (*series, contract))
    }
}

fn read(index: usize, entry: &Value) -> Result<(ReleaseSeries, Contract), MetadataError> {
    let at = |field: &str| format!("releaseSeries[{index}]{field}");
    if !entry.is_object() {
        return Err(refused(&at(""), entry, "it has major, minor and contract"));
    }
    let number = |name: &str| match entry.get(name) {
        // clusterctl's own type leaves zeros out.
        None => Ok(0),
        Some(value) => value
            .as_u64()
            .filter(|number| *number <= MOST)
            .ok_or_else(|| refused(&at(&format!(".{name}")), value, RULE_NUMBER)),
    };
    let series = ReleaseSeries {
        major: number("major")?,
        minor: number("minor")?,
    };
    let contract = entry.get("contract").unwrap_or(&Value::Null);
    let contract = contract
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| refused(&at(".contract"), contract, RULE_CONTRACT))?;
    Ok((series, contract))
}

fn refused(field: &str, value: &Value, rule: &'static str) -> MetadataError {
    let shown = match value {
        Value::Null => "missing".to_owned(),
        value => {
            let whole = value.to_string();
            let cut: String = whole.chars().take(80).collect();
            if cut.len() < whole.len() {
                cut + "…"
            } else {
                cut
            }
        }
    };
    MetadataError::Field {
        field: field.to_owned(),
        value: shown,
        rule,
    }
}

const API_VERSION: &str = "clusterctl.cluster.x-k8s.io/v1alpha3";
const RULE_API_VERSION: &str =
    "it is clusterctl.cluster.x-k8s.io/v1alpha3: fetch the file that belongs to the release";
const RULE_SERIES: &str = "it is a list of at least one series: fetch the file that belongs to the release, or give the series yourself";
const RULE_NUMBER: &str = "it is a number of the version, 0 or more";
const RULE_CONTRACT: &str = "it is the contract of the series, such as v1beta2";
/// The type has 32 bits with a sign.
const MOST: u64 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n\
                         - {major: 1, minor: 10, contract: v1beta1}\n- {major: 1, minor: 9, contract: v1beta1}\n\
                         - {major: 1, minor: 14, contract: v1beta2}\n- {minor: 3, contract: v1alpha3}\n";

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn the_contract_of_a_version_is_that_of_its_series() {
        let metadata = Metadata::parse(WHOLE).unwrap();
        let contract = |text| metadata.contract(&version(text)).map(ToString::to_string);
        assert_eq!(contract("v1.14.2").as_deref(), Ok("v1beta2"));
        assert_eq!(contract("v1.10.0-rc.1").as_deref(), Ok("v1beta1"));
        assert_eq!(contract("v0.3.99").as_deref(), Ok("v1alpha3"));
        let missing = contract("v1.15.0").unwrap_err().to_string();
        assert!(
            missing.contains("no 1.15 for version v1.15.0, only 1.14, 1.10, 1.9, 0.3"),
            "{missing}"
        );
    }

    #[test]
    fn series_that_are_laid_over_win() {
        let contract = |text: &str| text.parse::<Contract>().unwrap();
        let overlay = "1.15=v1beta2, 1.10=v1beta2".parse().unwrap();
        let metadata = Metadata::parse(WHOLE).unwrap().overlaid(&overlay);
        assert_eq!(
            metadata.contract(&version("v1.15.0")),
            Ok(&contract("v1beta2"))
        );
        assert_eq!(
            metadata.contract(&version("v1.10.3")),
            Ok(&contract("v1beta2"))
        );
        assert_eq!(
            metadata.contract(&version("v1.9.3")),
            Ok(&contract("v1beta1"))
        );
    }

    #[test]
    fn an_overlay_is_series_with_their_contracts() {
        for (text, said) in [
            ("", "\"\" is no series; each is MAJOR.MINOR=CONTRACT"),
            ("1.15", "\"1.15\" is no series"),
            ("v1.15=v1beta2", "\"v1.15=v1beta2\" is no series"),
            ("1.15.0=v1beta2", "\"1.15.0=v1beta2\" is no series"),
            ("1.-1=v1beta2", "is no series"),
            ("1.15=beta", "\"1.15=beta\" is no series"),
            ("1.14=v1beta2,", "\"\" is no series"),
            ("1.15=v1beta1,1.15=v1beta2", "1.15 stands there twice"),
        ] {
            let error = text.parse::<Overlay>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn v1beta2_goes_with_v1beta1_and_not_the_other_way() {
        let contract = |text: &str| text.parse::<Contract>().unwrap();
        assert!(contract("v1beta2").is_compatible(&contract("v1beta1")));
        assert!(contract("v1beta2").is_compatible(&contract("v1beta2")));
        assert!(!contract("v1beta1").is_compatible(&contract("v1beta2")));
        assert!(!contract("v1beta2").is_compatible(&contract("v1alpha4")));
    }

    #[test]
    fn kind_may_be_missing_as_some_providers_leave_it_out() {
        for line in ["", "kind: \"\"\n"] {
            assert!(Metadata::parse(&WHOLE.replace("kind: Metadata\n", line)).is_ok());
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_field_value_and_rule() {
        let cases = [
            (
                "",
                "apiVersion of metadata.yaml is missing; it is clusterctl.cluster.x-k8s.io/v1alpha3",
            ),
            ("[]", "apiVersion of metadata.yaml is missing"),
            ("{", "metadata.yaml is no YAML at line"),
            (
                &WHOLE.replace("v1alpha3\nkind", "v1alpha2\nkind"),
                "v1alpha2\"; it is clusterctl.cluster.x-k8s.io/v1alpha3",
            ),
            (
                &WHOLE.replace("kind: Metadata", "kind: Provider"),
                "kind of metadata.yaml is \"Provider\"; it is Metadata",
            ),
            (
                &WHOLE.replace("releaseSeries", "series"),
                "releaseSeries of metadata.yaml is missing; it is a list",
            ),
            (
                "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nreleaseSeries: []",
                "releaseSeries of metadata.yaml is []",
            ),
            (
                &WHOLE.replace("minor: 9,", "minor: nine,"),
                "releaseSeries[1].minor of metadata.yaml is \"nine\"; it is a number",
            ),
            (
                &WHOLE.replace("minor: 9,", "minor: -9,"),
                "releaseSeries[1].minor of metadata.yaml is -9",
            ),
            (
                &WHOLE.replace("minor: 9,", "minor: 1.9,"),
                "releaseSeries[1].minor of metadata.yaml is 1.9",
            ),
            (
                &WHOLE.replace("minor: 14, contract: v1beta2", "minor: 14"),
                "releaseSeries[2].contract of metadata.yaml is missing",
            ),
            (
                &WHOLE.replace("v1beta2", "beta"),
                "releaseSeries[2].contract of metadata.yaml is \"beta\"",
            ),
            (
                &WHOLE.replace("{minor: 3, contract: v1alpha3}", "three"),
                "releaseSeries[3] of metadata.yaml is \"three\"",
            ),
            (
                &WHOLE.replace("minor: 9,", "minor: 14,"),
                "names 1.14 twice, with v1beta1 and with v1beta2; remove one",
            ),
        ];
        for (text, expected) in cases {
            let error = Metadata::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }
}
