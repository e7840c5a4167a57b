//! An embedded, Kubernetes-compatible API over SQLite.
//!
//! A library with a [`Server`]: it knows no domain and is handed the CustomResourceDefinitions of the program it is part
//! of; clients may register others. Callers in the same process use its router as the transport of a `kube::Client`; others connect over TLS on loopback with
//! the kubeconfig that it writes.
//!
//! # What is served
//!
//! - `v1`: namespaces, secrets, configmaps, events (deleted an hour after they were last written), serviceaccounts
//! - `events.k8s.io/v1`: events (the same objects)
//! - `coordination.k8s.io/v1`: leases
//! - `apiextensions.k8s.io/v1`: customresourcedefinitions; those given at start cannot be changed or deleted by clients
//! - the resources of those definitions, in every served version, with `/status` and `/scale` where they declare them;
//!   versions differ as with the conversion strategy `None`, and webhooks are refused
//! - `authorization.k8s.io/v1` selfsubjectaccessreviews, `authentication.k8s.io/v1` selfsubjectreviews
//! - `/version`, `/healthz`, `/livez`, `/readyz`, discovery (legacy and aggregated), `/openapi/v3`
//!
//! Answers are JSON; requests are JSON, YAML, or protobuf. There is one user, who may do everything, so requests in the name
//! of somebody else (`Impersonate-User`) are refused. The bounds are those of Kubernetes: 3 MiB of a request, 1.5 MiB of
//! an object, 1 MiB of what a ConfigMap or Secret holds, 256 KiB of annotations, 10,000 operations of a JSON patch.
//!
//! There are no webhooks. The program itself may warn of what a write would lead to that is only tried: [`Advisor`].
//!
//! Everything else answers 404 as a Kubernetes without that resource does.

pub mod apply;
pub mod fault;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod schema;
pub mod table;

mod advice;
mod canonical;
mod definitions;
mod events;
mod expiry;
mod failure;
mod gc;
mod listen;
mod pipeline;
mod registry;
mod rest;
mod scale;
mod selector;
mod served;
mod server;
mod shape;
mod state;
mod store;
mod task;
mod tls;
mod value;

pub use self::{
    advice::Advisor,
    registry::DefinitionError,
    server::{Options, Server, ServerError},
    tls::TlsError,
};
