//! Fleets on the embedded API.

mod bounds;
mod story;
mod world;
