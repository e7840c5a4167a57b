//! What becomes of a roll-out in a pass: whether a run begins, goes on, gives way to an edit or ends. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::inventory::{
    Approval, Births, OnEdit, Rollout, RolloutPhase, RolloutRun, RolloutState, RolloutStatus,
    ValuePath,
};
use controller::{
    problem,
    window::{Now, Windows},
};
use inventory::{Object, Problem, Rule};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    approvals, births,
    engine::{self, Steering, Verdict},
    gates,
    history::{self, Taken},
    known::Known,
    rollback,
    waves::{self, Candidate, spec_field},
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
    /// What clusters inherit from that are what was meant.
    pub sources: Option<String>,
    /// At what a cluster starts that is born now.
    pub births: Option<Births>,
}

/// What a pass decides from.
struct Situation<'a> {
    rollout: &'a Rollout,
    known: &'a Known,
    windows: Windows,
    /// For how much longer the inventory must be left alone.
    unrest: Duration,
    now: Timestamp,
}

/// What becomes of a roll-out. Pure.
pub(super) fn decide(
    rollout: &Rollout,
    known: &Known,
    unrest: Duration,
    now: Timestamp,
) -> Decided {
    let spec = &rollout.spec;
    let mut status = rollout.status.clone().unwrap_or_default();
    let windows = Windows::read(&spec.windows, WINDOWS);
    let problem = told(&impossible(rollout, &known.levels));
    let situation = Situation {
        rollout,
        known,
        windows: windows.unwrap_or_default(),
        unrest,
        now,
    };
    let decided = Decided {
        skipped: skipped(known, &status, situation.is_seen()),
        problem,
        ..Decided::default()
    };
    let edited = edited(known, status.run.as_ref(), &decided.skipped);
    let run = status.run.as_ref();
    let approved = run.map(|run| approvals::of_run(rollout, &known.approvals.objects, &run.id));
    let approved = approved.unwrap_or_default();
    let mut decided = match (status.run.clone(), history::asked(rollout)) {
        (Some(open), asked) if open.ended.is_none() => {
            let phase = status.phase.unwrap_or_default();
            let mut decided = situation.go_on(decided, open, phase, &edited);
            if let Some(Ok(taken)) = asked.filter(|_| decided.queued.is_none()) {
                let what = format!("run {} is taken back when this run has ended", taken.run);
                decided.queued = Some(what);
            }
            if let Some(problem) = told(name_of_another(rollout).as_slice()) {
                let queued = decided.queued.map(|queued| format!("{queued}; "));
                let queued = queued.unwrap_or_default();
                decided.queued = Some(format!("{queued}no edit begins another run: {problem}"));
            }
            decided
        }
        (last, Some(Ok(taken))) => {
            let decided = situation.go_back(decided, last, &taken);
            if decided.is_going_back() {
                // What there was before has nothing of what is taken back.
                status.sources = taken.sources;
            }
            decided
        }
        // Where there is no way back, an edit is the way on.
        (last, Some(Err(why))) if edited.is_empty() => no_way(decided, last, &why),
        (last, _) => situation.begin(decided, last, edited),
    };
    let policy = waves::policy(spec);
    let is_seen = situation.is_seen();
    decided.sources = births::settled(&status, &decided, known, is_seen, (&policy, &approved));
    decided.births = births::births(&status, &decided, &policy, &approved);
    decided
}

impl Decided {
    /// Whether the pass has begun to take back runs that ended.
    fn is_going_back(&self) -> bool {
        let run = self.run.iter().filter(|run| run.ended.is_none());
        run.chain(self.ended.iter().map(|(run, _)| run))
            .any(|run| run.rolls_back.is_some())
    }
}

