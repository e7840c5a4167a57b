//! What is worth an Event.

use api::{ClusterStatus, node::Health, snapshots::DrillResult};
use controller::{Occurrence, Severity, conditions};

use runs::obstacle::Kind;

use super::{AWAITING_WINDOW, WAITING_FOR_WINDOW, what_changed};
use crate::{operation::asked, radar::DRIFTED, snapshots::BACKED_UP};

/// What happened between the status that was and the one that is. Pure.
pub(super) fn between(before: Option<&ClusterStatus>, status: &ClusterStatus) -> Vec<Occurrence> {
    let before = before.cloned().unwrap_or_default();
    let ready = |status: &ClusterStatus| {
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == conditions::READY)
            .map(|condition| (condition.reason.clone(), condition.message.clone()))
    };
    let mut occurrences = Vec::new();
    let stalled = conditions::is_true(&status.conditions, conditions::STALLED);
    let edge = edge(&before, status, stalled);
    let mut happened = |severity, reason: &str, note: String| {
        occurrences.push(Occurrence {
            severity,
            reason: reason.to_owned(),
            note,
            edge: edge.clone(),
        });
    };
    if let Some((reason, message)) = ready(status) {
        let known = ready(&before)
            .is_some_and(|(was, said)| was == reason && (!stalled || said == message));
        if !known {
            let trouble = stalled
                || matches!(
                    reason.as_str(),
                    "Unhealthy" | "NeedsAttention" | "PlaybooksUnreachable" | "Failing"
                )
                || is_of_a_runner(&reason);
            let severity = if trouble {
                Severity::Warning
            } else {
                Severity::Normal
            };
            happened(severity, &reason, message);
        }
    }
    for asked in asked::all() {
        let answer = (asked.answered)(status);
        if let Some(why) = answer.and_then(|answer| answer.refused.as_ref())
            && (asked.answered)(&before) != answer
        {
            let reason = format!("{}Refused", asked.operation.name);
            happened(Severity::Warning, &reason, why.clone());
        }
    }
    if let Some(answer) = &status.maintain
        && before.maintain.as_ref() != Some(answer)
        && let Some(why) = &answer.refused
    {
        happened(Severity::Warning, "MaintainRefused", why.clone());
    }
    let backed_up = |status: &ClusterStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == BACKED_UP);
        found.map(|found| (found.status.clone(), found.message.clone()))
    };
    if let Some((is, message)) = backed_up(status)
        && backed_up(&before).is_none_or(|(was, _)| was != is)
    {
        let (severity, reason) = match is.as_str() {
            "True" => (Severity::Normal, BACKED_UP),
            _ => (Severity::Warning, "NotBackedUp"),
        };
        happened(severity, reason, message);
    }
    let of_drift = |status: &ClusterStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == DRIFTED);
        found.map(|found| (found.status.clone(), found.message.clone()))
    };
    if let Some((is, message)) = of_drift(status) {
        let was = of_drift(&before).map(|(was, _)| was);
        match (was.as_deref(), &*is) {
            (Some("True"), "True") => {}
            (_, "True") => happened(Severity::Warning, DRIFTED, message),
            (Some("True"), "False") => happened(Severity::Normal, "NotDrifted", message),
            _ => {}
        }
    }
    if let Some(is) = &status.converged
        && is.message.is_some()
        && before
            .converged
            .as_ref()
            .is_none_or(|was| was.run != is.run)
    {
        happened(Severity::Normal, "ConvergeChanged", what_changed(is));
    }
    let drill = |status: &ClusterStatus| status.snapshots.as_ref()?.drill.clone();
    if let Some(is) = drill(status)
        && drill(&before).is_none_or(|was| was.at != is.at)
    {
        let (severity, reason) = match is.result {
            DrillResult::Passed => (Severity::Normal, "DrillPassed"),
            DrillResult::Failed => (Severity::Warning, "DrillFailed"),
        };
        happened(severity, reason, is.message);
    }
    if let Some(note) = awaits(status)
        && awaits(&before).as_ref() != Some(&note)
    {
        happened(Severity::Normal, WAITING_FOR_WINDOW, note);
    }
    if let (Some(was), Some(is)) = (&before.cluster, &status.cluster)
        && was.health != is.health
    {
        let severity = if is.health == Health::Ok {
            Severity::Normal
        } else {
            Severity::Warning
        };
        let note = format!("from {} to {}", was.health.word(), is.health.word());
        happened(severity, "HealthChanged", note);
    }
    occurrences
}

/// What waits for a maintenance window, and for which.
fn awaits(status: &ClusterStatus) -> Option<String> {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|condition| condition.type_ == AWAITING_WINDOW);
    found.map(|condition| condition.message.clone())
}

fn is_of_a_runner(reason: &str) -> bool {
    Kind::ALL.iter().any(|kind| kind.reason() == reason)
}

/// What tells a change from the same change at another time. It is made of what was, so that a pass over an object that the
/// watch has not brought up to date yet tells nothing twice.
fn edge(before: &ClusterStatus, status: &ClusterStatus, stalled: bool) -> String {
    let ready = |status: &ClusterStatus| {
        let mut conditions = status.conditions.iter();
        conditions
            .find(|condition| condition.type_ == conditions::READY)
            .cloned()
    };
    let was = ready(before);
    let run = before
        .last_operation
        .as_ref()
        .and_then(|last| last.run.clone());
    let changed = before
        .cluster
        .as_ref()
        .and_then(|health| health.last_changed.clone());
    // Each runner that does not come, or dies, is told of.
    let tells = |reason: &str| stalled || is_of_a_runner(reason);
    let message = ready(status)
        .filter(|condition| tells(&condition.reason))
        .map(|condition| condition.message);
    let awaits = awaits(status);
    let backed_up = |status: &ClusterStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == BACKED_UP);
        found.map(|found| found.last_transition_time.0)
    };
    let drilled = |status: &ClusterStatus| Some(status.snapshots.as_ref()?.drill.as_ref()?.at.0);
    // Nothing of it where nobody keeps snapshots.
    let of_snapshots = match (backed_up(before), drilled(status)) {
        (None, None) => String::new(),
        (was, drilled) => format!(" {was:?} {drilled:?}"),
    };
    let drifted = |status: &ClusterStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == DRIFTED);
        found.map(|found| found.last_transition_time.0)
    };
    let of_drift = match (drifted(before), &status.converged) {
        (None, None) => String::new(),
        (was, converged) => {
            let run = converged.as_ref().map(|converged| &converged.run);
            format!(" {was:?} {run:?}")
        }
    };
    format!(
        "{:?} {:?} {run:?} {changed:?} {message:?} {awaits:?}{of_snapshots}{of_drift}",
        was.as_ref().map(|was| &was.reason),
        was.as_ref().map(|was| &was.last_transition_time),
    )
}

#[cfg(test)]
mod tests {
    use api::cluster::ConvergeRequest;

    use super::*;

    #[test]
    fn a_refusal_of_whatever_was_asked_for_is_told_once() {
        for asked in asked::all() {
            let mut status = ClusterStatus::default();
            *(asked.place)(&mut status) = Some(ConvergeRequest {
                request: "1".to_owned(),
                run: None,
                refused: Some("not now".to_owned()),
            });
            let told = between(None, &status);
            let told: Vec<_> = told
                .iter()
                .map(|it| (it.severity, &*it.reason, &*it.note))
                .collect();
            let reason = format!("{}Refused", asked.operation.name);
            assert_eq!(told, [(Severity::Warning, &*reason, "not now")]);
            assert!(between(Some(&status), &status).is_empty());
        }
    }
}
