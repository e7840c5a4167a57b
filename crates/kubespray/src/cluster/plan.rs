//! What to do about a cluster, and why: every decision, pure and total.

use api::Cluster;
use kube::Resource;
use runs::{is_active, phase};

use crate::{
    cluster::{
        built::{as_built, of_built},
        decision::{Decision, Situation},
        observe::Observed,
        resolve::Resolved,
    },
    operation::{converge, create, remove, renew, reset, scale, upgrade},
    problem::Problem,
};

/// What an operation decides about a cluster. None: another one has the say.
type Decide = fn(&Situation<'_>) -> Option<Decision>;

/// The operations, in the order in which they are asked: the first with a decision has the say.
const SAY: [Decide; 8] = [
    reset::decide,
    renew::decide,
    remove::decide,
    upgrade::decide,
    scale::decide,
    renew::failed,
    converge::decide,
    create::decide,
];

/// Decides.
pub fn plan(
    cluster: &Cluster,
    wanted: Result<&Resolved, &[Problem]>,
    observed: &Observed,
) -> Decision {
    let built = wanted.ok();
    let built = built.and_then(|resolved| as_built(cluster, observed, resolved));
    let situation = Situation {
        cluster,
        wanted,
        observed,
        built: built.as_ref(),
    };
    if let Some(decision) = at_work(&situation) {
        return decision;
    }
    let decision = SAY.iter().find_map(|decide| decide(&situation));
    decision.unwrap_or_else(|| Decision::Stall(wanted.err().unwrap_or_default().to_vec()))
}

/// An operation on a cluster that is built comes to its end, or a person's word, before another one is begun.
fn at_work(situation: &Situation<'_>) -> Option<Decision> {
    let run = of_built(situation.observed).filter(|run| is_active(phase(run)))?;
    if situation.cluster.meta().deletion_timestamp.is_some() {
        return None;
    }
    let built = situation.built?.clone();
    Some(Decision::Maintain(Box::new(built), Box::new(run.clone())))
}
