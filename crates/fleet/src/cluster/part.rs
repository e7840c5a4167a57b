//! What of a rendering may be applied, where, and in which order. Pure.
//!
//! Whoever may write FleetClusters has these objects written by an operator that may do more than they: so the kinds are listed here, and
//! an object of a namespace other than the FleetCluster's is applied only where that namespace says so itself.

use std::collections::BTreeSet;

use api::{
    inventory::{FLEET_CLUSTER_ANNOTATION, FleetProblem, REVISION_ANNOTATION},
    secrets::KEEP_KEYS_ANNOTATION,
};
use serde_json::{Value, json};

/// An object as it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// All of it, with whose it is.
    pub value: Value,
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Whose an object is, by its API version: what may be applied of it, what the API calls it, and how it tells that it is well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Kubespray's.
    Kubespray,
    /// That of Cluster API and its providers.
    ClusterApi,
    /// What makes Secrets as they are in Vault.
    Vault,
    /// Any other, of which nothing is applied.
    Other,
}

/// Which object it is: its group, kind, namespace and name.
pub type Identity = (String, String, String, String);

/// What a cluster is applied as.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// The namespaces that the template makes, where they are missing.
    pub namespaces: Vec<String>,
    /// The objects in the order in which they are applied. The last one is the cluster's own: its conditions are the cluster's, and that
    /// it has a revision means that the others have too.
    pub objects: Vec<Part>,
}

impl Part {
    /// Kind and name.
    pub fn title(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// Which object it is.
    pub fn identity(&self) -> Identity {
        let group = self.api_version.split('/').next().unwrap_or_default();
        (
            group.to_owned(),
            self.kind.clone(),
            self.namespace.clone(),
            self.name.clone(),
        )
    }

    /// Its kind as kubectl takes it: three kinds are called Cluster.
    pub fn kubectl_kind(&self) -> String {
        let kind = self.kind.to_lowercase();
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{kind}.{group}"),
            None => kind,
        }
    }

    /// Whose it is.
    pub fn family(&self) -> Family {
        let (group, _) = self.api_version.split_once('/').unwrap_or_default();
        match self.api_version.as_str() {
            KUBESPRAY => Family::Kubespray,
            VAULT_SECRETS => Family::Vault,
            _ if CLUSTER_API.contains(&group) => Family::ClusterApi,
            _ => Family::Other,
        }
    }

    /// Whether it keeps a Secret as it is in Vault.
    pub fn is_vault_secret(&self) -> bool {
        self.family() == Family::Vault && self.kind == "VaultSecret"
    }

    /// Whether it is a template of Cluster API: Machines are still made from it until the last one is replaced, so it goes when nothing
    /// needs it. A class is one too: it owns its templates, and its Cluster may still be on the way to the next.
    pub fn is_template(&self) -> bool {
        match self.family() {
            Family::ClusterApi => self.kind.ends_with("Template") || self.is_class(),
            Family::Kubespray | Family::Vault | Family::Other => false,
        }
    }

    /// Whether it is a Cluster, of kubespray or of Cluster API.
    pub fn is_cluster(&self) -> bool {
        let group = self.api_version.split('/').next().unwrap_or_default();
        self.kind == "Cluster" && (self.is_kubespray() || group == "cluster.x-k8s.io")
    }

    /// Whether it is a Cluster that this one is the control plane or the infrastructure of.
    pub fn stands_on(&self, other: &Self) -> bool {
        let spec = &self.value["spec"];
        let mut references = [&spec["controlPlaneRef"], &spec["infrastructureRef"]].into_iter();
        let (group, ..) = other.identity();
        self.is_cluster()
            && self.namespace == other.namespace
            && references.any(|reference| {
                let version = reference["apiVersion"].as_str().unwrap_or_default();
                let of_version = version.split('/').next().unwrap_or_default();
                let named = reference["apiGroup"].as_str().unwrap_or(of_version);
                named == group
                    && reference["kind"] == *other.kind
                    && reference["name"] == *other.name
            })
    }

