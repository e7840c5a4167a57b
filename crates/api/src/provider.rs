//! Providers of Cluster API as objects: what people write to have one installed, and what is told of it.
//!
//! Seven kinds with one spec and one status: [`Provider`] is the object, and a [`Kind`] makes it one of them. Their definitions
//! accept and keep what those of the Cluster API operator do, so that objects written for that are taken as they are.
//! [`ProviderSet`] is of all of an installation together, and Windlass' own.
//!
//! They are not among [`custom_resource_definitions`](crate::custom_resource_definitions): where that operator works, the
//! definitions are its own.
//!
//! What stands in a spec is judged further up; a schema that refused more than the existing one would refuse stored objects.
//!
//! # Source
//! cluster-api-operator v0.29.0, `config/crd/bases`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

mod definition;
mod deployment;
mod kind;
mod manager;
mod names;
mod schema;
mod set;
mod spec;
mod status;

pub use definition::provider_definitions;
pub use deployment::{Container, Deployment, EnvironmentVariable, ImagePullSecret};
pub use kind::{
    Addon, AddonProvider, Bootstrap, BootstrapProvider, ControlPlane, ControlPlaneProvider, Core,
    CoreProvider, Infrastructure, InfrastructureProvider, Ipam, IpamProvider, Kind, Provider,
    ProviderType, RuntimeExtension, RuntimeExtensionProvider,
};
pub use manager::{Controllers, Health, LeaderElection, Manager, Metrics, Webhook};
pub use names::{FINALIZER, annotation, condition, key, label};
pub use set::{
    Approval, AvailableRelease, OnFailure, PlanPhase, ProviderSet, ProviderSetSpec,
    ProviderSetStatus, SET_GROUP, SetPlan, SetProvider, SetUpgrade, UpgradeState, WrittenVersion,
};
pub use spec::{
    AdditionalDeployment, FetchConfig, ObjectReference, Patch, PatchTarget, ProviderSpec,
};
pub use status::{ProviderStatus, Reason};

/// The definitions that are installed together: those of the seven kinds, and that of sets of them.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = provider_definitions();
    definitions.push(ProviderSet::crd());
    definitions
}

/// The group of the seven kinds.
pub const GROUP: &str = "operator.cluster.x-k8s.io";
/// Their version.
pub const VERSION: &str = "v1alpha2";
/// The one name that a CoreProvider can have.
pub const CORE_NAME: &str = "cluster-api";
