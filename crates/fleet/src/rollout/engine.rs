//! How a run goes on: which clusters may be begun, and why the others wait. Pure: no client, no clock.
//!
//! A pass takes the run as it was written down last and what is seen of the clusters, and gives the run as it is then. It never
//! remembers anything else, so an operator that dies between two passes, or between a pass and its write, loses nothing: what was not
//! written was not granted, and what was written is seen. What it keeps to, whatever clusters do:
//!
//! - no cluster is begun that would bring an object of a budget's level above its maximum, with all that are under way *or not well*; for
//!   one that is not well itself those that are under way count alone;
//! - no cluster is begun before every canary is done, nor while more have failed than may;
//! - no cluster is begun that is at work for another reason. One of Cluster API is not waited for when that takes longer than a change may,
//!   and on a way back not at all: where machines never come it is at work for ever, and it is the next edit that mends it;
//! - no cluster is begun outside of the maintenance windows;
//! - a run ends, or says what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Threshold,
    inventory::{
        Approval, FleetHealth, Gate, MemberPhase, RolloutMember, RolloutPhase, RolloutRun,
        RolloutState,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::gates;

mod grant;

/// The wave of canaries.
pub const CANARY: &str = "canary";

/// What a run keeps to.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How many may be under way at once.
    pub parallel: usize,
    /// How many of each domain may be under way or not well at once, by level.
    pub budgets: BTreeMap<String, usize>,
    /// For how many seconds a cluster must be well.
    pub soak: u64,
    /// For how many seconds a cluster may not be.
    pub deadline: u64,
    /// What must hold of a cluster beside being well.
    pub gates: Vec<Gate>,
    /// Which waves wait for a person.
    pub approval: Approval,
    /// How many may fail.
    pub failures: Threshold,
}

/// What is seen of a cluster.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Seen {
    /// What it belongs to: the objects of the budgets' levels.
    pub domains: Vec<String>,
    /// What its objects were made from.
    pub applied: Option<String>,
    /// Whether they may be of two revisions: a change of them was begun, and is not through.
    pub is_halfway: bool,
    /// What they are being made from, while that is another.
    pub target: Option<String>,
    /// How that stands.
    pub health: FleetHealth,
    /// What is said of it.
    pub message: Option<String>,
    /// Since when it is at work, where it is and that is known.
    pub at_work_since: Option<Timestamp>,
    /// Whether it comes to rest by itself.
    pub operators: Operators,
    /// The conditions of its own object.
    pub gates: BTreeMap<String, String>,
    /// What the rules of gates are for its own object.
    pub rules: BTreeMap<String, String>,
    /// Whether another roll-out has begun it.
    pub is_taken: bool,
    /// Whether it was born in the middle of a run, and is not yet what the inventory renders.
    pub is_newborn: bool,
}

/// What the operators of a cluster do with a change that comes to nothing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Operators {
    /// They come to its end, and take another one then: those of kubespray.
    #[default]
    ComeToRest,
    /// They go on with it for ever, or with another one in its place: those of Cluster API.
    NeverGiveUp,
}

/// What people want.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    /// Whether to go on.
    pub state: RolloutState,
    /// The waves that may begin.
    pub approved: BTreeSet<String>,
    /// The clusters that are left out.
    pub skip: BTreeSet<String>,
    /// Whether a later edit takes the run's place.
    pub gives_way: bool,
    /// What keeps any cluster from being begun: something is not known that budgets count.
    pub unknown: Option<String>,
    /// When the next maintenance window opens, while none is open.
    pub closed: Option<String>,
}

/// How a run stands after a pass.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// Its phase.
    pub phase: RolloutPhase,
    /// The clusters that are next.
    pub next: Vec<String>,
    /// Why they, or the end, are waited for.
    pub waits: Option<String>,
    /// The wave that is under way: its number from 1, and its name.
    pub wave: Option<(usize, String)>,
    /// How many seconds from now something happens by itself.
    pub wake: Option<u64>,
}

impl Verdict {
    /// Whether the run is over.
    pub const fn is_over(&self) -> bool {
        matches!(
            self.phase,
            RolloutPhase::Succeeded | RolloutPhase::Superseded
        )
    }
}

