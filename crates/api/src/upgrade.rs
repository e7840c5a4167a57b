//! Up to which part of a version something upgrades itself, as every kind that can writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::VersionPart;

/// Up to which part of a version something upgrades itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePolicy {
    /// To newer patch versions. Default: as `minor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<AutoUpgrade>,
    /// To newer minor versions too. Default: as `major`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<AutoUpgrade>,
    /// To newer major versions too. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<AutoUpgrade>,
}

/// Whether something upgrades itself to versions of one kind.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AutoUpgrade {
    /// Whether it does.
    pub auto: bool,
}

impl UpgradePolicy {
    /// Whether versions that are newer by that part are taken without anybody asking for them.
    pub fn takes(self, part: VersionPart) -> bool {
        let Self {
            patch,
            minor,
            major,
        } = self;
        let says = |auto: Option<AutoUpgrade>, greater| auto.map_or(greater, |auto| auto.auto);
        let major = says(major, false);
        let minor = says(minor, major);
        match part {
            VersionPart::Patch => says(patch, minor),
            VersionPart::Minor => minor,
            VersionPart::Major => major,
        }
    }

    /// Whether any are.
    pub fn takes_any(self) -> bool {
        [VersionPart::Patch, VersionPart::Minor, VersionPart::Major]
            .into_iter()
            .any(|part| self.takes(part))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_that_is_not_named_is_as_the_greater_one() {
        for (policy, expected) in [
            (json!({}), [false, false, false]),
            (json!({"patch": {"auto": true}}), [true, false, false]),
            (json!({"minor": {"auto": true}}), [true, true, false]),
            (json!({"major": {"auto": true}}), [true, true, true]),
            (
                json!({"minor": {"auto": true}, "patch": {"auto": false}}),
                [false, true, false],
            ),
        ] {
            let read: UpgradePolicy = serde_json::from_value(policy.clone()).unwrap();
            let parts = [VersionPart::Patch, VersionPart::Minor, VersionPart::Major];
            assert_eq!(parts.map(|part| read.takes(part)), expected, "{policy}");
            assert_eq!(read.takes_any(), expected.contains(&true), "{policy}");
        }
    }
}
