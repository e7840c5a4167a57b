//! At what a cluster is born in the middle of a run: its roll-out says from what it inherits then.

use api::inventory::{Births, FleetCluster, FleetProblem, Rollout};
use kube::ResourceExt;

use super::{
    Context, Error, MEND_ROLLOUT, Pass, by_rollout,
    part::{self, Parts},
    records, unreadable,
};
use crate::{
    inventories::{self, Inventory},
    rollout::sources,
};

/// What it is born as.
pub(super) enum Birth {
    /// What the inventory renders it to.
    AsRendered,
    /// Another revision.
    At(String, Parts),
    /// Nothing yet: something is wrong.
    Waits,
}

/// What a cluster of which nothing is there is born as.
pub(super) async fn birth(
    cluster: &FleetCluster,
    inventory: &Inventory,
    pass: &mut Pass,
    context: &Context,
) -> Result<Birth, Error> {
    // It may have a run under way, and this cluster be its own.
    if let Some((rollout, why)) = unreadable(cluster, context) {
        pass.problems.push(FleetProblem {
            object: format!("Rollout {rollout}"),
            rule: "RolloutUnreadable".to_owned(),
            message: format!(
                "cannot be read, so nobody knows at what a cluster is born now: {why}"
            ),
            remedy: MEND_ROLLOUT.to_owned(),
            ..FleetProblem::default()
        });
        return Ok(Birth::Waits);
    }
    let Some((rollout, births)) = by_rollout(cluster, context, births) else {
        return Ok(Birth::AsRendered);
    };
    pass.born = Some(births.message.clone());
    let now = inventory.sources().map(|sources| &sources.revision);
    let Some(wanted) = births
        .sources
        .as_ref()
        .filter(|wanted| Some(*wanted) != now)
    else {
        return Ok(Birth::AsRendered);
    };
    let problem = |rule: &str, message: String| FleetProblem {
        object: format!(
            "FleetRevision {}",
            sources::record(&rollout.name_any(), wanted)
        ),
        rule: rule.to_owned(),
        message: format!("{message}; {}", births.message),
        remedy: REMEDY.to_owned(),
        ..FleetProblem::default()
    };
    let Some(objects) = sources::kept(&context.revisions, &rollout, wanted) else {
        let lost = "is not there, or does not hold what its name says".to_owned();
        pass.problems = vec![problem("RevisionLost", lost)];
        return Ok(Birth::Waits);
    };
    let revision = match inventory.render_from(&objects, cluster) {
        Ok(revision) => revision,
        Err(problems) => {
            let told = problems.0.iter().map(inventories::told);
            pass.problems = told.collect();
            let why = "has not all that the cluster needs".to_owned();
            pass.problems.push(problem("BornInMidRun", why));
            return Ok(Birth::Waits);
        }
    };
    let namespace = cluster.namespace().unwrap_or_default();
    let name = cluster.name_any();
    match part::parts(&namespace, &name, &revision.name, &revision.objects) {
        Err(problems) => pass.problems = problems,
        Ok(parts) => match records::keep(cluster, &revision, context).await? {
            Err(problem) => pass.problems = vec![problem],
            Ok(()) => return Ok(Birth::At(revision.name, parts)),
        },
    }
    Ok(Birth::Waits)
}

fn births(rollout: &Rollout) -> Option<(Rollout, Births)> {
    let births = rollout.status.as_ref()?.births.clone()?;
    Some((rollout.clone(), births))
}

/// What to do where it cannot be born yet.
const REMEDY: &str = "it is born when the run has gone past its canary and its approval, or has ended; what it alone needs can stand in \
    the FleetCluster itself";