    /// Whether it is a class of Cluster API.
    pub fn is_class(&self) -> bool {
        self.kind == "ClusterClass" && self.api_version.starts_with("cluster.x-k8s.io/")
    }

    /// Whether it is a MachinePool of Cluster API.
    pub fn is_pool(&self) -> bool {
        self.kind == "MachinePool" && self.api_version.starts_with("cluster.x-k8s.io/")
    }

    /// Whether it is of kubespray.
    pub fn is_kubespray(&self) -> bool {
        self.family() == Family::Kubespray
    }
}

impl Parts {
    /// The cluster's own object.
    pub fn main(&self) -> Option<&Part> {
        self.objects.last()
    }

    /// The namespaces that it is in.
    pub fn places(&self) -> BTreeSet<&str> {
        let objects = self.objects.iter();
        objects.map(|part| part.namespace.as_str()).collect()
    }
}

/// What a revision of a cluster is applied as.
///
/// # Errors
/// Each object that may not be applied.
pub fn parts(
    namespace: &str,
    cluster: &str,
    revision: &str,
    objects: &[Value],
) -> Result<Parts, Vec<FleetProblem>> {
    let mut parts = Parts::default();
    let mut problems = Vec::new();
    let mut main = None;
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut part = Part {
            value: object.clone(),
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        };
        if part.api_version == "v1" && part.kind == "Namespace" {
            parts.namespaces.push(part.name);
            continue;
        }
        if part.is_vault_secret() && !is_of_a_reference(&part, cluster) {
            problems.push(FleetProblem {
                object: format!("{} {}", part.kind, part.name),
                path: Some("metadata.name".to_owned()),
                rule: "NotApplied".to_owned(),
                message: "a VaultSecret that no reference was rendered to is not applied for a fleet".to_owned(),
                remedy: "take it out of the ClusterTemplate, and write {vault: {path: PATH, key: KEY}} as the value that is secret"
                    .to_owned(),
                level: None,
            });
            continue;
        }
        if !may_apply(&part) {
            problems.push(FleetProblem {
                object: format!("{} {}", part.kind, part.name),
                path: Some("apiVersion".to_owned()),
                rule: "NotApplied".to_owned(),
                message: format!("a {} of {} is not applied for a fleet", part.kind, part.api_version),
                remedy: format!(
                    "only Namespaces, Clusters and ClusterNodes of {KUBESPRAY}, and namespaced objects of {} are: take it out of the \
                     ClusterTemplate and apply it yourself",
                    CLUSTER_API.join(", ")
                ),
                level: None,
            });
            continue;
        }
        if let Some(problem) = ill_formed(&part) {
            problems.push(problem);
            continue;
        }
        if part.namespace.is_empty() {
            namespace.clone_into(&mut part.namespace);
        }
        let own = json!(format!("{namespace}/{cluster}"));
        part.value["metadata"]["namespace"] = json!(part.namespace);
        part.value["metadata"]["annotations"][FLEET_CLUSTER_ANNOTATION] = own;
        let is_cluster = part.kind == "Cluster";
        if is_cluster && main.is_none() {
            main = Some(part);
        } else {
            parts.objects.push(part);
        }
    }
    keep_for_templates(&mut parts.objects);
    // What the others refer to comes first.
    parts.objects.sort_by_key(|part| !part.is_vault_secret());
    if let Some(mut main) = main.or_else(|| parts.objects.pop()) {
        main.value["metadata"]["annotations"][REVISION_ANNOTATION] = json!(revision);
        parts.objects.push(main);
    } else if problems.is_empty() {
        problems.push(FleetProblem {
            object: format!("FleetCluster/{namespace}/{cluster}"),
            rule: "NotApplied".to_owned(),
            message: "it is rendered to no object".to_owned(),
            remedy: "look at the ClusterTemplate's when and forEach".to_owned(),
            ..FleetProblem::default()
        });
    }
    if problems.is_empty() {
        Ok(parts)
    } else {
        Err(problems)
    }
}

