//! Starts runners, and ends runs that none comes for.

use std::time::Duration;

use api::{Run, run::StepPhase};
use controller::{Outcome, Until, backoff::jittered};
use kube::{Api, Resource, ResourceExt, api::ListParams};

use super::{AT_REST, Context, Error, identity, plan::Decision, report};
use crate::{
    child::{all_names, is_child, is_ended},
    control::{self, Change},
    is_active, phase,
    subject::Subjects,
};

/// How often a runner that does not come is looked after.
const LOOK: Duration = Duration::from_secs(10);

/// What was done. Only [`apply`] makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied(Decision);

impl Applied {
    /// The decision that was carried out.
    pub const fn decision(&self) -> &Decision {
        &self.0
    }
}

/// Carries out `decision`.
pub(super) async fn apply<S: Subjects>(
    run: &Run,
    decision: Decision,
    context: &Context<S>,
) -> Result<Outcome<Applied>, Error> {
    let launcher = &context.launcher;
    let (decision, until) = match decision {
        Decision::Start(death) => {
            let due = context.starts.due(&identity(run.meta()), succeeded(run));
            if let Some(wait) = due {
                (Decision::Await(death), Until::Elapsed(wait))
            } else {
                let started = launcher.start(run, &context.subjects).await;
                started.map_err(Error::Runner)?;
                (Decision::Start(death), AT_REST)
            }
        }
        Decision::Await(_) => (decision, Until::Elapsed(jittered(LOOK))),
        // The end of its Job is seen as a change.
        Decision::Renew(_) => {
            launcher.stop(run).await.map_err(Error::Runner)?;
            (decision, AT_REST)
        }
        Decision::End(ref ended) => {
            launcher.stop(run).await.map_err(Error::Runner)?;
            // A runner would have ended with its children.
            cancel_children(run, context).await?;
            report::write(run, ended, context).await?;
            (decision, AT_REST)
        }
        Decision::Refuse(ref answered) => {
            launcher.stop(run).await.map_err(Error::Runner)?;
            report::write(run, answered, context).await?;
            (decision, AT_REST)
        }
        Decision::Watch => (decision, AT_REST),
        Decision::Rest => {
            // One may have been made for a runner that did not wait for it any more.
            if is_ended(phase(run)) && all_names(run).next().is_some() {
                cancel_children(run, context).await?;
            }
            context.starts.rests(&identity(run.meta()));
            (decision, AT_REST)
        }
    };
    Ok(Outcome::Waiting {
        applied: Applied(decision),
        until,
    })
}

fn succeeded(run: &Run) -> usize {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    steps
        .filter(|step| step.phase == StepPhase::Succeeded)
        .count()
}

async fn cancel_children<S>(run: &Run, context: &Context<S>) -> Result<(), Error> {
    let namespace = run.namespace().unwrap_or_default();
    let runs = Api::<Run>::namespaced(context.client.clone(), &namespace);
    let found = runs
        .list(&ListParams::default())
        .await
        .map_err(|why| Error::Children(Box::new(why)))?;
    let children = found.items.iter().filter(|child| is_child(child, run));
    for child in children.filter(|child| is_active(phase(child))) {
        let (name, by) = (child.name_any(), format!("run {}", run.name_any()));
        control::steer(&context.client, &namespace, &name, Change::Cancel, &by)
            .await
            .map_err(Error::Child)?;
    }
    Ok(())
}
