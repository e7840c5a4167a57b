//! The reconciler of a FleetCluster: renders it, tells what would change, and applies what it is granted.
//!
//! What may be applied is decided by three rules, in `target`: a cluster of which nothing is there yet is born at what it is rendered
//! to, or in the middle of a run at what its roll-out says (`birth`); one that a roll-out has begun is brought to that roll-out's
//! revision; every other one is kept at what it is, or left alone where a change of it was begun and no roll-out brings it on. So an edit
//! of the inventory changes no cluster by itself, and neither does a release of Windlass that renders differently.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{
    inventory::{
        FleetCluster, FleetHealth, FleetProblem, FleetRevision, FleetSecret, MemberPhase,
        REVISION_ANNOTATION, Rollout, RolloutMember,
    },
    secrets::VaultSecret,
};
use controller::{
    BackOff, Events,
    stream::{in_namespace, readable},
};
use futures::FutureExt;
use kube::{
    Client, ResourceExt,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    inventories::{self, Inventories, Inventory, Outcome, Revision},
    rollout::{gates, waves},
};

mod apply;
pub(crate) mod away;
mod before;
mod birth;
mod health;
mod live;
mod machine_sets;
mod neighbours;
mod obstacles;
pub mod part;
mod pools;
mod rebase;
pub(crate) mod records;
mod report;
mod request;
pub(crate) mod secrets;
mod settle;
mod templates;
mod vault;

use birth::Birth;
use health::Standing;
pub use live::Resources;
pub use neighbours::Held;
use part::Parts;

