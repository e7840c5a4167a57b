//! How a set stands, for people: its status, and an Event where something happened.

use api::provider::{
    PlanPhase, ProviderSet, ProviderSetStatus, ProviderType, SetPlan, SetUpgrade, UpgradeState,
};
use controller::{
    Conditions, Occurrence, Severity, Standing, Status, Summary,
    conditions::{READY, observed_generation},
    hint,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Resource, ResourceExt};

use super::{
    Context, Decision, Observed, Reason,
    apply::Applied,
    plan::{is_ready, told},
    progress,
};
use crate::{names::SET_MANAGER, provider::Error, stand::Stand};

/// The condition that says whether there is a plan to what is wanted, or why not.
const PLANNED: &str = "Planned";

/// Writes the status if it changed, and the Events of what happened.
pub(super) async fn publish(
    set: &ProviderSet,
    applied: &Applied,
    observed: &Observed,
    context: &Context,
) -> Result<(), Error> {
    let status = status(set, applied, observed);
    let before = set.status.clone().unwrap_or_default();
    let regarding = ObjectReference {
        api_version: Some(ProviderSet::api_version(&()).into_owned()),
        kind: Some(ProviderSet::kind(&()).into_owned()),
        name: Some(set.name_any()),
        namespace: set.namespace(),
        uid: set.uid(),
        ..ObjectReference::default()
    };
    for occurrence in occurrences(&before, &status) {
        context
            .events
            .publish(&regarding, &occurrence)
            .await
            .map_err(|source| Error::Api("publish an Event", source))?;
    }
    controller::apply::write_status(
        &context.client,
        &context.sets,
        SET_MANAGER,
        (set, Some(&before)),
        &status,
    )
    .await
    .map_err(Error::Apply)
}

/// The status that follows from what was done. Pure.
pub(super) fn status(
    set: &ProviderSet,
    applied: &Applied,
    observed: &Observed,
) -> ProviderSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let generation = set.metadata.generation;
    let mut conditions = Conditions::new(&before.conditions, generation, observed.now);
    let mut summary = summary(applied.decision(), observed);
    summary.message = hint::placed(&summary.message, &set.namespace().unwrap_or_default());
    let plan = plan(set, applied.decision());
    planned(
        applied.decision(),
        &summary.message,
        plan.as_ref(),
        &mut conditions,
    );
    conditions.summarise(&summary);
    let core = observed.stands.iter();
    let mut core = core.filter(|stand| stand.kind == ProviderType::Core);
    let begun = progress::begun_before(set);
    let begun = begun.saturating_add(matches!(applied.decision(), Decision::Begin(_)).into());
    ProviderSetStatus {
        observed_generation: observed_generation(
            before.observed_generation,
            generation,
            summary.standing,
        ),
        conditions: conditions.into_vec(),
        contract: core.find_map(|core| core.status.contract.clone()),
        begun: (begun > 0).then_some(begun),
        written: progress::written(set, plan.as_ref(), &observed.stands),
        plan,
        available: applied.available().to_vec(),
    }
}

/// The plan as it is after what was done.
fn plan(set: &ProviderSet, decision: &Decision) -> Option<SetPlan> {
    let last = || set.status.as_ref()?.plan.clone();
    match decision {
        // What was begun goes on when what hinders it is mended.
        Decision::Stall(..) | Decision::Await(..) => {
            last().filter(|plan| plan.phase != PlanPhase::Waiting)
        }
        Decision::Keep(plan) => plan.as_deref().cloned(),
        Decision::Hold(held) => Some(held.plan.clone()),
        Decision::Begin(plan) | Decision::Follow(plan, _) | Decision::Stop(plan, ..) => {
            Some((**plan).clone())
        }
        Decision::Upgrade(plan, at) => Some(progress::with(
            (**plan).clone(),
            *at,
            UpgradeState::UnderWay,
        )),
        Decision::GoBack(plan, at, _) => Some(SetPlan {
            phase: PlanPhase::Stopped,
            ..progress::with((**plan).clone(), *at, UpgradeState::WentBack)
        }),
    }
}

fn planned(
    decision: &Decision,
    message: &str,
    plan: Option<&SetPlan>,
    conditions: &mut Conditions,
) {
    match (decision, plan) {
        (Decision::Stall(reason, _), _) => {
            conditions.set(PLANNED, Status::False, reason.as_str(), message);
        }
        (Decision::Keep(_), _) => conditions.set(
            PLANNED,
            Status::True,
            Reason::UpToDate.as_str(),
            "every provider has the version that it is to have",
        ),
        (Decision::Await(..), _) | (_, None) => {}
        (_, Some(plan)) => {
            let upgrades = plan.upgrades.iter();
            let upgrades = upgrades
                .map(|one| format!("{} {} to {}", one.provider, one.from, one.to))
                .collect::<Vec<_>>();
            conditions.set(
                PLANNED,
                Status::True,
                Reason::PlanMade.as_str(),
                format!("plan {}: {}", plan.id, upgrades.join(", ")),
            );
        }
    }
}