/// Says of VaultSecrets that a template names their Secret: they stay as long as templates do.
fn keep_for_templates(objects: &mut [Part]) {
    let mut named = BTreeSet::new();
    for secret in objects.iter().filter(|part| part.is_vault_secret()) {
        let mut templates = objects.iter().filter(|part| part.is_template());
        if templates
            .any(|part| part.namespace == secret.namespace && holds(&part.value, &secret.name))
        {
            named.insert(secret.identity());
        }
    }
    for part in objects.iter_mut().filter(|part| part.is_vault_secret()) {
        if named.contains(&part.identity()) {
            part.value["metadata"]["annotations"][KEEP_KEYS_ANNOTATION] = json!(FOR_TEMPLATE);
        }
    }
}

/// Whether a text stands anywhere in a value.
pub(super) fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(value) => value == text,
        Value::Array(values) => values.iter().any(|value| holds(value, text)),
        Value::Object(values) => values.values().any(|value| holds(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn may_apply(part: &Part) -> bool {
    let (_, version) = part.api_version.split_once('/').unwrap_or_default();
    // The version becomes part of a path.
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    match part.family() {
        Family::Kubespray => matches!(part.kind.as_str(), "Cluster" | "ClusterNode"),
        Family::ClusterApi => is_word(version) && is_word(&part.kind),
        Family::Vault => part.is_vault_secret(),
        Family::Other => false,
    }
}

/// Whether a VaultSecret is one that a reference was rendered to. Its name says so, which is that of its Secret as well: who writes a
/// template cannot choose one that somebody waits for.
fn is_of_a_reference(part: &Part, cluster: &str) -> bool {
    let spec = &part.value["spec"];
    let mount = spec["mount"].as_str().unwrap_or("secret");
    let path = spec["path"].as_str();
    spec["secret"].is_null()
        && path.is_some_and(|path| part.name == inventory::vault_secret_name(cluster, mount, path))
}

/// What is wrong with how an object names itself: what it says becomes part of paths, and is written to.
fn ill_formed(part: &Part) -> Option<FleetProblem> {
    let metadata = &part.value["metadata"];
    let is_map = |key: &str| metadata[key].is_null() || metadata[key].is_object();
    // A name of an object has the form of one of a host, and that of a namespace has no dot.
    let is_name = |text: &str| text.parse::<api::HostName>().is_ok();
    let is_namespace = metadata["namespace"].is_null()
        || metadata["namespace"]
            .as_str()
            .is_some_and(|text| text.is_empty() || is_name(text) && !text.contains('.'));
    let (path, message) = if !metadata.is_object() {
        ("metadata", "is no object")
    } else if !is_map("annotations") {
        ("metadata.annotations", "is no object")
    } else if !is_map("labels") {
        ("metadata.labels", "is no object")
    } else if !is_name(&part.name) {
        ("metadata.name", "is no name of an object")
    } else if !is_namespace {
        ("metadata.namespace", "is no name of a namespace")
    } else {
        return None;
    };
    Some(FleetProblem {
        object: api::text::plain(&format!("{} {}", part.kind, part.name), 500),
        path: Some(path.to_owned()),
        rule: "IllFormed".to_owned(),
        message: message.to_owned(),
        remedy: "in the ClusterTemplate: metadata, annotations and labels are maps; a name has lower-case letters, digits, '-' and '.', \
                 63 characters at most between dots; that of a namespace has no dot"
            .to_owned(),
        level: None,
    })
}

/// Why the keys of a Secret, and its VaultSecret, stay: a template names it.
pub(super) const FOR_TEMPLATE: &str = "Template";
/// Kubespray's objects.
const KUBESPRAY: &str = "kubespray.k8s.io/v1";
/// The kinds that make Secrets.
pub(crate) const VAULT_SECRETS: &str = "secrets.windlass.dev/v1alpha1";
/// The groups of Cluster API of which objects are applied. Those that end like it are no fewer: what installs providers, or applies other
/// objects in clusters, gives rights.
const CLUSTER_API: [&str; 5] = [
    "cluster.x-k8s.io",
    "controlplane.cluster.x-k8s.io",
    "bootstrap.cluster.x-k8s.io",
    "infrastructure.cluster.x-k8s.io",
    "ipam.cluster.x-k8s.io",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn object(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
    }

    #[test]
    fn the_clusters_own_object_comes_last_and_has_the_revision() {
        let objects = [
            object("v1", "Namespace", "shop"),
            object(KUBESPRAY, "Cluster", "shop"),
            object(KUBESPRAY, "ClusterNode", "a"),
        ];
        let parts = parts("fleet", "shop", "r1", &objects).unwrap();
        assert_eq!(parts.namespaces, ["shop"]);
        let titles: Vec<_> = parts.objects.iter().map(Part::title).collect();
        assert_eq!(titles, ["ClusterNode/fleet/a", "Cluster/fleet/shop"]);
        let revision =
            |part: &Part| part.value["metadata"]["annotations"][REVISION_ANNOTATION].clone();
        let revisions: Vec<_> = parts.objects.iter().map(revision).collect();
        assert_eq!(revisions, [Value::Null, json!("r1")]);
    }

    #[test]
    fn an_object_that_would_give_rights_is_refused() {
        for (api_version, kind) in [
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            ("v1", "Secret"),
            ("apps/v1", "Deployment"),
            ("evilcluster.x-k8s.io/v1", "Cluster"),
            (
                "operator.cluster.x-k8s.io/v1alpha2",
                "InfrastructureProvider",
            ),
            ("addons.cluster.x-k8s.io/v1beta2", "ClusterResourceSet"),
            ("cluster.x-k8s.io/v1/../../../api", "Cluster"),
            ("cluster.x-k8s.io", "Cluster"),
            ("kubespray.k8s.io/v1", "Snapshot"),
            ("kubespray.k8s.io/v2", "Cluster"),
            ("inventory.windlass.dev/v1alpha1", "Rollout"),
        ] {
            let objects = [
                object(KUBESPRAY, "Cluster", "shop"),
                object(api_version, kind, "x"),
            ];
            let problems = parts("fleet", "shop", "r1", &objects).unwrap_err();
            assert_eq!(problems[0].rule, "NotApplied", "{api_version} {kind}");
        }
        for group in CLUSTER_API {
            let objects = [object(&format!("{group}/v1beta2"), "Machine", "m")];
            parts("fleet", "shop", "r1", &objects).unwrap();
        }
        let machine = object("infrastructure.cluster.x-k8s.io/v1beta1", "Machine", "m");
        parts("fleet", "shop", "r1", &[machine]).unwrap();
    }

    #[test]
    fn a_vault_secret_is_applied_for_a_reference_alone_and_before_what_refers_to_it() {
        let vault = |name: &str, more: Value| {
            let mut spec = json!({"path": "infra/a", "vault": {}});
            for (key, value) in more.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            json!({"apiVersion": VAULT_SECRETS, "kind": "VaultSecret", "metadata": {"name": name}, "spec": spec})
        };
        let name = inventory::vault_secret_name("shop", "secret", "infra/a");
        let objects = [
            object(KUBESPRAY, "ClusterNode", "a"),
            vault(&name, json!({})),
            object(KUBESPRAY, "Cluster", "shop"),
        ];
        let made = parts("fleet", "shop", "r1", &objects).unwrap();
        let kinds: Vec<_> = made.objects.iter().map(|part| &part.kind).collect();
        assert_eq!(kinds, ["VaultSecret", "ClusterNode", "Cluster"]);
        let owner = &made.objects[0].value["metadata"]["annotations"][FLEET_CLUSTER_ANNOTATION];
        assert_eq!(owner, "fleet/shop");
        for other in [
            vault("argocd-secret", json!({})),
            vault(&name, json!({"secret": {"name": "argocd-secret"}})),
            vault(&name, json!({"mount": "kv"})),
            vault(&name, json!({"path": "infra/b"})),
        ] {
            let objects = [object(KUBESPRAY, "Cluster", "shop"), other];
            let problems = parts("fleet", "shop", "r1", &objects).unwrap_err();
            assert_eq!(problems[0].rule, "NotApplied");
        }
    }

    #[test]
    fn what_machines_are_made_from_stays() {
        let api_version = "cluster.x-k8s.io/v1beta2";
        let kinds = ["ClusterClass", "KubeadmConfigTemplate", "MachineDeployment"];
        let mut objects: Vec<_> = kinds.map(|kind| object(api_version, kind, "shop")).into();
        objects.push(object(api_version, "Cluster", "shop"));
        let made = parts("fleet", "shop", "r1", &objects).unwrap();
        let stay = made.objects.iter().filter(|part| part.is_template());
        let stay: Vec<_> = stay.map(|part| part.kind.as_str()).collect();
        assert_eq!(stay, ["ClusterClass", "KubeadmConfigTemplate"]);
    }

    #[test]
    fn a_secret_that_a_template_names_is_kept_for_it() {
        let path = "infra/a";
        let name = inventory::vault_secret_name("shop", "secret", path);
        let secret = json!({
            "apiVersion": VAULT_SECRETS, "kind": "VaultSecret", "metadata": {"name": name},
            "spec": {"path": path, "vault": {}},
        });
        let of = |kind: &str, secret: &str| {
            let mut made = object("infrastructure.cluster.x-k8s.io/v1beta2", kind, "m");
            made["spec"] =
                json!({"template": {"spec": {"list": [{"secretRef": {"name": secret}}]}}});
            made
        };
        for (other, kept) in [
            (of("DevMachineTemplate", &name), json!(FOR_TEMPLATE)),
            (of("DevMachineTemplate", "other"), Value::Null),
            (of("DevMachine", &name), Value::Null),
        ] {
            let cluster = object("cluster.x-k8s.io/v1beta2", "Cluster", "shop");
            let objects = [secret.clone(), other, cluster];
            let made = parts("fleet", "shop", "r1", &objects).unwrap();
            assert!(made.objects[0].is_vault_secret());
            let annotations = &made.objects[0].value["metadata"]["annotations"];
            assert_eq!(annotations[KEEP_KEYS_ANNOTATION], kept);
        }
    }

    #[test]
    fn an_object_that_does_not_name_itself_well_is_refused() {
        for (metadata, path) in [
            (json!("x"), "metadata"),
            (json!(null), "metadata"),
            (
                json!({"name": "x", "annotations": "y"}),
                "metadata.annotations",
            ),
            (
                json!({"name": "x", "annotations": ["y"]}),
                "metadata.annotations",
            ),
            (json!({"name": "x", "labels": 1}), "metadata.labels"),
            (json!({}), "metadata.name"),
            (json!({"name": "x/../y"}), "metadata.name"),
            (
                json!({"name": "x", "namespace": "a/b"}),
                "metadata.namespace",
            ),
            (
                json!({"name": "x", "namespace": "a.b"}),
                "metadata.namespace",
            ),
            (json!({"name": "x", "namespace": "-"}), "metadata.namespace"),
            (json!({"name": "x", "namespace": 1}), "metadata.namespace"),
        ] {
            let object = json!({"apiVersion": KUBESPRAY, "kind": "Cluster", "metadata": metadata});
            let problems = parts("fleet", "shop", "r1", std::slice::from_ref(&object)).unwrap_err();
            assert_eq!(problems[0].path.as_deref(), Some(path), "{object}");
        }
        let empty = json!({"name": "x.y-1", "namespace": "a-1", "annotations": null, "labels": {}});
        let object = json!({"apiVersion": KUBESPRAY, "kind": "Cluster", "metadata": empty});
        parts("fleet", "shop", "r1", &[object]).unwrap();
    }
}
