//! The Magnum API in a cluster: a Deployment of its own beside the operator, which raises what it asks for.
//!
//! It has an account of its own, for it answers people: what it may do is what its code does, and nothing of the operator's.

use serde_json::{Value, json};

use super::{
    Flavour, bounds,
    objects::{USER, account, binding, role, rule},
};

/// What all of it is called.
const NAME: &str = "windlass-magnum";

/// The port of the API.
const PORT: u16 = 9511;

/// What is done with objects that clusters are made of.
const MADE: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "windlass",
        "app.kubernetes.io/component": "magnum",
    })
}

fn metadata(flavour: Flavour) -> Value {
    json!({"name": NAME, "namespace": flavour.namespace(), "labels": labels()})
}

fn global() -> Value {
    json!({"name": NAME, "labels": labels()})
}

/// The API with its account, its rights and its address.
pub(super) fn service(flavour: Flavour) -> Vec<Value> {
    let account = account(flavour, NAME);
    let pool = pool(flavour);
    let bound = ("Role", NAME);
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(flavour)}),
        role("ClusterRole", &global(), &rules()),
        binding(
            "ClusterRoleBinding",
            &global(),
            ("ClusterRole", NAME),
            &account,
        ),
        role("Role", &metadata(flavour), &leads()),
        binding("RoleBinding", &metadata(flavour), bound, &account),
        role("Role", &pool, &[follows_key(flavour)]),
        binding(
            "RoleBinding",
            &pool,
            ("Role", "windlass-magnum-pool"),
            &account,
        ),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(flavour),
            "spec": {
                "selector": labels(),
                "ports": [{"name": "magnum", "port": PORT, "targetPort": "magnum", "protocol": "TCP"}],
            },
        }),
        deployment(flavour),
    ]
}

/// What is of the pool. It may be the namespace of the release, so it has a name of its own.
fn pool(flavour: Flavour) -> Value {
    json!({
        "name": "windlass-magnum-pool", "labels": labels(),
        "namespace": flavour.value("default", ".Values.magnum.pool | quote"),
    })
}

fn rules() -> Vec<Value> {
    let own = "magnum.windlass.dev";
    let objects = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    vec![
        rule(
            own,
            &["coeclusters", "coeclustertemplates", "coequotas"],
            &objects,
        ),
        rule(own, &["coeclusters/status", "addons/status"], &["patch"]),
        // Administrators make them. Charts of theirs are in ConfigMaps beside them.
        rule(own, &["addons"], &["get", "list", "watch"]),
        // To claim them and to give them back.
        rule(own, &["hosts"], &["get", "list", "watch", "update"]),
        // One for each project, and one for each cluster.
        rule("", &["namespaces"], &["get", "create", "patch", "delete"]),
        // Authorities, and what is put beside clusters. Manifests that go into clusters are found by their labels.
        rule(
            "",
            &["secrets"],
            &["get", "list", "create", "patch", "delete"],
        ),
        rule("", &["configmaps"], &["get", "list", "create", "patch"]),
        rule("kubespray.k8s.io", &["clusters", "clusternodes"], &MADE),
        rule(
            "cluster.x-k8s.io",
            &[
                "clusters",
                "machinedeployments",
                "machinesets",
                "machines",
                "machinehealthchecks",
            ],
            &MADE,
        ),
        rule(
            "controlplane.cluster.x-k8s.io",
            &["kubeadmcontrolplanes"],
            &MADE,
        ),
        rule(
            "bootstrap.cluster.x-k8s.io",
            &["kubeadmconfigtemplates"],
            &MADE,
        ),
        rule("addons.cluster.x-k8s.io", &["clusterresourcesets"], &MADE),
        rule(
            "infrastructure.cluster.x-k8s.io",
            &[
                "openstackclusters",
                "openstackmachines",
                "openstackmachinetemplates",
            ],
            &MADE,
        ),
    ]
}

/// One replica works on clusters.
fn leads() -> [Value; 2] {
    let mut own = rule("coordination.k8s.io", &["leases"], &["get", "update"]);
    own["resourceNames"] = json!([NAME]);
    // What is not there has no name to be bound to.
    let new = rule("coordination.k8s.io", &["leases"], &["create"]);
    [own, new]
}

/// Of Secrets, only the ssh key of the pool is watched.
fn follows_key(flavour: Flavour) -> Value {
    let mut follows = rule("", &["secrets"], &["list", "watch"]);
    let name = flavour.value("magnum-ssh", ".Values.magnum.sshKey | quote");
    follows["resourceNames"] = json!([name]);
    follows
}