/// Lets a run go on.
pub fn advance(
    run: &mut RolloutRun,
    policy: &Policy,
    seen: &BTreeMap<String, Seen>,
    steering: &Steering,
    now: Timestamp,
) -> Verdict {
    for member in &mut run.clusters {
        if is_under_way(member) && member.begun.is_none() {
            // Begun by a Windlass before, or written where the definition has no such field.
            member.begun.clone_from(&member.since);
        }
        follow(member, seen.get(&member.name), policy, steering, now);
    }
    replace_canaries(run);
    let mut verdict = begin(run, policy, seen, steering, now);
    let of_members = run.clusters.iter().filter_map(|member| match member.phase {
        MemberPhase::Updating => Some(patience(member, policy, now)),
        MemberPhase::Soaking => Some(policy.soak.saturating_sub(elapsed(member, now))),
        _ => None,
    });
    let next = verdict.next.iter().filter_map(|name| seen.get(name));
    let of_next = next.filter_map(|own| grant::left_alone_for(own, policy, now));
    verdict.wake = of_members.chain(of_next.filter(|left| *left > 0)).min();
    if verdict.next.is_empty() && !verdict.is_over() {
        verdict.next = of_next_wave(run);
    }
    verdict
}

/// Who is next when the wave that is under way is through.
fn of_next_wave(run: &RolloutRun) -> Vec<String> {
    let pending = |wave: &String| {
        named(run, |member| {
            member.wave == *wave && member.phase == MemberPhase::Pending
        })
    };
    let mut waves = run.waves.iter().map(pending);
    waves.find(|wave| !wave.is_empty()).unwrap_or_default()
}

/// Where all canaries are gone before any cluster was begun, nothing was tried: the next one goes first in their place.
fn replace_canaries(run: &mut RolloutRun) {
    let is_gone =
        |member: &RolloutMember| member.wave != CANARY || member.phase == MemberPhase::Gone;
    let has_canaries = run.waves.first().is_some_and(|wave| wave == CANARY);
    if !has_canaries || !run.clusters.iter().all(is_gone) || run.clusters.iter().any(has_begun) {
        return;
    }
    let mut next = run.waves.iter().skip(1).flat_map(|wave| {
        let of_wave = run.clusters.iter().enumerate();
        of_wave
            .filter(move |(_, member)| member.wave == *wave && member.phase == MemberPhase::Pending)
    });
    let Some((place, _)) = next.next() else {
        return;
    };
    CANARY.clone_into(&mut run.clusters[place].wave);
    // The wave behind the canary is the one that an approval is asked for.
    let clusters = &run.clusters;
    run.waves
        .retain(|wave| clusters.iter().any(|member| member.wave == *wave));
}

/// Brings a cluster's phase to what is seen of it.
fn follow(
    member: &mut RolloutMember,
    seen: Option<&Seen>,
    policy: &Policy,
    steering: &Steering,
    now: Timestamp,
) {
    use MemberPhase::{Done, Failed, Gone, Pending, Skipped, Soaking, Updating};
    let skipped = steering.skip.contains(&member.name);
    let Some(seen) = seen else {
        match member.phase {
            Pending | Failed | Gone if skipped => enter(member, Skipped, None, now),
            Pending => enter(member, Gone, Some("it is gone".to_owned()), now),
            // What was begun may stand half changed, whoever deleted its description.
            Updating | Soaking => enter(member, Failed, Some(GONE.to_owned()), now),
            Failed => member.message = Some(GONE.to_owned()),
            Done | Skipped | Gone => {}
        }
        return;
    };
    let is_there = !seen.is_halfway && seen.applied.as_deref() == Some(&member.revision);
    let is_brought = seen.target.as_deref() == Some(&member.revision);
    let failed = match seen.health {
        FleetHealth::Refused => is_brought,
        // Before it is there too: a VaultSecret whose path is wrong, for example, does not mend itself until the deadline.
        FleetHealth::Failed => is_brought || is_there,
        FleetHealth::AtWork | FleetHealth::Well => false,
    };
    let shut =
        gates::shut(&policy.gates, seen).filter(|_| is_there && seen.health == FleetHealth::Well);
    let is_well = is_there && seen.health == FleetHealth::Well && shut.is_none();
    let passed = elapsed(member, now);
    // A gate says why one that is well is not done.
    let said = || {
        let said = shut.as_ref().or(seen.message.as_ref());
        said.map(|said| api::text::plain(said, 500))
    };
    match member.phase {
        Pending | Failed | Gone if skipped => enter(member, Skipped, None, now),
        Gone => enter(member, Pending, None, now),
        Skipped | Pending => {}
        _ if failed => {
            if member.phase == Failed {
                member.message = said();
            } else {
                enter(member, Failed, said(), now);
            }
        }
        Updating | Failed if is_well => enter(member, Soaking, None, now),
        Updating | Soaking if !is_well && patience(member, policy, now) == 0 => {
            let why = said().unwrap_or_else(|| "nothing is known of why".to_owned());
            let (time, how) = if member.phase == Updating && passed >= policy.deadline {
                (policy.deadline, "not well")
            } else {
                (policy.deadline + policy.soak, "not well for long enough")
            };
            let why = format!("{how} after {}: {why}", seconds(time));
            enter(member, Failed, Some(why), now);
        }
        Updating => member.message = said(),
        Soaking if !is_well => enter(member, Updating, said(), now),
        Soaking if passed >= policy.soak => enter(member, Done, None, now),
        Soaking | Done | Failed => {}
    }
}

