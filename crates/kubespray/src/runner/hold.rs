//! The cluster's Lease, held while the runner works.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller::lease::{self, Claim, Error, RENEWAL};
use tokio::{sync::oneshot, task::JoinHandle};

use super::Job;
use crate::process::is_gone;

/// How often a Lease that somebody else holds is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A held Lease.
pub(crate) struct Hold {
    claim: Claim,
    renewal: JoinHandle<()>,
    lost: Mutex<Option<oneshot::Receiver<Error>>>,
}

impl Hold {
    /// Takes the Lease; waits for a holder to give it up. A run that has `begun` goes on without it while the API is away:
    /// it held the Lease before, and whoever takes it meanwhile must see the API, where this run stands unfinished.
    pub(crate) async fn take(job: &Arc<Job>, begun: bool) -> Result<Self, Error> {
        let claim = Claim {
            name: format!("cluster-{}", job.cluster()),
            holder: job.identity.id.clone(),
            generation: job.run.spec.generation,
        };
        loop {
            match lease::claim(&job.client, &job.namespace(), &claim, is_gone).await {
                Ok(()) => break,
                Err(error @ Error::Fenced { .. }) => return Err(error),
                Err(error @ Error::Held { .. }) => {
                    tracing::info!(
                        error = &error as &dyn std::error::Error,
                        "waiting for the cluster's lease"
                    );
                }
                Err(error @ Error::Api { .. }) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the cluster's lease cannot be taken yet"
                    );
                    if begun {
                        break;
                    }
                }
            }
            tokio::time::sleep(controller::backoff::jittered(LOOK)).await;
        }
        let (tell, lost) = oneshot::channel();
        let renewal = tokio::spawn(renew(Arc::clone(job), claim.clone(), tell));
        Ok(Self {
            claim,
            renewal,
            lost: Mutex::new(Some(lost)),
        })
    }

    /// Waits until the Lease is lost to somebody else.
    pub(crate) async fn lost(&self) -> Error {
        let receiver = self
            .lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match receiver {
            Some(receiver) => match receiver.await {
                Ok(error) => error,
                // The renewal ended without a word: only an abort does that.
                Err(_) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Gives the Lease up.
    pub(crate) async fn release(self, job: &Job) {
        self.renewal.abort();
        if let Err(error) = lease::release(&job.client, &job.namespace(), &self.claim).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the cluster's lease was not given up, it expires"
            );
        }
    }
}

async fn renew(job: Arc<Job>, claim: Claim, lost: oneshot::Sender<Error>) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        match lease::claim(&job.client, &job.namespace(), &claim, is_gone).await {
            Ok(()) => {}
            Err(error @ Error::Api { .. }) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the cluster's lease was not renewed, trying again"
                );
            }
            Err(error) => {
                // The receiver is gone when the runner is done.
                let _ = lost.send(error);
                return;
            }
        }
    }
}
