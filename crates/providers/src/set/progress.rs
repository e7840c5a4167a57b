//! How far a plan is that was begun, as its providers say. Pure.

use api::provider::{PlanPhase, ProviderSet, SetPlan, SetUpgrade, UpgradeState};
use clusterctl::upgrade::UpgradePlan;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::{
    names::START_AGAIN,
    stand::{Stand, Towards},
};

/// A plan that has not begun.
pub(super) fn new(set: &ProviderSet, plan: &UpgradePlan) -> SetPlan {
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
        id: id(set, plan),
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
        UpgradeState::Done => UpgradeState::Done,
        UpgradeState::UnderWay | UpgradeState::Failed | UpgradeState::WentBack => {
            UpgradeState::WentBack
        }
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

/// The same versions of the same providers are the same plan, however far it is; a person may ask for it once more.
fn id(set: &ProviderSet, plan: &UpgradePlan) -> String {
    let upgraded = plan.upgrades.iter().map(|one| (&one.from, &one.to));
    let unchanged = plan.unchanged.iter().map(|one| (one, &one.version));
    let mut versions: Vec<_> = upgraded
        .chain(unchanged)
        .map(|(one, to)| format!("{}={to}", one.provider.manifest_label()))
        .collect();
    versions.sort();
    let again = set.annotations().get(START_AGAIN).cloned();
    let again = again.unwrap_or_default();
    controller::digest(
        &[&plan.contract.to_string(), &versions.join(","), &again],
        ID_LENGTH,
    )
}

/// Enough to tell the plans of one set from each other.
const ID_LENGTH: usize = 8;