/// Grants what may be granted.
fn begin(
    run: &mut RolloutRun,
    policy: &Policy,
    seen: &BTreeMap<String, Seen>,
    steering: &Steering,
    now: Timestamp,
) -> Verdict {
    let failed: Vec<_> = named(run, |member| member.phase == MemberPhase::Failed);
    let is_halted = is_halted(run, policy);
    let under_way = named(run, is_under_way);
    let wave = run.waves.iter().enumerate().find(|(_, wave)| {
        let mut members = run.clusters.iter().filter(|member| member.wave == **wave);
        members.any(|member| match member.phase {
            MemberPhase::Done | MemberPhase::Skipped | MemberPhase::Gone => false,
            MemberPhase::Failed => is_halted,
            _ => true,
        })
    });
    let wave = wave.map(|(number, wave)| (number + 1, wave.clone()));
    let mut verdict = Verdict {
        phase: RolloutPhase::Running,
        wave: wave.clone(),
        ..Verdict::default()
    };
    if wave.is_some() && steering.gives_way && under_way.is_empty() {
        verdict.phase = RolloutPhase::Superseded;
        return verdict;
    }
    let Some((_, wave)) = wave else {
        // Failures that may be keep the run open: they are not done.
        if failed.is_empty() {
            verdict.phase = RolloutPhase::Succeeded;
        } else if steering.gives_way {
            verdict.phase = RolloutPhase::Superseded;
        } else {
            verdict.phase = RolloutPhase::Halted;
            verdict.waits = Some(format!(
                "{} failed: mend it, have it skipped, or edit the inventory",
                listed(&failed)
            ));
        }
        return verdict;
    };
    verdict.next = named(run, |member| {
        member.wave == wave && member.phase == MemberPhase::Pending
    });
    let hold = held(run, policy, steering, &wave, &verdict.next);
    if let Some((phase, why)) = hold {
        verdict.phase = phase;
        verdict.waits = Some(why);
        return verdict;
    }
    grant::grant(run, policy, seen, &wave, &mut verdict, now);
    verdict
}

