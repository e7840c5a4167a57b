//! The objects of an operator in a cluster.

use serde_json::{Value, json};

use super::{Flavour, NAMESPACE};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The port of probes and metrics.
const PORT: u16 = 8080;

/// The user that the images know.
const USER: u32 = 65_532;

pub(super) fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "windlass",
        "app.kubernetes.io/component": "operator",
    })
}

fn metadata(flavour: Flavour, name: &str) -> Value {
    json!({"name": name, "namespace": flavour.namespace(), "labels": labels()})
}

fn global(name: &str) -> Value {
    json!({"name": name, "labels": labels()})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What the operator does with the objects that it is for.
fn operator_rules() -> Vec<Value> {
    let kinds = "kubespray.k8s.io";
    vec![
        rule(
            kinds,
            &["clusters", "clusternodes"],
            &["get", "list", "watch", "patch"],
        ),
        rule(
            kinds,
            &["clusters/status", "clusternodes/status"],
            &["get", "patch"],
        ),
        // To own objects whose deletion then waits for them.
        rule(kinds, &["clusters/finalizers"], &["update"]),
        rule(
            "workflow.windlass.dev",
            &["runs"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        rule("workflow.windlass.dev", &["runs/status"], &["get", "patch"]),
        rule("workflow.windlass.dev", &["runs/finalizers"], &["update"]),
        // Kubeconfigs to probe clusters with, and whether an ssh key is there. Watched one by one, never listed.
        rule("", &["secrets"], &["get", "watch"]),
        rule("events.k8s.io", &["events"], &["create"]),
        rule(
            "batch",
            &["jobs"],
            &["get", "list", "watch", "create", "delete"],
        ),
        rule("", &["persistentvolumeclaims"], &["get", "create"]),
        // Why the pod of a Job cannot be made, placed or started: asked while a runner does not come.
        rule("", &["pods", "events"], &["list"]),
    ]
}

/// What lets the operator give a namespace its runner's account.
fn grant_rules() -> Vec<Value> {
    vec![
        rule("", &["serviceaccounts"], &["get", "create", "patch"]),
        rule(
            "rbac.authorization.k8s.io",
            &["rolebindings"],
            &["get", "create", "patch"],
        ),
        json!({
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
            "resourceNames": ["windlass-runner"], "verbs": ["bind"],
        }),
    ]
}

/// What a runner does in the namespace of its run.
fn runner_rules() -> Vec<Value> {
    vec![
        rule("kubespray.k8s.io", &["clusters"], &["get"]),
        rule(
            "workflow.windlass.dev",
            &["runs"],
            &["get", "list", "watch"],
        ),
        rule("workflow.windlass.dev", &["runs/status"], &["get", "patch"]),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "create", "update"],
        ),
        rule("events.k8s.io", &["events"], &["create"]),
        // Reads the ssh key, stores the new cluster's kubeconfig.
        rule("", &["secrets"], &["get", "create", "patch"]),
    ]
}

fn binding(kind: &str, metadata: &Value, role: (&str, &str), account: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
        "subjects": [account],
    })
}

fn role(kind: &str, metadata: &Value, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules,
    })
}

fn account(flavour: Flavour, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": flavour.namespace()})
}

/// The operator's account, and its right to lead.
pub(super) fn accounts(flavour: Flavour) -> Vec<Value> {
    let leader = metadata(flavour, "windlass-leader");
    let leases = vec![rule(
        "coordination.k8s.io",
        &["leases"],
        &["get", "create", "update"],
    )];
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(flavour, "windlass")}),
        role("Role", &leader, &leases),
        binding(
            "RoleBinding",
            &leader,
            ("Role", "windlass-leader"),
            &account(flavour, "windlass"),
        ),
    ]
}

/// Rights of an operator for the whole cluster.
pub(super) fn cluster_rights(flavour: Flavour) -> Vec<Value> {
    let rules = [operator_rules(), grant_rules()].concat();
    vec![
        role("ClusterRole", &global("windlass-operator"), &rules),
        binding(
            "ClusterRoleBinding",
            &global("windlass-operator"),
            ("ClusterRole", "windlass-operator"),
            &account(flavour, "windlass"),
        ),
        role("ClusterRole", &global("windlass-runner"), &runner_rules()),
    ]
}

/// Rights of an operator for its own namespace, and the account of its runners, which it then need not make.
pub(super) fn namespaced_rights(flavour: Flavour) -> Vec<Value> {
    let operator = metadata(flavour, "windlass-operator");
    let runner = metadata(flavour, "windlass-runner");
    vec![
        role("Role", &operator, &operator_rules()),
        binding(
            "RoleBinding",
            &operator,
            ("Role", "windlass-operator"),
            &account(flavour, "windlass"),
        ),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": runner}),
        role("Role", &runner, &runner_rules()),
        binding(
            "RoleBinding",
            &runner,
            ("Role", "windlass-runner"),
            &account(flavour, "windlass-runner"),
        ),
    ]
}

