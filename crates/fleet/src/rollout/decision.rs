//! What becomes of a roll-out in a pass: whether a run begins, goes on, gives way to an edit or ends. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::inventory::{OnEdit, Rollout, RolloutPhase, RolloutRecord, RolloutRun, RolloutState};
use controller::{
    problem,
    window::{Now, Windows},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    engine::{self, Steering, Verdict},
    gates,
    known::Known,
    waves::{self, Candidate},
};

/// What a pass decided.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub run: Option<RolloutRun>,
    /// A run that ended by what was decided.
    pub ended: Option<(RolloutRun, RolloutPhase)>,
    pub verdict: Verdict,
    pub queued: Option<String>,
    /// What people had left out: clusters, and the revision of each.
    pub skipped: BTreeMap<String, String>,
    /// What somebody must correct.
    pub problem: Option<String>,
}

/// What becomes of a roll-out. Pure.
pub(super) fn decide(
    rollout: &Rollout,
    known: &Known,
    unrest: Duration,
    now: Timestamp,
) -> Decided {
    let spec = &rollout.spec;
    let status = rollout.status.clone().unwrap_or_default();
    let control = spec.control.clone().unwrap_or_default();
    let state = control.state.unwrap_or_default();
    let windows = Windows::read(
        &spec.windows,
        &format!("Rollout/{} spec.windows", rollout.name_any()),
    );
    let mut decided = Decided {
        skipped: skipped(known, &status),
        problem: unknown_level(rollout, known)
            .or_else(|| gates::problem(&rollout.name_any(), spec))
            .or_else(|| windows.as_ref().err().map(|wrong| problem::text(wrong))),
        ..Decided::default()
    };
    let windows = windows.unwrap_or_default();
    let current = status.run.clone();
    let is_open = |run: &RolloutRun| run.ended.is_none();
    let edited = edited(known, current.as_ref(), &decided.skipped);
    let is_seen = known.broken.is_empty() && known.stale.is_empty() && unrest.is_zero();
    let mut run = current;
    if let Some(open) = run.as_mut().filter(|run| is_open(run)) {
        let is_about = control.run.as_deref() == Some(&open.id);
        let state = match state {
            RolloutState::Aborted if !is_about => RolloutState::Running,
            state => state,
        };
        // A roll-out that nobody lets go on gives way to an edit, whatever the policy says.
        let stands = match status.phase {
            _ if state == RolloutState::Paused => false,
            Some(RolloutPhase::Halted | RolloutPhase::Aborted) => true,
            // Edits that come one after the other while the window is shut are one run when it opens.
            Some(RolloutPhase::WaitingForWindow) => !open.clusters.iter().any(engine::has_begun),
            _ => false,
        };
        let supersedes = spec.on_edit.unwrap_or_default() == OnEdit::Supersede || stands;
        let gives_way = !edited.is_empty() && is_seen && supersedes;
        let mut policy = waves::policy(spec);
        if decided.problem.is_some() {
            policy.parallel = 0;
        }
        let pick = |list: &[String]| -> BTreeSet<String> {
            list.iter().filter(|_| is_about).cloned().collect()
        };
        let steering = Steering {
            state,
            approved: pick(&control.approved),
            skip: pick(&control.skip),
            gives_way,
            unknown: known.is_unknown(),
            closed: closed(&windows, now),
        };
        decided.verdict = engine::advance(open, &policy, &known.seen, &steering, now);
        decided.verdict.wake = wake(decided.verdict.wake, &windows, now);
        if let Some(problem) = &decided.problem {
            decided.verdict.waits = Some(problem.clone());
        }
        if !edited.is_empty() {
            let what = named(&edited);
            decided.queued = Some(if gives_way {
                format!("a later edit of {what} takes the place of this run")
            } else if supersedes {
                format!(
                    "a later edit of {what} takes the place of this run when every cluster can be rendered"
                )
            } else {
                format!("a later edit of {what} is carried out when this run has ended")
            });
        }
        if decided.verdict.is_over() {
            open.ended = Some(Time(now));
            decided.ended = Some((open.clone(), decided.verdict.phase));
            // What comes after it.
            decided.verdict.wake = Some(0);
        }
        decided.run = run;
        return decided;
    }
    decided.run = run;
    if let Some(problem) = &decided.problem {
        decided.verdict.waits = Some(problem.clone());
        return decided;
    }
    if edited.is_empty() {
        return decided;
    }
    let what = named(&edited);
    decided.verdict.phase = RolloutPhase::Gathering;
    decided.verdict.next = edited
        .iter()
        .map(|candidate| candidate.name.clone())
        .collect();
    let why = if state == RolloutState::Paused {
        Some("it is paused: set spec.control.state to Running".to_owned())
    } else if let Some(broken) = known.broken.first() {
        Some(format!(
            "FleetCluster {broken} cannot be rendered: its status says why"
        ))
    } else if let Some(stale) = known.stale.first() {
        Some(format!("FleetCluster {stale} is being rendered"))
    } else if let Some(unknown) = known.is_unknown() {
        Some(unknown)
    } else if !unrest.is_zero() {
        Some("the inventory is being edited".to_owned())
    } else if edited.len() > MOST_MEMBERS {
        Some(format!(
            "{} clusters change, and a run has {MOST_MEMBERS} at most: make several Rollouts with selectors",
            edited.len()
        ))
    } else {
        None
    };
    if let Some(why) = why {
        decided.verdict.waits = Some(format!("{what} changes: {why}"));
        return decided;
    }
    let id = id(rollout, &edited, now);
    let mut run = waves::run(&id, spec, edited);
    run.started = Some(Time(now));
    for member in &run.clusters {
        decided.skipped.remove(&member.name);
    }
    let policy = waves::policy(spec);
    let steering = Steering {
        closed: closed(&windows, now),
        ..Steering::default()
    };
    decided.verdict = engine::advance(&mut run, &policy, &known.seen, &steering, now);
    decided.verdict.wake = wake(decided.verdict.wake, &windows, now);
    decided.run = Some(run);
    decided
}