impl Situation<'_> {
    /// Whether all is rendered, nobody is about to edit more, and it is known whose clusters are its own.
    fn is_seen(&self) -> bool {
        let Known {
            broken,
            stale,
            unread,
            unreadable,
            ..
        } = self.known;
        let is_rendered = broken.is_empty() && stale.is_empty() && unread.is_none();
        is_rendered && unreadable.is_none() && self.unrest.is_zero()
    }

    /// The pass of a run that is under way.
    fn go_on(
        &self,
        mut decided: Decided,
        mut open: RolloutRun,
        phase: RolloutPhase,
        edited: &[Candidate],
    ) -> Decided {
        let spec = &self.rollout.spec;
        let control = spec.control.clone().unwrap_or_default();
        let is_about = control.run.as_deref() == Some(&open.id);
        let pick = |list: &[String]| -> BTreeSet<String> {
            list.iter().filter(|_| is_about).cloned().collect()
        };
        let skip = pick(&control.skip);
        let state = match control.state.unwrap_or_default() {
            RolloutState::Aborted | RolloutState::RolledBack if !is_about => RolloutState::Running,
            state => state,
        };
        let (born, later) = self.parted(&open, edited);
        if state == RolloutState::RolledBack || open.rolls_back.is_some() {
            // Nor is a newborn brought to what is taken back.
            let born = born
                .iter()
                .map(|born| (born.name.clone(), born.revision.clone()));
            decided.skipped.extend(born);
        }
        let mut refusal = None;
        if state == RolloutState::RolledBack {
            refusal = rollback::refusal(&open, &skip, &self.known.no_way_back);
            if refusal.is_none() {
                return roll_back(decided, open, &skip, self.now);
            }
        }
        // A roll-out that nobody lets go on gives way to an edit, whatever the policy says.
        let stands = match phase {
            _ if state == RolloutState::Paused => false,
            RolloutPhase::Halted | RolloutPhase::Aborted => true,
            // Edits that come one after the other while the window is shut are one run when it opens.
            RolloutPhase::WaitingForWindow => !open.clusters.iter().any(engine::has_begun),
            _ => false,
        };
        let supersedes = spec.on_edit.unwrap_or_default() == OnEdit::Supersede || stands;
        // To what could begin: one that may not would leave what is half changed to nobody.
        let is_right = decided.problem.is_none() && name_of_another(self.rollout).is_none();
        let may_begin = is_right && self.is_seen() && self.known.is_unknown().is_none();
        let gives_way = !later.is_empty() && may_begin && supersedes;
        let mut policy = waves::policy(spec);
        if decided.problem.is_some() {
            policy.parallel = 0;
        }
        let mut steering = Steering {
            state,
            approved: approvals::of_run(self.rollout, &self.known.approvals.objects, &open.id),
            skip,
            gives_way,
            unknown: self.known.is_unknown(),
            closed: self.closed(),
        };
        if open.rolls_back.is_some() {
            // Somebody asked for it by name: it waits for no other word.
            policy.approval = Approval::Never;
            steering.closed = None;
        }
        let waiting = engine::waiting(&open, &policy);
        decided.verdict =
            engine::advance(&mut open, &policy, &self.known.seen, &steering, self.now);
        let objects = &self.known.approvals.objects;
        approvals::note(self.rollout, objects, &mut open, &policy, waiting);
        decided.verdict.wake = self.wake(decided.verdict.wake);
        if decided.verdict.phase == RolloutPhase::WaitingForApproval
            && let Some(unread) = self.known.approvals.unread
            && let Some(waits) = &mut decided.verdict.waits
        {
            waits.push_str("; ");
            waits.push_str(unread);
        }
        if let Some(why) = decided.problem.clone().or(refusal) {
            decided.verdict.waits = Some(why);
        }
        if later.is_empty() && !born.is_empty() {
            decided.queued = Some(format!(
                "{} was born meanwhile, and comes to what the inventory renders when this run has ended",
                named(&born)
            ));
        }
        if !later.is_empty() {
            let what = named(&later);
            decided.queued = Some(if gives_way {
                format!("a later edit of {what} takes the place of this run")
            } else if supersedes && let Some((rollout, _)) = &self.known.unreadable {
                format!(
                    "a later edit of {what} takes the place of this run when Rollout {rollout} can be read"
                )
            } else if supersedes && !is_right {
                format!(
                    "a later edit of {what} takes the place of this run when the Rollout is mended"
                )
            } else if supersedes {
                format!(
                    "a later edit of {what} takes the place of this run when every cluster can be rendered"
                )
            } else {
                format!("a later edit of {what} is carried out when this run has ended")
            });
        }
        if decided.verdict.is_over() {
            open.ended = Some(Time(self.now));
            // Who was refused to have it taken back, and edits the inventory, does not want it taken back after that edit.
            let is_given_up = state == RolloutState::RolledBack && gives_way;
            let phase = if is_given_up {
                history::GIVEN_UP
            } else {
                decided.verdict.phase
            };
            decided.ended = Some((open.clone(), phase));
            // What comes after it.
            decided.verdict.wake = Some(0);
        }
        decided.run = Some(open);
        decided
    }

    /// Of the clusters that the inventory makes something else of than a run does: those that were born meanwhile at what was before, while
    /// nobody has edited what they inherit from, and the others.
    fn parted(&self, open: &RolloutRun, edited: &[Candidate]) -> (Vec<Candidate>, Vec<Candidate>) {
        let is_unedited = open.sources == self.known.sources;
        edited.iter().cloned().partition(|candidate| {
            let seen = self.known.seen.get(&candidate.name);
            let mut members = open.clusters.iter();
            is_unedited
                && seen.is_some_and(|seen| seen.is_newborn)
                && members.all(|member| member.name != candidate.name)
        })
    }

    /// The pass while no run is under way: an edit begins one.
    fn begin(
        &self,
        mut decided: Decided,
        last: Option<RolloutRun>,
        edited: Vec<Candidate>,
    ) -> Decided {
        decided.run = last;
        // A run that is under way has its waves, by whatever names.
        let problem = decided.problem.clone();
        decided.problem = problem.or_else(|| told(name_of_another(self.rollout).as_slice()));
        if let Some(problem) = &decided.problem {
            decided.verdict.waits = Some(problem.clone());
            return decided;
        }
        if edited.is_empty() {
            return decided;
        }
        decided.verdict.phase = RolloutPhase::Gathering;
        decided.verdict.next = edited
            .iter()
            .map(|candidate| candidate.name.clone())
            .collect();
        if let Some(why) = self.gathers(edited.len()) {
            decided.verdict.waits = Some(format!("{} changes: {why}", named(&edited)));
            return decided;
        }
        let spec = &self.rollout.spec;
        let id = id(self.rollout, &edited, self.now);
        let mut run = waves::run(&id, spec, edited);
        run.started = Some(Time(self.now));
        run.sources.clone_from(&self.known.sources);
        for member in &mut run.clusters {
            decided.skipped.remove(&member.name);
            let seen = self.known.seen.get(&member.name);
            member.before = seen.and_then(|seen| seen.applied.clone());
        }
        let steering = Steering {
            closed: self.closed(),
            ..Steering::default()
        };
        let (policy, seen) = (waves::policy(spec), &self.known.seen);
        decided.verdict = engine::advance(&mut run, &policy, seen, &steering, self.now);
        decided.verdict.wake = self.wake(decided.verdict.wake);
        decided.run = Some(run);
        decided
    }

    /// The pass while no run is under way and somebody wants some that ended taken back.
    fn go_back(&self, mut decided: Decided, last: Option<RolloutRun>, taken: &Taken) -> Decided {
        decided.run = last;
        decided.verdict.phase = RolloutPhase::Aborted;
        let control = self.rollout.spec.control.clone().unwrap_or_default();
        let skip: BTreeSet<_> = control.skip.into_iter().collect();
        let refusal = decided
            .problem
            .clone()
            .or_else(|| rollback::refusal_of_ended(taken, &skip, &self.known.no_way_back));
        if let Some(why) = refusal {
            decided.verdict.waits = Some(why);
            return decided;
        }
        let mut run = rollback::run_back(taken, &self.rollout.spec, &skip, self.known);
        decided.verdict.next = run.clusters.iter().map(|it| it.name.clone()).collect();
        if let Some(why) = self.known.is_unknown() {
            decided.verdict.phase = RolloutPhase::Gathering;
            decided.verdict.waits = Some(format!("run {} is to be taken back: {why}", taken.run));
            return decided;
        }
        if run.clusters.len() > MOST_MEMBERS {
            decided.verdict.waits = Some(format!(
                "run {} is not taken back: {} clusters would go back, and a run has {MOST_MEMBERS} at most; name a later run, or set \
                 spec.control.state to Running",
                taken.run,
                run.clusters.len()
            ));
            return decided;
        }
        self.leave(&mut decided, taken);
        decided.verdict.next.clear();
        decided.verdict.phase = RolloutPhase::RolledBack;
        decided.verdict.wake = Some(0);
        run.started = Some(Time(self.now));
        if run.clusters.is_empty() {
            // All are what they were: that is written down, or it would be asked for for ever.
            run.ended = Some(Time(self.now));
            decided.ended = Some((run, RolloutPhase::Succeeded));
        } else {
            decided.run = Some(run);
        }
        decided
    }

    /// Keeps the roll-out from what is taken back, until the inventory says something else. An edit that nobody has carried out comes next.
    fn leave(&self, decided: &mut Decided, taken: &Taken) {
        for candidate in &self.known.own {
            let Some(brought) = taken.revisions.get(&candidate.name) else {
                continue;
            };
            let seen = self.known.seen.get(&candidate.name);
            let applied = seen.and_then(|seen| seen.applied.as_ref());
            if candidate.revision == *brought || Some(&candidate.revision) == applied {
                let (name, revision) = (candidate.name.clone(), candidate.revision.clone());
                decided.skipped.insert(name, revision);
            }
        }
    }

    /// Why a run of so many clusters does not begin.
    fn gathers(&self, edited: usize) -> Option<String> {
        let control = self.rollout.spec.control.as_ref();
        let state = control.and_then(|control| control.state);
        if state == Some(RolloutState::Paused) {
            Some("it is paused: set spec.control.state to Running".to_owned())
        } else if let Some(broken) = self.known.is_broken() {
            Some(broken)
        } else if let Some(stale) = self.known.stale.first() {
            Some(format!("FleetCluster {stale} is being rendered"))
        } else if let Some(unread) = &self.known.unread {
            Some(unread.clone())
        } else if let Some(unknown) = self.known.is_unknown() {
            Some(unknown)
        } else if !self.unrest.is_zero() {
            Some("the inventory is being edited".to_owned())
        } else if edited > MOST_MEMBERS {
            Some(format!(
                "{edited} clusters change, and a run has {MOST_MEMBERS} at most: make several Rollouts with selectors"
            ))
        } else {
            None
        }
    }

    /// When the next window opens, while none is open.
    fn closed(&self) -> Option<String> {
        match self.windows.at(self.now) {
            Now::Closed { opens } => Some(opens.to_string()),
            Now::Unbound | Now::Open { .. } => None,
        }
    }

    /// How many seconds from now something happens by itself: the time of a cluster is up, or a window opens or closes.
    fn wake(&self, of_clusters: Option<u64>) -> Option<u64> {
        let left = self.windows.left(self.now);
        let left = left.map(|left| u64::try_from(left.as_secs()).unwrap_or_default() + 1);
        of_clusters.into_iter().chain(left).min()
    }
}

