//! The objects of an operator in a cluster.

use serde_json::{Value, json};

use super::{Flavour, NAMESPACE, bounds};

/// The port of probes.
const PORT: u16 = 8080;

/// The port of metrics.
pub(super) const METRICS_PORT: u16 = 8443;

/// The Lease of the replica that works.
const LEASE: &str = "windlass";

/// The user that the images know.
pub(super) const USER: u32 = 65_532;

pub(super) fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "windlass",
        "app.kubernetes.io/component": "operator",
    })
}

pub(super) fn metadata(flavour: Flavour, name: &str) -> Value {
    json!({"name": name, "namespace": flavour.namespace(), "labels": labels()})
}

pub(super) fn global(name: &str) -> Value {
    json!({"name": name, "labels": labels()})
}

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What the operator does with the objects that it is for.
fn operator_rules() -> Vec<Value> {
    let kinds = "kubespray.k8s.io";
    vec![
        rule(kinds, &["clusters"], &["get", "list", "watch", "patch"]),
        // To hold them while their hosts are part of a cluster.
        rule(kinds, &["clusternodes"], &["list", "watch", "patch"]),
        rule(
            kinds,
            &["clusters/status", "clusternodes/status"],
            &["patch"],
        ),
        // To own objects whose deletion then waits for them.
        rule(kinds, &["clusters/finalizers"], &["update"]),
        rule(
            "workflow.windlass.dev",
            &["runs"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        rule("workflow.windlass.dev", &["runs/status"], &["patch"]),
        rule("workflow.windlass.dev", &["runs/finalizers"], &["update"]),
        // Kubeconfigs to probe clusters with, and whether an ssh key is there. Read one by one: who watches can list.
        rule("", &["secrets"], &["get"]),
        // Texts of hooks.
        rule("", &["configmaps"], &["get"]),
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

/// What lets the operator give each cluster's runner an account: rights to make it, and every right that it is given, for
/// nobody may give what he has not.
fn grant_rules() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    vec![
        rule("", &["serviceaccounts"], &["create", "patch"]),
        rule(rbac, &["roles", "rolebindings"], &["create", "patch"]),
        // Made empty for the runner, which may only change it.
        rule("", &["secrets"], &["create", "patch"]),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "create", "update", "patch"],
        ),
        rule(
            "networking.k8s.io",
            &["networkpolicies"],
            &["create", "patch"],
        ),
    ]
}

pub(super) fn binding(kind: &str, metadata: &Value, role: (&str, &str), account: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
        "subjects": [account],
    })
}

pub(super) fn role(kind: &str, metadata: &Value, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules,
    })
}

pub(super) fn account(flavour: Flavour, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": flavour.namespace()})
}

/// The operator's account, and its right to lead.
pub(super) fn accounts(flavour: Flavour) -> Vec<Value> {
    let leader = metadata(flavour, "windlass-leader");
    let mut own = rule("coordination.k8s.io", &["leases"], &["get", "update"]);
    own["resourceNames"] = json!([LEASE]);
    // What is not there has no name to be bound to.
    let new = rule("coordination.k8s.io", &["leases"], &["create"]);
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(flavour, "windlass")}),
        role("Role", &leader, &[own, new]),
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
    ]
}

/// Rights of an operator for its own namespace.
pub(super) fn namespaced_rights(flavour: Flavour) -> Vec<Value> {
    let operator = metadata(flavour, "windlass-operator");
    let rules = [operator_rules(), grant_rules()].concat();
    vec![
        role("Role", &operator, &rules),
        binding(
            "RoleBinding",
            &operator,
            ("Role", "windlass-operator"),
            &account(flavour, "windlass"),
        ),
    ]
}

/// What clusters are rendered from.
const INVENTORY: [&str; 7] = [
    "hierarchies",
    "environments",
    "customers",
    "sites",
    "infraproviders",
    "clustertemplates",
    "fleetclusters",
];

/// What the operator does with fleets, where it is told to work on them.
fn fleet_rules() -> Vec<Value> {
    let kinds = "inventory.windlass.dev";
    let watched = [&INVENTORY[..], &["rollouts", "waveapprovals"]].concat();
    vec![
        rule(kinds, &watched, &["list", "watch"]),
        rule(
            kinds,
            &["fleetclusters/status", "rollouts/status"],
            &["patch"],
        ),
        rule(
            kinds,
            &["fleetrevisions"],
            &["get", "list", "watch", "create", "delete"],
        ),
        // Levels of people's own.
        rule("", &["configmaps"], &["list", "watch"]),
        // What clusters are rendered to, and whether another one has the namespace.
        rule(
            "kubespray.k8s.io",
            &["clusters", "clusternodes"],
            &["get", "list", "create", "patch", "delete"],
        ),
        // What values in Vault are rendered to. The Secrets themselves are for the operator of VaultSecrets.
        rule(
            api::secrets::GROUP,
            &["vaultsecrets"],
            &["get", "create", "patch", "delete"],
        ),
    ]
}

