//! Which clusters of a wave are begun: those that the budgets leave room for. Pure.

use std::collections::BTreeMap;

use api::inventory::{FleetHealth, MemberPhase, RolloutRun};
use jiff::Timestamp;

use super::{
    Operators, Policy, Seen, Verdict, enter, is_open, is_under_way, listed, named, passed, told,
};

/// Begins the clusters of a wave that the budgets allow.
pub(super) fn grant(
    run: &mut RolloutRun,
    policy: &Policy,
    seen: &BTreeMap<String, Seen>,
    wave: &str,
    verdict: &mut Verdict,
    now: Timestamp,
) {
    let mut why: Option<String> = None;
    let mut begun = Vec::new();
    for name in verdict.next.clone() {
        let under_way = named(run, is_under_way);
        let refusal = if under_way.len() >= policy.parallel {
            Some(format!(
                "{} of {} may be under way: {}",
                under_way.len(),
                policy.parallel,
                listed(&under_way)
            ))
        } else {
            refusal(run, policy, seen, &name, now)
        };
        if let Some(refusal) = refusal {
            why = why.or(Some(format!("{name} waits: {refusal}")));
            continue;
        }
        let mut members = run.clusters.iter_mut();
        if let Some(member) = members.find(|member| member.name == name) {
            enter(member, MemberPhase::Updating, None, now);
            begun.push(name);
        }
    }
    verdict.next.retain(|name| !begun.contains(name));
    verdict.waits = why.or_else(|| {
        let working: Vec<_> = run
            .clusters
            .iter()
            .filter(|member| member.wave == wave && is_under_way(member))
            .map(told)
            .collect();
        (!working.is_empty()).then(|| working.join("; "))
    });
}

/// Why a cluster cannot be begun now.
fn refusal(
    run: &RolloutRun,
    policy: &Policy,
    seen: &BTreeMap<String, Seen>,
    name: &str,
    now: Timestamp,
) -> Option<String> {
    let own = seen.get(name)?;
    // What is to be taken back may be why it never comes to rest.
    let goes_back = run.rolls_back.is_some() && own.operators == Operators::NeverGiveUp;
    let is_left_alone = left_alone_for(own, policy, now) != Some(0);
    if own.health == FleetHealth::AtWork && is_left_alone && !goes_back {
        let said = own.message.as_deref().unwrap_or("nothing is known of it");
        return Some(format!("it is at work: {said}"));
    }
    for domain in &own.domains {
        let level = domain.split('/').next().unwrap_or_default();
        let Some(maximum) = policy.budgets.get(level) else {
            continue;
        };
        // One that is not well itself takes no more away: what is to mend it does not wait for others that are not.
        let counts = |other: &str, it: &Seen| match own.health {
            FleetHealth::Well => !is_free(run, other, it),
            _ => is_begun(run, other, it),
        };
        let mut busy: Vec<_> = seen
            .iter()
            .filter(|(other, it)| {
                *other != name && it.domains.contains(domain) && counts(other, it)
            })
            .map(|(other, _)| other.clone())
            .collect();
        // One that was begun and is gone still counts where it was.
        busy.extend(named(run, |member| {
            is_open(member) && !seen.contains_key(&member.name) && member.domains.contains(domain)
        }));
        if busy.len() >= *maximum {
            busy.truncate(3);
            return Some(format!(
                "{domain} may have {maximum} under way or not well, and has {}",
                listed(&busy)
            ));
        }
    }
    None
}

/// For how many seconds a cluster that is at work for another reason is left alone yet: no longer than a change may take. None: it is not
/// at work, nobody knows since when, or it comes to rest by itself, whatever becomes of it.
pub(super) fn left_alone_for(own: &Seen, policy: &Policy, now: Timestamp) -> Option<u64> {
    let may_go_on_for_ever =
        own.health == FleetHealth::AtWork && own.operators == Operators::NeverGiveUp;
    let since = own.at_work_since.filter(|_| may_go_on_for_ever)?;
    Some(policy.deadline.saturating_sub(passed(since, now)))
}

/// Whether a cluster counts against no budget.
fn is_free(run: &RolloutRun, name: &str, seen: &Seen) -> bool {
    seen.health == FleetHealth::Well && !is_begun(run, name, seen)
}

/// Whether a roll-out, this one or another, has begun a cluster and is not done with it.
fn is_begun(run: &RolloutRun, name: &str, seen: &Seen) -> bool {
    let member = run.clusters.iter().find(|member| member.name == name);
    seen.is_taken || member.is_some_and(is_open)
}