/// Ends a run, and begins the one that takes back what it has begun. No cluster of it is brought to its revision any more.
fn roll_back(
    mut decided: Decided,
    mut run: RolloutRun,
    skip: &BTreeSet<String>,
    now: Timestamp,
) -> Decided {
    let left = run.clusters.iter();
    let left = left.map(|member| (member.name.clone(), member.revision.clone()));
    decided.skipped.extend(left);
    let mut back = rollback::run(&run, skip);
    run.ended = Some(Time(now));
    decided.verdict.phase = RolloutPhase::RolledBack;
    decided.verdict.wake = Some(0);
    decided.ended = Some((run.clone(), RolloutPhase::RolledBack));
    decided.run = if back.clusters.is_empty() {
        Some(run)
    } else {
        back.started = Some(Time(now));
        Some(back)
    };
    decided
}

/// The pass while no run is under way, nobody has edited anything, and what somebody wants taken back cannot be.
fn no_way(mut decided: Decided, last: Option<RolloutRun>, why: &str) -> Decided {
    decided.run = last;
    decided.verdict.phase = RolloutPhase::Aborted;
    decided.verdict.waits = Some(format!("{why}; or set spec.control.state to Running"));
    decided
}

/// Why a roll-out of clusters with these levels can never run. Empty: it can.
pub fn prevented_by(rollout: &Rollout, levels: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = impossible(rollout, levels);
    problems.extend(name_of_another(rollout));
    problems
}

