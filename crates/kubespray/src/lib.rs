//! Clusters that kubespray builds: from a declared wish to a healthy cluster, one journalled run at a time.
//!
//! Reconcilers decide *what* must happen: [`cluster`] compiles a plan and stores it as a Run, the crate [`runs`] keeps a runner
//! alive for every unfinished Run, as [`subjects`] has it, [`node`] tells of each host. The [`runner`] executes one Run and survives the operator.
//! Decisions are pure functions in `resolve` and `plan`; reading is in `observe`, writing in `apply` and `report`.

pub mod action;
pub mod adopt;
pub mod bundle;
pub mod certificates;
pub mod cluster;
pub mod context;
pub mod explain;
pub mod failures;
pub mod health;
pub mod health_book;
pub mod hooks;
pub mod host_keys;
pub mod init;
pub mod inputs;
pub mod layout;
pub mod metrics;
pub mod mirror;
pub mod moving;
pub mod names;
pub mod node;
pub mod operation;
pub mod playbooks;
pub mod preview;
pub mod private;
pub mod problem;
pub mod radar;
pub mod remedies;
pub mod request;
pub mod runner;
pub mod secret;
pub mod snapshots;
pub mod subjects;
pub mod sweep;
pub mod token;
pub mod variables;
pub mod workload;

mod authorities;
mod budgets;
mod etcd;
mod operator;
mod sandbox_users;

pub use layout::Layout;
pub use operator::{Options, operate};
pub use problem::Problem;

pub(crate) use controller::chain;
