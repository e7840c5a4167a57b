//! Providers of Cluster API as objects: `CoreProvider` and its six siblings.
//!
//! - [`check`]: what is wrong with one, by itself and among the others;
//! - [`provider`]: the reconciler, generic over the seven kinds: it decides that a run is needed and tells how the provider stands;
//! - [`operation`], [`action`], [`inputs`]: the runs, their steps and what these work from;
//! - [`engine`]: what executes the steps: manifests out of a ConfigMap ([`source`]), rendered as clusterctl does ([`render`]), applied,
//!   pruned, waited for ([`health`]) and written into clusterctl's inventory, here or in another cluster ([`target`]);
//! - [`definitions`]: those that a provider leaves, for a person who wants them gone;
//! - [`drift`]: whether all of that is still as it was applied;
//! - [`webhooks`]: whether its webhooks answer;
//! - [`outline`]: a definition without its schemas, which is all that most of these read;
//! - [`rights`]: what the operator must be allowed for all of that;
//! - [`lent`]: what of other namespaces a provider may be made of;
//! - [`fetch`]: releases over the network, which become such ConfigMaps;
//! - [`certificates`]: those of webhooks, where no cert-manager makes them;
//! - [`stand`]: what there is of all of them, for who plans for the whole set;
//! - [`set`]: the reconciler of sets of providers, which upgrades them together;
//! - [`attention`]: watches of what a provider is made of, by which nothing is asked at rest;
//! - [`operator`]: the controllers.
//!
//! What a provider is made of, is `clusterctl`'s: pure, and held against the real one.

pub mod action;
pub mod attention;
pub mod certificates;
pub mod check;
pub mod definitions;
pub mod drift;
pub mod engine;
pub mod explain;
pub mod fetch;
pub mod health;
pub mod inputs;
pub mod lent;
pub mod names;
pub mod operation;
pub mod operator;
pub mod outline;
pub mod provider;
pub mod render;
pub mod rights;
pub mod set;
pub mod signature;
pub mod source;
pub mod stand;
pub mod target;
pub mod webhooks;

pub use engine::Engine;
pub use operator::{Options, operate};