/// What the passes share.
pub struct Context {
    /// The API.
    pub client: Client,
    /// The FleetClusters.
    pub own: Store<DeserializeGuard<FleetCluster>>,
    /// The roll-outs.
    pub rollouts: Store<DeserializeGuard<Rollout>>,
    /// What clusters were rendered to.
    pub revisions: Store<DeserializeGuard<FleetRevision>>,
    /// The VaultSecrets, where the same operator works on them.
    pub vault_secrets: Option<Store<DeserializeGuard<VaultSecret>>>,
    /// The inventories.
    pub inventories: Arc<Inventories>,
    /// What happened.
    pub events: Events,
    /// The namespaces that are being written into.
    pub held: Held,
    /// Where kinds are found that Windlass does not know.
    pub resources: Resources,
    /// How long what waits for VaultSecrets or a class is left alone.
    pub back_off: BackOff,
    /// For how long a cluster is well before what it needs of Vault no longer goes.
    pub settle_after: std::time::Duration,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(String, #[source] kube::Error),
    /// The status could not be written.
    #[error("apply")]
    Apply(#[source] controller::apply::Error),
}

/// What a pass found and did.
#[derive(Debug, Default)]
struct Pass {
    /// What the inventory renders it to.
    rendered: Option<String>,
    /// What it is made from.
    applied: Option<String>,
    /// What it is being made from.
    target: Option<String>,
    /// What its objects were begun to be made from, and are not all.
    begun: Option<String>,
    /// What they were begun to be made from before that, and were not all.
    abandoned: Vec<String>,
    /// At what it is born, or was, in the middle of a run.
    born: Option<String>,
    /// Revisions before whose VaultSecrets and templates stay until it is well and nothing needs them.
    former: Vec<String>,
    /// Whether nothing is written for that reason.
    is_held: bool,
    /// How far a roll-out that is under way is with it.
    phase: Option<MemberPhase>,
    /// What is known of the values for whose changes its machines are replaced.
    secrets: Vec<FleetSecret>,
    /// Whether another cluster has read a newer version of one of them, or something else.
    is_behind: bool,
    /// Whether it goes on when VaultSecrets or a class are ready, which are not watched.
    awaits_others: bool,
    /// Whether Vault can be asked.
    vault: away::Vault,
    /// How soon what it needs of Vault no longer may go, if it stays well.
    settles_in: Option<std::time::Duration>,
    /// What it is made of, as far as the rendering speaks of it, where that was handed over.
    handed_over: Vec<Value>,
    standing: Standing,
    /// What the rules of gates are for its own object.
    rules: BTreeMap<String, String>,
    pending: Option<api::inventory::PendingChange>,
    problems: Vec<FleetProblem>,
    /// What the API did not do, and is asked for again.
    failure: Option<Error>,
    /// The status that it wrote before it came to its end.
    written: Option<report::Written>,
}

impl Pass {
    /// Whether a roll-out has begun it. One that soaks is at its revision, and is not changed.
    fn is_granted(&self) -> bool {
        matches!(
            self.phase,
            Some(MemberPhase::Updating | MemberPhase::Failed)
        )
    }

    /// How soon it is looked at again, beside what is watched.
    fn interval(&self) -> Duration {
        match self.standing.health {
            // A gate may open by what is not watched, and shut again while the cluster soaks.
            FleetHealth::Well if !self.is_granted() && self.phase != Some(MemberPhase::Soaking) => {
                if self.secrets.is_empty() {
                    AT_REST
                } else {
                    LOOK_AT_SECRETS
                }
            }
            _ => LOOK_AGAIN,
        }
    }
}

/// One pass.
///
/// # Errors
/// The API refuses or does not answer. What is wrong with the inventory is no error: the status says it.
pub async fn reconcile(
    object: Arc<DeserializeGuard<FleetCluster>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Some(cluster) = readable(&object) else {
        return Ok(Action::await_change());
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        // What it was rendered to stays: to delete the description of a cluster is not to delete the cluster.
        return Ok(Action::await_change());
    }
    let namespace = cluster.namespace().unwrap_or_default();
    let is_read = are_read(&context);
    let Some(inventory) = context.inventories.of(&namespace).filter(|_| is_read) else {
        return Ok(Action::requeue(UNTIL_READ));
    };
    let pass = converge(cluster, &inventory, &context).await?;
    report::publish(cluster, &pass, &context).await?;
    records::prune(cluster, &pass, &context).await?;
    if let Some(error) = pass.failure {
        return Err(error);
    }
    let id = format!("{namespace}/{}", cluster.name_any());
    let before = cluster.status.as_ref();
    let before = before.and_then(|status| status.target.as_ref());
    // What another revision waits for may be there at once.
    if !pass.awaits_others || before != pass.target.as_ref() {
        context.back_off.reset(&id);
    }
    if pass.awaits_others {
        let wait = context.back_off.failed(&id);
        return Ok(Action::requeue(wait.min(UNTIL_SECRETS)));
    }
    if let Some(wait) = pass.settles_in {
        return Ok(Action::requeue(wait));
    }
    // What it is rendered to may be another for that. No sooner: an API with older definitions forgets it each time.
    if pass.is_behind || pass.secrets != known_secrets(cluster) {
        return Ok(Action::requeue(LOOK_AGAIN));
    }
    let wait = controller::backoff::jittered(pass.interval());
    Ok(Action::requeue(wait))
}

/// What was known of the values for whose changes its machines are replaced.
fn known_secrets(cluster: &FleetCluster) -> &[FleetSecret] {
    let status = cluster.status.as_ref();
    status.map_or(&[], |status| &status.secrets)
}

async fn converge(
    cluster: &FleetCluster,
    inventory: &Arc<Inventory>,
    context: &Context,
) -> Result<Pass, Error> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    inventory.prepare(vec![name.clone()]).await;
    let outcome = inventory.render(&name);
    let outcome = outcome.as_ref();
    let mut pass = Pass::default();
    let mut rendered: Option<(String, Parts)> = None;
    let mut other: Option<(String, Parts)> = None;
    match outcome {
        Err(problems) => pass.problems = problems.0.iter().map(inventories::told).collect(),
        Ok(revision) => match part::parts(&namespace, &name, &revision.name, &revision.objects) {
            Err(problems) => pass.problems = problems,
            Ok(parts) => {
                if let Err(problem) = records::keep(cluster, revision, context).await? {
                    pass.problems = vec![problem];
                } else {
                    pass.rendered = Some(revision.name.clone());
                    rendered = Some((revision.name.clone(), parts));
                }
            }
        },
    }
    pass.applied = match cluster
        .status
        .as_ref()
        .and_then(|status| status.applied.clone())
    {
        Some(applied) => Some(applied),
        None => found(cluster, rendered.as_ref().map(|(_, parts)| parts), context).await?,
    };
    let status = cluster.status.as_ref();
    // Its Cluster is written last: what was begun is through where that says so, and nobody wrote it down.
    pass.begun = status
        .and_then(|status| status.begun.clone())
        .filter(|begun| {
            status.is_some_and(|status| status.applied.is_some())
                || pass.applied.as_ref() != Some(begun)
        });
    let looked = match &rendered {
        Some((_, parts)) => {
            secrets::look(cluster, (parts, pass.applied.as_deref()), context).await?
        }
        // What it shares is not looked at, and nobody waits for it.
        None => secrets::Look {
            secrets: secrets::unlooked(known_secrets(cluster)),
            ..secrets::Look::default()
        },
    };
    (pass.secrets, pass.is_behind) = (looked.secrets, looked.is_behind);
    let member = member(cluster, context);
    pass.phase = member.as_ref().map(|member| member.phase);
    let granted = member.filter(|_| pass.is_granted());
    let granted = granted.map(|member| member.revision);
    pass.abandoned = status.map_or_else(Vec::new, |status| status.abandoned.clone());
    pass.former = status.map_or_else(Vec::new, |status| status.former.clone());
    // Until it is what all others are.
    pass.born = status
        .and_then(|status| status.born.clone())
        .filter(|_| pass.applied != pass.rendered);
    let mut born = pass.rendered.clone();
    if pass.applied.is_none() {
        pass.born = None;
        match birth::birth(cluster, inventory, &mut pass, context).await? {
            Birth::AsRendered => {}
            Birth::Waits => born = None,
            Birth::At(revision, parts) => {
                born = Some(revision.clone());
                other = Some((revision, parts));
            }
        }
    }
    let target = target(
        pass.applied.as_deref(),
        granted.as_deref(),
        born.as_deref(),
        pass.begun.as_deref(),
    );
    if let Some(revision) = target {
        let revision = revision.to_owned();
        let mut known = rendered.iter().chain(&other);
        let parts = match known.find(|(known, _)| *known == revision) {
            Some((_, parts)) => Ok(parts.clone()),
            None => records::parts(cluster, &revision, context),
        };
        match parts {
            Ok(parts) => {
                let brought = apply::bring(cluster, &revision, &parts, &mut pass, context).await;
                if let Err(error) = brought {
                    fail(cluster, &mut pass, error)?;
                }
            }
            Err(problem) => refuse(&mut pass, &revision, vec![problem]),
        }
    } else if let (Some(begun), Some(_)) = (&pass.begun, &pass.applied) {
        pass.is_held = true;
        pass.standing.health = FleetHealth::Failed;
        pass.standing.message = Some(match unreadable(cluster, context) {
            Some((rollout, why)) => format!(
                "its change to revision {begun} was begun, and Rollout {rollout}, which may be what brings it on, cannot be read: {why}; \
                 nothing is written until it can: {MEND_ROLLOUT}"
            ),
            None => format!(
                "its change to revision {begun} was begun, and the roll-out ended or left it out before it was through: nothing is written \
                 until a roll-out brings it to a revision; edit the inventory for one"
            ),
        });
    }
    if !pass.is_held
        && pass.applied.as_deref() == Some(ADOPTED)
        && let (Ok(revision), Some((_, parts))) = (outcome, &rendered)
    {
        look(cluster, revision, parts, &mut pass, context).await?;
    }
    pass.vault = away::look(cluster, context);
    pass.rules = rules(cluster, &pass.standing, context).await;
    pass.pending = pending(cluster, outcome, &pass, context);
    Ok(pass)
}

/// How a cluster stands that was handed over and not changed yet, and what it is made of.
async fn look(
    cluster: &FleetCluster,
    revision: &Revision,
    parts: &Parts,
    pass: &mut Pass,
    context: &Context,
) -> Result<(), Error> {
    let mut known = Parts::default();
    let mut there = Vec::new();
    for part in &parts.objects {
        let Some(live) = live::read_own(part, cluster, context).await? else {
            continue;
        };
        let is_it = |object: &&Value| {
            object["kind"] == part.kind
                && object["metadata"]["name"] == part.name
                && object["metadata"]["namespace"]
                    .as_str()
                    .is_none_or(|namespace| namespace == part.namespace)
        };
        let wanted = revision.objects.iter().find(is_it);
        pass.handed_over
            .extend(wanted.map(|wanted| crate::pending::restricted(&live, wanted)));
        known.objects.push(part.clone());
        there.push(Some(live));
    }
    pass.standing = health::standing(&known, &there, health::Rolling::of(pass.is_granted()));
    Ok(())
}

/// What a cluster is to be made from. Pure.
fn target<'a>(
    applied: Option<&'a str>,
    granted: Option<&'a str>,
    rendered: Option<&'a str>,
    begun: Option<&'a str>,
) -> Option<&'a str> {
    match applied {
        None => rendered,
        // Half changed: to bring it back is a change as well, and one that no roll-out watches.
        Some(_) if begun.is_some() => granted,
        Some(applied) => Some(granted.unwrap_or(applied)).filter(|target| *target != ADOPTED),
    }
}

