//! Steering a run: what `windlass pause|resume|cancel|retry|approve|skip` write into `Run.spec.control`.

use api::run::{Control, DesiredState, Request, RequestAction, Run};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use workflow::{Rest, Steering};

/// The annotation that names the plan that replaces a run; its runner ends at the next step where it may.
pub const SUPERSEDED_BY: &str = "windlass.dev/superseded-by";

/// The annotation with which an operator has a run rest: the step after which it does, a space, and why. People's own control stays as
/// it is: what they paused stays paused when it is gone.
pub const RESTS_AFTER: &str = "windlass.dev/rests-after";

/// How much of why a run rests is told.
const WHY: usize = 1024;

/// As many requests as a Run may hold, by its schema.
const MOST_REQUESTS: usize = 128;

/// Why a run could not be steered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("steer run {run}")]
    Api {
        /// The run.
        run: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// A step may be skipped only with a reason.
    #[error("skip step {step}: a reason is mandatory, it stays in the run's history")]
    NoReason {
        /// The step.
        step: String,
    },
}

/// What is to change in the control of a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// Stop at the next task boundary and keep the place.
    Pause,
    /// Go on.
    Resume,
    /// End at the next task boundary, for good.
    Cancel,
    /// Pause after that step.
    RunUntil(String),
    /// Let a waiting step go on; default: the one that waits.
    Approve(Option<String>),
    /// Try a failed step again; default: the one that failed.
    Retry(Option<String>),
    /// Count a step as done.
    Skip {
        /// The step.
        step: String,
        /// Why.
        reason: String,
    },
}

