//! Starts runners.

use api::{Cluster, Run};
use controller::{Outcome, Until};
use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};

use super::{AT_REST, identity, plan::Decision};
use crate::context::{Context, Error};

/// What was done. Only [`apply`] makes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Applied(());

/// Carries out `decision`.
pub async fn apply(
    run: &Run,
    decision: Decision,
    context: &Context,
) -> Result<Outcome<Applied>, Error> {
    let until = match decision {
        Decision::Start => {
            let due = context.runner_due(&identity(run.meta()));
            if let Some(wait) = due {
                Until::Elapsed(wait)
            } else {
                let cluster = cluster_of(run, context);
                context
                    .launcher
                    .start(run, cluster.as_ref())
                    .await
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

fn cluster_of(run: &Run, context: &Context) -> Option<Cluster> {
    let reference = ObjectRef::new(&run.spec.cluster_ref.name).within(&run.namespace()?);
    let cluster = context.stores.clusters.get(&reference)?;
    cluster.0.as_ref().ok().cloned()
}
