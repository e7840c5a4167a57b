//! A stage for end-to-end stories: throw-away hosts with Windlass among them. The demo and the suites use the same one.

mod stage;

pub use stage::{NAMESPACE, Options, Signal, Stage, wait_until};
