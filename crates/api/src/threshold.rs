//! A bound that is a number of things or a share of them.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A bound written as a count (`2`) or a percentage (`20%`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Threshold {
    /// That many.
    Count(u32),
    /// That share of all, 0 to 100.
    Percent(u8),
}

/// Why a text is not a threshold.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("threshold {0:?} is neither a count nor a percentage: write for example 2 or 20%")]
pub struct InvalidThreshold(String);

impl Threshold {
    /// Whether `affected` of `total` is more than the bound allows. Exactly the bound is still allowed.
    pub fn is_exceeded(self, affected: usize, total: usize) -> bool {
        match self {
            Self::Count(count) => affected > count as usize,
            Self::Percent(percent) => affected * 100 > total * usize::from(percent),
        }
    }
}

impl FromStr for Threshold {
    type Err = InvalidThreshold;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let parsed = match text.strip_suffix('%') {
            Some(percent) if digits(percent) => percent
                .parse()
                .ok()
                .filter(|percent| *percent <= 100)
                .map(Self::Percent),
            None if digits(text) => text.parse().ok().map(Self::Count),
            _ => None,
        };
        parsed.ok_or_else(|| InvalidThreshold(text.to_owned()))
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text.parse().map_err(de::Error::custom),
            other => other.to_string().parse().map_err(de::Error::custom),
        }
    }
}

impl JsonSchema for Threshold {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Threshold".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A count (2) or a percentage (20%).",
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^(100|[0-9]{1,2})%$",
            "maxLength": 8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_itself_is_allowed() {
        let twenty: Threshold = "20%".parse().unwrap();
        assert!(
            !twenty.is_exceeded(2, 10) && twenty.is_exceeded(3, 10) && !twenty.is_exceeded(0, 0)
        );
        assert!(!Threshold::Count(1).is_exceeded(1, 3) && Threshold::Count(1).is_exceeded(2, 3));
    }

    #[test]
    fn both_spellings_survive_a_round_trip() {
        for json in ["2", "\"20%\""] {
            let threshold: Threshold = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&threshold).unwrap(), json);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for json in [
            "\"101%\"", "\"-1%\"", "-1", "1.5", "true", "\"\"", "\"%\"", "\"a\"",
        ] {
            assert!(serde_json::from_str::<Threshold>(json).is_err(), "{json}");
        }
    }
}
