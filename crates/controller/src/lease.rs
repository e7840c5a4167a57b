//! A Lease on what only one process may touch.
//!
//! A runner holds the Lease of its cluster while it works. It is fenced by a generation: whoever planned from an older
//! generation than the Lease has seen is refused for good, also when the Lease is free. Generations of another owner, as of a
//! deleted cluster that had the name before, fence nobody. A Lease is taken over when its
//! holder gave it up, when it was not renewed for its duration, or at once when the caller knows that the holder is dead
//! (a process of the same machine that is gone). Writes carry the revision that was read, so two takers cannot both win.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{Api, Client, api::PostParams};

/// The annotation that holds the highest generation that held the Lease.
pub const GENERATION: &str = "windlass.dev/generation";

/// How long a Lease holds without renewal, in seconds.
const DURATION_SECONDS: i32 = 30;

/// How often a holder renews: three tries fit into the duration.
pub const RENEWAL: Duration = Duration::from_secs(10);

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
    /// The claimant's identity: host, process and start time, or the pod.
    pub holder: String,
    /// The generation that the claimant planned from.
    pub generation: i64,
    /// What the Lease goes with, if with anything.
    pub owner: Option<OwnerReference>,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is held already: renew.
    Renew,
    /// It is free, given up or expired: take.
    Take,
    /// Somebody else holds it.
    Held,
    /// Something newer held it.
    Fenced(i64),
}

/// Judges a claim. Pure; `is_dead` tells whether a holder is known to be gone.
pub fn judge(
    lease: Option<&Lease>,
    claim: &Claim,
    now: Timestamp,
    is_dead: impl Fn(&str) -> bool,
) -> Verdict {
    let Some(lease) = lease else {
        return Verdict::Take;
    };
    let latest = if is_anothers(lease, claim) {
        0
    } else {
        generation(lease)
    };
    if latest > claim.generation {
        return Verdict::Fenced(latest);
    }
    let Some(spec) = lease.spec.as_ref() else {
        return Verdict::Take;
    };
    match spec.holder_identity.as_deref() {
        None | Some("") => Verdict::Take,
        Some(holder) if holder == claim.holder => Verdict::Renew,
        Some(holder) if is_dead(holder) || has_expired(spec, now) => Verdict::Take,
        Some(_) => Verdict::Held,
    }
}

/// Whether a Lease went with something else of the same name. Kubernetes removes it some time after that is gone.
fn is_anothers(lease: &Lease, claim: &Claim) -> bool {
    let owners = lease.metadata.owner_references.iter().flatten();
    let owner = claim.owner.as_ref();
    owner.is_some_and(|own| owners.into_iter().any(|owner| owner.uid != own.uid))
}

fn generation(lease: &Lease) -> i64 {
    lease
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(GENERATION))
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

fn has_expired(spec: &LeaseSpec, now: Timestamp) -> bool {
    let seconds = i64::from(spec.lease_duration_seconds.unwrap_or(DURATION_SECONDS));
    spec.renew_time
        .as_ref()
        .is_none_or(|renewed| now.duration_since(renewed.0) > SignedDuration::from_secs(seconds))
}

/// Takes the Lease, or renews it.
pub async fn claim(
    client: &Client,
    namespace: &str,
    claim: &Claim,
    is_dead: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    let failed = |source| Error::Api {
        name: claim.name.clone(),
        source,
    };
    let existing = api.get_opt(&claim.name).await.map_err(failed)?;
    let now = Timestamp::now();
    match judge(existing.as_ref(), claim, now, is_dead) {
        Verdict::Fenced(latest) => Err(Error::Fenced {
            name: claim.name.clone(),
            own: claim.generation,
            latest,
        }),
        Verdict::Held => Err(Error::Held {
            name: claim.name.clone(),
            holder: existing
                .and_then(|lease| lease.spec?.holder_identity)
                .unwrap_or_default(),
        }),
        Verdict::Renew | Verdict::Take => {
            let lease = held(existing.as_ref(), claim, now);
            let written = if existing.is_some() {
                api.replace(&claim.name, &PostParams::default(), &lease)
                    .await
            } else {
                api.create(&PostParams::default(), &lease).await
            };
            written.map(drop).map_err(failed)
        }
    }
}

