//! A Lease on what only one process may touch.
//!
//! A runner holds the Lease of its cluster while it works, and a leader that of its controllers. It is fenced by a generation:
//! whoever planned from an older generation than the Lease has seen is refused for good, also when the Lease is free.
//! Generations of another owner, as of a deleted cluster that had the name before, fence nobody. Writes carry the revision
//! that was read, so two takers cannot both win.
//!
//! # Why no two hold it at a time
//!
//! No clock is compared with another one's: what a holder wrote as the time of its renewal is shown to people and read by
//! nobody. Each side measures a span on a clock of its own, and only the rates of the clocks must agree (to a sixth).
//!
//! - **Who wants it** takes it from a holder that did not give it up only after it has seen one and the same revision of it for
//!   [`DURATION`], from the answer that showed it first. That span is measured by the clock that stands still while the machine
//!   is suspended: a machine that wakes up has observed nothing in its sleep, and gives a holder that slept beside it the whole
//!   span to renew. An API that refuses connections ends the span: a holder could not renew then either.
//! - **Who holds it** counts [`PROVEN`], which is shorter, from the moment before the last renewal that succeeded was asked for.
//!   The API cannot have shown that renewal to anybody earlier, so this span ends first, by [`DURATION`] less [`PROVEN`]: the
//!   time to end what is at work. It is measured by the clock that goes on while the machine is suspended ([`BootClock`]): who
//!   was suspended, or stopped, finds on waking that its time is over before it learns anything else. A [`Proof`] that
//!   lapsed is never mended by a later renewal, for another one may have held the Lease in between.
//! - A renewal always changes the object, also when the wall clock of the holder stands still or is set back: otherwise the API
//!   would keep the revision, and the holder would look dead.
//!
//! A holder that is known to be dead ([`Candidate::new`]) is waited for no longer.
//!
//! # A Lease that nobody holds
//!
//! One that was given up says so: it has no holder, and the generation of the one that it had. It is free at once. One that is
//! not there, or that somebody made without either, may have been deleted under a holder that does not know it yet, as the
//! deletion of its owner in the foreground does: that it stays so is observed for [`DURATION`] too. A holder that reaches the API
//! finds out sooner, and ends: it cannot tell whether another one has had the Lease since. So that the first one of all need not
//! wait, it says that it is ([`Candidate::first`]).

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::time::Instant;

mod clock;
mod hold;

pub use clock::BootClock;
pub use hold::{Hold, Proof};

/// The annotation that holds the highest generation that held the Lease.
pub const GENERATION: &str = "windlass.dev/generation";

/// How long a Lease must be seen without a renewal before it is taken from its holder.
pub const DURATION: Duration = Duration::from_secs(DURATION_SECONDS.unsigned_abs() as u64);
const DURATION_SECONDS: i32 = 30;

/// What another program wrote as the duration counts up to here: nobody is to be locked out for years.
const LONGEST_SECONDS: i32 = 600;

/// How long a renewal proves that the Lease is held, from the moment before it was asked for.
pub const PROVEN: Duration = Duration::from_secs(25);

