//! Objects as they are in the API, of kinds that are known and of others.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use api::{
    Cluster, ClusterNode,
    inventory::{FLEET_CLUSTER_ANNOTATION, FleetCluster},
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    discovery,
};
use serde_json::Value;

use super::{
    Context, Error, own,
    part::{Family, Part},
};

/// The resources of kinds, asked for once each.
#[derive(Default)]
pub struct Resources(Mutex<HashMap<GroupVersionKind, Found>>);

/// A resource, and whether its objects are of a namespace.
type Found = (ApiResource, bool);

impl Resources {
    async fn of(&self, client: &Client, part: &Part) -> Result<Found, Error> {
        match (part.family(), part.kind.as_str()) {
            (Family::Kubespray, "Cluster") => return Ok((resource::<Cluster>(), true)),
            (Family::Kubespray, "ClusterNode") => return Ok((resource::<ClusterNode>(), true)),
            (Family::Kubespray | Family::ClusterApi | Family::Vault | Family::Other, _) => {}
        }
        let (group, version) = part
            .api_version
            .split_once('/')
            .unwrap_or(("", &part.api_version));
        let kind = GroupVersionKind::gvk(group, version, &part.kind);
        let known = self.known(&kind);
        if let Some(known) = known {
            return Ok(known);
        }
        let (resource, capabilities) = discovery::pinned_kind(client, &kind)
            .await
            .map_err(|error| Error::Api(format!("find the resource of {}", part.title()), error))?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = (resource, capabilities.scope == discovery::Scope::Namespaced);
        known.insert(kind, found.clone());
        Ok(found)
    }

    fn known(&self, kind: &GroupVersionKind) -> Option<Found> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(kind).cloned()
    }
}

fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// The objects of a part's kind, in its namespace, or in all if it has none.
pub(super) async fn api(part: &Part, context: &Context) -> Result<Api<DynamicObject>, Error> {
    let (resource, _) = context.resources.of(&context.client, part).await?;
    let client = context.client.clone();
    Ok(match part.namespace.as_str() {
        "" => Api::all_with(client, &resource),
        namespace => Api::namespaced_with(client, namespace, &resource),
    })
}

/// Whether objects of a part's kind are of a namespace: one of the whole API is nobody's own.
pub(super) async fn is_namespaced(part: &Part, context: &Context) -> Result<bool, Error> {
    Ok(context.resources.of(&context.client, part).await?.1)
}

/// A part as it is now, if it is this cluster's. What others have is nothing to it, and is told to nobody: a template may name what it likes.
pub(super) async fn read_own(
    part: &Part,
    cluster: &FleetCluster,
    context: &Context,
) -> Result<Option<Value>, Error> {
    let there = read(part, context).await?;
    Ok(there.filter(|there| is_own(there, cluster)))
}

/// Whether an object is this cluster's.
pub(super) fn is_own(there: &Value, cluster: &FleetCluster) -> bool {
    there["metadata"]["annotations"][FLEET_CLUSTER_ANNOTATION] == own(cluster)
}

/// A part as it is now, whosever it is.
pub(super) async fn read(part: &Part, context: &Context) -> Result<Option<Value>, Error> {
    let found = api(part, context).await?.get_opt(&part.name).await;
    let found = found.map_err(|error| Error::Api(format!("read {}", part.title()), error))?;
    Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
}
