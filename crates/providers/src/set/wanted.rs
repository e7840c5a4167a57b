//! What versions the providers of a set are to have, and what else there is. Pure.

use std::collections::BTreeMap;

use api::{
    VersionPart,
    provider::{Approval, AvailableRelease, ProviderSet},
    upgrade::UpgradePolicy,
};
use clusterctl::{
    Installed, Provider, Version,
    upgrade::{Releases, Upgrade, UpgradePlan, available, by_itself, plan_for},
};

use super::check::Checked;
use crate::stand::Stand;

/// What is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// How to get there.
    pub(super) plan: UpgradePlan,
    /// Whether a person named a version that is not there yet; else the policy takes what is newer.
    pub(super) is_asked: bool,
}

/// The plan to what is wanted, or every reason against it.
pub(super) fn wanted(
    set: &ProviderSet,
    checked: &Checked,
    stands: &[Stand],
    releases: &BTreeMap<Provider, Releases>,
) -> Result<Wanted, String> {
    let installed: Vec<_> = stands.iter().filter_map(Stand::installed).collect();
    let absent = absent(checked, stands);
    if !absent.is_empty() {
        return Err(absent.join("\n"));
    }
    let takes = |provider: &Provider, part| policy(set, &provider.manifest_label()).takes(part);
    let taken = by_itself(&installed, releases, takes).map_err(|refused| refused.to_string())?;
    let taken = taken.into_iter().flat_map(|plan| plan.upgrades);
    let mut targets: BTreeMap<_, _> = taken.map(|one| (one.from.provider, one.to)).collect();
    let mut is_asked = false;
    for one in &installed {
        let label = one.provider.manifest_label();
        let Some(named) = checked.versions.get(&label) else {
            continue;
        };
        let known = targets.get(&one.provider).unwrap_or(&one.version);
        // What it has come to by itself is not taken back.
        let target = if policy(set, &label).takes_any() {
            named.max(known).clone()
        } else {
            named.clone()
        };
        is_asked |= target == *named && *named != one.version;
        targets.insert(one.provider.clone(), target);
    }
    let plan = plan_for(&installed, &targets, releases).map_err(|refused| refused.to_string())?;
    Ok(Wanted { plan, is_asked })
}

/// Providers that are named and are none of the installation.
fn absent(checked: &Checked, stands: &[Stand]) -> Vec<String> {
    let there: Vec<_> = stands.iter().filter_map(Stand::label).collect();
    let absent = checked
        .versions
        .keys()
        .filter(|label| !there.contains(label));
    absent
        .map(|label| {
            format!(
                "ProviderSet spec.providers names {label:?}, and there is no such provider beside this core, only {}; make its object, or leave it out",
                there.join(", ")
            )
        })
        .collect()
}

/// Newer releases that the plan does not lead to; without a plan, that are not installed.
pub(super) fn beyond(
    set: &ProviderSet,
    plan: Option<&UpgradePlan>,
    stands: &[Stand],
    releases: &BTreeMap<Provider, Releases>,
) -> Vec<AvailableRelease> {
    let upgrades = || plan.into_iter().flat_map(|plan| &plan.upgrades);
    let mut found = Vec::new();
    for one in stands.iter().filter_map(Stand::installed) {
        let Some(known) = releases.get(&one.provider) else {
            continue;
        };
        let on_its_way = upgrades().find(|upgrade| upgrade.from == one);
        let on_its_way = on_its_way.map_or(&one.version, |upgrade| &upgrade.to);
        for (change, version) in available(&one, on_its_way, known) {
            found.push(release(set, &one, change, &version));
        }
    }
    found.truncate(MOST_AVAILABLE);
    found
}

fn release(
    set: &ProviderSet,
    one: &Installed,
    change: VersionPart,
    version: &Version,
) -> AvailableRelease {
    let provider = one.provider.manifest_label();
    let part = match change {
        VersionPart::Patch => "patch",
        VersionPart::Minor => "minor",
        VersionPart::Major => "major",
    };
    let by_itself = if policy(set, &provider).takes(change) {
        // The policy would take it, and something else does not let it.
        String::new()
    } else {
        format!(", or have the set take such by itself: spec.upgrade.{part}.auto: true")
    };
    AvailableRelease {
        message: format!(
            "write {{provider: {provider}, version: {version}}} into spec.providers{by_itself}"
        ),
        provider,
        change,
        version: version.to_string(),
    }
}

/// Why a plan waits for a person. None: it does not.
pub(super) fn asks(approval: Approval, plan: &UpgradePlan, stands: &[Stand]) -> Option<String> {
    let losing: Vec<_> = plan
        .upgrades
        .iter()
        .filter_map(|upgrade| loss(upgrade, stands))
        .collect();
    if !losing.is_empty() {
        return Some(losing.join("; "));
    }
    let is_greater =
        |upgrade: &Upgrade| upgrade.to.newer_by(&upgrade.from.version) > Some(VersionPart::Patch);
    let asks = match approval {
        Approval::Never => false,
        Approval::Minor => plan.upgrades.iter().any(is_greater),
        Approval::Always => true,
    };
    asks.then(|| "spec.approval has it so".to_owned())
}

/// What people lose by an upgrade, or might.
fn loss(upgrade: &Upgrade, stands: &[Stand]) -> Option<String> {
    let label = upgrade.from.provider.manifest_label();
    let mut stands = stands.iter();
    let stand = stands.find(|stand| stand.provider.as_ref() == Some(&upgrade.from.provider))?;
    match stand.difference(upgrade) {
        Ok(Some(difference)) => difference
            .loses()
            .then(|| format!("objects of {label} lose fields or versions of their kind")),
        Ok(None) => Some(format!(
            "no ConfigMap keeps {label} {}, so what changes is not known",
            upgrade.from.version
        )),
        Err(error) => Some(format!(
            "what changes of {label} is not known: {}",
            controller::chain(&error)
        )),
    }
}

/// Up to which part of a version a provider upgrades itself.
fn policy(set: &ProviderSet, label: &str) -> UpgradePolicy {
    let mut named = set.spec.providers.iter();
    let own = named.find(|one| one.provider == label);
    let own = own.and_then(|one| one.upgrade);
    own.or(set.spec.upgrade).unwrap_or_default()
}

/// As many as the status takes.
const MOST_AVAILABLE: usize = 64;
