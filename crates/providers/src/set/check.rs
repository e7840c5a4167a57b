//! What is wrong with a set by itself. Pure.

use std::collections::BTreeMap;

use api::{
    maintenance::{Confine, OnWindowEnd},
    provider::ProviderSet,
};
use clusterctl::Version;
use controller::{
    Problem, Windows,
    window::{Moment, Now},
};
use jiff::Timestamp;

/// Where the windows stand.
const WINDOWS: &str = "ProviderSet spec.maintenance.windows";

/// A spec that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checked {
    /// The versions that are named, by label.
    pub(super) versions: BTreeMap<String, Version>,
    windows: Windows,
    confine: Confine,
    /// What becomes of a plan under way when the window closes.
    pub(super) on_window_end: OnWindowEnd,
}

impl Checked {
    /// When the next window opens, while none is open.
    pub(super) fn closed(&self, now: Timestamp) -> Option<Moment> {
        match self.windows.at(now) {
            Now::Closed { opens } if self.confine != Confine::None => Some(opens),
            _ => None,
        }
    }
}

/// Reads a set.
pub(super) fn check(set: &ProviderSet) -> Result<Checked, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut versions = BTreeMap::new();
    for one in &set.spec.providers {
        let Some(version) = one.version.as_deref() else {
            continue;
        };
        match version.parse::<Version>() {
            Ok(version) => {
                versions.insert(one.provider.clone(), version);
            }
            Err(error) => problems.push(Problem::new(
                format!("ProviderSet spec.providers[{}].version", one.provider),
                version,
                format!("{error}"),
                "write the version as the provider's releases are called",
            )),
        }
    }
    let maintenance = set.spec.maintenance.clone().unwrap_or_default();
    let windows = Windows::read(&maintenance.windows, WINDOWS).unwrap_or_else(|wrong| {
        problems.extend(wrong);
        Windows::default()
    });
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Checked {
        versions,
        windows,
        confine: maintenance.confine.unwrap_or_default(),
        on_window_end: maintenance.on_window_end.unwrap_or_default(),
    })
}
