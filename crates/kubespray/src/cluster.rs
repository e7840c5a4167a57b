//! The Cluster reconciler: decides that a run is needed, and tells how the cluster stands.
//!
//! How far a run got is the runner's business; this reconciler copies it. Nothing is written at rest: a status is written
//! only when it differs, and health is probed in the background and shown only when it changes.

use std::{sync::Arc, time::Duration};

use api::Cluster;
use controller::{Outcome, backoff::jittered};
use kube::{Resource, core::DeserializeGuard, runtime::controller::Action};

use crate::{
    cluster::{decided::Decided, decision::Planned},
    context::{Context, Error, UNTIL_READ},
};

pub mod apply;
pub mod built;
pub mod compile;
pub mod decided;
pub mod decision;
pub mod history;
pub mod maintain;
pub mod observe;
pub mod pending;
pub mod plan;
pub mod report;
pub mod resolve;

/// How often a Secret is read anew that a cluster waits for. Nothing tells of its change: who may watch one Secret of a
/// namespace may list them all.
const SECRET_LOOK: Duration = Duration::from_secs(3);

/// What the passes over Clusters share.
pub struct Passes {
    /// With those over their hosts.
    pub context: Arc<Context>,
    /// What was decided while a run is at work.
    pub decided: Decided,
}

/// One pass.
///
/// # Errors
///
/// The API refuses or does not answer, at a read or a write. What is wrong with the Cluster is no error: its status says it.
pub async fn reconcile(
    object: Arc<DeserializeGuard<Cluster>>,
    passes: Arc<Passes>,
) -> Result<Action, Error> {
    let context = &passes.context;
    let cluster = match &object.0 {
        Ok(cluster) => cluster,
        Err(invalid) => {
            report::publish_invalid(invalid, context).await?;
            return Ok(Action::await_change());
        }
    };
    if let Some(mark) = relocation::mark::of(cluster.meta()) {
        passes.decided.forget(cluster);
        crate::moving::rest(cluster, mark, context).await?;
        return Ok(Action::await_change());
    }
    if !context.stores.are_read() {
        return Ok(Action::requeue(UNTIL_READ));
    }
    let outcome = pass(cluster, &passes).await;
    report::publish(cluster, &outcome, context).await?;
    Ok(outcome?.action())
}

async fn pass(cluster: &Cluster, passes: &Passes) -> Result<Outcome<apply::Applied>, Error> {
    let context = &passes.context;
    let observed = observe::observe(cluster, context).await?;
    let mut planned = None;
    let decision = passes.decided.or(cluster, &observed, || {
        let wanted = resolve::resolve(cluster, &observed);
        let wanted = wanted.as_ref().map_err(Vec::as_slice);
        let new = planned.insert(plan::planned(cluster, wanted, &observed));
        new.decision.clone()
    });
    // While a run is followed that was at work before, nothing else is asked for: it builds the cluster.
    let planned = planned.unwrap_or_else(|| Planned::of(decision));
    let outcome = apply::apply(cluster, planned, context).await?;
    runs::history::prune(&context.client, &history::surplus(cluster, &observed))
        .await
        .map_err(|source| Error::api("remove a run that was kept long enough", source))?;
    Ok(if observed.awaits_secret() {
        outcome.within(jittered(SECRET_LOOK))
    } else {
        outcome
    })
}