/// The operator, and the Service of its metrics.
pub(super) fn deployment(flavour: Flavour) -> Vec<Value> {
    let mut arguments = vec![
        json!("controller"),
        json!("--log-format=json"),
        json!(format!("--listen=0.0.0.0:{PORT}")),
        json!("--lease=windlass"),
    ];
    match flavour {
        Flavour::Cluster => {
            arguments.extend([
                json!("--watch-namespace="),
                json!("--runner-role=windlass-runner"),
            ]);
        }
        Flavour::Namespaced => {
            arguments.push(json!(format!("--watch-namespace={NAMESPACE}")));
            arguments.push(json!("--runner-role="));
        }
        Flavour::Chart => {
            let all = "ternary (printf `--watch-namespace=%s` .Release.Namespace) `--watch-namespace=` .Values.namespaced | quote";
            let role = "ternary `--runner-role=` `--runner-role=windlass-runner` .Values.namespaced | quote";
            arguments.extend([flavour.value("", all), flavour.value("", role)]);
        }
    }
    let image = flavour.value(
        format!("windlass:v{VERSION}"),
        "ternary (printf `%s@%s` .Values.image.repository .Values.image.digest) (printf `%s:%s` .Values.image.repository (.Values.image.tag | default (printf `v%s` .Chart.AppVersion))) (not (empty .Values.image.digest)) | quote",
    );
    let runner_image = flavour.value(
        format!("windlass-runner:v{VERSION}"),
        ".Values.runner.image | default (printf `windlass-runner:v%s` .Chart.AppVersion) | quote",
    );
    let policy = flavour.value("IfNotPresent", ".Values.image.pullPolicy | quote");
    let protocols = flavour.value("https,ssh", ".Values.sources.protocols | join `,` | quote");
    let addresses = flavour.value("", ".Values.sources.addresses | join `,` | quote");
    let roots = flavour.value("/opt/windlass", ".Values.sources.roots | join `,` | quote");
    let cache = flavour.value("2048", ".Values.sources.cacheMiB | quote");
    let pull_secrets = flavour.value("", ".Values.runner.imagePullSecrets | join `,` | quote");
    let resources =
        json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}});
    let probe = |path: &str, period: u8| json!({"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": period, "timeoutSeconds": 3});
    let container = json!({
        "name": "operator",
        "image": image,
        "imagePullPolicy": policy,
        "args": arguments,
        "env": [
            {"name": "WINDLASS_IMAGE", "value": image},
            {"name": "WINDLASS_RUNNER_IMAGE", "value": runner_image},
            {"name": "WINDLASS_IMAGE_PULL_POLICY", "value": policy},
            {"name": "WINDLASS_RUNNER_PULL_SECRETS", "value": pull_secrets},
            {"name": "WINDLASS_SOURCE_PROTOCOLS", "value": protocols},
            {"name": "WINDLASS_SOURCE_ADDRESSES", "value": addresses},
            {"name": "WINDLASS_SOURCE_ROOTS", "value": roots},
            {"name": "WINDLASS_SOURCE_CACHE", "value": cache},
        ],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", 10),
        "readinessProbe": probe("/readyz", 5),
        "resources": flavour.value(resources, ".Values.resources | toJson"),
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}],
    });
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels()},
    }]);
    let pod = json!({
        "serviceAccountName": "windlass",
        "imagePullSecrets": flavour.value(json!([]), ".Values.imagePullSecrets | toJson"),
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": flavour.value(json!({}), ".Values.nodeSelector | toJson"),
        "tolerations": flavour.value(json!([]), ".Values.tolerations | toJson"),
        "topologySpreadConstraints": spread,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "emptyDir": {"sizeLimit": "16Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(flavour, "windlass-metrics"),
        "spec": {
            "selector": labels(),
            "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(flavour, "windlass"),
        "spec": {
            "replicas": flavour.value(2, ".Values.replicas"),
            "selector": {"matchLabels": labels()},
            "template": {
                "metadata": {
                    "labels": labels(),
                    "annotations": {"kubectl.kubernetes.io/default-container": "operator"},
                },
                "spec": pod,
            },
        },
    });
    vec![deployment, service]
}

pub(super) fn disruption_budget(flavour: Flavour) -> Vec<Value> {
    vec![json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(flavour, "windlass"),
        // Another replica takes over within seconds, so one at a time may go.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
    })]
}

pub(super) fn network_policy(flavour: Flavour) -> Vec<Value> {
    let ports = [22, 80, 443, 6443].map(|port| json!({"port": port, "protocol": "TCP"}));
    let ranged = "`[` }}{{ range .Values.networkPolicy.egressPorts }}{port: {{ . }}, protocol: TCP}, {{ end }}{{ `]`";
    let reached = flavour.value(json!(ports), ranged);
    let dns = json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]);
    vec![json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(flavour, "windlass"),
        "spec": {
            "podSelector": {"matchLabels": labels()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"port": "metrics", "protocol": "TCP"}]}],
            "egress": [{"ports": dns}, {"ports": reached}],
        },
    })]
}
