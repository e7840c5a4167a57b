//! The CustomResourceDefinitions of all kinds, as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{Cluster, ClusterNode, Run, inventory, magnum, openstack, provider, secrets};

/// The annotation without which Kubernetes refuses CRDs of a `*.k8s.io` group, and its value here.
///
/// # Source
/// Kubernetes enhancement 2337, "protected API groups".
pub const API_APPROVED: (&str, &str) = (
    "api-approved.kubernetes.io",
    "unapproved, proposed by the kubespray operator design",
);

/// Definitions that are installed together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Set {
    /// Clusters, their hosts and runs: always there.
    Clusters,
    /// Levels and clusters of fleets, and their roll-outs.
    Fleet,
    /// The Magnum API's.
    Magnum,
    /// Clouds and services of OpenStack.
    Openstack,
    /// Providers of Cluster API.
    Providers,
    /// Secrets from Vault.
    Vault,
}

/// All of Windlass' definitions, by set.
pub const SETS: [Set; 6] = [
    Set::Clusters,
    Set::Fleet,
    Set::Magnum,
    Set::Openstack,
    Set::Providers,
    Set::Vault,
];

impl Set {
    /// The definitions of the set, in the order in which they are installed.
    pub fn definitions(self) -> Vec<CustomResourceDefinition> {
        match self {
            Self::Clusters => custom_resource_definitions(),
            Self::Fleet => inventory::definitions(),
            Self::Magnum => magnum::definitions(),
            Self::Openstack => openstack::definitions(),
            Self::Providers => provider::definitions(),
            Self::Vault => secrets::definitions(),
        }
    }
}

/// The definitions of [`Set::Clusters`].
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![Cluster::crd(), ClusterNode::crd(), Run::crd()];
    for definition in &mut definitions {
        if definition.spec.group.ends_with(".k8s.io") {
            let (key, value) = API_APPROVED;
            definition
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(key.into(), value.into());
        }
    }
    definitions
}
