//! The machinery that every reconciler shares.
//!
//! A reconciler decides; this crate does what all of them do in the same way: keep [`conditions`] after kstatus, publish
//! [`event`]s once an edge, keep objects that something belongs to ([`finalizer`]), [`apply`] objects and status without writing what is there already, wait with a per-object
//! [`backoff`], register with one [`manager`] a process, which shares one watch a kind ([`stream`]), name things for good by what they are ([`digest`](mod@digest)), say what
//! is wrong with what a person wrote ([`problem`]) by commands that they can type ([`hint`]), hold a [`lease`] on what only one process may touch, count for monitoring
//! systems ([`metrics`]), keep to maintenance windows ([`window`]), see how far workloads are ([`rollout`]), and stop in order ([`shutdown`]); and the only ways from a [`kubeconfig`] to a client. It knows no
//! domain.

pub mod apply;
pub mod away;
pub mod backoff;
pub mod conditions;
pub mod digest;
pub mod event;
pub mod finalizer;
pub mod hint;
pub mod kubeconfig;
pub mod lease;
pub mod manager;
pub mod metrics;
pub mod outcome;
pub mod problem;
pub mod reads;
pub mod rollout;
pub mod shutdown;
pub mod stream;
pub mod wake;
pub mod watch;
pub mod window;

pub use backoff::BackOff;
pub use conditions::{Conditions, Standing, Status, Summary};
pub use digest::digest;
pub use event::{Events, Occurrence, Severity};
pub use manager::{Manager, WatchesEnded};
pub use metrics::Metrics;
pub use outcome::{Outcome, Until};
pub use problem::{Problem, chain};
pub use rollout::Rollout;
pub use shutdown::Shutdown;
pub use wake::{Key, WakeUps};
pub use watch::Watch;
pub use window::Windows;
