//! An embedded, Kubernetes-compatible API over SQLite.
//!
//! A library with a `Router` and a `Store`: it knows no domain and is handed the CustomResourceDefinitions that it serves.

pub mod apply;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod schema;
pub mod table;
