//! The reconciler of a Rollout: writes down what an edit makes of the clusters, and walks over them.
//!
//! The status is the record of a run: who was begun, with which revision, since when. It is written under the version that the pass
//! read, so that no pass grants on the ground of an older one; a FleetCluster is brought to a revision only after the grant was written.
//! The decisions are made in `decision`, [`engine`], [`waves`], [`rollback`] and `history`.

use std::{sync::Arc, time::Duration};

use api::inventory::{FleetCluster, FleetRevision, Rollout};
use controller::{
    Events,
    stream::{in_namespace, readable},
};
use futures::FutureExt;
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};

use crate::inventories::{Inventories, Inventory};

mod approvals;
mod births;
mod decision;
pub mod engine;
pub(crate) mod gates;
pub(crate) mod history;
mod known;
mod report;
pub mod rollback;
pub(crate) mod sources;
pub mod waves;

pub use decision::prevented_by;

/// What the passes share.
pub struct Context {
    /// The API.
    pub client: Client,
    /// One pass at a time: what two roll-outs grant at once, neither has seen of the other.
    pub turn: tokio::sync::Mutex<()>,
    /// The FleetClusters.
    pub clusters: Store<DeserializeGuard<FleetCluster>>,
    /// What clusters were rendered to.
    pub revisions: Store<DeserializeGuard<FleetRevision>>,
    /// The inventories.
    pub inventories: Arc<Inventories>,
    /// What happened.
    pub events: Events,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(&'static str, #[source] kube::Error),
    /// The status could not be written.
    #[error("apply")]
    Apply(#[source] controller::apply::Error),
}

/// One pass.
///
/// # Errors
/// The API refuses or does not answer.
pub async fn reconcile(
    object: Arc<DeserializeGuard<Rollout>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Some(rollout) = readable(&object) else {
        return Ok(Action::await_change());
    };
    let namespace = rollout.namespace().unwrap_or_default();
    let revisions = context.revisions.wait_until_ready().now_or_never();
    let is_read = matches!(revisions, Some(Ok(())));
    let Some(inventory) = context.inventories.of(&namespace).filter(|_| is_read) else {
        return Ok(Action::requeue(UNTIL_READ));
    };
    // Before its turn: a template may take its time, and is not to hold the Rollouts of other namespaces up.
    prepare(&inventory, &namespace, &context).await;
    let _turn = context.turn.lock().await;
    // From the API, not from a watch that may be behind: what was granted must be seen, by whomever it was.
    let api = Api::<DeserializeGuard<Rollout>>::namespaced(context.client.clone(), &namespace);
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|error| Error::Api("list the Rollouts", error))?;
    let mut unreadable = None;
    let all = all.items.into_iter();
    let all: Vec<_> = all
        .filter_map(|rollout| match rollout.0 {
            Ok(rollout) => Some(rollout),
            Err(invalid) => {
                let name = invalid.metadata.name.unwrap_or_default();
                let why = api::text::plain(&invalid.error, 300);
                unreadable = Some((name, why));
                None
            }
        })
        .collect();
    let mut own = all.iter().filter(|one| one.uid() == rollout.uid());
    let Some(rollout) = own.find(|one| one.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    let approvals = approvals::listed(rollout, &context.client).await;
    let approvals = approvals.map_err(|error| Error::Api("list the WaveApprovals", error))?;
    let known = known::Known {
        unreadable,
        approvals,
        ..known::known(rollout, &all, &inventory, &context)
    };
    let unrest = inventory.unrest();
    let decided = decision::decide(rollout, &known, unrest, Timestamp::now());
    report::publish(rollout, &decided, &known, inventory.sources(), &context).await?;
    let wake = decided
        .verdict
        .wake
        .map(|seconds| Duration::from_secs(seconds.max(1)));
    let wake = wake.unwrap_or(AT_REST).min(if unrest.is_zero() {
        AT_REST
    } else {
        unrest + UNTIL_READ
    });
    Ok(Action::requeue(wake))
}

/// Has all clusters of a namespace rendered.
async fn prepare(inventory: &Arc<Inventory>, namespace: &str, context: &Context) {
    let clusters = in_namespace(&context.clusters, namespace);
    let clusters = clusters
        .iter()
        .filter_map(|cluster| cluster.0.as_ref().ok());
    let clusters = clusters.map(ResourceExt::name_any).collect();
    inventory.prepare(clusters).await;
}

/// How soon a pass is tried again that began before the stores were read.
const UNTIL_READ: Duration = Duration::from_millis(50);
/// A safety net for a lost wake-up.
const AT_REST: Duration = Duration::from_mins(10);
