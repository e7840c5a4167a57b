//! What the Magnum API keeps: cluster templates, clusters with their node groups, quotas, the pool of hosts that bare-metal
//! clusters stand on, and what is installed into clusters.
//!
//! The kinds carry OpenStack's word for the service, `coe`, so that `kubectl get clusters` stays what it is. Templates, clusters
//! and quotas live in the namespace of their project ([`project_namespace`]), and the name of a template or a cluster is its
//! UUID: names of Magnum need not be unique, and a UUID is what its clients ask by.
//!
//! They are not among [`custom_resource_definitions`](crate::custom_resource_definitions): a definition whose objects nobody acts
//! on misleads, and only `--magnum` acts on these.
//!
//! # Source
//! Field names and bounds follow the objects of the Container Infrastructure Management API, microversion 1.14.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

mod addon;
mod cluster;
mod group;
mod host;
mod quota;
mod template;

pub use addon::{
    Addon, AddonChart, AddonSpec, AddonStatus, ChartRef, NAMESPACE as ADDON_NAMESPACE, OciChart,
    Plugin,
};
pub use cluster::{
    AddonReport, AddonState, CoeCluster, CoeClusterSpec, CoeClusterStatus, GroupStatus,
    HealthReport, HealthStatus, Imported, State,
};
pub use group::{NodeGroup, NodeTaint, Role, TaintEffect};
pub use host::{Claim, Host, HostSpec};
pub use quota::{CoeQuota, CoeQuotaSpec, QuotaResource};
pub use template::{
    CoeClusterTemplate, CoeClusterTemplateSpec, NetworkDriver, ServerType, Visibility, VolumeDriver,
};

/// The group of all kinds here.
pub const GROUP: &str = "magnum.windlass.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// Keeps a cluster until its hosts are free again.
pub const FINALIZER: &str = "magnum.windlass.dev/hosts";
/// On a namespace: the project whose objects it holds.
pub const PROJECT_LABEL: &str = "magnum.windlass.dev/project";
/// On what was made for a cluster: its UUID.
pub const CLUSTER_LABEL: &str = "magnum.windlass.dev/cluster";
/// When an object was made that another Magnum made, RFC 3339.
pub const CREATED_ANNOTATION: &str = "magnum.windlass.dev/created-at";
/// When a client last changed an object, RFC 3339.
pub const UPDATED_ANNOTATION: &str = "magnum.windlass.dev/updated-at";
/// On a cluster: what its users are told besides how it stands.
pub const NOTICE_ANNOTATION: &str = "magnum.windlass.dev/notice";

/// The definitions of the kinds.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        CoeClusterTemplate::crd(),
        CoeCluster::crd(),
        CoeQuota::crd(),
        Host::crd(),
        Addon::crd(),
    ]
}

/// The namespace of a project's objects. None where the project is not named as Keystone names projects, which is the gate
/// between what an identity service says and the name of an object.
///
/// ```
/// let namespace = api::magnum::project_namespace("1f0b5c9d");
/// assert_eq!(namespace.as_deref(), Some("magnum-1f0b5c9d"));
/// assert_eq!(api::magnum::project_namespace("../kube-system"), None);
/// ```
pub fn project_namespace(project: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    let is_inner = |byte: u8| is_plain(byte) || byte == b'-';
    let bytes = project.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let fits = (1..=56).contains(&bytes.len())
        && bytes.iter().copied().all(is_inner)
        && ends.into_iter().flatten().copied().all(is_plain);
    fits.then(|| format!("magnum-{project}"))
}

fn labels_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {"type": "string", "maxLength": 4096},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_definition_with_a_schema() {
        for definition in definitions() {
            let text = serde_json::to_string(&definition).unwrap();
            assert!(text.contains("openAPIV3Schema"), "{text}");
            assert_eq!(definition.spec.group, GROUP);
            assert_eq!(definition.spec.scope, "Namespaced");
        }
    }

    #[test]
    fn a_project_that_is_no_name_has_no_namespace() {
        for project in ["", "-a", "a-", "A", "a.b", "a/b", &"a".repeat(57)] {
            assert_eq!(project_namespace(project), None, "{project}");
        }
        let longest = project_namespace(&"a".repeat(56)).unwrap();
        assert_eq!(longest.len(), 63);
    }
}
