//! The objects of an inventory: what many clusters have in common, level by level, and what they are rendered to.
//!
//! They are read from files, or from an API whose operator is told to work on them. They are not among
//! [`custom_resource_definitions`](crate::custom_resource_definitions): a definition whose objects nobody acts on misleads.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

mod approval;
mod hierarchy;
mod levels;
mod path;
mod revision;
mod rollout;
mod status;
mod template;

pub use approval::{WaveApproval, WaveApprovalSpec};
pub use hierarchy::{
    ClusterLevel, Hierarchy, HierarchySpec, Level, LevelKind, Lists, MergeRule, Presence, Strategy,
    ValueRule,
};
pub use levels::{
    Customer, CustomerSpec, Environment, EnvironmentSpec, FleetCluster, FleetClusterSpec,
    InfraProvider, InfraProviderSpec, Settings, Site, SiteSpec,
};
pub use path::{InvalidValuePath, Segment, ValuePath};
pub use revision::{FleetRevision, FleetRevisionSpec};
pub use rollout::{
    Approval, Births, Budget, Canary, Gate, GateStatus, MemberPhase, OnEdit, Rollout,
    RolloutApproval, RolloutChange, RolloutControl, RolloutMember, RolloutPhase, RolloutRecord,
    RolloutRun, RolloutSpec, RolloutState, RolloutStatus, Wave,
};
pub use status::{FleetClusterStatus, FleetHealth, FleetProblem, FleetSecret, PendingChange};
pub use template::{
    BackEnd, ClusterTemplate, ClusterTemplateSpec, ForEach, Naming, TemplateDocument,
};

/// The group of all kinds of an inventory.
pub const GROUP: &str = "inventory.windlass.dev";

/// The label that makes a ConfigMap an object of a level; its value is the level's name.
pub const LEVEL_LABEL: &str = "inventory.windlass.dev/level";

/// On what a FleetCluster was rendered to: the FleetCluster, as NAMESPACE/NAME. On an object that a person made, it hands that over.
pub const FLEET_CLUSTER_ANNOTATION: &str = "inventory.windlass.dev/fleet-cluster";

/// On the main object of a cluster: what it was rendered to.
pub const REVISION_ANNOTATION: &str = "inventory.windlass.dev/revision";

/// On a template that machines are made from: what has changed of the secrets for which they are replaced, VaultSecret and key with a digest.
pub const SECRETS_ANNOTATION: &str = "inventory.windlass.dev/secrets";

/// On a VaultSecret: the keys for whose changes machines are replaced.
pub const ROLLS_ANNOTATION: &str = "inventory.windlass.dev/rolls-machines";
/// The most keys of Vault for which machines of one cluster are replaced: each is told in its status.
pub const MOST_SECRETS: usize = 256;

/// On a Namespace: the namespace whose FleetClusters may have their objects there.
pub const FLEET_LABEL: &str = "inventory.windlass.dev/fleet";

/// The definitions of the kinds of an inventory.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        Hierarchy::crd(),
        Environment::crd(),
        Customer::crd(),
        Site::crd(),
        InfraProvider::crd(),
        FleetCluster::crd(),
        ClusterTemplate::crd(),
        Rollout::crd(),
        WaveApproval::crd(),
        FleetRevision::crd(),
    ]
}

/// A schema in the words of Kubernetes, kept as it was written.
fn open_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "x-kubernetes-preserve-unknown-fields": true,
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
}
