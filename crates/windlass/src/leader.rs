//! One of several replicas works: the one that holds the Lease.

use std::time::Duration;

use controller::lease::{self, Claim, RENEWAL};
use kube::Client;
use tokio::time::Instant;

/// How often a replica that waits looks whether the Lease is free.
const LOOK: Duration = Duration::from_secs(2);

/// A holder that could not renew for so long stops: five seconds later the Lease may be another's.
const UNRENEWED: Duration = Duration::from_secs(25);

/// A candidate for the Lease, and its holder.
pub(crate) struct Leadership {
    client: Client,
    namespace: String,
    claim: Claim,
}

impl Leadership {
    /// A candidate. Its name is this process's, never used again.
    pub(crate) fn new(client: Client, namespace: String, name: String) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let started = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let holder = format!("{}_{:x}", host.trim(), started.as_nanos());
        let claim = Claim {
            name,
            holder,
            generation: 0,
            owner: None,
        };
        Self {
            client,
            namespace,
            claim,
        }
    }

    /// Waits until the Lease is ours.
    pub(crate) async fn acquire(&self) {
        let mut told = false;
        loop {
            match self.renew().await {
                Ok(()) => break,
                Err(error @ lease::Error::Api { .. }) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "no lease yet");
                }
                Err(error) if !told => {
                    tracing::info!(error = &error as &dyn std::error::Error, "standing by");
                    told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(controller::backoff::jittered(LOOK)).await;
        }
        tracing::info!(
            lease = self.claim.name,
            holder = self.claim.holder,
            "leading"
        );
    }

    /// Renews for as long as it is polled; returns when the Lease is lost, or may be.
    pub(crate) async fn lost(&self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < UNRENEWED {
            tokio::time::sleep(if renewed.elapsed() < RENEWAL {
                RENEWAL
            } else {
                LOOK
            })
            .await;
            let asked = Instant::now();
            match tokio::time::timeout_at(renewed + UNRENEWED, self.renew()).await {
                Ok(Ok(())) => renewed = asked,
                Ok(Err(error @ lease::Error::Api { .. })) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the lease was not renewed, trying again"
                    );
                }
                Ok(Err(_)) | Err(_) => break,
            }
        }
    }

    /// Gives the Lease up, so that the next replica need not wait until it expires.
    pub(crate) async fn release(&self) {
        if let Err(error) = lease::release(&self.client, &self.namespace, &self.claim).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the lease was not given up, it expires"
            );
        }
    }

    async fn renew(&self) -> Result<(), lease::Error> {
        // Nothing is known of the process of another pod.
        lease::claim(&self.client, &self.namespace, &self.claim, |_| false).await
    }
}
