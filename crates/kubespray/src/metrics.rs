//! What a monitoring system is told of Clusters and their hosts.

use api::{Cluster, ClusterNode};
use controller::{
    Metrics,
    conditions::STALLED,
    metrics::{Gauge, Labels},
};
use jiff::Timestamp;
use kube::{core::DeserializeGuard, runtime::reflector::Store};

use crate::{
    certificates::Part,
    radar::{DRIFTED, compare::counted},
    snapshots::{BACKED_UP, standing},
};

/// Counts the objects of these stores from now on.
pub fn count(
    metrics: &Metrics,
    clusters: Store<DeserializeGuard<Cluster>>,
    nodes: Store<DeserializeGuard<ClusterNode>>,
) {
    metrics.amiss(
        Gauge {
            name: "windlass_cluster_amiss",
            help: "Conditions of clusters that are not as they should be.",
            label: "cluster",
        },
        clusters.clone(),
        amiss,
    );
    let of_certificates = clusters.clone();
    let of_snapshots = clusters.clone();
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
    metrics.time(
        Gauge {
            name: "windlass_cluster_certificate_end_timestamp_seconds",
            help: "When the certificate of a cluster ends that ends first.",
            label: "cluster",
        },
        of_certificates,
        |cluster| {
            let first = cluster.status.as_ref()?.first_certificate.as_ref()?;
            Some(first.not_after.0.as_second())
        },
    );
    metrics.times(
        Gauge {
            name: "windlass_node_certificate_end_timestamp_seconds",
            help: "When the certificate ends that a server of a host shows.",
            label: "node",
        },
        nodes.clone(),
        ends,
    );
    metrics.time(
        Gauge {
            name: "windlass_cluster_snapshot_timestamp_seconds",
            help: "When the last good snapshot of a cluster's etcd was taken that lies in its store.",
            label: "cluster",
        },
        of_snapshots,
        |cluster| {
            let store = cluster.status.as_ref()?.snapshots.as_ref()?;
            Some(standing::last_good(store, Timestamp::now())?.1.as_second())
        },
    );
    metrics.gauge(
        Gauge {
            name: "windlass_nodes_drift",
            help: "Hosts of clusters with a radar by how they stand against what the last run left on them.",
            label: "state",
        },
        nodes.clone(),
        |node| Some(counted(node.status.as_ref()?.radar.as_ref()?)),
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

/// The ends of a host's certificates by the server that shows each: of no other than those that there are, which bounds their number.
fn ends(node: &ClusterNode) -> Vec<(Labels, i64)> {
    let status = node.status.iter();
    let told = status.flat_map(|status| &status.certificates);
    let known = told.filter(|told| Part::ALL.iter().any(|part| part.name() == told.name));
    let ends = known.map(|told| {
        let labels = vec![("name", told.name.clone())];
        (labels, told.not_after.0.as_second())
    });
    ends.collect()
}

/// The conditions that tell of health, with the status of each that is well.
const WELL: [(&str, &str); 7] = [
    ("APIServerAvailable", "True"),
    ("EtcdHealthy", "True"),
    ("NodesReady", "True"),
    ("CertificatesValid", "True"),
    (BACKED_UP, "True"),
    (DRIFTED, "False"),
    (STALLED, "False"),
];

fn amiss(cluster: &Cluster) -> Vec<Labels> {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let amiss = conditions.filter(|is| {
        let mut well = WELL.iter();
        well.any(|(kind, status)| *kind == is.type_ && *status != is.status)
    });
    let labels = amiss.map(|is| {
        vec![
            ("condition", is.type_.clone()),
            ("status", is.status.clone()),
            ("reason", is.reason.clone()),
        ]
    });
    labels.collect()
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::json;

    use super::*;

    #[test]
    fn each_certificate_of_a_host_is_told_once_and_what_is_none_is_not() {
        let (clusters, _clusters) = reflector::store();
        let (nodes, mut writer) = reflector::store();
        let end = |name: &str, not_after: &str| json!({"name": name, "notAfter": not_after});
        for (name, certificates) in [
            (
                "master-1",
                json!([
                    end("kube-apiserver", "2027-01-01T00:00:00Z"),
                    end("etcd", "1970-01-01T00:01:40Z"),
                    end("etcd", "1970-01-01T00:01:41Z"),
                    end("what-nobody-looks-at", "2027-01-01T00:00:00Z"),
                ]),
            ),
            ("worker-1", json!([end("kubelet", "1970-01-01T00:00:07Z")])),
            ("worker-2", json!([])),
        ] {
            let node: ClusterNode = serde_json::from_value(json!({
                "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
                "metadata": {"name": name, "namespace": "demo"},
                "spec": {"type": "worker", "inventory": {"ansible_host": "192.0.2.1"}},
                "status": {"certificates": certificates},
            }))
            .unwrap();
            writer.apply_watcher_event(&Event::Apply(DeserializeGuard(Ok(node))));
        }
        let metrics = Metrics::default();
        count(&metrics, clusters, nodes);
        let text = metrics.render();
        let name = "windlass_node_certificate_end_timestamp_seconds{";
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "namespace=\"demo\",node=\"master-1\",name=\"etcd\"} 101",
                "namespace=\"demo\",node=\"master-1\",name=\"kube-apiserver\"} 1798761600",
                "namespace=\"demo\",node=\"worker-1\",name=\"kubelet\"} 7",
            ]
        );
    }
}
