//! What watches an operator: a ServiceMonitor, alert rules and a board.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    Flavour,
    objects::{METRICS_PORT, account, binding, global, labels, metadata, role},
};

/// Where metrics are, and who may read them: the operator asks the API server, which a role lets it, and another one lets
/// whoever gathers them.
pub(super) fn access(flavour: Flavour) -> Vec<Value> {
    let create = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]});
    let reviews = [
        create("authentication.k8s.io", "tokenreviews"),
        create("authorization.k8s.io", "subjectaccessreviews"),
    ];
    let read = [json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})];
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(flavour, "windlass-metrics"),
        "spec": {
            "selector": labels(),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    });
    vec![
        service,
        role("ClusterRole", &global("windlass-metrics"), &reviews),
        binding(
            "ClusterRoleBinding",
            &global("windlass-metrics"),
            ("ClusterRole", "windlass-metrics"),
            &account(flavour, "windlass"),
        ),
        role("ClusterRole", &global("windlass-metrics-reader"), &read),
    ]
}

pub(super) fn service_monitor(flavour: Flavour) -> Vec<Value> {
    // The operator's own certificate is signed by nobody.
    let tls = flavour.value(
        json!({"insecureSkipVerify": true}),
        "ternary (dict `insecureSkipVerify` true) .Values.monitoring.tlsConfig (empty .Values.monitoring.tlsConfig) | toJson",
    );
    vec![json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": metadata(flavour, "windlass"),
        "spec": {
            "selector": {"matchLabels": labels()},
            "endpoints": [{
                "port": "metrics", "interval": "30s", "scheme": "https",
                // The namespace of a cluster, not the operator's.
                "honorLabels": true,
                // Prometheus's own account, bound to windlass-metrics-reader.
                "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                "tlsConfig": tls,
            }],
        },
    })]
}

pub(super) fn rules(flavour: Flavour) -> Vec<Value> {
    let alert = |name: &str, expression: &str, wait: &str, severity: &str, summary: &str| {
        let summary = match flavour {
            // Prometheus has its own braces; the chart passes them on as they are.
            Flavour::Chart => summary.replace("{{", "{{`{{`}}"),
            Flavour::Cluster | Flavour::Namespaced => summary.to_owned(),
        };
        json!({
            "alert": name, "expr": expression, "for": wait,
            "labels": {"severity": severity}, "annotations": {"summary": summary},
        })
    };
    // Of which cluster, whichever replica tells it.
    let amiss = |is: &str| {
        format!("max by (namespace, cluster, condition) (windlass_cluster_amiss{{{is}}}) > 0")
    };
    let rules = [
        alert(
            "WindlassNoLeader",
            "(sum(windlass_leader) or vector(0)) != 1",
            "2m",
            "critical",
            "Not exactly one replica of Windlass works: no cluster is looked after.",
        ),
        alert(
            "WindlassReconcileErrors",
            "sum by (kind) (rate(windlass_reconcile_total{outcome=\"error\"}[10m])) > 0.1",
            "15m",
            "warning",
            "Passes of the reconciler of {{ $labels.kind }} keep failing; the operator's log says why.",
        ),
        alert(
            "WindlassClusterUnhealthy",
            &amiss("condition=~\"APIServerAvailable|EtcdHealthy\",reason=~\"Unhealthy|NotProbed\""),
            "5m",
            "critical",
            "Cluster {{ $labels.namespace }}/{{ $labels.cluster }} does not work: its condition {{ $labels.condition }} says why.",
        ),
        alert(
            "WindlassHostsUnhealthy",
            &amiss("condition=\"NodesReady\",reason=\"Unhealthy\""),
            "5m",
            "warning",
            "Hosts of cluster {{ $labels.namespace }}/{{ $labels.cluster }} do not work: its condition NodesReady says which.",
        ),
        alert(
            "WindlassCertificatesInvalid",
            &amiss("condition=\"CertificatesValid\",reason=\"Unhealthy\""),
            "5m",
            "critical",
            "Certificates of cluster {{ $labels.namespace }}/{{ $labels.cluster }} are not good: its condition CertificatesValid says which.",
        ),
        alert(
            "WindlassClusterNeedsAttention",
            &amiss("reason=\"NeedsAttention\""),
            "15m",
            "warning",
            "Cluster {{ $labels.namespace }}/{{ $labels.cluster }} wants a look soon: its condition {{ $labels.condition }} says why.",
        ),
        alert(
            "WindlassRunnerMissing",
            "max by (namespace, subject, run, reason) (windlass_runs_without_runner) > 0",
            "5m",
            "critical",
            "The runner of run {{ $labels.namespace }}/{{ $labels.run }} of {{ $labels.subject }} does not come: {{ $labels.reason }}; its \
             condition Ready says more.",
        ),
        alert(
            "WindlassNotBackedUp",
            &amiss("condition=\"BackedUp\",status=\"False\""),
            "15m",
            "critical",
            "The last good snapshot of the etcd of cluster {{ $labels.namespace }}/{{ $labels.cluster }} is too old, or there is none: its \
             condition BackedUp says why.",
        ),
        alert(
            "WindlassCertificateEnds",
            "min by (namespace, cluster) (windlass_cluster_certificate_end_timestamp_seconds) - time() < 14 * 86400",
            "1h",
            "warning",
            "A certificate of cluster {{ $labels.namespace }}/{{ $labels.cluster }} ends within two weeks: windlass renew makes it anew.",
        ),
        alert(
            "WindlassHostsDrifted",
            &amiss("condition=\"Drifted\",status=\"True\""),
            "15m",
            "warning",
            "Hosts of cluster {{ $labels.namespace }}/{{ $labels.cluster }} are not, or were not, as a run left them: its condition Drifted \
             says what.",
        ),
        alert(
            "WindlassHostsNotLookedAt",
            &amiss("condition=\"Drifted\",reason=\"NotLookedAt\""),
            "1h",
            "warning",
            "The radar sees no host of cluster {{ $labels.namespace }}/{{ $labels.cluster }}: its condition Drifted says why.",
        ),
        alert(
            "WindlassClusterStalled",
            &amiss("condition=\"Stalled\""),
            "1m",
            "warning",
            "Cluster {{ $labels.namespace }}/{{ $labels.cluster }} waits for a person: its condition Stalled, and windlass status, say what to \
             do.",
        ),
    ];
    vec![json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
        "metadata": metadata(flavour, "windlass"),
        "spec": {"groups": [{"name": "windlass", "rules": rules}]},
    })]
}

