//! The objects people write and read: `Cluster`, `ClusterNode` and `Run`, those of an inventory, and the validated newtypes that
//! they are made of.
//!
//! Types only: no client, no runtime. Every optional field of a spec is an `Option`, and its default is applied by a
//! `resolve` further up, never by the schema, so that what a person wrote stays visible. Everything in a status is an
//! observation and can be rebuilt.

pub mod address;
pub mod cluster;
pub mod crd;
pub mod duration;
pub mod hook;
pub mod inventory;
pub mod magnum;
pub mod maintenance;
pub mod name;
pub mod node;
pub mod openstack;
pub mod provider;
pub mod radar;
pub mod remedy;
pub mod run;
pub mod secrets;
pub mod snapshots;
pub mod target;
pub mod text;
pub mod threshold;
pub mod upgrade;
pub mod version;

mod schema;

pub use cluster::{Cluster, ClusterSpec, ClusterStatus};
pub use crd::{API_APPROVED, custom_resource_definitions};
pub use duration::Duration;
pub use name::HostName;
pub use node::{ClusterNode, ClusterNodeSpec, ClusterNodeStatus};
pub use run::{Run, RunSpec, RunStatus};
pub use target::Target;
pub use threshold::Threshold;
pub use version::{KubernetesVersion, KubesprayVersion, VersionPart};