/// What a roll-out that is under way has of this cluster.
fn member(cluster: &FleetCluster, context: &Context) -> Option<RolloutMember> {
    by_rollout(cluster, context, |rollout| {
        let run = rollout.status.as_ref()?.run.as_ref();
        let run = run.filter(|run| run.ended.is_none())?;
        let mut members = run.clusters.iter();
        members
            .find(|member| member.name == cluster.name_any())
            .cloned()
    })
}

/// What the rules of its roll-out's gates are for its own object. They may take seconds, so the other passes go on meanwhile; and
/// memory, so those of one cluster are answered after those of another.
async fn rules(
    cluster: &FleetCluster,
    standing: &Standing,
    context: &Context,
) -> BTreeMap<String, String> {
    let gates = by_rollout(cluster, context, |rollout| Some(rollout.spec.gates.clone()));
    let gates = gates.filter(|gates| gates.iter().any(|gate| gate.rule.is_some()));
    let Some((gates, own)) = gates.zip(standing.own.clone()) else {
        return BTreeMap::new();
    };
    let _turn = TURN.acquire().await;
    let answers = tokio::task::spawn_blocking(move || gates::answers(&gates, &own)).await;
    answers.unwrap_or_else(|error| {
        tracing::error!(cluster = %cluster.name_any(), %error, "rules of gates were not answered");
        BTreeMap::new()
    })
}