/// Rights on fleets of an operator for the whole cluster.
pub(super) fn cluster_fleet(flavour: Flavour) -> Vec<Value> {
    let mut rules = fleet_rules();
    // Whether a namespace lets FleetClusters of another one in. None is changed or deleted.
    rules.push(rule("", &["namespaces"], &["get", "create"]));
    bound_to_cluster(flavour, "windlass-fleet", &rules)
}

/// The authority of the webhook. Without one the API server would believe no answer, and say nothing of it.
const AUTHORITY: &str = "ternary .Values.fleet.advice.caBundle `` (required `fleet.advice needs the authority of its certificate: set \
    fleet.advice.caBundle, or fleet.advice.injectCaFrom to the Certificate of cert-manager` (coalesce .Values.fleet.advice.caBundle \
    .Values.fleet.advice.injectCaFrom) | empty | not) | quote";

/// Who is asked what an edit changes that is only tried.
pub(super) fn fleet_advice(flavour: Flavour) -> Vec<Value> {
    let name = "windlass-fleet-advice";
    let mut metadata_of_webhook = global(name);
    metadata_of_webhook["annotations"] = flavour.value(
        json!({}),
        "ternary (dict) (dict `cert-manager.io/inject-ca-from` .Values.fleet.advice.injectCaFrom) (empty .Values.fleet.advice.injectCaFrom) | toJson",
    );
    let webhook = |title: &str, group: &str, version: &str, resources: &[&str], objects: Value| {
        json!({
            "name": title,
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "service": {"name": name, "namespace": flavour.namespace(), "path": "/advice", "port": 443},
                "caBundle": flavour.value("", AUTHORITY),
            },
            "rules": [{
                "apiGroups": [group], "apiVersions": [version], "resources": resources,
                "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
            }],
            "objectSelector": objects,
            // What is meant is not asked about, and goes on where nobody answers.
            "matchConditions": [{"name": "tried", "expression": "has(request.dryRun) && request.dryRun"}],
            "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 10, "matchPolicy": "Equivalent",
        })
    };
    let labelled =
        json!({"matchExpressions": [{"key": api::inventory::LEVEL_LABEL, "operator": "Exists"}]});
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(flavour, name),
            "spec": {
                "selector": labels(),
                "ports": [{"name": "advice", "port": 443, "targetPort": "advice", "protocol": "TCP"}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": metadata_of_webhook,
            "webhooks": [
                webhook("inventories.windlass.dev", api::inventory::GROUP, "v1alpha1", &INVENTORY, json!({})),
                webhook("levels.windlass.dev", "", "v1", &["configmaps"], labelled),
            ],
        }),
    ]
}

/// Rights on fleets of an operator for its own namespace.
pub(super) fn namespaced_fleet(flavour: Flavour) -> Vec<Value> {
    bound_to_namespace(flavour, "windlass-fleet", &fleet_rules())
}

/// Further rights of an operator for the whole cluster, under a name of their own.
pub(super) fn bound_to_cluster(flavour: Flavour, name: &str, rules: &[Value]) -> Vec<Value> {
    let metadata = global(name);
    let account = account(flavour, "windlass");
    vec![
        role("ClusterRole", &metadata, rules),
        binding(
            "ClusterRoleBinding",
            &metadata,
            ("ClusterRole", name),
            &account,
        ),
    ]
}

/// The same of an operator for its own namespace.
fn bound_to_namespace(flavour: Flavour, name: &str, rules: &[Value]) -> Vec<Value> {
    let metadata = metadata(flavour, name);
    let account = account(flavour, "windlass");
    vec![
        role("Role", &metadata, rules),
        binding("RoleBinding", &metadata, ("Role", name), &account),
    ]
}

