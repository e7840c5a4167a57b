//! Hierarchical configuration: what many clusters have in common is written once, level by level, and each cluster is rendered from
//! what it inherits and the little that is its own.
//!
//! Pure: objects in, objects out; no client, no clock, no runtime. A [`Fleet`] is read from objects; [`Fleet::resolve`] finds what a
//! cluster inherits by its Hierarchy and merges it, level over level; [`Fleet::render`] makes objects of that by a ClusterTemplate.
//! Each value keeps where it comes from, and each rendered leaf what it was made of, which [`Rendered::explain`] tells and
//! [`diff::diff`] compares; [`impact::impact`] says which machines that replaces, before anything moves. A [`Memo`] takes what clusters came
//! to from one inventory to the next. Where anything is wrong, nothing is rendered, and every problem says where, against which rule, and what to
//! do.
//!
//! Of `kapi` the rules in CEL are used, as roll-outs do for their gates: they are as pure as the rest.
//!
//! # Source
//! The semantics follow Hiera 5 of Puppet, whose hierarchy is data too and whose strategies have these names: first, unique, hash and
//! deep. `docs/fleets.md` has them as a table, whose rows are tests.

#![expect(
    clippy::result_large_err,
    reason = "a problem ends the work and is read by a person: its size costs nothing"
)]

mod chain;
pub mod contract;
pub mod diff;
pub mod explain;
mod fleet;
mod hidden;
mod idle;
pub mod impact;
pub mod import;
mod memo;
mod merge;
mod order;
mod problem;
mod promises;
mod render;
mod rules;
mod schema;
mod template;
mod tree;

pub use chain::Resolved;
pub use fleet::Fleet;
pub use hidden::Hidden;
pub use idle::Idle;
pub use memo::Memo;
pub use problem::{Object, Problem, Problems, Rule};
pub use render::{Rendered, RenderedDocument, revision, vault::name as vault_secret_name};
pub use template::world::{Made, MadeShape, Taken, Use, Uses};
pub use tree::{Below, Leaf, Origin, Shape, Source, TEMPLATE_MARK, Tree};
