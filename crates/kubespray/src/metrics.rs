//! What a monitoring system is told of Clusters and their hosts.

use api::{Cluster, ClusterNode};
use controller::{Metrics, metrics::Gauge};
use kube::{core::DeserializeGuard, runtime::reflector::Store};

/// Counts the objects of these stores from now on.
pub fn count(
    metrics: &Metrics,
    clusters: Store<DeserializeGuard<Cluster>>,
    nodes: Store<DeserializeGuard<ClusterNode>>,
) {
    metrics.gauge(
        Gauge {
            name: "windlass_clusters",
            help: "Clusters by what the operator does with them.",
            label: "state",
        },
        clusters.clone(),
        |cluster| cluster.status.as_ref()?.state,
    );
    metrics.gauge(
        Gauge {
            name: "windlass_cluster_health",
            help: "Clusters by their health.",
            label: "health",
        },
        clusters,
        |cluster| Some(cluster.status.as_ref()?.cluster.as_ref()?.health),
    );
    metrics.gauge(
        Gauge {
            name: "windlass_nodes",
            help: "Hosts of clusters by their health.",
            label: "health",
        },
        nodes,
        |node| Some(node.status.as_ref()?.node.as_ref()?.health),
    );
}
