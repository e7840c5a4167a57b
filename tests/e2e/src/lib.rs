//! A stage for end-to-end stories: throw-away hosts with Windlass among them. The demo and the suites use the same one.

mod account;
mod calls;
mod checkout;
mod cloud;
pub mod compared;
mod conditions;
mod guide;
mod in_cluster;
mod keystone;
mod kubespray;
mod management;
mod operator;
mod played;
mod services;
mod stage;
mod storm;
mod story;
mod workload;

pub use account::account;
pub use calls::{Called, Calls, Tally};
pub use checkout::{root, windlass};
pub use cloud::Cloud;
pub use conditions::{condition, is_true};
pub use guide::Guide;
pub use in_cluster::{InCluster, SYSTEM, Side};
pub use keystone::{Keystone, MagnumService, Token};
pub use kubespray::Kubespray;
pub use management::{Hosts, Installed, Management, PROVIDERS, Servers};
pub use operator::{Memory, Operator, Replica};
pub use played::{PlayedClusterApi, cluster_api_definitions};
pub use services::{Services, Tokens};
pub use stage::{NAMESPACE, Options, Stage, Versions, wait_until};
pub use storm::Storm;
pub use story::node;
pub use workload::{Prober, Requests, WORKLOAD};
