//! Fleets on the embedded API.

mod bounds;
mod cluster_api;
mod story;
mod world;
