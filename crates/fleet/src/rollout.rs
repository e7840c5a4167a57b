//! The reconciler of a Rollout: writes down what an edit makes of the clusters, and walks over them.
//!
//! The status is the record of a run: who was begun, with which revision, since when. It is written under the version that the pass
//! read, so that no pass grants on the ground of an older one; a FleetCluster is brought to a revision only after the grant was written.
//! The decisions are made in [`engine`] and [`waves`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::inventory::{
    FleetCluster, OnEdit, Rollout, RolloutMember, RolloutPhase, RolloutRecord, RolloutRun,
    RolloutState,
};
use controller::{
    Events,
    stream::{in_namespace, readable},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};

use crate::inventories::{Inventories, Inventory};

mod approvals;
pub mod engine;
pub(crate) mod gates;
mod report;
pub mod waves;

use engine::{Seen, Steering, Verdict};
use waves::Candidate;

/// What the passes share.
pub struct Context {
    /// The API.
    pub client: Client,
    /// One pass at a time: what two roll-outs grant at once, neither has seen of the other.
    pub turn: tokio::sync::Mutex<()>,
    /// The FleetClusters.
    pub clusters: Store<DeserializeGuard<FleetCluster>>,
    /// The inventories.
    pub inventories: Arc<Inventories>,
    /// What happened.
    pub events: Events,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(&'static str, #[source] kube::Error),
    /// The status could not be written.
    #[error("apply")]
    Apply(#[source] controller::apply::Error),
}

/// What is known of the clusters of a roll-out.
#[derive(Debug, Default)]
struct Known {
    /// Every cluster of the namespace: budgets are of all.
    seen: BTreeMap<String, Seen>,
    /// The roll-out's own, with what the inventory renders each to.
    own: Vec<Candidate>,
    /// Own ones that cannot be rendered.
    broken: Vec<String>,
    /// Own ones whose status does not speak of the inventory as it is now.
    stale: Vec<String>,
    /// Those of the namespace, whosever, that cannot be read or rendered: where they belong is not known.
    unknown: Vec<String>,
    /// The levels that there are.
    levels: BTreeSet<String>,
}

impl Known {
    /// Why no cluster may be begun: budgets count all of the namespace.
    fn is_unknown(&self) -> Option<String> {
        let name = self.unknown.first()?;
        Some(format!(
            "FleetCluster {name} cannot be rendered, so nobody knows what it belongs to: its status says why"
        ))
    }
}

/// What a pass decided.
#[derive(Debug, Default)]
struct Decided {
    run: Option<RolloutRun>,
    /// A run that ended by what was decided.
    ended: Option<(RolloutRun, RolloutPhase)>,
    verdict: Verdict,
    queued: Option<String>,
    /// What people had left out: clusters, and the revision of each.
    skipped: BTreeMap<String, String>,
    /// What somebody must correct.
    problem: Option<String>,
}

/// One pass.
///
/// # Errors
/// The API refuses or does not answer.
pub async fn reconcile(
    object: Arc<DeserializeGuard<Rollout>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Some(rollout) = readable(&object) else {
        return Ok(Action::await_change());
    };
    let namespace = rollout.namespace().unwrap_or_default();
    let Some(inventory) = context.inventories.of(&namespace) else {
        return Ok(Action::requeue(UNTIL_READ));
    };
    let _turn = context.turn.lock().await;
    // From the API, not from a watch that may be behind: what was granted must be seen, by whomever it was.
    let api = Api::<DeserializeGuard<Rollout>>::namespaced(context.client.clone(), &namespace);
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|error| Error::Api("list the Rollouts", error))?;
    let all: Vec<_> = all
        .items
        .into_iter()
        .filter_map(|rollout| rollout.0.ok())
        .collect();
    let mut own = all.iter().filter(|one| one.uid() == rollout.uid());
    let Some(rollout) = own.find(|one| one.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    let known = known(rollout, &all, &inventory, &context);
    let unrest = inventory.unrest();
    let decided = decide(rollout, &known, unrest, Timestamp::now());
    report::publish(rollout, &decided, &known, &context).await?;
    let wake = decided
        .verdict
        .wake
        .map(|seconds| Duration::from_secs(seconds.max(1)));
    let wake = wake.unwrap_or(AT_REST).min(if unrest.is_zero() {
        AT_REST
    } else {
        unrest + UNTIL_READ
    });
    Ok(Action::requeue(wake))
}

fn known(rollout: &Rollout, all: &[Rollout], inventory: &Inventory, context: &Context) -> Known {
    let namespace = rollout.namespace().unwrap_or_default();
    let others = all.iter().filter(|other| other.uid() != rollout.uid());
    let taken: BTreeMap<_, _> = others
        .flat_map(members)
        .filter(|member| engine::is_open(member))
        .map(|member| (member.name.as_str(), member))
        .collect();
    // What a cluster was begun in it stays in, whatever the inventory says by now, or cannot say.
    let mut recorded = BTreeMap::<&str, BTreeSet<String>>::new();
    for member in all.iter().flat_map(members) {
        let domains = recorded.entry(&member.name).or_default();
        domains.extend(member.domains.iter().cloned());
    }
    let recorded = |name: &str| recorded.get(name).cloned().unwrap_or_default();
    let policy = waves::policy(&rollout.spec);
    let mut known = Known::default();
    for cluster in in_namespace(&context.clusters, &namespace) {
        let cluster = match &cluster.0 {
            Ok(cluster) => cluster,
            Err(invalid) => {
                let name = invalid.metadata.name.clone().unwrap_or_default();
                let seen = Seen {
                    domains: recorded(&name).into_iter().collect(),
                    message: Some("its FleetCluster cannot be read".to_owned()),
                    is_taken: taken.contains_key(name.as_str()),
                    ..Seen::default()
                };
                known.unknown.push(name.clone());
                known.seen.insert(name, seen);
                continue;
            }
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let name = cluster.name_any();
        let status = cluster.status.clone().unwrap_or_default();
        let outcome = inventory.render(&name);
        let levels = outcome
            .as_ref()
            .as_ref()
            .map(|revision| revision.levels.clone());
        if levels.is_err() {
            known.unknown.push(name.clone());
        }
        let levels = levels.unwrap_or_default();
        let mut domains = recorded(&name);
        domains.extend(waves::domains(&policy, &levels));
        known.levels.extend(levels.keys().cloned());
        known.seen.insert(
            name.clone(),
            Seen {
                domains: domains.into_iter().collect(),
                applied: status.applied.clone(),
                is_halfway: status.begun.is_some(),
                target: status.target.clone(),
                health: status.health.unwrap_or_default(),
                message: status.message.clone(),
                gates: status.gates.clone(),
                rules: status.rules.clone(),
                is_taken: taken.contains_key(name.as_str()),
            },
        );
        let owner = waves::owner(all.iter(), cluster.labels());
        if owner.map(ResourceExt::name_any) != Some(rollout.name_any()) {
            continue;
        }
        match outcome.as_ref() {
            Err(_) => known.broken.push(name),
            Ok(revision) => {
                if status.rendered.as_ref() != Some(&revision.name) {
                    let broken = status
                        .problems
                        .first()
                        .is_some_and(|_| status.rendered.is_none());
                    let list = if broken {
                        &mut known.broken
                    } else {
                        &mut known.stale
                    };
                    list.push(name.clone());
                }
                known.own.push(Candidate {
                    name,
                    labels: cluster.labels().clone(),
                    levels,
                    revision: revision.name.clone(),
                });
            }
        }
    }
    // Begun by another roll-out, and gone.
    let own: BTreeSet<_> = members(rollout)
        .map(|member| member.name.as_str())
        .collect();
    for (name, member) in taken {
        if !own.contains(name) && !known.seen.contains_key(name) {
            let seen = Seen {
                domains: member.domains.clone(),
                is_taken: true,
                ..Seen::default()
            };
            known.seen.insert(name.to_owned(), seen);
        }
    }
    known
}

/// The clusters of a roll-out's run that has not ended.
fn members(rollout: &Rollout) -> impl Iterator<Item = &RolloutMember> {
    use api::inventory::MemberPhase::{Done, Gone, Skipped};
    let run = rollout
        .status
        .as_ref()
        .and_then(|status| status.run.as_ref());
    let run = run.filter(|run| run.ended.is_none());
    let members = run.into_iter().flat_map(|run| &run.clusters);
    members.filter(|member| !matches!(member.phase, Done | Skipped | Gone))
}

/// What becomes of a roll-out. Pure.
fn decide(rollout: &Rollout, known: &Known, unrest: Duration, now: Timestamp) -> Decided {
    let spec = &rollout.spec;
    let status = rollout.status.clone().unwrap_or_default();
    let unknown: Vec<_> = waves::levels(spec)
        .into_iter()
        .filter(|level| !known.levels.is_empty() && !known.levels.contains(level))
        .collect();
    let control = spec.control.clone().unwrap_or_default();
    let state = control.state.unwrap_or_default();
    let mut decided = Decided {
        skipped: skipped(known, &status),
        ..Decided::default()
    };
    if let Some(level) = unknown.first() {
        let levels: Vec<_> = known.levels.iter().map(String::as_str).collect();
        decided.problem = Some(format!(
            "Rollout/{} spec: the level {level} is one of no cluster, so its budget or wave can never be met; name one of {}",
            rollout.name_any(),
            levels.join(", ")
        ));
    } else {
        decided.problem = gates::problem(&rollout.name_any(), spec);
    }
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
        let stands = matches!(
            status.phase,
            Some(RolloutPhase::Halted | RolloutPhase::Aborted)
        ) && state != RolloutState::Paused;
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
        };
        let waiting = engine::waiting(open, &policy);
        decided.verdict = engine::advance(open, &policy, &known.seen, &steering, now);
        approvals::note(rollout, open, &policy, waiting);
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
    decided.verdict = engine::advance(&mut run, &policy, &known.seen, &Steering::default(), now);
    decided.run = Some(run);
    decided
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
fn record(run: &RolloutRun, phase: RolloutPhase) -> RolloutRecord {
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
        approvals: run.approvals.clone(),
    }
}

/// How many records are kept, by the schema of the status.
const MOST_RECORDS: usize = 10;
/// How many skipped clusters are remembered, by the same.
const MOST_SKIPPED: usize = 10_000;
/// How many clusters a run has, by the same.
const MOST_MEMBERS: usize = 1000;
/// How soon a pass is tried again that began before the stores were read.
const UNTIL_READ: Duration = Duration::from_millis(50);
/// A safety net for a lost wake-up.
const AT_REST: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use api::inventory::{FleetHealth, MemberPhase};
    use serde_json::{Value, json};

    use super::*;

    /// Clusters of the sites `a` and `b`, each with what it is and what the inventory renders it to.
    fn known(clusters: &[(&str, &str, &str)]) -> Known {
        let mut known = Known {
            levels: ["site".to_owned(), "cluster".to_owned()].into(),
            ..Known::default()
        };
        for (name, applied, rendered) in clusters {
            let site = name[..1].to_owned();
            let seen = Seen {
                domains: vec![format!("site/{site}")],
                applied: Some((*applied).to_owned()),
                health: FleetHealth::Well,
                ..Seen::default()
            };
            known.seen.insert((*name).to_owned(), seen);
            known.own.push(Candidate {
                name: (*name).to_owned(),
                levels: [("site".to_owned(), site)].into(),
                revision: (*rendered).to_owned(),
                ..Candidate::default()
            });
        }
        known
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
    fn rollout(spec: Value) -> Rollout {
        serde_json::from_value(json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Rollout",
            "metadata": {"name": "all", "uid": "1"}, "spec": spec,
        }))
        .unwrap()
    }

