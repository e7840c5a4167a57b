//! Stopping in order.

use std::future::Future;

use tokio::sync::watch;

/// Says when to stop. Clones wait for the same moment.
#[derive(Clone, Debug)]
pub struct Shutdown {
    sender: std::sync::Arc<watch::Sender<bool>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            sender: std::sync::Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Shutdown {
    /// Tells everybody to stop.
    pub fn trigger(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it is time to stop.
    pub fn is_triggered(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until it is time to stop.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let mut receiver = self.sender.subscribe();
        async move {
            // An error means that every sender is gone, which is a reason to stop as well.
            let _ = receiver.wait_for(|triggered| *triggered).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_hears_it_also_later() {
        let shutdown = Shutdown::default();
        let early = tokio::spawn(shutdown.wait());
        assert!(!shutdown.is_triggered());
        shutdown.trigger();
        early.await.unwrap();
        shutdown.wait().await;
    }
}
