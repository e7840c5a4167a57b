//! Fleets on the embedded API.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of them"
)]

mod abandoned;
mod advice;
mod approval;
mod at_rest;
mod away;
mod births;
mod bounds;
mod cluster_api;
mod faults;
mod foretold;
mod gates;
mod hierarchy;
mod others;
mod rollback;
mod rolls;
mod steered;
mod story;
mod unreadable;
mod unversioned;
mod vault;
mod world;
