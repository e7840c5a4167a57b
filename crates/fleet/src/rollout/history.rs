//! What a Rollout remembers of runs that ended, and what it is to take them back. Pure.
//!
//! A run that ended says of each cluster that it had begun what that was before. To take a run back is to take back those that came after
//! it as well: a cluster goes to what it was before the first of them, so what comes out is a state that the fleet has had.

use std::collections::BTreeMap;

use api::inventory::{
    MemberPhase, Rollout, RolloutChange, RolloutMember, RolloutPhase, RolloutRecord, RolloutRun,
    RolloutState, RolloutStatus,
};

use super::engine;
use crate::names;

/// What is taken back: a run, and those that came after it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Taken {
    /// The first of them.
    pub(crate) run: String,
    /// What each cluster was before, as far as that was written down.
    pub(crate) before: BTreeMap<String, Option<String>>,
    /// What the last of them has made of it.
    pub(crate) revisions: BTreeMap<String, String>,
    /// What clusters inherited from before.
    pub(crate) sources: Option<String>,
}

impl Taken {
    /// A run that is under way.
    pub(crate) fn under_way(run: &RolloutRun) -> Self {
        let mut taken = Self {
            run: run.id.clone(),
            ..Self::default()
        };
        taken.add(&changes(run, engine::has_begun));
        taken
    }

    /// A later run.
    fn add(&mut self, changes: &[RolloutChange]) {
        for change in changes {
            let name = || change.name.clone();
            let before = self.before.entry(name());
            before.or_insert_with(|| change.before.clone());
            self.revisions.insert(name(), change.revision.clone());
        }
    }
}

/// What is kept of a run that ended, before which clusters inherited from these.
pub(super) fn record(
    run: &RolloutRun,
    phase: RolloutPhase,
    sources: Option<&String>,
) -> RolloutRecord {
    let done = run
        .clusters
        .iter()
        .filter(|member| member.phase == MemberPhase::Done)
        .count();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    RolloutRecord {
        id: run.id.clone(),
        phase,
        started: run.started.clone(),
        ended: run.ended.clone(),
        done: count(done),
        not_done: count(run.clusters.len() - done),
        approvals: run.approvals.clone(),
        rolls_back: run.rolls_back.clone(),
        sources: sources.cloned(),
        clusters: changes(run, may_have_changed),
    }
}

/// The records with one more. What clusters were is kept of the newest, for it is much.
pub(super) fn remembered(known: &[RolloutRecord], ended: RolloutRecord) -> Vec<RolloutRecord> {
    let mut history = vec![ended];
    history.extend_from_slice(known);
    history.truncate(MOST_RECORDS);
    for old in history.iter_mut().skip(KEPT) {
        old.sources = None;
        old.clusters.clear();
    }
    history
}

/// Forgets what clusters were before the oldest runs, for as long as all of it is more than is kept in one object. Of a run in which none was
/// done it stays: without that it would look like one that has changed nothing.
pub(super) fn fit(status: &mut RolloutStatus) {
    let is_large = |status: &RolloutStatus| {
        serde_json::to_vec(status).is_ok_and(|text| text.len() > names::LARGEST_RECORD)
    };
    while is_large(status) {
        let mut oldest = status.history.iter_mut().rev();
        let has_much = |record: &&mut RolloutRecord| record.done > 0 && !record.clusters.is_empty();
        let Some(oldest) = oldest.find(has_much) else {
            return;
        };
        oldest.sources = None;
        oldest.clusters.clear();
    }
}

/// What a person wants taken back that has ended, or why it is not. None: nothing, or it was taken back already, or given up.
pub(crate) fn asked(rollout: &Rollout) -> Option<Result<Taken, String>> {
    let control = rollout.spec.control.as_ref()?;
    let run = control.run.as_ref()?;
    let status = rollout.status.as_ref()?;
    let mut history = status.history.iter();
    let is_asked = control.state == Some(RolloutState::RolledBack)
        && history.any(|record| record.id == *run && record.phase != GIVEN_UP)
        && taken_back(status, run).is_none();
    is_asked.then(|| taken(status, run))
}

