//! What a set of providers takes without anybody asking for it, and what it leaves for a person to ask for.

use std::collections::BTreeMap;

use api::VersionPart;

use super::{Refusals, Releases, UpgradePlan, plans};
use crate::{Installed, Provider, Version};

/// The newest set that a policy leads to: of each provider those releases count that differ from the installed one by a part that it
/// `takes`, and of several contracts the newest. None: nothing is newer.
///
/// # Errors
///
/// What makes a plan impossible, whatever is taken.
pub fn by_itself(
    installed: &[Installed],
    releases: &BTreeMap<Provider, Releases>,
    takes: impl Fn(&Provider, VersionPart) -> bool,
) -> Result<Option<UpgradePlan>, Refusals> {
    let mut taken = releases.clone();
    for one in installed {
        if let Some(known) = taken.get_mut(&one.provider) {
            known.versions.retain(|version| {
                let part = version.newer_by(&one.version);
                part.is_none_or(|part| takes(&one.provider, part))
            });
        }
    }
    let mut plans = plans(installed, &taken)?;
    // To a contract that is not known here nobody is led; it may be for the next version of this program.
    plans.retain(|plan| plan.contract.is_known() && !plan.upgrades.is_empty());
    Ok(plans.pop())
}

/// The newest release that differs by each part from what is installed, of those beyond a version that is on its way.
pub fn available(
    installed: &Installed,
    on_its_way: &Version,
    known: &Releases,
) -> Vec<(VersionPart, Version)> {
    let mut newest: BTreeMap<VersionPart, &Version> = BTreeMap::new();
    let releases = known.versions.iter();
    let releases = releases.filter(|version| {
        *version > on_its_way
            && !version.is_prerelease()
            && known.metadata.contract(version).is_ok()
    });
    for version in releases {
        if let Some(part) = version.newer_by(&installed.version) {
            let best = newest.entry(part).or_insert(version);
            *best = version.max(*best);
        }
    }
    let newest = newest.into_iter();
    newest
        .map(|(part, version)| (part, version.clone()))
        .collect()
}
