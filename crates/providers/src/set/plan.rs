//! What to do about a set. Pure.

use api::{
    maintenance::OnWindowEnd,
    provider::{
        AvailableRelease, OnFailure, PlanPhase, ProviderSet, SetPlan, SetUpgrade, UpgradeState,
    },
};
use controller::problem;
use kube::ResourceExt;

use super::{
    Observed, Reason,
    back::Back,
    check::{Checked, check},
    progress,
    wanted::{self, Wanted},
};
use crate::{
    names::APPROVE,
    stand::{self, Stand, Towards},
};

/// What to do, and what else there is.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What to do.
    pub decision: Decision,
    /// Newer versions that no provider is on its way to.
    pub available: Vec<AvailableRelease>,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Nothing, until somebody changes something.
    Stall(Reason, String),
    /// Wait for what comes by itself.
    Await(Reason, String),
    /// Every provider has its version. With the plan that led there.
    Keep(Option<Box<SetPlan>>),
    /// Wait with a plan for a person or a window.
    Hold(Box<Held>),
    /// Note a plan as begun.
    Begin(Box<SetPlan>),
    /// Write the new version of the provider at this place of the plan.
    Upgrade(Box<SetPlan>, usize),
    /// Let the provider that is at work go on, and tell how it stands.
    Follow(Box<SetPlan>, String),
    /// Write the version that the provider at this place had, for this reason.
    GoBack(Box<SetPlan>, usize, String),
    /// Begin no other upgrade.
    Stop(Box<SetPlan>, Reason, String),
}

