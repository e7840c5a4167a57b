//! At what a cluster starts that is born while a run is under way: at what the run has tried, or at what there was before it. Pure.

use std::collections::BTreeSet;

use api::inventory::{Births, RolloutPhase, RolloutRun, RolloutStatus};

use super::{
    decision::Decided,
    engine::{self, Policy},
    known::Known,
};

/// At what a cluster starts that is born after this pass. None: no run is under way, so at what the inventory renders it to.
pub(super) fn births(
    before: &RolloutStatus,
    decided: &Decided,
    policy: &Policy,
    approved: &BTreeSet<String>,
) -> Option<Births> {
    let run = decided.run.as_ref().filter(|run| run.ended.is_none())?;
    let told = |sources: &Option<String>, what: String| Births {
        sources: sources.clone(),
        message: format!("a cluster that is born now starts at {what}"),
    };
    if let Some(taken_back) = &run.rolls_back {
        let what = format!("what there was before run {taken_back}, which is being taken back");
        return Some(told(&before.sources, what)).filter(|births| births.sources.is_some());
    }
    Some(if is_tried(run, decided, policy, approved) {
        told(
            &run.sources,
            format!("what run {} brings: it has been tried", run.id),
        )
    } else if before.sources.is_some() {
        let what = format!(
            "what there was before run {}: that has not been tried, or not been approved",
            run.id
        );
        told(&before.sources, what)
    } else {
        let what = format!(
            "what the inventory renders: nothing is kept of before run {}",
            run.id
        );
        told(&None, what)
    })
}

/// What clusters inherit from that are what was meant, once this pass is through.
pub(super) fn settled(
    before: &RolloutStatus,
    decided: &Decided,
    known: &Known,
    is_seen: bool,
    (policy, approved): (&Policy, &BTreeSet<String>),
) -> Option<String> {
    let at_rest = || {
        let mut own = known.own.iter();
        is_seen
            && decided.skipped.is_empty()
            && own.all(|candidate| {
                let seen = known.seen.get(&candidate.name);
                let applied = seen.and_then(|seen| seen.applied.as_ref());
                applied.is_none_or(|applied| *applied == candidate.revision)
            })
    };
    let is_under_way = || decided.run.as_ref().is_some_and(|run| run.ended.is_none());
    match &decided.ended {
        Some((run, _)) if run.rolls_back.is_some() => before.sources.clone(),
        Some((run, RolloutPhase::Succeeded)) => run.sources.clone().or(before.sources.clone()),
        Some((run, RolloutPhase::Superseded)) if is_tried(run, decided, policy, approved) => {
            run.sources.clone()
        }
        None if !is_under_way() && at_rest() => known.sources.clone(),
        Some(_) | None => before.sources.clone(),
    }
}

/// Whether a run has gone past its canaries and the approval behind them, and nobody has stopped it.
fn is_tried(
    run: &RolloutRun,
    decided: &Decided,
    policy: &Policy,
    approved: &BTreeSet<String>,
) -> bool {
    decided.verdict.phase != RolloutPhase::Aborted && engine::is_tried(run, policy, approved)
}
