//! A held Lease: renewed by one loop, and over as soon as it cannot be proven.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinHandle, time::timeout};

use super::{BootClock, Candidate, Error, PROVEN, Place};

/// How often a holder renews: two tries fit into the time that one proves.
const RENEWAL: Duration = Duration::from_secs(10);

/// How often it tries again when that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// How long one try may take.
const TRY: Duration = Duration::from_secs(5);

/// How long an API that is away for everybody proves that nobody takes the Lease: it is asked again after [`AGAIN`], and who was
/// stopped meanwhile does not know how long it has been back.
const AWAY: Duration = Duration::from_secs(6);

/// How often is looked whether the proof is over: so long at most after a sleep of the machine.
const LOOK: Duration = Duration::from_millis(200);

/// Whether the Lease is held for sure, for everything that acts under it. It ends by itself, and then for good.
#[derive(Clone, Debug)]
pub struct Proof {
    clock: BootClock,
    /// In nanoseconds since boot; zero: it is over.
    until: Arc<AtomicU64>,
}

impl Proof {
    /// A proof that ends at this time since boot.
    pub fn until(clock: BootClock, end: Duration) -> Self {
        Self {
            clock,
            until: Arc::new(AtomicU64::new(nanoseconds(end))),
        }
    }

    /// Whether the Lease is held now. To be asked before each effect.
    pub fn holds(&self) -> bool {
        let until = self.until.load(Ordering::SeqCst);
        let held = nanoseconds(self.clock.now()) < until;
        if !held {
            // For good, unless it was prolonged in time just now.
            let _ = self
                .until
                .compare_exchange(until, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        held
    }

    /// Prolongs it, unless it is over. An earlier end changes nothing.
    fn prolong(&self, end: Duration) -> bool {
        let (now, end) = (nanoseconds(self.clock.now()), nanoseconds(end));
        let longer = |until: u64| (now < until).then(|| until.max(end));
        self.until
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, longer)
            .is_ok()
    }

    fn end(&self) {
        self.until.store(0, Ordering::SeqCst);
    }

    /// When it ends, as things stand, in time since boot.
    pub fn ends(&self) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::SeqCst))
    }

    async fn over(&self) {
        while self.holds() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Since boot, a clock reaches the end of these in five hundred years.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Is told when the proof ends, in time since boot, whenever that changes; zero: it has ended.
type Tell = Box<dyn Fn(Duration) + Send + Sync>;

impl Candidate {
    /// Takes the Lease and keeps it: one try. `tell` hears when the proof ends, in time since boot, whenever that changes;
    /// zero: it has ended.
    ///
    /// # Errors
    ///
    /// As of [`Candidate::attempt`], which must end in time here.
    pub async fn take(
        &mut self,
        tell: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Result<Hold, Error> {
        let asked = self.clock.now();
        self.attempt_in_time().await?;
        Ok(self.keep(asked.saturating_add(PROVEN), Box::new(tell)))
    }

    /// Holds a Lease that cannot be taken while the API is away for everybody, for as long as that can be proven. It is taken
    /// when the API is back.
    pub fn outlive(&mut self, tell: impl Fn(Duration) + Send + Sync + 'static) -> Hold {
        self.keep(self.clock.now().saturating_add(AWAY), Box::new(tell))
    }

    fn keep(&mut self, end: Duration, tell: Tell) -> Hold {
        let proof = Proof::until(self.clock.clone(), end);
        tell(end);
        let candidate = self.successor();
        let place = candidate.place.clone();
        let renewal = tokio::spawn(renew(candidate, proof.clone(), tell));
        Hold {
            place,
            proof,
            renewal: Some(renewal),
        }
    }

    async fn attempt_in_time(&mut self) -> Result<(), Error> {
        if let Ok(attempted) = timeout(TRY, self.attempt()).await {
            return attempted;
        }
        let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Err(self.place.failed(kube::Error::Service(late.into())))
    }
}

/// A held Lease. Dropping it ends the renewal, and the proof.
#[derive(Debug)]
pub struct Hold {
    place: Place,
    proof: Proof,
    renewal: Option<JoinHandle<Error>>,
}

impl Hold {
    /// What everything that acts under the Lease asks.
    pub fn proof(&self) -> Proof {
        self.proof.clone()
    }

    /// Waits until the Lease is lost, or cannot be proven any more. That is told once.
    pub async fn lost(&mut self) -> Error {
        let Some(renewal) = &mut self.renewal else {
            return std::future::pending().await;
        };
        let ended = renewal.await;
        self.renewal = None;
        // A renewal that broke has told nothing; what it held lapses.
        ended.unwrap_or_else(|_| self.place.lapsed())
    }

    /// Gives the Lease up, so that the next one need not wait until it expires.
    pub async fn release(mut self) {
        self.proof.end();
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
            // What it was about to write is written, or never will be.
            let _ = renewal.await;
        }
        if let Err(error) = self.place.release().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the lease was not given up, it expires"
            );
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.proof.end();
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
    }
}

/// Renews until the Lease is lost, or cannot be proven to be held, and tells why.
async fn renew(mut candidate: Candidate, proof: Proof, tell: Tell) -> Error {
    let error = tokio::select! {
        // First: after a sleep of the machine its time is over, whatever else is due.
        biased;
        () = proof.over() => candidate.place.lapsed(),
        error = renew_each(&mut candidate, &proof, &tell) => error,
    };
    proof.end();
    tell(Duration::ZERO);
    error
}

async fn renew_each(candidate: &mut Candidate, proof: &Proof, tell: &Tell) -> Error {
    let mut told = false;
    // What is held without having been taken is to be taken as soon as it can be.
    let mut wait = if candidate.held { RENEWAL } else { AGAIN };
    loop {
        tokio::time::sleep(wait).await;
        let asked = candidate.clock.now();
        let proven = match candidate.attempt_in_time().await {
            Ok(()) => {
                (wait, told) = (RENEWAL, false);
                PROVEN
            }
            Err(error @ Error::Api { .. }) => {
                // An API may be away for hours, and a log is not to grow by that.
                if !told {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the lease was not renewed, trying again"
                    );
                }
                (wait, told) = (AGAIN, true);
                if candidate.is_away(&error) {
                    AWAY
                } else {
                    continue;
                }
            }
            Err(error) => return error,
        };
        if !proof.prolong(asked.saturating_add(proven)) {
            return candidate.place.lapsed();
        }
        tell(proof.ends());
    }
}
