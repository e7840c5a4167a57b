//! A stage for end-to-end stories: throw-away hosts with Windlass among them. The demo and the suites use the same one.

mod account;
mod checkout;
mod in_cluster;
mod kubespray;
mod operator;
mod stage;
mod storm;
mod story;

pub use account::account;
pub use checkout::{root, windlass};
pub use in_cluster::{InCluster, SYSTEM, Side};
pub use kubespray::Kubespray;
pub use operator::{Operator, Replica};
pub use stage::{NAMESPACE, Options, Stage, wait_until};
pub use storm::Storm;