/// What the operator does with secrets from Vault, where it is told to.
fn vault_rules() -> Vec<Value> {
    let kinds = "secrets.windlass.dev";
    let mut tokens = rule("", &["serviceaccounts/token"], &["create"]);
    // Tokens of no other account, whatever namespace it is in.
    tokens["resourceNames"] = json!([api::secrets::SERVICE_ACCOUNT]);
    let mut account = rule("", &["serviceaccounts"], &["get"]);
    account["resourceNames"] = tokens["resourceNames"].clone();
    vec![
        account,
        rule(kinds, &["vaultsecrets"], &["list", "watch"]),
        rule(kinds, &["vaultsecrets/status"], &["patch"]),
        // Secrets are read, made and changed anyway.
        rule("", &["secrets"], &["get", "create", "patch"]),
        rule("", &["configmaps"], &["get"]),
        tokens,
    ]
}

/// Rights on secrets from Vault of an operator for the whole cluster.
pub(super) fn cluster_vault(flavour: Flavour) -> Vec<Value> {
    bound_to_cluster(flavour, "windlass-vault", &vault_rules())
}

/// Rights on secrets from Vault of an operator for its own namespace.
pub(super) fn namespaced_vault(flavour: Flavour) -> Vec<Value> {
    bound_to_namespace(flavour, "windlass-vault", &vault_rules())
}

/// The operator.
pub(super) fn deployment(flavour: Flavour) -> Vec<Value> {
    vec![operator(flavour)]
}