/// Why a Lease was not taken or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else holds it.
    #[error("take lease {name}: {holder} holds it")]
    Held {
        /// The Lease.
        name: String,
        /// Who.
        holder: String,
    },
    /// Nobody is named in it, and nobody gave it up.
    #[error(
        "take lease {name}: it was not given up, so whoever held it before it was deleted may be at work for {} seconds",
        DURATION.as_secs()
    )]
    Unknown {
        /// The Lease.
        name: String,
    },
    /// Something newer held it before.
    #[error("take lease {name}: generation {latest} has held it, {own} is older")]
    Fenced {
        /// The Lease.
        name: String,
        /// The caller's generation.
        own: i64,
        /// The highest generation seen.
        latest: i64,
    },
    /// It was held, and somebody else has had it since, or it was deleted.
    #[error("keep lease {name}: it was deleted, or somebody else has had it since")]
    Lost {
        /// The Lease.
        name: String,
    },
    /// It was held, and could not be renewed for so long that it may be another's.
    #[error(
        "keep lease {name}: it was not renewed for {} seconds, so it may be another's by now",
        PROVEN.as_secs()
    )]
    Lapsed {
        /// The Lease.
        name: String,
    },
    /// The API refused, or did not answer.
    #[error("write lease {name}")]
    Api {
        /// The Lease.
        name: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

/// Who wants a Lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The Lease's name.
    pub name: String,
    /// The claimant's identity, never used again: host, process and start time, or the pod.
    pub holder: String,
    /// The generation that the claimant planned from.
    pub generation: i64,
    /// What the Lease goes with, if with anything.
    pub owner: Option<OwnerReference>,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// It is held already: renew.
    Renew,
    /// It is free, given up or expired: take.
    Take,
    /// Nobody is named, and somebody may hold it all the same.
    Unknown,
    /// Somebody else holds it.
    Held,
    /// Something newer held it.
    Fenced(i64),
}

