//! Snapshots of a cluster's store that are kept for years: what is told of each beside it, which go, what they are sealed with, and
//! the places where they lie.
//!
//! A snapshot is one object, and a [`Manifest`] beside it, which is written last and only after what was written has been read back: a
//! snapshot with a manifest is one that was verified, and one without is unfinished. The crate knows nothing of who makes snapshots
//! and of how they are brought back. What a place answers is data: it is bounded, and held against the digests of the manifest.

pub mod manifest;
pub mod retention;
pub mod seal;
pub mod settings;
pub mod store;

pub use manifest::{Manifest, Name};
pub use store::Store;
