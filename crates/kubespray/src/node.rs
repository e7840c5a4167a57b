//! The ClusterNode reconciler: tells of each host what the cluster's run and the probes know of it.

use std::sync::Arc;

use api::ClusterNode;
use kube::{Resource, core::DeserializeGuard, runtime::controller::Action};

use crate::context::{Context, Error, UNTIL_READ};

pub mod observe;
pub mod report;

/// One pass. A host is acted on by its cluster's runs, so there is nothing to plan or apply here.
///
/// # Errors
///
/// The API refuses or does not answer, at a read or a write.
pub async fn reconcile(
    object: Arc<DeserializeGuard<ClusterNode>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    // A ClusterNode that cannot be read is told of on its Cluster, which it stalls.
    let Ok(node) = &object.0 else {
        return Ok(Action::await_change());
    };
    if relocation::mark::of(node.meta()).is_some() {
        return Ok(Action::await_change());
    }
    if !context.stores.are_read() {
        return Ok(Action::requeue(UNTIL_READ));
    }
    let observed = observe::observe(node, &context);
    report::publish(node, &observed, &context).await?;
    Ok(Action::await_change())
}