/// Writes `change` into the run's control, in the name of `by`.
///
/// # Errors
///
/// There is no such run, a step is to be skipped without a reason, or the API refuses or does not answer.
pub async fn steer(
    client: &Client,
    namespace: &str,
    run: &str,
    change: Change,
    by: &str,
) -> Result<(), Error> {
    let api = Api::<Run>::namespaced(client.clone(), namespace);
    let failed = |source| Error::Api {
        run: run.to_owned(),
        source: Box::new(source),
    };
    loop {
        let current = api.get(run).await.map_err(failed)?;
        let id = current.resource_version().unwrap_or_default();
        let control = amend(with_room(&current), &change, &id, by)?;
        // The revision makes this a compare-and-swap: two people who ask at once are both heard.
        // A merge patch removes only what it names: an absent `runUntil` would stay.
        let patch = json!({
            "metadata": {"resourceVersion": current.resource_version()},
            "spec": {"control": {
                "state": control.state,
                "runUntil": control.run_until,
                "requests": control.requests,
            }},
        });
        let written = api
            .patch(run, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        match written {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            result => return result.map(drop).map_err(failed),
        }
    }
}

/// The control of a run, without the oldest answered requests where it holds as many as it may.
fn with_room(run: &Run) -> Control {
    let mut control = run.spec.control.clone().unwrap_or_default();
    let open = open_requests(run);
    let mut surplus = (control.requests.len() + 1).saturating_sub(MOST_REQUESTS);
    control.requests.retain(|request| {
        let goes = surplus > 0 && !open.iter().any(|open| open.id == request.id);
        surplus -= usize::from(goes);
        !goes
    });
    control
}

/// The control after a change. `id` must be unique within the run.
fn amend(mut control: Control, change: &Change, id: &str, by: &str) -> Result<Control, Error> {
    let mut ask = |action, step: Option<&String>, reason: Option<&String>| {
        control.requests.push(Request {
            id: id.to_owned(),
            action,
            step: step.cloned(),
            reason: reason.cloned(),
            by: Some(by.to_owned()),
        });
    };
    match change {
        Change::Pause => control.state = Some(DesiredState::Paused),
        Change::Resume => {
            control.state = Some(DesiredState::Running);
            control.run_until = None;
        }
        Change::Cancel => control.state = Some(DesiredState::Cancelled),
        Change::RunUntil(step) => {
            control.state = Some(DesiredState::Running);
            control.run_until = Some(step.clone());
        }
        Change::Approve(step) => ask(RequestAction::Approve, step.as_ref(), None),
        Change::Retry(step) => ask(RequestAction::Retry, step.as_ref(), None),
        Change::Skip { step, reason } if reason.trim().is_empty() => {
            return Err(Error::NoReason { step: step.clone() });
        }
        Change::Skip { step, reason } => ask(RequestAction::Skip, Some(step), Some(reason)),
    }
    Ok(control)
}

/// The requests of a run that its history does not answer yet.
pub fn open_requests(run: &Run) -> Vec<&Request> {
    let answered = |id: &str| {
        let status = run.status.as_ref();
        status.is_some_and(|status| status.has_answered(id))
    };
    run.spec
        .control
        .iter()
        .flat_map(|control| &control.requests)
        .filter(|request| !answered(&request.id))
        .collect()
}

/// Where a run is to rest, if it is.
pub fn rest(run: &Run) -> Option<Rest> {
    let (after, why) = run.annotations().get(RESTS_AFTER)?.split_once(' ')?;
    Some(Rest {
        after: after.to_owned(),
        why: api::text::lines(why, WHY),
    })
}

/// The steering that a Run asks for.
pub fn steering(run: &Run) -> Steering {
    let superseded = run
        .annotations()
        .get(SUPERSEDED_BY)
        .map(|_| "the spec changed, a newer plan replaces this one".to_owned());
    Steering {
        control: run.spec.control.clone().unwrap_or_default(),
        superseded,
        held: None,
        rest: rest(run),
        left: relocation::mark::of(&run.metadata).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(changes: &[Change]) -> Control {
        changes
            .iter()
            .enumerate()
            .try_fold(Control::default(), |control, (index, change)| {
                amend(control, change, &index.to_string(), "kim")
            })
            .unwrap()
    }

    #[test]
    fn resume_takes_back_pause_and_run_until() {
        let control = after(&[
            Change::RunUntil("etcd/install".into()),
            Change::Pause,
            Change::Resume,
        ]);
        assert_eq!(control.state, Some(DesiredState::Running));
        assert_eq!(control.run_until, None);
    }

    #[test]
    fn requests_add_up_and_name_who_asked() {
        let control = after(&[
            Change::Approve(None),
            Change::Retry(Some("etcd/install".into())),
        ]);
        let shown: Vec<_> = control
            .requests
            .iter()
            .map(|request| (request.id.as_str(), request.action, request.by.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("0", RequestAction::Approve, Some("kim")),
                ("1", RequestAction::Retry, Some("kim"))
            ]
        );
    }

    #[test]
    fn a_run_that_was_steered_very_often_can_still_be() {
        let requests: Vec<_> = (0..MOST_REQUESTS)
            .map(|id| json!({"id": id.to_string(), "action": "Retry"}))
            .collect();
        // All but the first are answered, the early ones in a checkpoint.
        let early: Vec<_> = (1..100).map(|id| id.to_string()).collect();
        let mut history = vec![json!({
            "sequence": 500, "time": "2026-01-01T00:00:00Z", "event": "Checkpoint",
            "checkpoint": {"phase": "Failed", "answered": early},
        })];
        history.extend((100..MOST_REQUESTS).map(|id| {
            json!({"sequence": 401 + id, "time": "2026-01-01T00:00:00Z", "event": "StepRetried", "request": id.to_string()})
        }));
        let run: Run = serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "c"}, "operation": "Create", "generation": 1,
                "plan": {"digest": "d", "steps": []}, "control": {"requests": requests},
            },
            "status": {"phase": "Failed", "history": history},
        }))
        .unwrap();
        let control = amend(with_room(&run), &Change::Retry(None), "new", "kim").unwrap();
        let ids: Vec<_> = control.requests.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids.len(), MOST_REQUESTS);
        assert_eq!(
            ids[..2],
            ["0", "2"],
            "the oldest that was answered has gone"
        );
        assert_eq!(ids.last(), Some(&"new"));
    }

    #[test]
    fn a_skip_needs_a_reason() {
        let change = Change::Skip {
            step: "etcd/install".into(),
            reason: " ".into(),
        };
        assert!(matches!(
            amend(Control::default(), &change, "1", "kim"),
            Err(Error::NoReason { .. })
        ));
    }
}