fn summary(decision: &Decision, observed: &Observed) -> Summary {
    let of = |standing, reason: Reason, message: String| Summary {
        standing,
        reason: reason.as_str(),
        message,
    };
    match decision {
        Decision::Stall(reason, message) | Decision::Stop(_, reason, message) => {
            of(Standing::Stalled, *reason, message.clone())
        }
        Decision::Await(reason, message) => of(Standing::AtWork, *reason, message.clone()),
        Decision::Keep(_) => {
            let unready: Vec<_> = observed
                .stands
                .iter()
                .filter(|stand| !is_ready(stand))
                .map(Stand::title)
                .collect();
            if unready.is_empty() {
                of(
                    Standing::Ready,
                    Reason::UpToDate,
                    "every provider has the version that it is to have, and is ready".to_owned(),
                )
            } else {
                let message = format!("these are not ready: {}", unready.join(", "));
                of(Standing::Unhealthy, Reason::ProviderNotReady, message)
            }
        }
        Decision::Hold(held) => {
            // What would be taken by itself is missed by nobody.
            let standing = if held.is_asked {
                Standing::AtWork
            } else {
                Standing::ReadyAtWork
            };
            of(standing, held.reason, held.message.clone())
        }
        Decision::Begin(plan) => {
            let message = format!("plan {} is begun", plan.id);
            of(Standing::AtWork, Reason::UpgradeUnderWay, message)
        }
        Decision::Upgrade(plan, at) => {
            let upgrade = plan.upgrades.get(*at).map(told).unwrap_or_default();
            let message = format!("{upgrade} is begun");
            of(Standing::AtWork, Reason::UpgradeUnderWay, message)
        }
        Decision::Follow(plan, message) => {
            let mut upgrades = plan.upgrades.iter();
            let reason = if upgrades.any(|one| one.state == UpgradeState::WentBack) {
                Reason::WentBack
            } else {
                Reason::UpgradeUnderWay
            };
            of(Standing::AtWork, reason, message.clone())
        }
        Decision::GoBack(plan, at, why) => {
            let from = plan.upgrades.get(*at).map(|upgrade| upgrade.from.clone());
            let message = format!(
                "{why}. It goes back to {}; no other provider is upgraded",
                from.unwrap_or_default()
            );
            of(Standing::AtWork, Reason::WentBack, message)
        }
    }
}

/// What happened between two statuses.
fn occurrences(before: &ProviderSetStatus, after: &ProviderSetStatus) -> Vec<Occurrence> {
    let mut found: Vec<_> = standing(before, after).into_iter().collect();
    let Some(plan) = &after.plan else {
        return found;
    };
    let known = before.plan.as_ref().filter(|before| before.id == plan.id);
    for upgrade in &plan.upgrades {
        let state = known.and_then(|known| {
            let mut upgrades = known.upgrades.iter();
            upgrades.find(|one| one.provider == upgrade.provider)
        });
        let was = state.map(|one| one.state).unwrap_or_default();
        found.extend(step(plan, upgrade).filter(|_| was != upgrade.state));
    }
    found
}

/// What a change of Ready tells, but that work goes on: that is told by the upgrades.
fn standing(before: &ProviderSetStatus, after: &ProviderSetStatus) -> Option<Occurrence> {
    let (before, after) = (ready(before), ready(after)?.clone());
    let is_new =
        before.is_none_or(|before| before.reason != after.reason || before.status != after.status);
    if !is_new || after.reason == Reason::UpgradeUnderWay.as_str() {
        return None;
    }
    let waits = [
        Reason::UpToDate,
        Reason::WaitingForCore,
        Reason::WaitingForProviders,
        Reason::WaitingForApproval,
        Reason::WaitingForWindow,
    ];
    let is_news = waits.map(Reason::as_str).contains(&after.reason.as_str());
    Some(Occurrence {
        severity: if is_news {
            Severity::Normal
        } else {
            Severity::Warning
        },
        edge: format!("{} {}", time(&after), after.message),
        note: after.message,
        reason: after.reason,
    })
}

/// What the upgrade of a provider tells. Its failure is told by Ready, with why.
fn step(plan: &SetPlan, upgrade: &SetUpgrade) -> Option<Occurrence> {
    let (reason, what) = match upgrade.state {
        UpgradeState::UnderWay => ("UpgradeBegun", "is begun"),
        UpgradeState::Done => ("Upgraded", "is done"),
        UpgradeState::Waiting | UpgradeState::Failed | UpgradeState::WentBack => return None,
    };
    let began = plan.began_at.as_ref();
    let began = began.map(|began| began.0.to_string()).unwrap_or_default();
    Some(Occurrence {
        severity: Severity::Normal,
        reason: reason.to_owned(),
        note: format!("{} {what}", told(upgrade)),
        edge: format!(
            "{} {began} {} {}",
            plan.id,
            upgrade.provider,
            upgrade.state.as_str()
        ),
    })
}

fn ready(status: &ProviderSetStatus) -> Option<&Condition> {
    status.conditions.iter().find(|one| one.type_ == READY)
}

fn time(condition: &Condition) -> Timestamp {
    condition.last_transition_time.0
}