fn deployment(flavour: Flavour) -> Value {
    let keystone = flavour.value(
        "",
        "required `magnum.keystone is missing: write the address of Keystone, for example https://keystone.example.com/v3` .Values.magnum.keystone | quote",
    );
    let region = flavour.value("", ".Values.magnum.region | quote");
    let helm = flavour.value("helm", ".Values.magnum.helm | quote");
    let certificate = flavour.value(
        "",
        "required `magnum.certificateSecret is missing: write the name of a Secret with tls.crt and tls.key` .Values.magnum.certificateSecret | quote",
    );
    let public = flavour.value(
        "",
        "printf `--public-url=%s` (.Values.magnum.publicUrl | default (printf `https://windlass-magnum.%s.svc:9511` .Release.Namespace)) | quote",
    );
    let pool = flavour.value(
        "--pool=default",
        "printf `--pool=%s` .Values.magnum.pool | quote",
    );
    let key = flavour.value(
        "--ssh-key=magnum-ssh",
        "printf `--ssh-key=%s` .Values.magnum.sshKey | quote",
    );
    let quota = flavour.value(
        "--max-clusters=20",
        "printf `--max-clusters=%v` .Values.magnum.maxClusters | quote",
    );
    let probe = json!({
        "httpGet": {"path": "/healthcheck", "port": "magnum", "scheme": "HTTPS"},
        "periodSeconds": 10, "timeoutSeconds": 3,
    });
    let resources =
        json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}});
    let container = json!({
        "name": "magnum",
        "image": bounds::image(flavour),
        "imagePullPolicy": flavour.value("IfNotPresent", ".Values.image.pullPolicy | quote"),
        "args": [
            "magnum", "--log-format=json", format!("--listen=0.0.0.0:{PORT}"), format!("--lease={NAME}"),
            "--tls-cert=/certificate/tls.crt", "--tls-key=/certificate/tls.key", public, pool, key, quota,
        ],
        "env": [
            {"name": "WINDLASS_KEYSTONE", "value": keystone},
            {"name": "WINDLASS_REGION", "value": region},
            {"name": "WINDLASS_HELM", "value": helm},
        ],
        "ports": [{"name": "magnum", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "resources": flavour.value(resources, ".Values.magnum.resources | toJson"),
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "certificate", "mountPath": "/certificate", "readOnly": true},
        ],
    });
    let pod = json!({
        "serviceAccountName": NAME,
        "imagePullSecrets": flavour.value(json!([]), ".Values.imagePullSecrets | toJson"),
        "enableServiceLinks": false,
        "nodeSelector": flavour.value(json!({}), ".Values.nodeSelector | toJson"),
        "tolerations": flavour.value(json!([]), ".Values.tolerations | toJson"),
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels()},
        }],
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "emptyDir": {"sizeLimit": "64Mi"}},
            // Charts and values, which Helm reads.
            {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
            {"name": "certificate", "secret": {"secretName": certificate}},
        ],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(flavour),
        "spec": {
            "replicas": flavour.value(2, ".Values.magnum.replicas"),
            "selector": {"matchLabels": labels()},
            "template": {"metadata": {"labels": labels()}, "spec": pod},
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use magnum::machines::Kind;

    use super::*;

    /// The kinds stand in the rules as text: to build those of `Kind::ALL`, xtask would be linked with all of the service.
    #[test]
    fn it_may_make_each_kind_of_cluster_api_that_its_clusters_are_made_of_and_no_other() {
        let made = rules()
            .into_iter()
            .filter(|rule| {
                let group = rule["apiGroups"][0].as_str().unwrap();
                group.ends_with("cluster.x-k8s.io")
            })
            .flat_map(|rule| {
                assert_eq!(rule["verbs"], json!(MADE));
                let resources = rule["resources"].as_array().unwrap().clone();
                resources
                    .into_iter()
                    .map(move |resource| (rule["apiGroups"].clone(), resource))
            })
            .map(|(groups, resource)| format!("{groups} {resource}"));
        let kinds = Kind::ALL.map(|kind| {
            let resource = kind.resource();
            format!("{} {}", json!([resource.group]), json!(resource.plural))
        });
        assert_eq!(made.collect::<BTreeSet<_>>(), BTreeSet::from(kinds));
    }
}
