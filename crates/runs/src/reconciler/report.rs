//! Conditions of a run whose runner does not come. Once at work, the runner keeps the status.

use api::{Run, RunStatus};
use controller::{Conditions, Outcome, Standing, Summary, conditions};
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Context, Error, apply::Applied, plan::Decision};
use crate::{obstacle::Kind, runner::FIELD_MANAGER};

/// The reason while passes over the run fail.
const FAILING: &str = "Failing";

/// Writes the conditions.
pub(super) async fn publish<S>(
    run: &Run,
    outcome: &Result<Outcome<Applied>, Error>,
    context: &Context<S>,
) -> Result<(), Error> {
    let Some(summary) = summary(
        run,
        outcome.as_ref().map(|outcome| outcome.applied().decision()),
    ) else {
        return Ok(());
    };
    let status = run.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(
        &status.conditions,
        run.metadata.generation,
        Timestamp::now(),
    );
    conditions.summarise(&summary);
    let conditions = conditions.into_vec();
    if conditions == status.conditions {
        return Ok(());
    }
    write(
        run,
        &RunStatus {
            conditions,
            ..status
        },
        context,
    )
    .await
}

/// Writes the status of a run that has no runner at work.
///
/// In the runner's name: conditions that two managers own in parts cannot be removed by either.
pub(super) async fn write<S>(
    run: &Run,
    status: &RunStatus,
    context: &Context<S>,
) -> Result<(), Error> {
    let name = run.name_any();
    let body = json!({
        "apiVersion": Run::api_version(&()),
        "kind": Run::kind(&()),
        // Of this revision only: an older look would take back what a runner has written since.
        "metadata": {"name": name, "resourceVersion": run.resource_version()},
        "status": status,
    });
    let api = Api::<Run>::namespaced(context.client.clone(), &run.namespace().unwrap_or_default());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    match api
        .patch_status(&name, &parameters, &Patch::Apply(&body))
        .await
    {
        // Deleted, or written to in the meantime: the next pass sees that.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result
            .map(drop)
            .map_err(|source| Error::Status(Box::new(source))),
    }
}

/// Why the runner of a run does not come, as its conditions tell: a constant and a message.
pub fn obstacle(run: &Run) -> Option<(&'static str, &str)> {
    let ready = run.status.as_ref()?.conditions.iter();
    let ready = ready
        .into_iter()
        .find(|condition| condition.type_ == conditions::READY)?;
    let mut reasons = Kind::ALL.map(Kind::reason).into_iter().chain([FAILING]);
    let reason = reasons.find(|reason| *reason == ready.reason)?;
    Some((reason, &ready.message))
}

/// What there is to say; nothing: the runner says it, or has said it.
fn summary(run: &Run, decision: Result<&Decision, &Error>) -> Option<Summary> {
    let status = run.status.as_ref();
    let had_runner = status.is_some_and(|status| status.runner.is_some());
    let is_told = obstacle(run).is_some();
    let (reason, message) = match decision {
        Ok(Decision::Await(Some(obstacle)) | Decision::Renew(obstacle)) => {
            (obstacle.kind.reason(), obstacle.message.clone())
        }
        Ok(Decision::End(_) | Decision::Refuse(_) | Decision::Rest) => return None,
        // A runner that starts tells of itself soon, and a log has the error.
        Ok(Decision::Start(_) | Decision::Watch) | Err(_) if had_runner => return None,
        // Whether it stays this time shows only then.
        Ok(Decision::Start(_) | Decision::Watch) if is_told => return None,
        // What was in the way is not any more.
        Ok(Decision::Await(None)) if had_runner && !is_told => return None,
        Ok(_) => ("Pending", "waits for its runner".to_owned()),
        Err(error) => (
            FAILING,
            format!("failed to {}, trying again", controller::chain(error)),
        ),
    };
    Some(Summary {
        standing: Standing::AtWork,
        reason,
        message,
    })
}
