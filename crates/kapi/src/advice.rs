//! What the program that this API is part of says of a write that is only tried: what admission webhooks are for in a cluster.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use futures::future::BoxFuture;
use serde_json::Value;

/// Who knows what a write would lead to. It is asked where a client tries a write, by `dryRun=All`, so it may take time, and cannot keep
/// anything from being written.
pub trait Advisor: Send + Sync {
    /// Warnings about an object as it would stand: one that is new, or in place of the one of its name. Each is a line of plain ASCII;
    /// others do not reach the client.
    fn advise<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Vec<String>>;
}

/// The advisor, if there is one. It may be a client of this API, so it is not held: neither would ever end.
#[derive(Clone, Default)]
pub(crate) struct Advice(Arc<OnceLock<Weak<dyn Advisor>>>);

impl Advice {
    /// Takes advice of somebody from now on; the first one stays.
    pub fn take(&self, advisor: &Arc<dyn Advisor>) {
        let _first = self.0.set(Arc::downgrade(advisor));
    }

    /// What is to be said about an object.
    pub async fn about(&self, object: &Value) -> Vec<String> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(advisor) => advisor.advise(object).await,
            None => Vec::new(),
        }
    }
}

impl fmt::Debug for Advice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Advice")
    }
}
