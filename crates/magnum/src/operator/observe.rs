//! What is seen of a cluster on hosts of the pool.
//!
//! A pass begins with what watches delivered, which costs the API nothing, however many clusters and hosts there are. That may be
//! a moment old, so what would take a host, give one back or remove a node is decided anew on what is there then.

use std::collections::BTreeSet;

use api::{
    Cluster, ClusterNode,
    magnum::{CoeCluster, Host},
};
use controller::stream::{in_namespace, readable};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};

use super::{Context, Error, report::Seen};
use crate::{
    bare_metal::{self, NAME, Plan},
    view::backing_namespace,
};

/// The objects as they were seen last.
pub(super) struct Stores {
    /// Hosts of every pool.
    pub(super) hosts: Store<DeserializeGuard<Host>>,
    /// Clusters of kubespray.
    pub(super) clusters: Store<DeserializeGuard<Cluster>>,
    /// And their hosts.
    pub(super) nodes: Store<DeserializeGuard<ClusterNode>>,
    /// The ssh key of the pool, alone.
    pub(super) key: Store<Secret>,
}

impl Stores {
    /// Whether each has been read once. Before that a cluster looks as if it had lost what it has.
    pub(super) fn are_read(&self) -> bool {
        self.hosts.wait_until_ready().now_or_never().is_some()
            && self.clusters.wait_until_ready().now_or_never().is_some()
            && self.nodes.wait_until_ready().now_or_never().is_some()
            && self.key.wait_until_ready().now_or_never().is_some()
    }
}

impl Context {
    /// What is to be done, and what was seen when that was decided.
    pub(super) async fn decide(&self, cluster: &CoeCluster) -> Result<(Seen, Plan), Error> {
        let seen = self.seen(cluster);
        let plan = self.plan(cluster, &seen);
        let is_lasting =
            !plan.claims.is_empty() || !plan.releases.is_empty() || !plan.leaving.is_empty();
        if !is_lasting {
            return Ok((seen, plan));
        }
        let seen = self.observe(cluster).await?;
        let plan = self.plan(cluster, &seen);
        Ok((seen, plan))
    }

    fn plan(&self, cluster: &CoeCluster, seen: &Seen) -> Plan {
        let there: BTreeSet<_> = seen.nodes.iter().map(ResourceExt::name_any).collect();
        bare_metal::plan(cluster, &seen.hosts, &there, &self.options.settings)
    }

    /// As it was seen last.
    fn seen(&self, cluster: &CoeCluster) -> Seen {
        let namespace = backing_namespace(&cluster.name_any());
        let uuid = cluster.name_any();
        let stores = &self.stores;
        let hosts = stores.hosts.state_filter(|host| {
            let is_of_pool = host.namespace().as_deref() == Some(self.options.pool.as_str());
            is_of_pool && host.0.as_ref().is_ok_and(|host| is_for(host, &uuid))
        });
        let kubespray = stores
            .clusters
            .get(&ObjectRef::new(NAME).within(&namespace));
        Seen {
            hosts: hosts
                .iter()
                .filter_map(|host| readable(host).cloned())
                .collect(),
            kubespray: kubespray.and_then(|cluster| readable(&cluster).cloned()),
            nodes: in_namespace(&stores.nodes, &namespace)
                .iter()
                .filter_map(|node| readable(node).cloned())
                .collect(),
            key: stores.key.state().first().map(|key| Secret::clone(key)),
            key_name: self.key_name(),
        }
    }

    /// As it is.
    pub(super) async fn observe(&self, cluster: &CoeCluster) -> Result<Seen, Error> {
        let namespace = backing_namespace(&cluster.name_any());
        let everything = ListParams::default();
        let hosts = self.pool::<Host>().list(&everything).await;
        let clusters: Api<Cluster> = Api::namespaced(self.client.clone(), &namespace);
        let nodes: Api<ClusterNode> = Api::namespaced(self.client.clone(), &namespace);
        let key = self.pool::<Secret>().get_opt(&self.options.key).await;
        let mut hosts = hosts
            .map_err(|error| Error::Api("list Hosts", error))?
            .items;
        let uuid = cluster.name_any();
        hosts.retain(|host| is_for(host, &uuid));
        Ok(Seen {
            hosts,
            kubespray: clusters
                .get_opt(NAME)
                .await
                .map_err(|error| Error::Api("get the kubespray Cluster", error))?,
            nodes: nodes
                .list(&everything)
                .await
                .map_err(|error| Error::Api("list ClusterNodes", error))?
                .items,
            key: key.map_err(|error| Error::Api("get the ssh key of the pool", error))?,
            key_name: self.key_name(),
        })
    }

    fn key_name(&self) -> String {
        format!("{}/{}", self.options.pool, self.options.key)
    }
}

/// Whether a cluster has the host, or might.
fn is_for(host: &Host, uuid: &str) -> bool {
    let claim = host.spec.claim.as_ref();
    claim.is_none_or(|claim| claim.cluster == uuid)
}
