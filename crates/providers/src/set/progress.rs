//! How far a plan is that was begun, as its providers say. Pure.

use api::provider::{
    PlanPhase, ProviderSet, ProviderSetStatus, SetPlan, SetUpgrade, UpgradeState, WrittenVersion,
};
use clusterctl::{
    Version,
    upgrade::{Upgrade, UpgradePlan},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::{
    names::START_AGAIN,
    stand::{Stand, Towards},
};

/// A plan that has not begun.
pub(super) fn new(set: &ProviderSet, plan: &UpgradePlan, stands: &[Stand]) -> SetPlan {
    let upgrades: Vec<_> = plan
        .upgrades
        .iter()
        .map(|upgrade| SetUpgrade {
            provider: upgrade.from.provider.manifest_label(),
            namespace: upgrade.from.namespace.clone(),
            from: upgrade.from.version.to_string(),
            to: upgrade.to.to_string(),
            state: UpgradeState::Waiting,
        })
        .collect();
    counted(SetPlan {
        id: id(set, plan, stands),
        phase: PlanPhase::Waiting,
        generation: set.metadata.generation,
        contract: plan.contract.to_string(),
        began_at: None,
        done: String::new(),
        upgrades,
    })
}

/// The same, begun.
pub(super) fn begun(plan: SetPlan, now: Timestamp) -> SetPlan {
    SetPlan {
        phase: PlanPhase::UnderWay,
        began_at: Some(Time(now)),
        ..plan
    }
}

/// The same with one upgrade in another state.
pub(super) fn with(mut plan: SetPlan, at: usize, state: UpgradeState) -> SetPlan {
    if let Some(upgrade) = plan.upgrades.get_mut(at) {
        upgrade.state = state;
    }
    counted(plan)
}

/// The plan that was begun and is not done, as it stands now. None: there is none, or a provider of it is gone.
pub(super) fn current(set: &ProviderSet, stands: &[Stand]) -> Option<SetPlan> {
    let plan = set.status.as_ref()?.plan.as_ref()?;
    if !matches!(plan.phase, PlanPhase::UnderWay | PlanPhase::Stopped) {
        return None;
    }
    let mut plan = plan.clone();
    for upgrade in &mut plan.upgrades {
        upgrade.state = state(upgrade, of(upgrade, stands)?);
    }
    Some(counted(plan))
}

/// The provider of an upgrade.
pub(super) fn of<'a>(upgrade: &SetUpgrade, stands: &'a [Stand]) -> Option<&'a Stand> {
    stands.iter().find(|stand| {
        stand.namespace == upgrade.namespace
            && stand.label().as_deref() == Some(upgrade.provider.as_str())
    })
}

fn state(upgrade: &SetUpgrade, stand: &Stand) -> UpgradeState {
    if stand.wanted == upgrade.to {
        return match stand.towards(&upgrade.to) {
            Towards::There(_) => UpgradeState::Done,
            Towards::Waits(_) => UpgradeState::UnderWay,
            Towards::Stopped(_) => UpgradeState::Failed,
        };
    }
    match upgrade.state {
        UpgradeState::Waiting => UpgradeState::Waiting,
        // Somebody goes on with it.
        UpgradeState::Done if !is_older(&stand.wanted, &upgrade.to) => UpgradeState::Done,
        UpgradeState::Done
        | UpgradeState::UnderWay
        | UpgradeState::Failed
        | UpgradeState::WentBack => UpgradeState::WentBack,
    }
}

fn counted(plan: SetPlan) -> SetPlan {
    let all = plan.upgrades.iter();
    let done = all.filter(|one| one.state == UpgradeState::Done).count();
    SetPlan {
        done: format!("{done}/{}", plan.upgrades.len()),
        ..plan
    }
}

