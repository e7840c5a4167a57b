//! Which kinds live in namespaces.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Object;

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// The scopes of kinds that are known.
///
/// clusterctl has a list of sixteen kinds, whatever their group, and takes all others for namespaced. Here a kind is one of a
/// group, and what is known counts in this order: the CRDs of the file itself, what was learned from an API server, the kinds
/// that Kubernetes and cert-manager bring along. A kind that none of them knows is namespaced, as with clusterctl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(BTreeMap<(String, String), Scope>);

impl Scopes {
    /// What is known of kinds, by group and kind: the answer of an API server's discovery.
    pub fn new(known: impl IntoIterator<Item = (String, String, Scope)>) -> Self {
        let known = known.into_iter();
        Self(
            known
                .map(|(group, kind, scope)| ((group, kind), scope))
                .collect(),
        )
    }

    /// The same, and before it the CRDs among these objects.
    pub(crate) fn with_definitions(&self, objects: &[Object]) -> Self {
        let mut scopes = self.clone();
        for object in objects {
            if object.kind() != "CustomResourceDefinition"
                || object.group() != "apiextensions.k8s.io"
            {
                continue;
            }
            let text = |pointer: &str| {
                let found = object.value().pointer(pointer).and_then(Value::as_str);
                found.unwrap_or_default().to_owned()
            };
            let scope = if text("/spec/scope") == "Cluster" {
                Scope::Cluster
            } else {
                Scope::Namespaced
            };
            scopes
                .0
                .insert((text("/spec/group"), text("/spec/names/kind")), scope);
        }
        scopes
    }

    /// The scope of an object.
    pub fn of(&self, object: &Object) -> Scope {
        let (group, kind) = (object.group(), object.kind());
        let known = self.0.get(&(group.to_owned(), kind.to_owned()));
        known.copied().unwrap_or_else(|| built_in(group, kind))
    }
}

fn built_in(group: &str, kind: &str) -> Scope {
    let is_of_cluster = CLUSTER
        .iter()
        .any(|(of, kinds)| *of == group && kinds.contains(&kind));
    if is_of_cluster {
        Scope::Cluster
    } else {
        Scope::Namespaced
    }
}

/// The kinds of the cluster that Kubernetes 1.20 to 1.36 and cert-manager bring along, by group.
const CLUSTER: &[(&str, &[&str])] = &[
    (
        "",
        &["ComponentStatus", "Namespace", "Node", "PersistentVolume"],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    (
        "authentication.k8s.io",
        &["SelfSubjectReview", "TokenReview"],
    ),
    (
        "authorization.k8s.io",
        &[
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("cert-manager.io", &["ClusterIssuer"]),
    (
        "certificates.k8s.io",
        &["CertificateSigningRequest", "ClusterTrustBundle"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    ("internal.apiserver.k8s.io", &["StorageVersion"]),
    (
        "networking.k8s.io",
        &["IPAddress", "IngressClass", "ServiceCIDR"],
    ),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["PodSecurityPolicy"]),
    (
        "rbac.authorization.k8s.io",
        &["ClusterRole", "ClusterRoleBinding"],
    ),
    (
        "resource.k8s.io",
        &["DeviceClass", "DeviceTaintRule", "ResourceSlice"],
    ),
    ("scheduling.k8s.io", &["PriorityClass"]),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    ("storagemigration.k8s.io", &["StorageVersionMigration"]),
];
