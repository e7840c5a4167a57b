//! How a host stands, for people. Pure but for the write.

use api::{
    ClusterNode, ClusterNodeStatus, Run,
    node::{Health, NodeHealth, NodeState},
    run::{Failure, FailureClass, RunPhase, StepPhase},
};
use controller::{Conditions, Occurrence, Severity, Standing, Summary, conditions, hint};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use runs::phase;

use super::observe::Observed;
use crate::{
    action::PROBE,
    context::{Context, Error},
    health::Member,
    inputs::Inputs,
    names::NODE_MANAGER,
    operation::{Leaves, Operation, reset_host},
    request::RESET_HOST,
};

/// How long `lastSeen` may lag behind while nothing changes.
const LAST_SEEN: SignedDuration = SignedDuration::from_hours(1);

/// Writes the status if it changed.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn publish(
    node: &ClusterNode,
    observed: &Observed,
    context: &Context,
) -> Result<(), Error> {
    let status = status(node, observed, Timestamp::now());
    if let Some(occurrence) = occurrence(node.status.as_ref(), &status) {
        context
            .events
            .publish(&node.object_ref(&()), &occurrence)
            .await
            .map_err(|source| Error::api("publish an Event", source))?;
    }
    controller::apply::write_status(
        &context.client,
        &context.stores.nodes,
        NODE_MANAGER,
        (node, node.status.as_ref()),
        &status,
    )
    .await
    .map_err(Error::Apply)
}

/// That its health is another one than it was. Pure.
fn occurrence(
    before: Option<&ClusterNodeStatus>,
    status: &ClusterNodeStatus,
) -> Option<Occurrence> {
    let (was, is) = (before?.node.as_ref()?, status.node.as_ref()?);
    if was.health == is.health {
        return None;
    }
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == conditions::READY);
    let why = ready.map(|ready| format!(": {}", ready.message));
    Some(Occurrence {
        severity: match is.health {
            Health::Ok => Severity::Normal,
            Health::Warn | Health::Err => Severity::Warning,
        },
        reason: "HealthChanged".to_owned(),
        note: format!(
            "from {} to {}{}",
            was.health.word(),
            is.health.word(),
            why.unwrap_or_default()
        ),
        // Of what was: a pass over an object that the watch has not brought up to date yet tells nothing twice.
        edge: format!("{:?} {:?}", was.health, was.last_changed),
    })
}

fn changed(before: Option<&NodeHealth>, health: Health, now: Timestamp) -> NodeHealth {
    match before {
        Some(before) if before.health == health => before.clone(),
        before => NodeHealth {
            health,
            last_changed: Some(Time(now)),
            previous_health: before.map(|before| before.health),
        },
    }
}

/// The status of a host. Pure.
pub fn status(node: &ClusterNode, observed: &Observed, now: Timestamp) -> ClusterNodeStatus {
    let name = node.name_any();
    let before = node.status.clone().unwrap_or_default();
    let member = observed
        .health
        .as_ref()
        .and_then(|checked| checked.report.as_ref().ok()?.members.get(&name).cloned());
    let served = observed.health.as_ref().map(|checked| &checked.served);
    let certificates = served.map_or_else(Vec::new, |served| served.of(&name));
    let failure = failure(observed, &name);
    let state = state(observed, &name);
    let health = match (state, &member) {
        (NodeState::Joined, Some(member)) => Some(member.check.health),
        (NodeState::Joined, None) => before.node.as_ref().map(|node| node.health),
        (NodeState::Failed | NodeState::Excluded, _) => Some(Health::Err),
        _ => None,
    };
    let mut summary = summary(state, failure.as_ref(), member.as_ref());
    summary.message = hint::placed(&summary.message, &node.namespace().unwrap_or_default());
    let mut conditions = Conditions::new(&before.conditions, node.metadata.generation, now);
    conditions.summarise(&summary);
    let seen = match (&member, &observed.health) {
        (Some(_), Some(checked)) => Some(checked.at),
        _ => None,
    };
    ClusterNodeStatus {
        observed_generation: conditions::observed_generation(
            before.observed_generation,
            node.metadata.generation,
            summary.standing,
        ),
        node: health.map(|health| changed(before.node.as_ref(), health, now)),
        state: Some(state),
        conditions: conditions.into_vec(),
        last_seen: last_seen(before.last_seen, seen),
        facts: member
            .as_ref()
            .map(|member| member.facts.clone())
            .or(before.facts),
        versions: member.map(|member| member.versions).or(before.versions),
        certificates: if certificates.is_empty() {
            before.certificates
        } else {
            certificates
        },
        radar: observed.radar(&name, before.radar),
        reset: reset(node, observed).or(before.reset),
        failure,
    }
}