/// What the set wrote last of each provider, this plan included, and whether it was put back since. Longer than any plan is kept: what is bad
/// about a version may be found out when others have followed.
pub(super) fn written(
    set: &ProviderSet,
    plan: Option<&SetPlan>,
    stands: &[Stand],
) -> Vec<WrittenVersion> {
    let mut written = before(set, |status| status.written.clone());
    for upgrade in plan.into_iter().flat_map(|plan| &plan.upgrades) {
        if upgrade.state != UpgradeState::Waiting {
            note(&mut written, upgrade);
        }
    }
    // Without its core the set sees no provider, and forgets none.
    if stands.is_empty() {
        return written;
    }
    written.retain_mut(|one| {
        let mut stands = stands.iter();
        let stand = stands.find(|stand| stand.label().as_ref() == Some(&one.provider));
        let is_back = stand.is_some_and(|stand| is_older(&stand.wanted, &one.version));
        let known = one.put_back.take();
        one.put_back = is_back.then(|| known.unwrap_or_else(|| wish(set)));
        stand.is_some()
    });
    written
}

fn note(written: &mut Vec<WrittenVersion>, upgrade: &SetUpgrade) {
    let new = WrittenVersion {
        provider: upgrade.provider.clone(),
        version: upgrade.to.clone(),
        put_back: None,
    };
    let mut known = written.iter_mut();
    match known.find(|one| one.provider == upgrade.provider) {
        Some(known) if known.version == upgrade.to => {}
        Some(known) => *known = new,
        None => written.push(new),
    }
}

/// Whether this upgrade was taken back, and nothing else is wanted since.
pub(super) fn is_put_back(
    upgrade: &SetUpgrade,
    set: &ProviderSet,
    written: &[WrittenVersion],
) -> bool {
    let wish = wish(set);
    written.iter().any(|one| {
        one.provider == upgrade.provider
            && one.version == upgrade.to
            && one.put_back.as_ref() == Some(&wish)
    })
}

/// A mark of what versions a set is to have, and of a person's word to try once more. Windows, say, are none of it.
fn wish(set: &ProviderSet) -> String {
    let providers = serde_json::json!(set.spec.providers).to_string();
    let policy = serde_json::json!(set.spec.upgrade).to_string();
    controller::digest(&[&providers, &policy, &again(set)], ID_LENGTH)
}

fn again(set: &ProviderSet) -> String {
    let again = set.annotations().get(START_AGAIN);
    again.cloned().unwrap_or_default()
}

fn is_older(one: &str, other: &str) -> bool {
    let versions = one.parse::<Version>().ok().zip(other.parse().ok());
    versions.is_some_and(|(one, other)| one < other)
}

fn before<T: Default>(set: &ProviderSet, of: impl Fn(&ProviderSetStatus) -> T) -> T {
    set.status.as_ref().map(of).unwrap_or_default()
}

/// How many plans were begun before.
pub(super) fn begun_before(set: &ProviderSet) -> i64 {
    before(set, |status| status.begun.unwrap_or_default())
}

/// What a person approves: versions before and after, and what the releases of both hold, for of that it is seen what objects lose.
/// An approval counts once, so a plan has another id when one was begun meanwhile.
fn id(set: &ProviderSet, plan: &UpgradePlan, stands: &[Stand]) -> String {
    let upgraded = plan.upgrades.iter().map(|one| upgraded(one, stands));
    let unchanged = plan.unchanged.iter();
    let unchanged =
        unchanged.map(|one| format!("{}={}", one.provider.manifest_label(), one.version));
    let mut versions: Vec<_> = upgraded.chain(unchanged).collect();
    versions.sort();
    controller::digest(
        &[
            &plan.contract.to_string(),
            &versions.join(","),
            &again(set),
            &begun_before(set).to_string(),
        ],
        ID_LENGTH,
    )
}

fn upgraded(upgrade: &Upgrade, stands: &[Stand]) -> String {
    let provider = &upgrade.from.provider;
    let mut stands = stands.iter();
    let stand = stands.find(|stand| stand.provider.as_ref() == Some(provider));
    let release = |version: &Version| {
        let held = stand.and_then(|stand| stand.held(version));
        let held = held.map(|held| held.digest()).unwrap_or_default();
        format!("{version} {held}")
    };
    format!(
        "{}={}={}",
        provider.manifest_label(),
        release(&upgrade.from.version),
        release(&upgrade.to)
    )
}

/// Enough to tell the plans of one set from each other.
const ID_LENGTH: usize = 8;
