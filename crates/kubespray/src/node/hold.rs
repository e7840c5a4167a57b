//! The finalizer that holds a ClusterNode while its host is part of a cluster: its deletion is the wish to remove the host, and the
//! object stays until that is carried out.

use api::ClusterNode;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::observe::Observed;
use crate::{
    context::{Context, Error},
    names::{NODE_FINALIZER, NODE_MANAGER},
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
    if deleted || is_held(node) || !observed.is_needed() {
        return Ok(true);
    }
    // A finalizer that was never there needs no compare-and-swap: apply merges it into the list.
    let body = json!({
        "apiVersion": ClusterNode::api_version(&()),
        "kind": ClusterNode::kind(&()),
        "metadata": {"name": node.name_any(), "uid": node.uid(), "finalizers": [NODE_FINALIZER]},
    });
    let parameters = PatchParams::apply(NODE_MANAGER).force();
    write(node, context, &parameters, &Patch::Apply(&body)).await?;
    Ok(true)
}

/// Lets go of an object that is deleted.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn let_go(node: &ClusterNode, context: &Context) -> Result<(), Error> {
    if !is_held(node) || node.meta().deletion_timestamp.is_none() {
        return Ok(());
    }
    let finalizers = node.finalizers().iter();
    let rest: Vec<_> = finalizers.filter(|name| *name != NODE_FINALIZER).collect();
    let patch = json!({
        "metadata": {"resourceVersion": node.resource_version(), "finalizers": rest},
    });
    write(
        node,
        context,
        &PatchParams::default(),
        &Patch::Merge(&patch),
    )
    .await
}

fn is_held(node: &ClusterNode) -> bool {
    node.finalizers().iter().any(|name| name == NODE_FINALIZER)
}

/// Writes, unless the object is gone.
async fn write(
    node: &ClusterNode,
    context: &Context,
    parameters: &PatchParams,
    patch: &Patch<&serde_json::Value>,
) -> Result<(), Error> {
    let namespace = node.namespace().unwrap_or_default();
    let nodes = Api::<ClusterNode>::namespaced(context.client.clone(), &namespace);
    match nodes.patch(&node.name_any(), parameters, patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => written
            .map(drop)
            .map_err(|source| Error::api("change the finalizers of the ClusterNode", source)),
    }
}
