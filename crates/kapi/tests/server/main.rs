//! The server in this process: its objects, definitions that come and go, and its data directory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod client;
mod definitions;
mod durable;
mod guards;
mod objects;