/// What no cluster is begun with, of a run that is under way either.
fn impossible(rollout: &Rollout, levels: &BTreeSet<String>) -> Vec<Problem> {
    let spec = &rollout.spec;
    let levels = waves::unknown_levels(spec, levels);
    let gates = gates::problems(spec)
        .map(|(place, rule)| (spec_field("gates").index(place).key("rule"), rule));
    let windows = Windows::read(&spec.windows, WINDOWS).err();
    let windows = windows.into_iter().flatten().map(window);
    let all = levels.chain(gates).chain(windows);
    all.map(|(path, rule)| wrong(rollout, path, rule)).collect()
}

fn window(wrong: problem::Problem) -> (ValuePath, Rule) {
    let rule = Rule::Window {
        what: wrong.what(),
        remedy: wrong.remedy,
    };
    // It names a field below the one that was given.
    let path = wrong.field.parse();
    (path.unwrap_or_else(|_| spec_field("windows")), rule)
}

/// A wave that is called as one that every run has, or as another one: clusters of both would go together, and by one approval. The API
/// refuses it too; of a directory nobody has asked the API.
fn name_of_another(rollout: &Rollout) -> Option<Problem> {
    let mut known: BTreeSet<&str> = [engine::CANARY, waves::REST, rollback::WAVE].into();
    let mut waves = rollout.spec.waves.iter().enumerate();
    let (place, wave) = waves.find(|(_, wave)| !known.insert(&wave.name))?;
    let path = spec_field("waves").index(place).key("name");
    let name = wave.name.clone();
    Some(wrong(rollout, path, Rule::WaveName { name }))
}

