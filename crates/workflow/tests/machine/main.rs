//! The step engine as a state machine: a simulated world, killed and failed at every journal edge, and stories.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod controls;
mod crash;
mod stories;
mod world;
