//! The Run reconciler: sees to it that every run that is not at its end has a runner.
//!
//! What a run does and how far it is belongs to its runner, which writes the status. Of a run whose runner does not come this
//! reconciler tells why, and carries out its end if that is wanted.

use std::sync::Arc;

use api::Run;
use controller::{Outcome, Until};
use kube::{Resource, core::DeserializeGuard, runtime::controller::Action};

use crate::{child, subject::Subjects};

mod apply;
mod context;
pub(crate) mod plan;
pub mod report;
mod starts;

pub use context::{Context, Error};

/// One pass.
///
/// # Errors
///
/// The run has no runner that it needs, or what is known of it could not be told.
pub async fn reconcile<S: Subjects>(
    object: Arc<DeserializeGuard<Run>>,
    context: Arc<Context<S>>,
) -> Result<Action, Error> {
    let Ok(run) = &object.0 else {
        // A Run is written by the operator; one that it cannot read belongs to a newer one.
        return Ok(Action::await_change());
    };
    if !context.subjects.is_one(&run.spec.subject) {
        return Ok(Action::await_change());
    }
    if relocation::mark::of(run.meta()).is_some() {
        context.starts.rests(&identity(run.meta()));
        return Ok(Action::await_change());
    }
    let outcome = pass(run, &context).await;
    report::publish(run, &outcome, &context).await?;
    Ok(outcome?.action())
}

async fn pass<S: Subjects>(
    run: &Run,
    context: &Context<S>,
) -> Result<Outcome<apply::Applied>, Error> {
    let runner = context.launcher.runner(run, &context.subjects).await;
    let outdated = context.subjects.outdated(run);
    let decision = plan::plan(run, runner.map_err(Error::Runner)?, outdated.as_deref());
    let outcome = apply::apply(run, decision, context).await?;
    let made = child::make(&context.client, run, &context.subjects).await;
    made.map_err(|why| Error::Made(Box::new(why)))?;
    Ok(outcome)
}

/// What deaths of runners are counted by.
fn identity(meta: &kube::api::ObjectMeta) -> String {
    format!(
        "Run {}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

/// The wait of a run that needs nothing.
const AT_REST: Until = Until::Changed;