fn wrong(rollout: &Rollout, path: ValuePath, rule: Rule) -> Problem {
    let object = Object {
        kind: "Rollout".into(),
        namespace: rollout.namespace().unwrap_or_default(),
        name: rollout.name_any(),
    };
    Problem {
        object,
        level: None,
        path,
        rule,
    }
}

const WINDOWS: &str = "spec.windows";

/// All of them as one text. None: there are none.
fn told(problems: &[Problem]) -> Option<String> {
    let all: Vec<_> = problems.iter().map(Problem::to_string).collect();
    (!all.is_empty()).then(|| all.join(". "))
}

/// What people had left out, of this run and of those before it, and what they had taken back. An edit that makes another revision of a
/// cluster is another change, and so is one that makes the same again after that.
fn skipped(known: &Known, status: &RolloutStatus, is_seen: bool) -> BTreeMap<String, String> {
    let mut all = status.skipped.clone();
    // What is left out of a way back stays out of what that takes back.
    let run = status.run.iter().filter(|run| run.rolls_back.is_none());
    let members = run.flat_map(|run| &run.clusters);
    all.extend(
        members
            .filter(|member| member.phase == api::inventory::MemberPhase::Skipped)
            .map(|member| (member.name.clone(), member.revision.clone())),
    );
    all.retain(|name, _| known.seen.contains_key(name));
    if is_seen {
        for candidate in &known.own {
            if all.get(&candidate.name) != Some(&candidate.revision) {
                all.remove(&candidate.name);
            }
        }
    }
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
    let takes_back = open.is_some_and(|run| run.rolls_back.is_some());
    let edited = own.filter(|candidate| {
        let members = open.into_iter().flat_map(|run| &run.clusters);
        let mut members = members.filter(|member| member.name == candidate.name);
        let seen = known.seen.get(&candidate.name);
        // Nothing of it is there: it is born, not changed.
        let Some((seen, applied)) = seen.and_then(|seen| Some((seen, seen.applied.as_ref()?)))
        else {
            return false;
        };
        let is_left = skipped.get(&candidate.name) == Some(&candidate.revision);
        match members.next() {
            Some(_) if is_left && takes_back => false,
            Some(member) => member.revision != candidate.revision,
            None if is_left => false,
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

/// How many skipped clusters are remembered, by the schema of the status.
const MOST_SKIPPED: usize = 10_000;
/// How many clusters a run has, by the same.
const MOST_MEMBERS: usize = 1000;

#[cfg(test)]
mod tests;
