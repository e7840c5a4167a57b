//! A definition, and what is served of it.

use std::sync::Arc;

use serde_json::Value;

use crate::registry::Resource;

/// A definition and what is served of it.
#[derive(Debug)]
pub(crate) struct Served {
    pub name: String,
    /// It is part of this program.
    pub own: bool,
    pub uid: Arc<str>,
    pub spec: Value,
    pub names: Value,
    /// Why nothing is.
    pub problems: Vec<String>,
    /// The resource of the version in which the objects are kept. It need not be served.
    pub kept: Option<Arc<Resource>>,
    pub resources: Vec<Arc<Resource>>,
}