/// What follows from the roll-out that a cluster belongs to.
fn by_rollout<T>(
    cluster: &FleetCluster,
    context: &Context,
    follows: impl FnOnce(&Rollout) -> Option<T>,
) -> Option<T> {
    let rollouts = in_namespace(&context.rollouts, &cluster.namespace()?);
    let rollouts = rollouts
        .iter()
        .filter_map(|rollout| rollout.0.as_ref().ok());
    follows(waves::owner(rollouts, cluster.labels())?)
}

/// A Rollout of its namespace that cannot be read, and why: whose clusters are its own, and what it brings them to, is not known.
fn unreadable(cluster: &FleetCluster, context: &Context) -> Option<(String, String)> {
    let rollouts = in_namespace(&context.rollouts, &cluster.namespace()?);
    rollouts.iter().find_map(|rollout| {
        let invalid = rollout.0.as_ref().err()?;
        // One that goes has no clusters any more.
        if invalid.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let name = invalid.metadata.name.clone().unwrap_or_default();
        Some((name, api::text::plain(&invalid.error, 300)))
    })
}

/// What the objects say that are there already: the status of a FleetCluster may be lost, with a backup of its objects.
async fn found(
    cluster: &FleetCluster,
    parts: Option<&Parts>,
    context: &Context,
) -> Result<Option<String>, Error> {
    // A birth that was begun has made its Cluster under what may be another name.
    let begun = cluster.status.as_ref();
    let begun = begun.and_then(|status| status.begun.as_deref());
    let begun = begun.and_then(|begun| records::parts(cluster, begun, context).ok());
    for parts in parts.into_iter().chain(&begun) {
        let Some(main) = parts.main() else { continue };
        // That of others is refused when it would be applied.
        if let Some(there) = live::read_own(main, cluster, context).await? {
            let revision = there["metadata"]["annotations"][REVISION_ANNOTATION].as_str();
            return Ok(Some(revision.unwrap_or(ADOPTED).to_owned()));
        }
    }
    Ok(None)
}

/// What the inventory would change and nothing has carried out.
fn pending(
    cluster: &FleetCluster,
    outcome: &Outcome,
    pass: &Pass,
    context: &Context,
) -> Option<api::inventory::PendingChange> {
    let revision = outcome.as_ref().ok()?;
    let applied = pass.applied.as_deref()?;
    if pass.rendered.as_deref() != Some(&revision.name) || applied == revision.name {
        return None;
    }
    let before = match records::objects(cluster, applied, context) {
        Some(before) => before,
        None => pass.handed_over.clone(),
    };
    Some(crate::pending::told(&before, &revision.objects))
}

fn refuse(pass: &mut Pass, revision: &str, problems: Vec<FleetProblem>) {
    pass.target = Some(revision.to_owned());
    pass.standing.health = FleetHealth::Refused;
    pass.standing.message = problems.first().map(line);
    pass.problems.extend(problems);
}

/// Tells of what the API did not do for a change, which may last: whoever waits for the change sees why, and an edit is seen. One that
/// merely fails to look at what stands tells nothing new of it.
fn fail(cluster: &FleetCluster, pass: &mut Pass, error: Error) -> Result<(), Error> {
    if pass.target.is_none() {
        return Err(error);
    }
    let told = std::error::Error::source(&error).map(ToString::to_string);
    let told = format!("{error}: {}", told.unwrap_or_default());
    let status = cluster.status.clone().unwrap_or_default();
    pass.standing = Standing {
        health: FleetHealth::AtWork,
        message: Some(api::text::plain(&told, 500)),
        gates: status.gates,
        ..Standing::default()
    };
    pass.failure = Some(error);
    Ok(())
}