/// Why no cluster of a wave may be begun, whatever the budgets say.
fn held(
    run: &RolloutRun,
    policy: &Policy,
    steering: &Steering,
    wave: &str,
    next: &[String],
) -> Option<(RolloutPhase, String)> {
    if matches!(
        steering.state,
        RolloutState::Aborted | RolloutState::RolledBack
    ) {
        Some((RolloutPhase::Aborted, "it was aborted: edit the inventory for another run, or set spec.control.state to Running".to_owned()))
    } else if is_halted(run, policy) {
        let failed = named(run, |member| member.phase == MemberPhase::Failed);
        let canaries = failed_canaries(run);
        let whose = if canaries.is_empty() {
            &failed
        } else {
            &canaries
        };
        let word = if canaries.is_empty() {
            ""
        } else {
            "the canary "
        };
        let why = run
            .clusters
            .iter()
            .find(|member| Some(&member.name) == whose.first());
        let why = why.and_then(|member| member.message.clone());
        Some((
            RolloutPhase::Halted,
            format!(
                "{word}{} failed{}; mend it, have it skipped, or edit the inventory",
                listed(whose),
                why.map(|why| format!(": {why}")).unwrap_or_default()
            ),
        ))
    } else if steering.gives_way {
        Some((
            RolloutPhase::Running,
            format!(
                "a later edit takes its place when {} is through",
                listed(&named(run, is_under_way))
            ),
        ))
    } else if steering.state == RolloutState::Paused {
        Some((
            RolloutPhase::Paused,
            "it is paused: set spec.control.state to Running".to_owned(),
        ))
    } else if let Some(unknown) = &steering.unknown {
        Some((RolloutPhase::Running, unknown.clone()))
    } else if needs_approval(run, policy, wave) && !steering.approved.contains(wave) {
        Some((
            RolloutPhase::WaitingForApproval,
            format!(
                "the wave {wave} waits for an approval: windlass inventory approve; or add it to spec.control.approved with \
                 spec.control.run {}, or make a WaveApproval of it",
                run.id
            ),
        ))
    } else {
        let opens = steering.closed.as_ref().filter(|_| !next.is_empty());
        opens.map(|opens| {
            (
                RolloutPhase::WaitingForWindow,
                format!("the wave {wave} waits for the maintenance window that opens at {opens}"),
            )
        })
    }
}

/// Whether more have failed than may, or a canary has.
fn is_halted(run: &RolloutRun, policy: &Policy) -> bool {
    let failed = named(run, |member| member.phase == MemberPhase::Failed);
    let bound = &policy.failures;
    !failed_canaries(run).is_empty() || bound.is_exceeded(failed.len(), run.clusters.len())
}

fn failed_canaries(run: &RolloutRun) -> Vec<String> {
    named(run, |member| {
        member.phase == MemberPhase::Failed && member.wave == CANARY
    })
}

/// Whether a cluster was begun and is not done.
pub const fn is_under_way(member: &RolloutMember) -> bool {
    matches!(member.phase, MemberPhase::Updating | MemberPhase::Soaking)
}

/// Whether a cluster was begun, and is not done or given up.
pub fn is_open(member: &RolloutMember) -> bool {
    is_under_way(member) || member.phase == MemberPhase::Failed
}

/// The waves that may not begin before a person lets them.
pub(super) fn waiting(run: &RolloutRun, policy: &Policy) -> Vec<String> {
    let waves = run.waves.iter();
    let waiting = waves.filter(|wave| needs_approval(run, policy, wave));
    waiting.cloned().collect()
}

/// Whether a cluster was begun, whatever became of it.
pub const fn has_begun(member: &RolloutMember) -> bool {
    !matches!(
        member.phase,
        MemberPhase::Pending | MemberPhase::Skipped | MemberPhase::Gone
    )
}

/// Whether a run has gone past its canaries, and past the approval of what comes after them.
pub fn is_tried(run: &RolloutRun, policy: &Policy, approved: &BTreeSet<String>) -> bool {
    let mut canaries = run.clusters.iter().filter(|member| member.wave == CANARY);
    let is_done = |member: &RolloutMember| {
        matches!(
            member.phase,
            MemberPhase::Done | MemberPhase::Skipped | MemberPhase::Gone
        )
    };
    let next = run.waves.iter().find(|wave| *wave != CANARY);
    !is_halted(run, policy)
        && canaries.all(is_done)
        && next.is_none_or(|wave| !needs_approval(run, policy, wave) || approved.contains(wave))
}

fn needs_approval(run: &RolloutRun, policy: &Policy, wave: &str) -> bool {
    let mut members = run.clusters.iter();
    let has_begun = members.any(|member| member.wave == wave && has_begun(member));
    let follows_canary = run.waves.first().is_some_and(|first| first == CANARY)
        && run.waves.get(1).is_some_and(|second| second == wave);
    !has_begun
        && match policy.approval {
            Approval::Never => false,
            Approval::AfterCanary => follows_canary,
            Approval::EveryWave => true,
        }
}

fn named(run: &RolloutRun, which: impl Fn(&RolloutMember) -> bool) -> Vec<String> {
    let members = run.clusters.iter().filter(|member| which(member));
    members.map(|member| member.name.clone()).collect()
}