/// Gives the Lease up, if it is held. The generation stays as a fence.
pub async fn release(client: &Client, namespace: &str, claim: &Claim) -> Result<(), Error> {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    let failed = |source| Error::Api {
        name: claim.name.clone(),
        source,
    };
    let Some(mut lease) = api.get_opt(&claim.name).await.map_err(failed)? else {
        return Ok(());
    };
    let Some(spec) = lease
        .spec
        .as_mut()
        .filter(|spec| spec.holder_identity.as_deref() == Some(&claim.holder))
    else {
        return Ok(());
    };
    spec.holder_identity = None;
    api.replace(&claim.name, &PostParams::default(), &lease)
        .await
        .map(drop)
        .map_err(failed)
}

fn held(existing: Option<&Lease>, claim: &Claim, now: Timestamp) -> Lease {
    let before = existing.and_then(|lease| lease.spec.as_ref());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own(generation: i64) -> Claim {
        Claim {
            name: "cluster-first".to_owned(),
            holder: "me".to_owned(),
            generation,
            owner: None,
        }
    }

    fn lease(holder: &str, generation: i64, renewed: i64) -> Lease {
        let other = Claim {
            holder: holder.to_owned(),
            ..own(generation)
        };
        held(None, &other, Timestamp::from_second(renewed).unwrap())
    }

    #[test]
    fn a_claim_is_judged_by_holder_age_and_generation() {
        let now = Timestamp::from_second(1000).unwrap();
        for (name, lease, is_dead, expected) in [
            ("no lease", None, false, Verdict::Take),
            ("own", Some(lease("me", 2, 999)), false, Verdict::Renew),
            (
                "own, expired",
                Some(lease("me", 2, 1)),
                false,
                Verdict::Renew,
            ),
            ("held", Some(lease("other", 2, 990)), false, Verdict::Held),
            (
                "expired",
                Some(lease("other", 2, 969)),
                false,
                Verdict::Take,
            ),
            (
                "at its end",
                Some(lease("other", 2, 970)),
                false,
                Verdict::Held,
            ),
            ("dead", Some(lease("other", 2, 990)), true, Verdict::Take),
            ("given up", Some(lease("", 2, 990)), false, Verdict::Take),
            (
                "older, given up",
                Some(lease("", 1, 990)),
                false,
                Verdict::Take,
            ),
            (
                "newer",
                Some(lease("other", 3, 1)),
                true,
                Verdict::Fenced(3),
            ),
            (
                "newer, given up",
                Some(lease("", 3, 1)),
                false,
                Verdict::Fenced(3),
            ),
        ] {
            let verdict = judge(lease.as_ref(), &own(2), now, |_| is_dead);
            assert_eq!(verdict, expected, "{name}");
        }
    }

    #[test]
    fn the_generations_of_another_owner_fence_nobody() {
        let of = |uid: &str, generation| Claim {
            owner: Some(OwnerReference {
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }),
            ..own(generation)
        };
        let lease = held(None, &of("old", 7), Timestamp::from_second(990).unwrap());
        for (now, uid, expected) in [
            (1000, "old", Verdict::Fenced(7)),
            // Whoever holds it may still work.
            (1000, "new", Verdict::Held),
            (1021, "new", Verdict::Take),
        ] {
            let now = Timestamp::from_second(now).unwrap();
            let claim = Claim {
                holder: "another".to_owned(),
                ..of(uid, 2)
            };
            let verdict = judge(Some(&lease), &claim, now, |_| false);
            assert_eq!(verdict, expected, "{uid} at {now}");
            if verdict == Verdict::Take {
                let taken = held(Some(&lease), &claim, now);
                let older = Claim {
                    generation: 1,
                    ..claim
                };
                assert_eq!(
                    judge(Some(&taken), &older, now, |_| true),
                    Verdict::Fenced(2)
                );
            }
        }
    }

    #[test]
    fn a_new_holder_counts_as_a_transition_and_a_renewal_does_not() {
        let first = lease("other", 1, 10);
        let taken = held(Some(&first), &own(2), Timestamp::from_second(20).unwrap());
        let renewed = held(Some(&taken), &own(2), Timestamp::from_second(30).unwrap());
        let spec = |lease: &Lease| lease.spec.clone().unwrap();
        assert_eq!(spec(&taken).lease_transitions, Some(2));
        assert_eq!(spec(&renewed).lease_transitions, Some(2));
        assert_eq!(spec(&renewed).acquire_time, spec(&taken).acquire_time);
        assert_eq!(generation(&renewed), 2);
    }
}
