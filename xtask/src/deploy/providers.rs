//! Rights of an operator that installs providers of Cluster API.
//!
//! What all providers take is listed here. What one takes comes of its release, and is granted by whoever reviewed it: by a ClusterRole
//! with a label, as `windlass providers rights` prints it.

use api::provider::{GROUP, ProviderType, SET_GROUP, label};
use serde_json::{Value, json};

use super::{
    Flavour,
    objects::{account, binding, bound_to_cluster, global, rule},
};

/// The role that gathers what is granted for each provider.
const GRANTED: &str = "windlass-providers-granted";

/// clusterctl's own definition, which an operator makes where it is not there.
const INVENTORY: &str = "clusterctl.cluster.x-k8s.io";

/// What all providers take, and what gathers the rest.
pub(super) fn rights(flavour: Flavour) -> Vec<Value> {
    // Its rules are the API server's to write.
    let granted = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": global(GRANTED),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label::AGGREGATE: "true"}}]},
    });
    let bound = binding(
        "ClusterRoleBinding",
        &global(GRANTED),
        ("ClusterRole", GRANTED),
        &account(flavour, "windlass"),
    );
    let mut objects = bound_to_cluster(flavour, "windlass-providers", &rules());
    objects.extend([granted, bound]);
    objects
}

fn rules() -> Vec<Value> {
    let kinds = ProviderType::ALL.map(|kind| format!("{}s", kind.kind().to_lowercase()));
    let part = |part: &str| kinds.clone().map(|kind| format!("{kind}/{part}"));
    let of_kinds = |resources: &[String], verbs: &[&str]| {
        let resources: Vec<_> = resources.iter().map(String::as_str).collect();
        rule(GROUP, &resources, verbs)
    };
    let definitions = "apiextensions.k8s.io";
    let mut inventory = rule(
        definitions,
        &["customresourcedefinitions"],
        &["create", "patch"],
    );
    inventory["resourceNames"] = json!([format!("providers.{INVENTORY}")]);
    vec![
        of_kinds(&kinds, &["list", "watch", "patch"]),
        of_kinds(&part("status"), &["patch"]),
        // To own runs, whose deletion then waits for them.
        of_kinds(&part("finalizers"), &["update"]),
        // What people want of all of them together; nothing of it but its status is written.
        rule(SET_GROUP, &["providersets"], &["list", "watch"]),
        rule(SET_GROUP, &["providersets/status"], &["patch"]),
        // Releases, and what was applied of them.
        rule(
            "",
            &["configmaps"],
            &["get", "list", "watch", "create", "patch"],
        ),
        // Values of variables, and kubeconfigs of other clusters. Read one by one; which may be watched is granted by name.
        rule("", &["secrets"], &["get"]),
        // How providers stand, and whose webhooks are to be asked.
        rule(
            "apps",
            &["daemonsets", "deployments", "statefulsets"],
            &["list", "watch"],
        ),
        rule("discovery.k8s.io", &["endpointslices"], &["list", "watch"]),
        rule(
            "admissionregistration.k8s.io",
            &[
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
            ],
            &["list", "watch"],
        ),
        rule(
            definitions,
            &["customresourcedefinitions"],
            &["get", "list", "watch"],
        ),
        inventory,
        // Listed to see where and in which version somebody else has installed one.
        rule(
            INVENTORY,
            &["providers"],
            &["get", "list", "create", "patch", "delete"],
        ),
    ]
}