/// For how many seconds more a cluster may be at work. One that is well for a moment, and again not, has what its watching takes beside:
/// else it would be under way for ever.
fn patience(member: &RolloutMember, policy: &Policy, now: Timestamp) -> u64 {
    let since_begun = passed(member.begun.as_ref().map_or(now, |begun| begun.0), now);
    let in_all = (policy.deadline + policy.soak).saturating_sub(since_begun);
    match member.phase {
        MemberPhase::Soaking => in_all,
        _ => in_all.min(policy.deadline.saturating_sub(elapsed(member, now))),
    }
}

fn enter(member: &mut RolloutMember, phase: MemberPhase, message: Option<String>, now: Timestamp) {
    if phase == MemberPhase::Updating && !has_begun(member) {
        member.begun = Some(Time(now));
    }
    member.phase = phase;
    member.since = Some(Time(now));
    member.message = message.map(|message| api::text::plain(&message, 500));
}

fn elapsed(member: &RolloutMember, now: Timestamp) -> u64 {
    passed(member.since.as_ref().map_or(now, |since| since.0), now)
}

/// How many seconds have passed since then; none, if a clock was set back.
fn passed(since: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.as_second() - since.as_second()).unwrap_or_default()
}

fn told(member: &RolloutMember) -> String {
    let word = match member.phase {
        MemberPhase::Soaking => "is watched for a while",
        _ => "is under way",
    };
    let said = member.message.as_ref().map(|said| format!(": {said}"));
    format!("{} {word}{}", member.name, said.unwrap_or_default())
}

pub(super) fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(3);
    let first: Vec<_> = names.iter().take(3).map(String::as_str).collect();
    let rest = (more > 0).then(|| format!(" and {more} more"));
    format!("{}{}", first.join(", "), rest.unwrap_or_default())
}

/// What is said of one that was begun and whose FleetCluster is no more.
const GONE: &str = "it is gone; skip it";

fn seconds(seconds: u64) -> api::Duration {
    api::Duration::from_seconds(seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollout::waves::{self, Candidate};

    #[test]
    fn a_cluster_that_is_well_only_for_moments_fails() {
        let spec = json!({"soak": "60s", "deadline": "600s"});
        let policy = waves::policy(&serde_json::from_value(spec).unwrap());
        let (id, steering) = ("r", Steering::default());
        let candidate = Candidate {
            name: "a".into(),
            revision: id.into(),
            ..Candidate::default()
        };
        let mut run = waves::run(id, &api::inventory::RolloutSpec::default(), vec![candidate]);
        let mut phases = Vec::new();
        // Well in each second half of a minute.
        for second in (0..=720).step_by(30) {
            let health = if second % 60 == 0 {
                FleetHealth::AtWork
            } else {
                FleetHealth::Well
            };
            let seen = Seen {
                applied: Some(id.into()),
                health,
                ..Seen::default()
            };
            let now = Timestamp::from_second(second).unwrap();
            advance(
                &mut run,
                &policy,
                &[("a".into(), seen)].into(),
                &steering,
                now,
            );
            phases.push(run.clusters[0].phase);
        }
        assert!(phases.contains(&MemberPhase::Soaking), "{phases:?}");
        let member = &run.clusters[0];
        assert_eq!(
            member.message.as_deref(),
            Some("not well for long enough after 11m: nothing is known of why")
        );
    }

    #[test]
    fn a_canary_that_is_gone_is_followed_by_another() {
        let spec = serde_json::from_value(json!({"approval": "AfterCanary"})).unwrap();
        let candidates = ["a", "b", "c"].map(|name| Candidate {
            name: name.to_owned(),
            ..Candidate::default()
        });
        let mut run = waves::run("r", &spec, candidates.into());
        let seen = ["b", "c"].map(|name| (name.to_owned(), Seen::default()));
        let now = Timestamp::UNIX_EPOCH;
        advance(
            &mut run,
            &waves::policy(&spec),
            &seen.into(),
            &Steering::default(),
            now,
        );
        let members = run.clusters.iter();
        let waves: Vec<_> = members.map(|member| member.wave.as_str()).collect();
        assert_eq!(waves, [CANARY, CANARY, "rest"]);
        assert_eq!(run.clusters[0].phase, MemberPhase::Gone);
        assert_eq!(run.clusters[2].phase, MemberPhase::Pending);
    }
}
