//! Secrets whose values come from HashiCorp Vault or OpenBao.
//!
//! A `VaultSecret` says what is read where; its reconciler keeps a Secret of the namespace as it is written there. Whoever uses the value
//! refers to that Secret, as to any other: nothing else of Windlass knows of Vault, and what Vault held last stays while it is away.
//!
//! - [`vault`]: the server: paths, logins, versions, what its answers mean;
//! - [`session`]: tokens, kept in memory alone, renewed before they end and replaced when they are refused;
//! - [`reconcile`]: one pass over a VaultSecret;
//! - [`digests`]: what tells that a value changed;
//! - [`operator`]: the controller.

pub mod digests;
pub mod operator;
pub mod reconcile;
pub mod session;
pub mod vault;

pub use operator::{Options, operate};
