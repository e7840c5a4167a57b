//! Conditions of a run that has no runner yet, or whose runner does not start. Once at work, the runner keeps the status.

use api::Run;
use controller::{Conditions, Standing, Summary};
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::context::{Context, Error};
use crate::runner::FIELD_MANAGER;

/// Writes the conditions.
pub async fn publish(run: &Run, error: Option<&Error>, context: &Context) -> Result<(), Error> {
    let has_runner = run
        .status
        .as_ref()
        .is_some_and(|status| status.runner.is_some());
    // One writer at a time and one field manager for both: conditions that two managers own in parts cannot be removed by
    // either. A runner that does not start again is told of in the log.
    if has_runner {
        return Ok(());
    }
    let previous = run
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    let mut conditions = Conditions::new(&previous, run.metadata.generation, Timestamp::now());
    conditions.summarise(&summary(error));
    let conditions = conditions.into_vec();
    if conditions == previous {
        return Ok(());
    }
    let name = run.name_any();
    let body = json!({
        "apiVersion": Run::api_version(&()),
        "kind": Run::kind(&()),
        // Of this revision only: as the same manager, an older look would take back what the runner has written since.
        "metadata": {"name": name, "resourceVersion": run.resource_version()},
        "status": {"conditions": conditions},
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
            .map_err(|source| Error::api("write the conditions of a Run", source)),
    }
}

fn summary(error: Option<&Error>) -> Summary {
    let (reason, message) = match error {
        Some(error) => (
            "Failing",
            format!("failed to {}, trying again", crate::chain(error)),
        ),
        None => ("Pending", "waits for its runner".to_owned()),
    };
    Summary {
        standing: Standing::AtWork,
        reason,
        message,
    }
}
