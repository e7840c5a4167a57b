//! What the server knows while a request is answered.

use std::sync::Arc;

use crate::{advice::Advice, registry::Registry, store::Store};

/// Everything a request needs.
pub(crate) struct Api {
    pub registry: Registry,
    pub store: Arc<Store>,
    pub advice: Advice,
}