/// Judges a claim. Pure; `expired` tells whether the Lease, or that there is none, was seen unchanged for its duration, `is_dead`
/// whether a holder is known to be gone.
fn judge(
    lease: Option<&Lease>,
    claim: &Claim,
    expired: bool,
    is_dead: impl Fn(&str) -> bool,
) -> Verdict {
    let unknown = if expired {
        Verdict::Take
    } else {
        Verdict::Unknown
    };
    let Some(lease) = lease else {
        return unknown;
    };
    let latest = if is_anothers(lease, claim) {
        0
    } else {
        generation(lease)
    };
    if latest > claim.generation {
        return Verdict::Fenced(latest);
    }
    match holder(lease) {
        None if was_given_up(lease) => Verdict::Take,
        None => unknown,
        Some(holder) if holder == claim.holder => Verdict::Renew,
        Some(holder) if expired || is_dead(holder) => Verdict::Take,
        Some(_) => Verdict::Held,
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref();
    holder.filter(|holder| !holder.is_empty())
}

/// Whether a Lease went with something else of the same name. Kubernetes removes it some time after that is gone.
fn is_anothers(lease: &Lease, claim: &Claim) -> bool {
    let owners = lease.metadata.owner_references.iter().flatten();
    let owner = claim.owner.as_ref();
    owner.is_some_and(|own| owners.into_iter().any(|owner| owner.uid != own.uid))
}

/// Whether a Lease without a holder had one, which is known to hold it no more.
fn was_given_up(lease: &Lease) -> bool {
    lease.annotations().contains_key(GENERATION)
}

fn generation(lease: &Lease) -> i64 {
    let generation = lease.annotations().get(GENERATION);
    generation
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// What was seen of a Lease, and since when it is so.
#[derive(Debug, Default)]
struct Observer {
    sight: Option<(Revision, Instant)>,
}

/// One state of one object; none: it is not there.
type Revision = Option<(Option<String>, Option<String>)>;

impl Observer {
    /// Looks at a Lease that was read by `now`: whether it has been the same for its duration, or has not been there.
    fn has_expired(&mut self, lease: Option<&Lease>, now: Instant) -> bool {
        let revision = lease.map(|lease| (lease.uid(), lease.resource_version()));
        let since = match &self.sight {
            Some((known, since)) if *known == revision => *since,
            _ => now,
        };
        self.sight = Some((revision, since));
        now.duration_since(since) > lease.map_or(DURATION, duration)
    }

    /// What was seen before does not count any more.
    fn forget(&mut self) {
        self.sight = None;
    }
}

/// Another program may have its Leases hold longer than ours, but none shorter.
fn duration(lease: &Lease) -> Duration {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let seconds = seconds
        .unwrap_or(DURATION_SECONDS)
        .clamp(DURATION_SECONDS, LONGEST_SECONDS);
    Duration::from_secs(seconds.unsigned_abs().into())
}

/// Somebody who wants a Lease, with what it has seen of it.
pub struct Candidate {
    place: Place,
    is_dead: fn(&str) -> bool,
    is_away: Arc<IsAway>,
    clock: BootClock,
    observer: Observer,
    /// Nobody had it before.
    first: bool,
    /// It was taken: from now on it is only renewed.
    held: bool,
}

/// Where the Lease is, and who wants it.
#[derive(Clone)]
struct Place {
    client: Client,
    namespace: String,
    claim: Claim,
}

/// Whether an error shows that the API is nowhere, for nobody.
type IsAway = dyn Fn(&kube::Error) -> bool + Send + Sync;

impl Candidate {
    /// A candidate; `is_dead` tells whether a holder is known to be gone, as a process of the same machine is.
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        claim: Claim,
        is_dead: fn(&str) -> bool,
    ) -> Self {
        Self {
            place: Place {
                client,
                namespace: namespace.into(),
                claim,
            },
            is_dead,
            is_away: Arc::new(|_| false),
            clock: BootClock::default(),
            observer: Observer::default(),
            first: false,
            held: false,
        }
    }

    /// By another clock than the machine's, for tests.
    #[must_use]
    pub fn by(mut self, clock: BootClock) -> Self {
        self.clock = clock;
        self
    }

    /// The first one that wants the Lease, or one whose work beside a former holder does no harm: it does not wait for a holder
    /// that is not named.
    #[must_use]
    pub fn first(mut self) -> Self {
        self.first = true;
        self
    }

    /// An error of this kind shows that the API is away for everybody, so that nobody can take the Lease for a moment: the hold
    /// outlives it. True only of an API of this machine that has ended.
    #[must_use]
    pub fn outliving(
        mut self,
        is_away: impl Fn(&kube::Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_away = Arc::new(is_away);
        self
    }

    /// Whether an error shows that the API is away for everybody.
    pub fn is_away(&self, error: &Error) -> bool {
        matches!(error, Error::Api { source, .. } if (self.is_away)(source))
    }

    /// Tries to take the Lease, or to renew it once it is taken. To be repeated by the same candidate: what it has seen tells
    /// whether the holder still renews.
    ///
    /// # Errors
    ///
    /// Somebody else holds it or may hold it, something newer has held it, it was lost, or the API refuses or does not answer.
    pub async fn attempt(&mut self) -> Result<(), Error> {
        let existing = match self.place.read().await {
            Ok(existing) => existing,
            Err(error) => {
                if is_refused(&error) {
                    self.observer.forget();
                }
                return Err(self.place.failed(error));
            }
        };
        let existing = existing.as_ref();
        let is_first = self.first && existing.and_then(holder).is_none();
        let expired = self.observer.has_expired(existing, Instant::now()) || is_first;
        let claim = &self.place.claim;
        let name = claim.name.clone();
        match judge(existing, claim, expired, self.is_dead) {
            Verdict::Fenced(latest) => Err(Error::Fenced {
                name,
                own: claim.generation,
                latest,
            }),
            Verdict::Held => Err(Error::Held {
                name,
                holder: existing.and_then(holder).unwrap_or_default().to_owned(),
            }),
            // Whoever is named now, or gave it up, has had it in between; so may somebody whose Lease was deleted too.
            Verdict::Take | Verdict::Unknown if self.held => Err(Error::Lost { name }),
            Verdict::Unknown => Err(Error::Unknown { name }),
            Verdict::Renew | Verdict::Take => {
                self.place.write(existing).await?;
                (self.first, self.held) = (false, true);
                Ok(())
            }
        }
    }

    /// Gives the Lease up, if it is held. The generation stays as a fence.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer: the Lease ends by itself then. That it is not held is no error.
    pub async fn release(&mut self) -> Result<(), Error> {
        self.held = false;
        self.place.release().await
    }

    /// The candidate that goes on with what this one has; this one begins anew.
    fn successor(&mut self) -> Self {
        Self {
            place: self.place.clone(),
            is_dead: self.is_dead,
            is_away: Arc::clone(&self.is_away),
            clock: self.clock.clone(),
            observer: std::mem::take(&mut self.observer),
            first: std::mem::take(&mut self.first),
            held: std::mem::take(&mut self.held),
        }
    }
}

impl Place {
    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn read(&self) -> kube::Result<Option<Lease>> {
        self.api().get_opt(&self.claim.name).await
    }

    async fn write(&self, existing: Option<&Lease>) -> Result<(), Error> {
        let lease = held(existing, &self.claim, Timestamp::now());
        let parameters = PostParams::default();
        let written = if existing.is_some() {
            self.api()
                .replace(&self.claim.name, &parameters, &lease)
                .await
        } else {
            self.api().create(&parameters, &lease).await
        };
        written.map(drop).map_err(|error| self.failed(error))
    }

    /// Gives the Lease up, if it is held. The generation stays as a fence.
    async fn release(&self) -> Result<(), Error> {
        let failed = |error| self.failed(error);
        let Some(mut lease) = self.read().await.map_err(failed)? else {
            return Ok(());
        };
        let Some(spec) = lease
            .spec
            .as_mut()
            .filter(|spec| spec.holder_identity.as_deref() == Some(&self.claim.holder))
        else {
            return Ok(());
        };
        spec.holder_identity = None;
        self.api()
            .replace(&self.claim.name, &PostParams::default(), &lease)
            .await
            .map(drop)
            .map_err(failed)
    }

    fn failed(&self, source: kube::Error) -> Error {
        Error::Api {
            name: self.claim.name.clone(),
            source,
        }
    }

    fn lapsed(&self) -> Error {
        Error::Lapsed {
            name: self.claim.name.clone(),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client: _,
            namespace,
            claim,
        } = self;
        f.debug_struct("Place")
            .field("namespace", namespace)
            .field("claim", claim)
            .finish_non_exhaustive()
    }
}

/// Whether nobody listened where the API was looked for.
pub fn is_refused(error: &kube::Error) -> bool {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = at {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        at = error.source();
    }
    false
}

/// The Lease as its holder writes it.
fn held(existing: Option<&Lease>, claim: &Claim, now: Timestamp) -> Lease {
    let before = existing.and_then(|lease| lease.spec.as_ref());
    let now = other_than(before.and_then(|spec| spec.renew_time.as_ref()), now);
    let same = before.is_some_and(|spec| spec.holder_identity.as_deref() == Some(&claim.holder));
    let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    let mut metadata = existing.map_or_else(
        || ObjectMeta {
            name: Some(claim.name.clone()),
            ..ObjectMeta::default()
        },
        |lease| lease.metadata.clone(),
    );
    if let Some(owner) = &claim.owner {
        metadata.owner_references = Some(vec![owner.clone()]);
    }
    metadata
        .annotations
        .get_or_insert_default()
        .insert(GENERATION.to_owned(), claim.generation.to_string());
    Lease {
        metadata,
        spec: Some(LeaseSpec {
            holder_identity: Some(claim.holder.clone()),
            lease_duration_seconds: Some(DURATION_SECONDS),
            acquire_time: before
                .filter(|_| same)
                .and_then(|spec| spec.acquire_time.clone())
                .or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(if same {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }),
    }
}

/// The time of a renewal, which is never that of the one before. The API keeps microseconds.
fn other_than(before: Option<&MicroTime>, now: Timestamp) -> Timestamp {
    match before {
        Some(before) if before.0.as_microsecond() == now.as_microsecond() => {
            // At the end of time there is room in the other direction.
            let step = jiff::SignedDuration::from_micros(1);
            now.checked_add(step)
                .or_else(|_| now.checked_sub(step))
                .unwrap_or(now)
        }
        _ => now,
    }
}

#[cfg(test)]
mod tests;
