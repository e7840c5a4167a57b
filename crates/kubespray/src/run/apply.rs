//! Starts runners.

use api::Run;
use controller::{Outcome, Until};
use kube::{Resource, ResourceExt};

use super::{AT_REST, identity, plan::Decision};
use crate::context::{Context, Error};

/// What was done. Only [`apply`] makes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Applied(());

/// Carries out `decision`.
pub fn apply(run: &Run, decision: Decision, context: &Context) -> Result<Outcome<Applied>, Error> {
    let until = match decision {
        Decision::Start => {
            let namespace = run.namespace().unwrap_or_default();
            let due = context.runner_due(&identity(run.meta()));
            if let Some(wait) = due {
                Until::Elapsed(wait)
            } else {
                context
                    .supervisor
                    .start(&namespace, &run.name_any())
                    .map_err(Error::Runner)?;
                AT_REST
            }
        }
        Decision::Watch => AT_REST,
        Decision::Rest => {
            context.runner_rests(&identity(run.meta()));
            AT_REST
        }
    };
    Ok(Outcome::Waiting {
        applied: Applied(()),
        until,
    })
}