/// A plan that waits.
#[derive(Clone, Debug)]
pub struct Held {
    /// The plan.
    pub plan: SetPlan,
    /// Whether a person named a version that is not there yet, so that the set is not as it should be.
    pub is_asked: bool,
    /// For what.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// Decides.
pub fn plan(set: &ProviderSet, observed: &Observed) -> Decided {
    let alone = |decision| Decided {
        decision,
        available: Vec::new(),
    };
    let checked = match check(set) {
        Ok(checked) => checked,
        Err(problems) => {
            return alone(Decision::Stall(
                Reason::InvalidSpec,
                problem::text(&problems),
            ));
        }
    };
    if let Some(elder) = &observed.elder {
        return alone(Decision::Stall(
            Reason::MoreThanOneExists,
            format!("ProviderSet {elder} of this namespace was there first; delete one of the two"),
        ));
    }
    if observed.stands.is_empty() {
        return alone(Decision::Await(
            Reason::WaitingForCore,
            "waits until the CoreProvider of this namespace is installed, for the set is of all that is installed beside it; if there is to be none here, make the set in the namespace of the core".to_owned(),
        ));
    }
    let releases = stand::releases(&observed.stands);
    let wanted = wanted::wanted(set, &checked, &observed.stands, &releases);
    let led = wanted.as_ref().ok().map(|wanted| &wanted.plan);
    let available = wanted::beyond(set, led, &observed.stands, &releases);
    Decided {
        decision: decide(set, &checked, wanted, observed),
        available,
    }
}

fn decide(
    set: &ProviderSet,
    checked: &Checked,
    wanted: Result<Wanted, String>,
    observed: &Observed,
) -> Decision {
    let current = progress::current(set, &observed.stands);
    let ended = match current.map(|plan| go_on(set, checked, plan, observed)) {
        Some(Course::Goes(decision)) => return decision,
        Some(Course::Ended(ended)) => Some(ended),
        None => None,
    };
    match wanted {
        Ok(wanted) => next(set, checked, wanted, ended, observed),
        Err(refused) => Decision::Stall(Reason::Refused, refused),
    }
}

/// How a plan that was begun goes on.
enum Course {
    /// So.
    Goes(Decision),
    /// Not: it is through, or stopped, or something else is wanted meanwhile.
    Ended(Ended),
}

/// A plan that does not go on.
struct Ended {
    plan: SetPlan,
    /// Why it stopped. None: all of it is done, or something else is wanted.
    stopped: Option<(Reason, String)>,
}

fn go_on(set: &ProviderSet, checked: &Checked, plan: SetPlan, observed: &Observed) -> Course {
    let closed = checked.closed(observed.now);
    // One that had stopped goes on when what stopped it is mended. Nobody knows when that is, so it begins nothing outside a window.
    let has_stopped = plan.phase == PlanPhase::Stopped && closed.is_some();
    let plan = SetPlan {
        phase: if has_stopped {
            PlanPhase::Stopped
        } else {
            PlanPhase::UnderWay
        },
        ..plan
    };
    let at = |state: UpgradeState| plan.upgrades.iter().position(|one| one.state == state);
    let first = |state: UpgradeState| Some((at(state)?, plan.upgrades.get(at(state)?)?.clone()));
    if let Some((place, failed)) = first(UpgradeState::Failed) {
        return on_failure(set, plan, (place, &failed), observed);
    }
    if let Some((_, upgrade)) = first(UpgradeState::WentBack) {
        return went_back(plan, &upgrade, observed);
    }
    if let Some((_, upgrade)) = first(UpgradeState::UnderWay) {
        let message = format!("{}: {}", told(&upgrade), standing(&upgrade, observed));
        return Course::Goes(Decision::Follow(Box::new(plan), message));
    }
    let is_same_wish = plan.generation == set.metadata.generation;
    let Some((place, _)) = first(UpgradeState::Waiting).filter(|_| is_same_wish) else {
        let is_through = at(UpgradeState::Waiting).is_none();
        let phase = if is_through {
            PlanPhase::Done
        } else {
            PlanPhase::Stopped
        };
        return Course::Ended(Ended {
            plan: SetPlan { phase, ..plan },
            stopped: None,
        });
    };
    Course::Goes(match closed {
        Some(opens) if has_stopped || checked.on_window_end == OnWindowEnd::Pause => {
            let message = format!(
                "{} of plan {} are upgraded; the rest waits for the maintenance window that opens at {opens}",
                plan.done, plan.id
            );
            Decision::Hold(Box::new(Held {
                plan,
                is_asked: true,
                reason: Reason::WaitingForWindow,
                message,
            }))
        }
        _ => Decision::Upgrade(Box::new(plan), place),
    })
}

/// The provider goes back where it may, or all stays as it is.
fn on_failure(
    set: &ProviderSet,
    plan: SetPlan,
    (place, failed): (usize, &SetUpgrade),
    observed: &Observed,
) -> Course {
    let why = format!("{} failed: {}", told(failed), standing(failed, observed));
    let back = observed.backs.get(&failed.provider);
    let back = back.filter(|_| set.spec.on_failure.unwrap_or_default() == OnFailure::GoBack);
    let why = match back {
        Some(Back::Open) => {
            return Course::Goes(Decision::GoBack(Box::new(plan), place, why));
        }
        Some(Back::Closed(closed)) => {
            format!("{why}. It does not go back to {}: {closed}", failed.from)
        }
        None => why,
    };
    stopped(plan, Reason::UpgradeFailed, why)
}

fn went_back(plan: SetPlan, upgrade: &SetUpgrade, observed: &Observed) -> Course {
    let told = told(upgrade);
    let why = observed.failures.get(&upgrade.provider);
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let stand = progress::of(upgrade, &observed.stands);
    match stand.map(|stand| stand.towards(&stand.wanted)) {
        Some(Towards::Waits(message)) => Course::Goes(Decision::Follow(
            Box::new(SetPlan {
                phase: PlanPhase::Stopped,
                ..plan
            }),
            format!(
                "{told} was taken back, and {} is installed again: {message}",
                upgrade.from
            ),
        )),
        Some(Towards::Stopped(message)) => stopped(
            plan,
            Reason::WentBack,
            format!("{told} was taken back{why}. Now: {message}"),
        ),
        Some(Towards::There(_)) | None => stopped(
            plan,
            Reason::WentBack,
            format!(
                "{told} was taken back{why}. No other provider is upgraded: name other versions in spec.providers, or have the plan tried once more by a new value of the annotation {}",
                crate::names::START_AGAIN
            ),
        ),
    }
}

fn stopped(plan: SetPlan, reason: Reason, message: String) -> Course {
    Course::Ended(Ended {
        plan: SetPlan {
            phase: PlanPhase::Stopped,
            ..plan
        },
        stopped: Some((reason, message)),
    })
}

/// What comes when no plan is under way.
fn next(
    set: &ProviderSet,
    checked: &Checked,
    wanted: Wanted,
    ended: Option<Ended>,
    observed: &Observed,
) -> Decision {
    let Wanted { plan, is_asked } = wanted;
    if plan.upgrades.is_empty() {
        let done = ended.map(|ended| ended.plan).or_else(|| last(set));
        let done = done.filter(|plan| plan.phase == PlanPhase::Done);
        return Decision::Keep(done.map(Box::new));
    }
    let new = progress::new(set, &plan, &observed.stands);
    let put_back = put_back(set, &new, ended.as_ref(), observed);
    // What failed once would fail again, whatever else comes with it.
    if let Some(Ended {
        plan,
        stopped: Some((reason, message)),
    }) = ended
        && (put_back.is_some() || is_failed(&plan, &new))
    {
        return Decision::Stop(Box::new(plan), reason, message);
    }
    let busy = titles(observed, is_at_work);
    if !busy.is_empty() {
        return Decision::Await(
            Reason::WaitingForProviders,
            format!("waits until these are through with what they are about: {busy}"),
        );
    }
    let unready = titles(observed, |stand| !is_ready(stand));
    if !is_asked && !unready.is_empty() {
        return Decision::Await(
            Reason::ProviderNotReady,
            format!("nothing is upgraded by itself while these are not ready: {unready}"),
        );
    }
    let hold = |reason, message| {
        Decision::Hold(Box::new(Held {
            plan: new.clone(),
            is_asked,
            reason,
            message,
        }))
    };
    let is_approved = set.annotations().get(APPROVE) == Some(&new.id);
    let asks = wanted::asks(
        set.spec.approval.unwrap_or_default(),
        &plan,
        &observed.stands,
    );
    if let Some(why) = put_back.or(asks).filter(|_| !is_approved) {
        let message = format!(
            "plan {id} waits for a person, for {why}: see what `windlass providers plan` says of it, and let it begin by `windlass providers approve {id}`",
            id = new.id
        );
        return hold(Reason::WaitingForApproval, message);
    }
    if let Some(opens) = checked.closed(observed.now) {
        let message = format!(
            "plan {} waits for the maintenance window that opens at {opens}",
            new.id
        );
        return hold(Reason::WaitingForWindow, message);
    }
    Decision::Begin(Box::new(progress::begun(new, observed.now)))
}

/// What of a plan the set wrote once, and is to have an older version since.
fn put_back(
    set: &ProviderSet,
    new: &SetPlan,
    ended: Option<&Ended>,
    observed: &Observed,
) -> Option<String> {
    let last = last(set);
    let last = ended.map(|ended| &ended.plan).or(last.as_ref());
    let written = progress::written(set, last, &observed.stands);
    let upgrades = new.upgrades.iter();
    let put_back: Vec<_> = upgrades
        .filter(|upgrade| progress::is_put_back(upgrade, set, &written))
        .map(|upgrade| {
            let (provider, from, to) = (&upgrade.provider, &upgrade.from, &upgrade.to);
            format!("{provider} was put back to {from} after this set had written {to}")
        })
        .collect();
    (!put_back.is_empty()).then(|| put_back.join("; "))
}

/// Whether an upgrade of a new plan is one that failed in another.
fn is_failed(stopped: &SetPlan, new: &SetPlan) -> bool {
    let mut failed = stopped.upgrades.iter();
    failed.any(|failed| {
        failed.state == UpgradeState::Failed
            && new
                .upgrades
                .iter()
                .any(|one| one.provider == failed.provider && one.to == failed.to)
    })
}

fn last(set: &ProviderSet) -> Option<SetPlan> {
    set.status.as_ref()?.plan.clone()
}

/// For people.
pub(super) fn told(upgrade: &SetUpgrade) -> String {
    format!(
        "the upgrade of {} from {} to {}",
        upgrade.provider, upgrade.from, upgrade.to
    )
}

/// What a provider says of its upgrade.
fn standing(upgrade: &SetUpgrade, observed: &Observed) -> String {
    let stand = progress::of(upgrade, &observed.stands);
    match stand.map(|stand| stand.towards(&upgrade.to)) {
        Some(Towards::There(said) | Towards::Waits(said) | Towards::Stopped(said)) => said,
        None => "its object is gone".to_owned(),
    }
}

fn titles(observed: &Observed, is: impl Fn(&Stand) -> bool) -> String {
    let found = observed.stands.iter().filter(|stand| is(stand));
    found.map(Stand::title).collect::<Vec<_>>().join(", ")
}

/// Whether it is on its way to a version that is not installed.
fn is_at_work(stand: &Stand) -> bool {
    let is_there = stand.installed_version().is_some()
        && (stand.wanted.is_empty() || stand.installed_version() == Some(stand.wanted.as_str()));
    !is_there && matches!(stand.towards(&stand.wanted), Towards::Waits(_))
}

pub(super) fn is_ready(stand: &Stand) -> bool {
    stand.ready().is_some_and(|ready| ready.status == "True")
}
