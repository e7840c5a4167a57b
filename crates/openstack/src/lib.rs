//! OpenStack and its services as objects: an operator for each layer, every step a small one that can be repeated.
//!
//! - [`definition`]: what a service is, as data: a file for each, in `services/`;
//! - [`config`]: the configuration files of services, merged as Kolla does, with the origin of each setting;
//! - [`wish`]: from an object to what its run works from and to its steps; [`service`], [`cloud`] and [`seed`] do it for the three kinds. Pure;
//! - [`components`]: the pods of a service beside those of its API. Pure;
//! - [`hooks`]: what people run before, after or instead of steps. Pure;
//! - [`kolla`]: how containers of Kolla's images start. Pure;
//! - [`made`]: the objects and Helm releases of steps. Pure;
//! - [`edits`]: what people changed by hand that a step would undo. Pure;
//! - [`audit`]: what steps write, said before and noted as it is done;
//! - [`release`]: which release may follow which. Pure;
//! - [`rotation`]: when keys may be rotated so that nothing valid is refused, and on which schedule they can be. Pure;
//! - [`backup`]: the text of a backup, what is told of it, and how one is asked for. Pure;
//! - [`subject`]: the reconciler of all: it decides that a run is needed, and tells how the object stands;
//! - [`seed`]: what people make in a Keystone, as an object: what differs there, and how it is mended;
//! - [`health`]: whether a service answers that is made;
//! - [`engine`]: what executes the steps: SQL by a driver ([`sql`]), releases of Helm from charts of ours ([`charts`]), objects of
//!   Kubernetes, calls of Keystone ([`identity`]);
//! - [`operator`]: the controllers.

pub mod action;
pub mod audit;
pub mod backup;
mod bounds;
pub mod charts;
pub mod cloud;
pub mod components;
pub mod config;
pub mod definition;
pub mod edits;
pub mod engine;
pub mod health;
pub mod hooks;
pub mod identity;
pub mod kolla;
pub mod made;
pub mod names;
pub mod operator;
pub mod reach;
pub mod release;
pub mod rotation;
pub mod schema;
pub mod seed;
pub mod service;
pub mod sql;
pub mod subject;
pub mod wish;

pub use engine::Engine;
pub use operator::operate;
