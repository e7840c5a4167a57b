//! Fleets as objects: each FleetCluster is rendered from what it inherits, and changed as a Rollout says.
//!
//! - [`inventories`]: the objects of each namespace as one inventory, rendered by the crate `inventory`, as files are;
//! - [`cluster`]: the reconciler of FleetClusters: keeps what each is rendered to as a FleetRevision, says what would change, applies what
//!   it is granted, prunes, and tells how the cluster stands;
//! - [`rollout`]: the reconciler of Rollouts: writes down who becomes what and when, and grants it, wave by wave;
//! - [`pending`]: what an edit changes, for people;
//! - [`plan`]: what an edit that was not applied would change, down to the [`machines`] that there are, and
//!   [`advice`], which says so where an edit is only tried;
//! - [`operator`]: the controllers.
//!
//! The two reconcilers know of each other by their status alone: a Rollout grants a revision to a FleetCluster, which tells what it was
//! brought to. Either may be old when the other looks; nothing follows from that but another look.

#![expect(
    clippy::result_large_err,
    reason = "a problem ends the work and is read by a person: its size costs nothing"
)]

pub mod advice;
pub mod cluster;
pub mod inventories;
pub mod machines;
pub mod names;
pub mod operator;
pub mod pending;
pub mod plan;
pub mod rollout;

pub use operator::{Options, operate};
