//! Objects that are woken by hand: by work in the background that is done, or by what no watch shows.

use std::sync::{Arc, Mutex, PoisonError};

use futures::Stream;
use tokio::sync::mpsc;

use crate::stream;

/// The namespace and the name of an object.
pub type Key = (String, String);

/// Wakes objects. Clones wake the same listeners.
#[derive(Clone, Debug, Default)]
pub struct WakeUps {
    listeners: Arc<Mutex<Vec<mpsc::UnboundedSender<Key>>>>,
}

impl WakeUps {
    /// Wakes an object, for everybody who listens.
    pub fn wake(&self, key: &Key) {
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.send(key.clone()).is_ok());
    }

    /// What is woken from now on.
    pub fn stream(&self) -> impl Stream<Item = Key> + Send + use<> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
        stream::received(receiver)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn everybody_who_listens_is_told() {
        let wake_ups = WakeUps::default();
        let key = |name: &str| ("demo".to_owned(), name.to_owned());
        wake_ups.wake(&key("nobody listens"));
        let (mut one, mut other) = (Box::pin(wake_ups.stream()), Box::pin(wake_ups.stream()));
        wake_ups.wake(&key("a"));
        assert_eq!(one.next().await, Some(key("a")));
        drop(one);
        wake_ups.wake(&key("b"));
        assert_eq!(other.next().await, Some(key("a")));
        assert_eq!(other.next().await, Some(key("b")));
    }
}