pub(super) fn dashboard(flavour: Flavour) -> Vec<Value> {
    let mut metadata = metadata(flavour, "windlass-dashboard");
    metadata["labels"]["grafana_dashboard"] = json!("1");
    // The board has its own braces; the chart passes them on as they are.
    let board = board().unwrap_or_default();
    let data = match flavour {
        Flavour::Chart => json!(board.replace("{{", "{{`{{`}}")),
        Flavour::Cluster | Flavour::Namespaced => json!(board),
    };
    vec![json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"windlass.json": data},
    })]
}

/// The board as Grafana imports it.
pub(super) fn board() -> Result<String> {
    let panels = [
        (
            "Clusters by state",
            "sum by (state) (windlass_clusters)",
            "{{state}}",
            "short",
        ),
        (
            "Clusters by health",
            "sum by (health) (windlass_cluster_health)",
            "{{health}}",
            "short",
        ),
        (
            "Hosts by health",
            "sum by (health) (windlass_nodes)",
            "{{health}}",
            "short",
        ),
        (
            "Runs by phase",
            "sum by (phase) (windlass_runs)",
            "{{phase}}",
            "short",
        ),
        (
            "Passes a second",
            "sum by (kind, outcome) (rate(windlass_reconcile_total[5m]))",
            "{{kind}} {{outcome}}",
            "ops",
        ),
        (
            "Resident memory",
            "process_resident_memory_bytes{job=\"windlass-metrics\"}",
            "{{pod}}",
            "bytes",
        ),
    ];
    let panels: Vec<_> = (0_u32..)
        .zip(panels)
        .map(|(number, panel)| {
            let (title, expression, legend, unit) = panel;
            json!({
                "id": number + 1, "type": "timeseries", "title": title,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"x": number % 2 * 12, "y": number / 2 * 8, "w": 12, "h": 8},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [{"refId": "A", "expr": expression, "legendFormat": legend}],
            })
        })
        .collect();
    let board = json!({
        "title": "Windlass", "uid": "windlass", "schemaVersion": 39, "editable": true,
        "tags": ["windlass"], "time": {"from": "now-6h", "to": "now"}, "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    });
    serde_json::to_string_pretty(&board).context("print the board")
}
