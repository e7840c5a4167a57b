//! The ClusterNode reconciler: tells of each host what the cluster's run and the probes know of it, and holds the object for as
//! long as its host is part of a cluster.

use std::sync::Arc;

use api::ClusterNode;
use kube::{Resource, core::DeserializeGuard, runtime::controller::Action};

use crate::context::{Context, Error, UNTIL_READ};

pub mod hold;
pub mod observe;
pub mod report;

/// One pass. A host is acted on by its cluster's runs, so there is nothing to plan here.
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
        // The host belongs to the other side.
        hold::let_go(node, &context).await?;
        return Ok(Action::await_change());
    }
    if !context.stores.are_read() {
        return Ok(Action::requeue(UNTIL_READ));
    }
    let observed = observe::observe(node, &context);
    if hold::hold(node, &observed, &context).await? {
        report::publish(node, &observed, &context).await?;
    }
    Ok(Action::await_change())
}