    /// A pass, whose outcome the next one goes on from.
    fn pass(rollout: &mut Rollout, known: &Known) -> Decided {
        let decided = decide(
            rollout,
            known,
            Duration::ZERO,
            Timestamp::from_second(0).unwrap(),
        );
        let status = rollout.status.get_or_insert_default();
        status.run.clone_from(&decided.run);
        status.phase = Some(decided.verdict.phase);
        status.skipped.clone_from(&decided.skipped);
        decided
    }

    fn phases(decided: &Decided) -> String {
        let members = decided.run.iter().flat_map(|run| &run.clusters);
        let members =
            members.map(|member| format!("{}={:?}@{}", member.name, member.phase, member.revision));
        members.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_edit_in_mid_run_queues_or_takes_over_and_says_so() {
        for (on_edit, begun, words) in [
            (
                "Queue",
                "a1=Done@2 b1=Updating@2",
                "is carried out when this run has ended",
            ),
            (
                "Supersede",
                "a1=Done@2 b1=Pending@2",
                "takes the place of this run",
            ),
        ] {
            let mut rollout = rollout(json!({"onEdit": on_edit, "soak": "0s"}));
            let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
            assert_eq!(
                phases(&pass(&mut rollout, &before)),
                "a1=Updating@2 b1=Pending@2"
            );
            let edited = known(&[("a1", "2", "3"), ("b1", "1", "3")]);
            let mut last = Decided::default();
            for _ in 0..2 {
                last = pass(&mut rollout, &edited);
            }
            // Soaked and edited.
            assert!(
                last.queued
                    .clone()
                    .is_some_and(|queued| queued.contains(words)),
                "{on_edit}: {last:?}"
            );
            if on_edit == "Queue" {
                assert_eq!(phases(&last), begun, "{on_edit}");
            } else {
                assert_eq!(
                    last.ended.clone().map(|(_, phase)| phase),
                    Some(RolloutPhase::Superseded)
                );
                assert_eq!(phases(&last), begun, "{on_edit}");
                assert_eq!(
                    phases(&pass(&mut rollout, &edited)),
                    "a1=Updating@3 b1=Pending@3"
                );
            }
        }
    }

    #[test]
    fn an_approval_counts_for_the_run_that_it_names() {
        let mut rollout = rollout(json!({"approval": "AfterCanary", "soak": "0s"}));
        let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
        pass(&mut rollout, &before);
        let canary = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
        pass(&mut rollout, &canary);
        let waits = pass(&mut rollout, &canary);
        assert_eq!(waits.verdict.phase, RolloutPhase::WaitingForApproval);
        let run = waits.run.unwrap().id;
        for (named, phase) in [
            ("another", RolloutPhase::WaitingForApproval),
            (&run, RolloutPhase::Running),
        ] {
            let control = json!({"run": named, "approved": ["rest"]});
            rollout.spec.control = serde_json::from_value(control).unwrap();
            assert_eq!(pass(&mut rollout, &canary).verdict.phase, phase, "{named}");
        }
    }

    #[test]
    fn a_skip_outlives_the_next_run_of_others() {
        let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
        let before = known(&[("a1", "1", "2"), ("b1", "2", "2")]);
        let begun = pass(&mut rollout, &before).run.unwrap();
        let run = rollout
            .status
            .as_mut()
            .and_then(|status| status.run.as_mut())
            .unwrap();
        run.clusters[0].phase = MemberPhase::Failed;
        rollout.spec.control =
            serde_json::from_value(json!({"run": begun.id, "skip": ["a1"]})).unwrap();
        pass(&mut rollout, &before);
        let other = known(&[("a1", "1", "2"), ("b1", "2", "3")]);
        assert_eq!(phases(&pass(&mut rollout, &other)), "b1=Updating@3");
        let through = known(&[("a1", "1", "2"), ("b1", "3", "3")]);
        for _ in 0..4 {
            assert_eq!(pass(&mut rollout, &through).queued, None);
        }
        assert_eq!(
            pass(&mut rollout, &through).verdict.phase,
            RolloutPhase::Idle
        );
        let edited = known(&[("a1", "1", "4"), ("b1", "3", "3")]);
        let again = pass(&mut rollout, &edited);
        assert_eq!(phases(&again), "a1=Updating@4");
        assert!(again.skipped.is_empty());
    }

    #[test]
    fn what_was_half_changed_is_rolled_out_even_back_to_what_it_was() {
        let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
        let mut halfway = known(&[("a1", "1", "1")]);
        if let Some(seen) = halfway.seen.get_mut("a1") {
            seen.is_halfway = true;
            seen.health = FleetHealth::Failed;
        }
        for _ in 0..2 {
            assert_eq!(phases(&pass(&mut rollout, &halfway)), "a1=Updating@1");
        }
        let through = known(&[("a1", "1", "1")]);
        assert_eq!(phases(&pass(&mut rollout, &through)), "a1=Soaking@1");
    }

    #[test]
    fn what_cannot_come_to_its_revision_has_failed_and_an_edit_mends_it() {
        let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
        let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
        assert_eq!(
            phases(&pass(&mut rollout, &before)),
            "a1=Updating@2 b1=Pending@2"
        );
        // A secret that it needs is not in Vault: nothing that refers to it was written.
        let waits = |rendered: &str, health| {
            let mut waits = known(&[("a1", "1", rendered), ("b1", "1", rendered)]);
            if let Some(seen) = waits.seen.get_mut("a1") {
                seen.is_halfway = true;
                seen.target = Some("2".to_owned());
                seen.health = health;
                seen.message = Some("no such path".to_owned());
            }
            waits
        };
        let at_work = pass(&mut rollout, &waits("2", FleetHealth::AtWork));
        assert_eq!(phases(&at_work), "a1=Updating@2 b1=Pending@2");
        let halted = pass(&mut rollout, &waits("2", FleetHealth::Failed));
        assert_eq!(phases(&halted), "a1=Failed@2 b1=Pending@2");
        assert_eq!(halted.verdict.phase, RolloutPhase::Halted);
        assert!(halted.verdict.waits.unwrap().contains("no such path"));
        let edited = waits("3", FleetHealth::Failed);
        assert_eq!(
            pass(&mut rollout, &edited).verdict.phase,
            RolloutPhase::Superseded
        );
        assert_eq!(
            phases(&pass(&mut rollout, &edited)),
            "a1=Updating@3 b1=Pending@3"
        );
    }

    #[test]
    fn what_was_said_of_a_run_is_not_said_of_a_later_one_of_the_same_clusters() {
        let all = rollout(json!({}));
        let edited = known(&[("a1", "1", "2")]).own;
        let at = |second| id(&all, &edited, Timestamp::from_second(second).unwrap());
        assert_ne!(at(0), at(1));
        assert_eq!(at(1), at(1));
    }

    #[test]
    fn nothing_goes_on_while_a_cluster_of_the_namespace_cannot_be_rendered() {
        let mut rollout = rollout(json!({"soak": "0s", "canary": {"count": 0}}));
        let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
        pass(&mut rollout, &before);
        let mut broken = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
        broken.unknown.push("theirs".to_owned());
        pass(&mut rollout, &broken);
        let held = pass(&mut rollout, &broken);
        assert_eq!(phases(&held), "a1=Done@2 b1=Pending@2");
        let waits = held.verdict.waits.unwrap();
        assert!(waits.contains("theirs cannot be rendered"), "{waits}");
        broken.unknown.clear();
        let held = pass(&mut rollout, &broken);
        assert_eq!(phases(&held), "a1=Done@2 b1=Updating@2");
    }

    #[test]
    fn a_cluster_is_kept_from_being_done_by_a_rule_that_is_not_true() {
        let rule = "self.status.ready == self.status.total";
        let mut rollout = rollout(json!({
            "soak": "10m", "canary": {"count": 0}, "gates": [{"rule": rule, "message": "hosts are missing"}],
        }));
        pass(&mut rollout, &known(&[("a1", "1", "2")]));
        let gates = rollout.spec.gates.clone();
        let with = |own: Value| {
            let mut known = known(&[("a1", "2", "2")]);
            if let Some(seen) = known.seen.get_mut("a1") {
                seen.rules = gates::answers(&gates, &own);
            }
            known
        };
        let shut = format!("the gate {rule} is not open: hosts are missing");
        let unanswered = format!("{shut} (no answer: no such key: total)");
        let ready = |ready: u32| json!({"status": {"ready": ready, "total": 3}});
        for (own, phase, told) in [
            (
                json!({"status": {"ready": 3}}),
                "a1=Updating@2",
                Some(&unanswered),
            ),
            (ready(2), "a1=Updating@2", Some(&shut)),
            (ready(3), "a1=Soaking@2", None),
            // While it is watched, too.
            (ready(2), "a1=Updating@2", Some(&shut)),
            (ready(3), "a1=Soaking@2", None),
        ] {
            let decided = pass(&mut rollout, &with(own.clone()));
            assert_eq!(phases(&decided), phase, "{own}");
            let members = decided.run.iter().flat_map(|run| &run.clusters);
            let messages: Vec<_> = members.map(|member| member.message.as_ref()).collect();
            assert_eq!(messages, [told], "{own}");
            // So kubectl tells it.
            let waits = decided.verdict.waits.unwrap();
            assert!(
                told.is_none_or(|told| waits.contains(told)),
                "{own}: {waits}"
            );
        }
    }

    #[test]
    fn a_gate_that_stays_shut_fails_with_its_name() {
        let mut rollout = rollout(json!({
            "deadline": "1h", "canary": {"count": 0}, "gates": [{"type": "CertificatesValid", "status": "True"}],
        }));
        let through = known(&[("a1", "2", "2")]);
        pass(&mut rollout, &known(&[("a1", "1", "2")]));
        let late = Timestamp::from_second(3600).unwrap();
        let decided = decide(&rollout, &through, Duration::ZERO, late);
        assert_eq!(phases(&decided), "a1=Failed@2");
        let told = decided.run.unwrap().clusters[0].message.clone().unwrap();
        assert_eq!(
            told,
            "not well after 1h: the gate CertificatesValid=True is not open"
        );
    }

    #[test]
    fn a_run_under_way_goes_no_further_while_a_gate_is_no_rule() {
        let mut rollout = rollout(json!({"soak": "0s", "canary": {"count": 0}}));
        pass(&mut rollout, &known(&[("a1", "1", "2"), ("b1", "1", "2")]));
        let through = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
        pass(&mut rollout, &through);
        rollout.spec.gates = serde_json::from_value(json!([{"rule": "self."}])).unwrap();
        for _ in 0..2 {
            let held = pass(&mut rollout, &through);
            assert_eq!(phases(&held), "a1=Updating@2 b1=Pending@2");
            let waits = held.verdict.waits.unwrap();
            assert!(waits.contains("spec.gates[0].rule: self.: "), "{waits}");
        }
        rollout.spec.gates.clear();
        for _ in 0..2 {
            pass(&mut rollout, &through);
        }
        let on = pass(&mut rollout, &through);
        assert_eq!(phases(&on), "a1=Done@2 b1=Updating@2");
    }

    #[test]
    fn what_a_cluster_says_fits_the_record_of_its_run() {
        let mut rollout = rollout(json!({"canary": {"count": 0}}));
        pass(&mut rollout, &known(&[("a1", "1", "2")]));
        let mut ill = known(&[("a1", "2", "2")]);
        for health in [
            FleetHealth::AtWork,
            FleetHealth::Failed,
            FleetHealth::Failed,
        ] {
            if let Some(seen) = ill.seen.get_mut("a1") {
                seen.health = health;
                seen.message = Some("a long\nstory ".repeat(100));
            }
            let run = pass(&mut rollout, &ill).run.unwrap();
            let told = run.clusters[0].message.clone().unwrap();
            assert!(told.len() <= 512, "{}", told.len());
            assert!(api::text::is_plain(&told), "{told}");
        }
    }

    #[test]
    fn what_was_begun_and_is_gone_has_failed_until_it_is_skipped() {
        let mut rollout = rollout(json!({"canary": {"count": 0}, "parallel": 1}));
        let all = known(&[("a1", "1", "2"), ("a2", "1", "2"), ("b1", "1", "2")]);
        let run = pass(&mut rollout, &all).run.unwrap().id;
        let mut gone = known(&[("a2", "1", "2")]);
        let halted = pass(&mut rollout, &gone);
        assert_eq!(phases(&halted), "a1=Failed@2 a2=Pending@2 b1=Gone@2");
        let waits = halted.verdict.waits.unwrap();
        assert!(waits.contains("it is gone; skip it"), "{waits}");
        // With failures that may be, it counts where it was.
        let unit = rollout.spec.clone();
        rollout.spec.failures = Some(api::Threshold::Count(1));
        let beside = pass(&mut rollout, &gone);
        assert_eq!(phases(&beside), "a1=Failed@2 a2=Pending@2 b1=Gone@2");
        rollout.spec = unit;
        rollout.spec.control = serde_json::from_value(json!({"run": run, "skip": ["a1"]})).unwrap();
        gone = known(&[("a2", "1", "2"), ("b1", "1", "2")]);
        let on = pass(&mut rollout, &gone);
        assert_eq!(phases(&on), "a1=Skipped@2 a2=Updating@2 b1=Pending@2");
    }

    #[test]
    fn nothing_begins_while_something_is_not_known_and_the_reason_is_told() {
        let edited = || known(&[("a1", "1", "2")]);
        let with = |change: fn(&mut Known)| {
            let mut known = edited();
            change(&mut known);
            known
        };
        for (name, spec, known, words) in [
            (
                "broken",
                json!({}),
                with(|known| known.broken.push("b1".to_owned())),
                "b1 cannot be rendered",
            ),
            (
                "stale",
                json!({}),
                with(|known| known.stale.push("a1".to_owned())),
                "a1 is being rendered",
            ),
            (
                "paused",
                json!({"control": {"state": "Paused"}}),
                edited(),
                "it is paused",
            ),
            (
                "a level that there is not",
                json!({"budgets": [{"level": "rack", "maximum": 1}]}),
                edited(),
                "rack is one of no cluster",
            ),
            (
                "a gate that is no truth",
                json!({"gates": [{"rule": "self.status.phase"}]}),
                edited(),
                "spec.gates[0].rule: self.status.phase: cel expression must evaluate to a bool",
            ),
        ] {
            let decided = pass(&mut rollout(spec), &known);
            assert!(decided.run.is_none(), "{name}");
            let waits = decided.verdict.waits.unwrap();
            assert!(waits.contains(words), "{name}: {waits}");
        }
    }

    #[test]
    fn what_was_skipped_stays_so_until_it_is_edited_and_what_was_aborted_gives_way() {
        let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
        let before = known(&[("a1", "1", "2")]);
        let begun = pass(&mut rollout, &before).run.unwrap();
        let run = rollout
            .status
            .as_mut()
            .and_then(|status| status.run.as_mut())
            .unwrap();
        run.clusters[0].phase = MemberPhase::Failed;
        rollout.spec.control =
            serde_json::from_value(json!({"run": begun.id, "skip": ["a1"]})).unwrap();
        assert_eq!(
            pass(&mut rollout, &before).verdict.phase,
            RolloutPhase::Succeeded
        );
        assert_eq!(
            pass(&mut rollout, &before).verdict.phase,
            RolloutPhase::Idle
        );
        let edited = known(&[("a1", "1", "3"), ("b1", "1", "3")]);
        let again = pass(&mut rollout, &edited);
        assert_eq!(phases(&again), "a1=Updating@3 b1=Pending@3");
        // Aborted while a cluster is under way: that one is let through, no other is begun, and a later edit comes after it.
        let id = again.run.unwrap().id;
        rollout.spec.control =
            serde_json::from_value(json!({"run": id, "state": "Aborted"})).unwrap();
        let through = known(&[("a1", "3", "3"), ("b1", "1", "3")]);
        let mut last = Decided::default();
        for _ in 0..3 {
            last = pass(&mut rollout, &through);
        }
        assert_eq!(phases(&last), "a1=Done@3 b1=Pending@3");
        assert_eq!(last.verdict.phase, RolloutPhase::Aborted);
        let later = known(&[("a1", "3", "4"), ("b1", "1", "4")]);
        assert_eq!(
            pass(&mut rollout, &later).verdict.phase,
            RolloutPhase::Superseded
        );
        assert_eq!(
            phases(&pass(&mut rollout, &later)),
            "a1=Updating@4 b1=Pending@4"
        );
    }
}
