//! The Cluster reconciler: decides that a run is needed, and tells how the cluster stands.
//!
//! How far a run got is the runner's business; this reconciler copies it. Nothing is written at rest: a status is written
//! only when it differs, and health is probed in the background and shown only when it changes.

use std::{sync::Arc, time::Duration};

use api::Cluster;
use controller::{Outcome, backoff::jittered};
use kube::{Resource, core::DeserializeGuard, runtime::controller::Action};

use crate::context::{Context, Error, UNTIL_READ};

pub mod apply;
pub mod compile;
pub mod decided;
pub mod history;
pub mod observe;
pub mod plan;
pub mod report;
pub mod resolve;

/// The field manager of this reconciler.
pub const FIELD_MANAGER: &str = "windlass-cluster";
/// What keeps a Cluster until its deletion policy is carried out.
pub const FINALIZER: &str = "kubespray.k8s.io/cluster";

/// How often a Secret is read anew that a cluster waits for. Nothing tells of its change: who may watch one Secret of a
/// namespace may list them all.
const SECRET_LOOK: Duration = Duration::from_secs(3);

/// One pass.
///
/// # Errors
///
/// The API refuses or does not answer, at a read or a write. What is wrong with the Cluster is no error: its status says it.
pub async fn reconcile(
    object: Arc<DeserializeGuard<Cluster>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let cluster = match &object.0 {
        Ok(cluster) => cluster,
        Err(invalid) => {
            report::publish_invalid(invalid, &context).await?;
            return Ok(Action::await_change());
        }
    };
    if let Some(mark) = relocation::mark::of(cluster.meta()) {
        crate::moving::rest(cluster, mark, &context).await?;
        return Ok(Action::await_change());
    }
    if !context.stores.are_read() {
        return Ok(Action::requeue(UNTIL_READ));
    }
    let outcome = pass(cluster, &context).await;
    report::publish(cluster, &outcome, &context).await?;
    Ok(outcome?.action())
}

async fn pass(cluster: &Cluster, context: &Context) -> Result<Outcome<apply::Applied>, Error> {
    let observed = observe::observe(cluster, context).await?;
    let decision = context.decided.or(cluster, &observed, || {
        let wanted = resolve::resolve(cluster, &observed);
        plan::plan(cluster, wanted.as_ref().map_err(Vec::as_slice), &observed)
    });
    let outcome = apply::apply(cluster, decision, context).await?;
    runs::history::prune(&context.client, &history::surplus(cluster, &observed))
        .await
        .map_err(|source| Error::api("remove a run that was kept long enough", source))?;
    Ok(if observed.awaits_secret() {
        outcome.within(jittered(SECRET_LOOK))
    } else {
        outcome
    })
}