/// The request to reset the host that its run carries.
fn reset(node: &ClusterNode, observed: &Observed) -> Option<String> {
    let asked = reset_host::asked(node)?;
    let run = observed.run()?;
    let carried = run.annotations().get(RESET_HOST) == Some(&asked);
    carried.then_some(asked)
}

fn last_seen(before: Option<Time>, seen: Option<Timestamp>) -> Option<Time> {
    match (before, seen) {
        (Some(before), Some(seen)) if seen.duration_since(before.0) < LAST_SEEN => Some(before),
        (_, Some(seen)) => Some(Time(seen)),
        (before, None) => before,
    }
}

fn state(observed: &Observed, name: &str) -> NodeState {
    let Some(run) = observed.run() else {
        return if observed.built {
            NodeState::Joined
        } else {
            NodeState::Waiting
        };
    };
    if is_excluded(run, name) {
        return NodeState::Excluded;
    }
    let removing =
        Operation::leaves(run, Leaves::Nothing) || Inputs::removes(&run.spec.plan.inputs, name);
    match phase(run) {
        RunPhase::Succeeded if removing => NodeState::Waiting,
        RunPhase::Succeeded => NodeState::Joined,
        RunPhase::Failed if failed_on(run, name) => NodeState::Failed,
        RunPhase::Failed | RunPhase::Cancelled | RunPhase::Superseded if observed.built => {
            NodeState::Joined
        }
        RunPhase::Failed | RunPhase::Cancelled | RunPhase::Superseded | RunPhase::Pending => {
            NodeState::Waiting
        }
        RunPhase::Running | RunPhase::Paused | RunPhase::Waiting => {
            if removing {
                NodeState::Removing
            } else if observed.built {
                // An operation on the cluster makes it no less a part of it.
                NodeState::Joined
            } else if has_been_probed(run) {
                NodeState::Joining
            } else {
                NodeState::Probing
            }
        }
    }
}

fn has_been_probed(run: &Run) -> bool {
    run.status
        .iter()
        .flat_map(|status| &status.steps)
        .any(|step| step.id == PROBE && step.phase == StepPhase::Succeeded)
}

fn is_excluded(run: &Run, name: &str) -> bool {
    run.status
        .iter()
        .flat_map(|status| &status.excluded)
        .any(|excluded| excluded.target.as_str() == name)
}

fn failed_on(run: &Run, name: &str) -> bool {
    run.status
        .iter()
        .filter_map(|status| status.failure.as_ref())
        .any(|failure| failure.targets.iter().any(|host| host.as_str() == name))
}

fn failure(observed: &Observed, name: &str) -> Option<Failure> {
    let status = observed.run()?.status.as_ref()?;
    let excluded = status
        .excluded
        .iter()
        .find(|excluded| excluded.target.as_str() == name);
    if let Some(excluded) = excluded {
        return Some(Failure {
            class: FailureClass::External,
            code: "HostUnreachable".to_owned(),
            message: excluded.reason.clone(),
            remedy: Some("bring the host back; it was left out of the run".to_owned()),
            targets: Vec::new(),
        });
    }
    let failure = status.failure.clone()?;
    let mentioned = failure.targets.iter().any(|host| host.as_str() == name);
    mentioned.then_some(Failure {
        targets: Vec::new(),
        ..failure
    })
}

fn summary(state: NodeState, failure: Option<&Failure>, member: Option<&Member>) -> Summary {
    let trouble = failure.map(|failure| failure.message.clone());
    let (standing, reason, message) = match state {
        NodeState::Waiting => (
            Standing::AtWork,
            "Waiting",
            "waits for its cluster".to_owned(),
        ),
        NodeState::Probing => (
            Standing::AtWork,
            "Probing",
            "being asked whether it answers".to_owned(),
        ),
        NodeState::Joining => (
            Standing::AtWork,
            "Joining",
            "being made part of the cluster".to_owned(),
        ),
        NodeState::Removing => (
            Standing::AtWork,
            "Removing",
            "Kubernetes is being removed".to_owned(),
        ),
        NodeState::Excluded => (
            Standing::Stalled,
            "Excluded",
            trouble.unwrap_or_else(|| "left out".to_owned()),
        ),
        NodeState::Failed => (
            Standing::Stalled,
            "Failed",
            trouble.unwrap_or_else(|| "failed".to_owned()),
        ),
        NodeState::Joined => match member {
            Some(member) if member.check.health != Health::Ok => (
                Standing::Unhealthy,
                "NotReady",
                member.check.message.clone(),
            ),
            _ => (Standing::Ready, "Joined", "part of the cluster".to_owned()),
        },
    };
    Summary {
        standing,
        reason,
        message,
    }
}
