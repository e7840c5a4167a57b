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
    FleetCluster, OnEdit, Rollout, RolloutPhase, RolloutRecord, RolloutRun, RolloutState,
};
use controller::{Events, stream::in_namespace};
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Client, ResourceExt,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};

use crate::inventories::{Inventories, Inventory};

pub mod engine;
mod report;
pub mod waves;

use engine::{Seen, Steering, Verdict};
use waves::Candidate;

/// What the passes share.
pub struct Context {
    /// The API.
    pub client: Client,
    /// The Rollouts.
    pub own: Store<DeserializeGuard<Rollout>>,
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
    /// The levels that there are.
    levels: BTreeSet<String>,
}

/// What a pass decided.
#[derive(Debug, Default)]
struct Decided {
    run: Option<RolloutRun>,
    /// A run that ended by what was decided.
    ended: Option<(RolloutRun, RolloutPhase)>,
    verdict: Verdict,
    queued: Option<String>,
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
    let rollout = match &object.0 {
        Ok(rollout) => rollout,
        Err(invalid) => {
            tracing::warn!(name = invalid.metadata.name, error = %invalid.error, "cannot be read");
            return Ok(Action::await_change());
        }
    };
    if rollout.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let is_read = matches!(context.own.wait_until_ready().now_or_never(), Some(Ok(())));
    let namespace = rollout.namespace().unwrap_or_default();
    let Some(inventory) = context.inventories.of(&namespace).filter(|_| is_read) else {
        return Ok(Action::requeue(UNTIL_READ));
    };
    let known = known(rollout, &inventory, &context);
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

fn known(rollout: &Rollout, inventory: &Inventory, context: &Context) -> Known {
    let namespace = rollout.namespace().unwrap_or_default();
    let rollouts = in_namespace(&context.own, &namespace);
    let policy = waves::policy(&rollout.spec);
    let mut known = Known::default();
    for cluster in in_namespace(&context.clusters, &namespace) {
        let Ok(cluster) = &cluster.0 else { continue };
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
        let levels = levels.unwrap_or_default();
        known.levels.extend(levels.keys().cloned());
        known.seen.insert(
            name.clone(),
            Seen {
                domains: waves::domains(&policy, &levels),
                applied: status.applied.clone(),
                target: status.target.clone(),
                health: status.health.unwrap_or_default(),
                message: status.message.clone(),
                gates: status.gates.clone(),
            },
        );
        let others = rollouts
            .iter()
            .filter_map(|rollout| rollout.0.as_ref().ok());
        let owner = waves::owner(others, cluster.labels());
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
    known
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
    let mut decided = Decided::default();
    if let Some(level) = unknown.first() {
        let levels: Vec<_> = known.levels.iter().map(String::as_str).collect();
        decided.problem = Some(format!(
            "Rollout/{} spec: the level {level} is one of no cluster, so its budget or wave can never be met; name one of {}",
            rollout.name_any(),
            levels.join(", ")
        ));
    }
    let current = status.run.clone();
    let is_open = |run: &RolloutRun| run.ended.is_none();
    let edited = edited(known, current.as_ref());
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
        };
        decided.verdict = engine::advance(open, &policy, &known.seen, &steering, now);
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
    let id = id(rollout, &edited);
    let mut run = waves::run(&id, spec, edited);
    run.started = Some(Time(now));
    let policy = waves::policy(spec);
    decided.verdict = engine::advance(&mut run, &policy, &known.seen, &Steering::default(), now);
    decided.run = Some(run);
    decided
}

/// The clusters that the inventory makes something else of than the run under way does, or than they are.
fn edited(known: &Known, run: Option<&RolloutRun>) -> Vec<Candidate> {
    let own = known.own.iter();
    let edited = own.filter(|candidate| {
        let member = run.and_then(|run| {
            let mut members = run.clusters.iter();
            members.find(|member| member.name == candidate.name)
        });
        let is_open = run.is_some_and(|run| run.ended.is_none());
        let applied = known
            .seen
            .get(&candidate.name)
            .and_then(|seen| seen.applied.as_ref());
        // Nothing of it is there: it is born, not changed.
        let Some(applied) = applied else { return false };
        match member {
            Some(member) if is_open || member.phase == api::inventory::MemberPhase::Skipped => {
                member.revision != candidate.revision && *applied != candidate.revision
                    || is_open && member.revision != candidate.revision
            }
            _ => *applied != candidate.revision,
        }
    });
    edited.cloned().collect()
}

fn id(rollout: &Rollout, edited: &[Candidate]) -> String {
    let uid = rollout.uid().unwrap_or_default();
    let mut parts = vec![uid.as_str()];
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
    }
}

/// How many records are kept, by the schema of the status.
const MOST_RECORDS: usize = 10;
/// How many clusters a run has, by the same.
const MOST_MEMBERS: usize = 1000;
/// How soon a pass is tried again that began before the stores were read.
const UNTIL_READ: Duration = Duration::from_millis(50);
/// A safety net for a lost wake-up.
const AT_REST: Duration = Duration::from_mins(10);