/// The operator with ssh beside it, by which the radar looks at hosts: the program in the image of runners, as in their pods.
pub(super) fn deployment_with_radar(flavour: Flavour) -> Vec<Value> {
    const PROGRAM: &str = "/run/windlass";
    let mut deployment = operator(flavour);
    let pod = &mut deployment["spec"]["template"]["spec"];
    let operator = &mut pod["containers"][0];
    let (image, policy) = (
        operator["image"].take(),
        operator["imagePullPolicy"].clone(),
    );
    let confined = operator["securityContext"].clone();
    operator["image"] = bounds::runner_image(flavour);
    operator["command"] = json!([format!("{PROGRAM}/windlass")]);
    push(
        &mut operator["env"],
        json!({"name": "WINDLASS_DATA_DIR", "value": "/data"}),
    );
    let mounts = &mut operator["volumeMounts"];
    push(
        mounts,
        json!({"name": "program", "mountPath": PROGRAM, "readOnly": true}),
    );
    push(mounts, json!({"name": "memory", "mountPath": "/dev/shm"}));
    pod["initContainers"] = json!([{
        "name": "windlass", "image": image, "imagePullPolicy": policy, "args": ["install", PROGRAM],
        "securityContext": confined,
        "volumeMounts": [{"name": "program", "mountPath": PROGRAM}],
    }]);
    let volumes = &mut pod["volumes"];
    push(
        volumes,
        json!({"name": "program", "emptyDir": {"sizeLimit": "1Gi"}}),
    );
    // For the keys that hosts are looked at with.
    push(
        volumes,
        json!({"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}),
    );
    vec![deployment]
}

fn push(list: &mut Value, value: Value) {
    if let Value::Array(list) = list {
        list.push(value);
    }
}

fn operator(flavour: Flavour) -> Value {
    let mut arguments = vec![
        json!("controller"),
        json!("--log-format=json"),
        json!(format!("--listen=0.0.0.0:{PORT}")),
        json!(format!("--lease={LEASE}")),
    ];
    arguments.push(match flavour {
        Flavour::Cluster => json!("--watch-namespace="),
        Flavour::Namespaced => json!(format!("--watch-namespace={NAMESPACE}")),
        Flavour::Chart => flavour.value(
            "",
            "ternary (printf `--watch-namespace=%s` .Release.Namespace) `--watch-namespace=` .Values.namespaced | quote",
        ),
    });
    let image = bounds::image(flavour);
    let policy = flavour.value("IfNotPresent", ".Values.image.pullPolicy | quote");
    let protocols = flavour.value("https,ssh", ".Values.sources.protocols | join `,` | quote");
    let addresses = flavour.value("", ".Values.sources.addresses | join `,` | quote");
    let roots = flavour.value("/opt/windlass", ".Values.sources.roots | join `,` | quote");
    let cache = flavour.value("2048", ".Values.sources.cacheMiB | quote");
    let pull_secrets = flavour.value("", ".Values.runner.imagePullSecrets | join `,` | quote");
    let ports = "ternary (.Values.runner.networkPolicy.egressPorts | join `,`) `` .Values.runner.networkPolicy.enabled | quote";
    // On the loopback address of the pod, nobody else can ask.
    let metrics = flavour.value(
        format!("127.0.0.1:{METRICS_PORT}"),
        "ternary `0.0.0.0:8443` `127.0.0.1:8443` .Values.metrics.enabled | quote",
    );
    let certificate = flavour.value(
        "",
        "ternary `/certificate` `` (ne .Values.metrics.certificateSecret ``) | quote",
    );
    let advice = "ternary `0.0.0.0:9443` `` (and .Values.fleet.enabled ((.Values.fleet.advice).enabled | default false) (not .Values.namespaced)) | quote";
    let environment: Vec<_> = bounds::environment()
        .into_iter()
        .chain([
            json!({"name": "WINDLASS_IMAGE_PULL_POLICY", "value": policy}),
            json!({"name": "WINDLASS_RUNNER_PULL_SECRETS", "value": pull_secrets}),
            json!({"name": "WINDLASS_SOURCE_PROTOCOLS", "value": protocols}),
            json!({"name": "WINDLASS_SOURCE_ADDRESSES", "value": addresses}),
            json!({"name": "WINDLASS_SOURCE_ROOTS", "value": roots}),
            json!({"name": "WINDLASS_SOURCE_CACHE", "value": cache}),
            json!({"name": "WINDLASS_RUNNER_EGRESS_PORTS", "value": flavour.value("22,80,443,6443", ports)}),
            json!({"name": "WINDLASS_FLEET", "value": flavour.value("false", ".Values.fleet.enabled | quote")}),
            json!({"name": "WINDLASS_VAULT", "value": flavour.value("false", ".Values.vault.enabled | quote")}),
            json!({"name": "WINDLASS_PROVIDERS", "value": flavour.value("false", "and .Values.providers.enabled (not .Values.namespaced) | quote")}),
            json!({"name": "WINDLASS_PROVIDER_FETCH", "value": flavour.value("known", ".Values.providers.fetch | quote")}),
            json!({"name": "WINDLASS_PROVIDER_ADDRESSES", "value": flavour.value("", ".Values.providers.addresses | join `,` | quote")}),
            json!({"name": "WINDLASS_FLEET_ADVICE", "value": flavour.value("", advice)}),
            json!({"name": "WINDLASS_FLEET_ADVICE_CERTIFICATE", "value": "/advice"}),
            json!({"name": "WINDLASS_METRICS", "value": metrics}),
            json!({"name": "WINDLASS_METRICS_CERTIFICATE", "value": certificate}),
        ])
        .collect();
    let resources =
        json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}});
    let probe = |path: &str, period: u8| json!({"httpGet": {"path": path, "port": "probes"}, "periodSeconds": period, "timeoutSeconds": 3});
    let container = json!({
        "name": "operator",
        "image": image,
        "imagePullPolicy": policy,
        "args": arguments,
        "env": environment,
        "ports": [
            {"name": "probes", "containerPort": PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "advice", "containerPort": 9443, "protocol": "TCP"},
        ],
        "livenessProbe": probe("/healthz", 10),
        "readinessProbe": probe("/readyz", 5),
        "resources": flavour.value(resources, ".Values.resources | toJson"),
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"},
            {"name": "certificate", "mountPath": "/certificate", "readOnly": true},
            {"name": "advice", "mountPath": "/advice", "readOnly": true},
        ],
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
            {"name": "certificate", "secret": {
                "secretName": flavour.value("windlass-metrics", ".Values.metrics.certificateSecret | default `windlass-metrics` | quote"),
                "optional": true,
            }},
            {"name": "advice", "secret": {
                "secretName": flavour.value("windlass-fleet-advice", "(.Values.fleet.advice).certificateSecret | default `windlass-fleet-advice` | quote"),
                "optional": true,
            }},
        ],
    });
    let mut annotations = json!({"kubectl.kubernetes.io/default-container": "operator"});
    if flavour == Flavour::Chart {
        // Bounds are read at the start.
        annotations["checksum/bounds"] = flavour.value(
            "",
            "include (print $.Template.BasePath `/bounds.yaml`) . | sha256sum | quote",
        );
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(flavour, "windlass"),
        "spec": {
            "replicas": flavour.value(2, ".Values.replicas"),
            "selector": {"matchLabels": labels()},
            "template": {
                "metadata": {"labels": labels(), "annotations": annotations},
                "spec": pod,
            },
        },
    })
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
    let served = ["probes", "metrics", "advice"];
    let served = served.map(|port| json!({"port": port, "protocol": "TCP"}));
    let dns = json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]);
    vec![json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(flavour, "windlass"),
        "spec": {
            "podSelector": {"matchLabels": labels()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": served}],
            "egress": [{"ports": dns}, {"ports": reached}],
        },
    })]
}