/// A problem as one line.
pub fn line(problem: &FleetProblem) -> String {
    let FleetProblem {
        level,
        object,
        path,
        message,
        remedy,
        rule: _,
    } = problem;
    let level = level.as_ref().map(|level| format!(" (level {level})"));
    let path = path.as_ref().map(|path| format!(" {path}"));
    format!(
        "{object}{}{}: {message}; {remedy}",
        level.unwrap_or_default(),
        path.unwrap_or_default()
    )
}

/// Whose an object is that is applied for this cluster.
fn own(cluster: &FleetCluster) -> Value {
    let namespace = cluster.namespace().unwrap_or_default();
    format!("{namespace}/{}", cluster.name_any()).into()
}

fn are_read(context: &Context) -> bool {
    let rollouts = context.rollouts.wait_until_ready().now_or_never();
    let revisions = context.revisions.wait_until_ready().now_or_never();
    matches!((rollouts, revisions), (Some(Ok(())), Some(Ok(()))))
}

/// What stands for the revision of objects that a person made and handed over: nothing is changed before a roll-out does.
pub(crate) const ADOPTED: &str = "adopted";
/// What to do about a Rollout that cannot be read.
const MEND_ROLLOUT: &str = "mend it, or run the release that wrote it";
/// Whose rules are answered.
static TURN: Semaphore = Semaphore::const_new(1);
/// How soon a pass is tried again that began before the stores were read.
const UNTIL_READ: Duration = Duration::from_millis(50);
/// How long VaultSecrets that are not ready are left alone at most. Usually they are within a second, and that is how soon they are looked
/// at first.
const UNTIL_SECRETS: Duration = Duration::from_mins(1);
/// How soon a cluster that is not well is looked at again, beside what is watched.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// How soon one is whose machines are replaced when a secret changes: as often as a VaultSecret is read, where it says nothing.
const LOOK_AT_SECRETS: Duration = Duration::from_mins(5);
/// How soon a cluster that is well is looked at again: a safety net.
const AT_REST: Duration = Duration::from_mins(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_changes_nothing_by_itself() {
        for (name, applied, granted, rendered, expected) in [
            ("a birth", None, None, Some("r1"), Some("r1")),
            ("a birth that cannot be rendered", None, None, None, None),
            ("at rest", Some("r1"), None, Some("r1"), Some("r1")),
            ("an edit", Some("r1"), None, Some("r2"), Some("r1")),
            (
                "an edit that cannot be rendered",
                Some("r1"),
                None,
                None,
                Some("r1"),
            ),
            ("a roll-out", Some("r1"), Some("r2"), Some("r2"), Some("r2")),
            (
                "a later edit",
                Some("r1"),
                Some("r2"),
                Some("r3"),
                Some("r2"),
            ),
            ("handed over", Some(ADOPTED), None, Some("r1"), None),
            (
                "handed over, and rolled out",
                Some(ADOPTED),
                Some("r1"),
                Some("r1"),
                Some("r1"),
            ),
        ] {
            assert_eq!(target(applied, granted, rendered, None), expected, "{name}");
        }
        // Half changed: only a roll-out brings it on, or back.
        let halfway = |granted| target(Some("r1"), granted, Some("r3"), Some("r2"));
        assert_eq!(halfway(None), None);
        assert_eq!(halfway(Some("r1")), Some("r1"));
        assert_eq!(halfway(Some("r2")), Some("r2"));
    }

    #[test]
    fn a_cluster_that_soaks_is_looked_at_and_not_changed() {
        for (phase, granted, expected) in [
            (MemberPhase::Pending, false, AT_REST),
            (MemberPhase::Updating, true, LOOK_AGAIN),
            (MemberPhase::Soaking, false, LOOK_AGAIN),
            (MemberPhase::Failed, true, LOOK_AGAIN),
            (MemberPhase::Done, false, AT_REST),
        ] {
            let pass = Pass {
                phase: Some(phase),
                standing: Standing {
                    health: FleetHealth::Well,
                    ..Standing::default()
                },
                ..Pass::default()
            };
            assert_eq!(pass.is_granted(), granted, "{phase:?}");
            assert_eq!(pass.interval(), expected, "{phase:?}");
        }
    }
}