/// What it is to take back a run that has ended.
///
/// # Errors
/// Why it cannot be, and what can.
pub(crate) fn taken(status: &RolloutStatus, run: &str) -> Result<Taken, String> {
    let history = &status.history;
    let mut places = history.iter();
    let Some(place) = places.position(|record| record.id == run) else {
        return Err(format!(
            "there is no run {run}; those that ended: {}",
            ids(history)
        ));
    };
    let later = history.get(..=place).unwrap_or_default();
    let first = later.last();
    if let Some(before) = first.and_then(|record| record.rolls_back.as_ref()) {
        return Err(format!(
            "run {run} is itself the way back from run {before}: name an earlier run, or edit the inventory for another revision"
        ));
    }
    if let Some(back) = taken_back(status, run) {
        return Err(format!("run {run} was taken back{back}"));
    }
    if first.is_some_and(|record| record.phase == GIVEN_UP) {
        return Err(format!(
            "run {run} gave way to an edit when it was to be taken back and could not be: name an earlier run, or edit the inventory for another \
             revision"
        ));
    }
    let mut taken = Taken {
        run: run.to_owned(),
        sources: first.and_then(|record| record.sources.clone()),
        ..Taken::default()
    };
    for record in later.iter().rev() {
        if place >= KEPT || record.done > 0 && record.clusters.is_empty() {
            return Err(format!(
                "what the clusters were before run {} is not kept any more: at most the last {KEPT} runs can be taken back; edit the inventory for \
                 another revision",
                record.id
            ));
        }
        taken.add(&record.clusters);
    }
    Ok(taken)
}

/// The run to take back for the clusters to be as another one has left them.
///
/// # Errors
/// There is none, and why.
pub(crate) fn after<'a>(status: &'a RolloutStatus, left: &str) -> Result<&'a str, String> {
    let open = open(status).map(|run| run.id.as_str());
    let ended = status.history.iter().map(|record| record.id.as_str());
    let all: Vec<_> = open.into_iter().chain(ended).collect();
    match all.iter().position(|id| *id == left) {
        None => Err(format!(
            "there is no run {left}; those that ended: {}",
            ids(&status.history)
        )),
        Some(place) => place
            .checked_sub(1)
            .and_then(|place| all.get(place).copied())
            .ok_or_else(|| format!("run {left} is the last one: nothing came after it")),
    }
}

/// The run that is under way.
pub(crate) fn open(status: &RolloutStatus) -> Option<&RolloutRun> {
    status.run.as_ref().filter(|run| run.ended.is_none())
}

/// The revisions of a cluster to which a roll-out may go back, and those that it would come from.
pub(crate) fn revisions<'a>(
    status: &'a RolloutStatus,
    cluster: &'a str,
) -> impl Iterator<Item = &'a String> {
    let changes = status.history.iter().flat_map(|record| &record.clusters);
    let own = changes.filter(move |change| change.name == cluster);
    own.flat_map(|change| change.before.iter().chain([&change.revision]))
}

/// By what a run was taken back, for a person. None: it was not.
fn taken_back(status: &RolloutStatus, run: &str) -> Option<String> {
    let is_it = |of: &Option<String>| of.as_deref() == Some(run);
    let now = status.run.iter().find(|back| is_it(&back.rolls_back));
    let mut history = status.history.iter();
    let back = now.map(|back| &back.id).or_else(|| {
        let back = history.find(|record| is_it(&record.rolls_back));
        back.map(|record| &record.id)
    });
    if let Some(back) = back {
        return Some(format!(" by run {back}"));
    }
    let mut history = status.history.iter();
    let is_back =
        history.any(|record| record.id == run && record.phase == RolloutPhase::RolledBack);
    is_back.then(String::new)
}

/// Whether a run may have made something of a cluster. One that was skipped may have failed before that; where it was never begun it is what it
/// was, and no way back touches it.
fn may_have_changed(member: &RolloutMember) -> bool {
    engine::has_begun(member) || member.phase == MemberPhase::Skipped
}

/// What a run has made of these of its clusters.
fn changes(run: &RolloutRun, of: impl Fn(&RolloutMember) -> bool) -> Vec<RolloutChange> {
    let members = run.clusters.iter().filter(|member| of(member));
    let changes = members.map(|member| RolloutChange {
        name: member.name.clone(),
        before: member.before.clone(),
        revision: member.revision.clone(),
    });
    changes.collect()
}

fn ids(history: &[RolloutRecord]) -> String {
    let ids: Vec<_> = history.iter().map(|record| record.id.as_str()).collect();
    if ids.is_empty() {
        "none".to_owned()
    } else {
        ids.join(", ")
    }
}

