//! The cluster's Lease, held while the runner works.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::Run;
use controller::lease::{self, Claim, Error, RENEWAL};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

use super::{Job, pod};
use crate::process::is_gone;

/// A pod that could not renew for so long stops: five seconds later its Lease may be another's.
const UNRENEWED: Duration = Duration::from_secs(25);

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
            name: super::lease_name(job.cluster()),
            holder: job.identity.id.clone(),
            generation: job.run.spec.generation,
            owner: owner(&job.run),
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
                    if begun && !pod::is_pod(&job.identity) {
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

/// The Cluster, as the Run's owner reference names it: the Lease of a cluster that is deleted goes by itself, and another one
/// of the name is not fenced off by it.
fn owner(run: &Run) -> Option<OwnerReference> {
    let owner = run.metadata.owner_references.iter().flatten().next()?;
    Some(OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..owner.clone()
    })
}

async fn renew(job: Arc<Job>, claim: Claim, lost: oneshot::Sender<Error>) {
    let mut renewed = Instant::now();
    let mut told = false;
    let namespace = job.namespace();
    // A process goes on: its API may end with its operator, and nobody else can see that the Lease has expired.
    let is_due = |renewed: Instant| pod::is_pod(&job.identity) && renewed.elapsed() >= UNRENEWED;
    loop {
        let wait = if renewed.elapsed() < RENEWAL {
            RENEWAL
        } else {
            LOOK
        };
        tokio::time::sleep(wait).await;
        let asked = Instant::now();
        let claiming = lease::claim(&job.client, &namespace, &claim, is_gone);
        let claimed = tokio::select! {
            claimed = claiming => claimed,
            () = tokio::time::sleep_until(renewed + UNRENEWED), if pod::is_pod(&job.identity) => {
                Err(Error::Held { name: claim.name.clone(), holder: "somebody else, perhaps,".to_owned() })
            }
        };
        match claimed {
            Ok(()) => {
                renewed = asked;
                told = false;
            }
            Err(error @ Error::Api { .. }) if !is_due(renewed) => {
                // An API may be away for hours, and a log is not to grow by that.
                if !told {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the cluster's lease was not renewed, trying again"
                    );
                }
                told = true;
            }
            Err(error) => {
                // The receiver is gone when the runner is done.
                let _ = lost.send(error);
                return;
            }
        }
    }
}
