//! The Container Infrastructure Management API of OpenStack (Magnum) over the custom resources of `api::magnum`.
//!
//! - [`contract`]: what goes over the wire, and nothing else;
//! - [`identity`]: who asks, by a token that Keystone answers for; [`policy`]: what they may;
//! - [`service`]: the requests, one module an object; [`store`]: where objects are kept; [`view`]: what clients read of them;
//! - [`authority`]: certificates of a cluster's own authorities;
//! - `cloud`: the services of the catalogue, by the token of who asks; `credential`: a cluster's own credential there;
//! - [`labels`]: the settings that have no field, as data;
//! - [`addons`]: what is installed into clusters by Helm;
//! - [`operator`]: what follows from a stored cluster, as [`bare_metal`] plans it on hosts of the pool, and [`machines`] of objects of
//!   Cluster API.
//!
//! There is no queue, no conductor and no database: a request is done when its one object is written, and what follows from that
//! is a controller's work. So what was answered can be read at once, here and by kubectl.

pub mod addons;
pub mod authority;
pub mod bare_metal;
pub mod contract;
pub mod identity;
pub mod labels;
pub mod machines;
pub mod migration;
pub mod operator;
pub mod policy;
pub mod service;
pub mod store;
pub mod view;

mod address;
mod cloud;
mod credential;
mod leftovers;
mod names;

pub use address::public_url;
pub use service::{Options, Service};