/// How a run ended that was to be taken back, could not be, and gave way to an edit: the request, which still stands, is over with it.
pub(super) const GIVEN_UP: RolloutPhase = RolloutPhase::Aborted;
/// How many records are kept, by the schema of the status.
const MOST_RECORDS: usize = 10;
/// Of how many runs it is kept what the clusters were before: each holds a FleetRevision of each of them.
pub(crate) const KEPT: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(history: &serde_json::Value) -> RolloutStatus {
        serde_json::from_value(json!({"history": history})).unwrap()
    }

    fn ended(id: &str, clusters: &[(&str, &str, &str)]) -> serde_json::Value {
        let clusters = clusters.iter();
        let clusters = clusters.map(
            |(name, before, revision)| json!({"name": name, "before": before, "revision": revision}),
        );
        json!({
            "id": id, "phase": "Succeeded", "done": clusters.len(), "notDone": 0, "sources": format!("before-{id}"),
            "clusters": clusters.collect::<Vec<_>>(),
        })
    }

    #[test]
    fn a_run_is_taken_back_with_those_after_it() {
        let status = status(&json!([
            ended("r3", &[("a", "2", "3"), ("c", "1", "3")]),
            ended("r2", &[("a", "1", "2"), ("b", "1", "2")]),
            ended("r1", &[("a", "0", "1")]),
        ]));
        let to = |run: &str| {
            let taken = taken(&status, run).unwrap();
            let before = taken.before.iter();
            let before =
                before.map(|(name, before)| format!("{name}={}", before.as_deref().unwrap()));
            (before.collect::<Vec<_>>().join(" "), taken)
        };
        assert_eq!(to("r3").0, "a=2 c=1");
        let (before, second) = to("r2");
        assert_eq!(before, "a=1 b=1 c=1");
        assert_eq!(second.sources.as_deref(), Some("before-r2"));
        assert_eq!(second.revisions["a"], "3");
        assert_eq!(to("r1").0, "a=0 b=1 c=1");
        assert_eq!(after(&status, "r1"), Ok("r2"));
        for (run, words) in [
            ("r3", "is the last one"),
            ("r9", "those that ended: r3, r2, r1"),
        ] {
            let error = after(&status, run).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_not_kept_or_was_taken_back_is_not_taken_back() {
        let mut back = ended("back", &[("a", "2", "1")]);
        back["rollsBack"] = json!("r2");
        let mut taken_in_mid_run = ended("r1", &[("a", "0", "1")]);
        taken_in_mid_run["phase"] = json!("RolledBack");
        let mut of_a_former_release = ended("r0", &[("a", "0", "1")]);
        of_a_former_release["clusters"] = json!([]);
        let known = status(&json!([
            back,
            ended("r2", &[("a", "1", "2")]),
            taken_in_mid_run
        ]));
        for (run, words) in [
            ("back", "is itself the way back from run r2"),
            ("r2", "was taken back by run back"),
            ("r1", "was taken back"),
            ("r7", "there is no run r7; those that ended: back, r2, r1"),
        ] {
            let error = taken(&known, run).unwrap_err();
            assert!(error.contains(words), "{run}: {error}");
        }
        let known = status(&json!([
            ended("r1", &[("a", "1", "2")]),
            of_a_former_release
        ]));
        let error = taken(&known, "r0").unwrap_err();
        assert!(
            error.contains("before run r0 is not kept any more"),
            "{error}"
        );
        assert!(taken(&known, "r1").is_ok());
    }

    #[test]
    fn what_clusters_were_is_kept_of_the_newest_runs() {
        let mut history = Vec::new();
        for number in 0..12 {
            let ended = ended(&format!("r{number}"), &[("a", "1", "2")]);
            history = remembered(&history, serde_json::from_value(ended).unwrap());
        }
        assert_eq!(history.len(), MOST_RECORDS);
        let kept =
            |record: &&RolloutRecord| !record.clusters.is_empty() && record.sources.is_some();
        let kept: Vec<_> = history
            .iter()
            .filter(kept)
            .map(|it| it.id.as_str())
            .collect();
        assert_eq!(kept, ["r11", "r10", "r9"]);
        let status = RolloutStatus {
            history,
            ..RolloutStatus::default()
        };
        let error = taken(&status, "r8").unwrap_err();
        assert!(
            error.contains("the last 3 runs can be taken back"),
            "{error}"
        );
        assert_eq!(revisions(&status, "a").count(), 6);
        assert_eq!(revisions(&status, "b").count(), 0);
    }

    #[test]
    fn what_would_be_too_large_to_be_kept_is_of_the_newest_runs_alone() {
        let of = |clusters: usize, digits: &str| {
            let name = |number: usize| format!("{number:0250}");
            let names: Vec<_> = (0..clusters).map(name).collect();
            let clusters = names.iter().map(|name| (name.as_str(), digits, digits));
            let clusters: Vec<_> = clusters.collect();
            let mut status = status(&json!([
                ended("r3", &clusters),
                ended("r2", &clusters),
                ended("r1", &clusters),
                ended("r0", &[]),
            ]));
            status.history[1].done = 0;
            fit(&mut status);
            let text = serde_json::to_vec(&status).unwrap();
            let records = status.history.iter();
            let left = records.filter(|record| !record.clusters.is_empty());
            let left: Vec<_> = left.map(|record| record.id.clone()).collect();
            (left, text.len() <= names::LARGEST_RECORD)
        };
        let digits = "0".repeat(32);
        let all = ["r3", "r2", "r1"].map(ToOwned::to_owned);
        assert_eq!(of(100, "0123456789"), (all.to_vec(), true));
        assert_eq!(of(1000, &digits), (all[..2].to_vec(), true));
        // Of one in which nothing was done it stays.
        assert_eq!(of(2000, &digits), (all[1..2].to_vec(), true));
    }
}