/// A level that the spec speaks of and no cluster has.
fn unknown_level(rollout: &Rollout, known: &Known) -> Option<String> {
    let levels = waves::levels(&rollout.spec);
    let mut unknown = levels
        .iter()
        .filter(|level| !known.levels.is_empty() && !known.levels.contains(*level));
    let level = unknown.next()?;
    let levels: Vec<_> = known.levels.iter().map(String::as_str).collect();
    Some(format!(
        "Rollout/{} spec: the level {level} is one of no cluster, so its budget or wave can never be met; name one of {}",
        rollout.name_any(),
        levels.join(", ")
    ))
}

/// When the next window opens, while none is open.
fn closed(windows: &Windows, now: Timestamp) -> Option<String> {
    match windows.at(now) {
        Now::Closed { opens } => Some(opens.to_string()),
        Now::Unbound | Now::Open { .. } => None,
    }
}

/// How many seconds from now something happens by itself: the time of a cluster is up, or a window opens or closes.
fn wake(of_clusters: Option<u64>, windows: &Windows, now: Timestamp) -> Option<u64> {
    let left = windows.left(now);
    let left = left.map(|left| u64::try_from(left.as_secs()).unwrap_or_default() + 1);
    of_clusters.into_iter().chain(left).min()
}

/// What people had left out, of this run and of those before it. An edit that makes another revision of a cluster is another change.
fn skipped(known: &Known, status: &api::inventory::RolloutStatus) -> BTreeMap<String, String> {
    let mut all = status.skipped.clone();
    let members = status.run.iter().flat_map(|run| &run.clusters);
    all.extend(
        members
            .filter(|member| member.phase == api::inventory::MemberPhase::Skipped)
            .map(|member| (member.name.clone(), member.revision.clone())),
    );
    all.retain(|name, _| known.seen.contains_key(name));
    all.into_iter().take(MOST_SKIPPED).collect()
}

/// The clusters that the inventory makes something else of than the run under way does, or than they are.
fn edited(
    known: &Known,
    run: Option<&RolloutRun>,
    skipped: &BTreeMap<String, String>,
) -> Vec<Candidate> {
    let own = known.own.iter();
    let open = run.filter(|run| run.ended.is_none());
    let edited = own.filter(|candidate| {
        let members = open.into_iter().flat_map(|run| &run.clusters);
        let mut members = members.filter(|member| member.name == candidate.name);
        let seen = known.seen.get(&candidate.name);
        // Nothing of it is there: it is born, not changed.
        let Some((seen, applied)) = seen.and_then(|seen| Some((seen, seen.applied.as_ref()?)))
        else {
            return false;
        };
        match members.next() {
            Some(member) => member.revision != candidate.revision,
            None if skipped.get(&candidate.name) == Some(&candidate.revision) => false,
            None => seen.is_halfway || *applied != candidate.revision,
        }
    });
    edited.cloned().collect()
}

/// The name of a run. Of when it begins too: what people said of an earlier run of the same clusters is not said of this one.
fn id(rollout: &Rollout, edited: &[Candidate], now: Timestamp) -> String {
    let (uid, now) = (rollout.uid().unwrap_or_default(), now.to_string());
    let mut parts = vec![uid.as_str(), &now];
    for candidate in edited {
        parts.extend([candidate.name.as_str(), &candidate.revision]);
    }
    controller::digest(&parts, 10)
}

fn named(candidates: &[Candidate]) -> String {
    let more = candidates.len().saturating_sub(3);
    let names = candidates.iter().take(3);
    let names: Vec<_> = names.map(|candidate| candidate.name.as_str()).collect();
    let rest = (more > 0).then(|| format!(" and {more} more"));
    format!("{}{}", names.join(", "), rest.unwrap_or_default())
}

/// What is kept of a run that ended.
pub(super) fn record(run: &RolloutRun, phase: RolloutPhase) -> RolloutRecord {
    use api::inventory::MemberPhase::Done;
    let done = run
        .clusters
        .iter()
        .filter(|member| member.phase == Done)
        .count();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    RolloutRecord {
        id: run.id.clone(),
        phase,
        started: run.started.clone(),
        ended: run.ended.clone(),
        done: count(done),
        not_done: count(run.clusters.len() - done),
    }
}

/// How many records are kept, by the schema of the status.
pub(super) const MOST_RECORDS: usize = 10;
/// How many skipped clusters are remembered, by the same.
const MOST_SKIPPED: usize = 10_000;
/// How many clusters a run has, by the same.
const MOST_MEMBERS: usize = 1000;

#[cfg(test)]
mod tests;
