//! The finalizer that holds a ClusterNode while its host is part of a cluster: its deletion is the wish to remove the host, and the
//! object stays until that is carried out.

use api::ClusterNode;
use controller::finalizer;
use kube::{Api, Resource, ResourceExt};

use super::observe::Observed;
use crate::{
    context::{Context, Error},
    names::NODE_FINALIZER,
};

/// Holds the object of a host that a run made part of a cluster, or works on, and lets go of any other that is deleted: then there
/// is no status to write.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn hold(
    node: &ClusterNode,
    observed: &Observed,
    context: &Context,
) -> Result<bool, Error> {
    let deleted = node.meta().deletion_timestamp.is_some();
    if deleted && !observed.is_needed() {
        let_go(node, context).await?;
        return Ok(false);
    }
    if deleted || finalizer::is_held(node, NODE_FINALIZER) || !observed.is_needed() {
        return Ok(true);
    }
    finalizer::hold(&nodes(node, context), node, NODE_FINALIZER)
        .await
        .map_err(changing)?;
    Ok(true)
}

/// Lets go of an object that is deleted.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn let_go(node: &ClusterNode, context: &Context) -> Result<(), Error> {
    if node.meta().deletion_timestamp.is_none() {
        return Ok(());
    }
    finalizer::release(&nodes(node, context), node, NODE_FINALIZER)
        .await
        .map_err(changing)
}

fn nodes(node: &ClusterNode, context: &Context) -> Api<ClusterNode> {
    let namespace = node.namespace().unwrap_or_default();
    Api::namespaced(context.client.clone(), &namespace)
}

fn changing(source: kube::Error) -> Error {
    Error::api("change the finalizers of the ClusterNode", source)
}
