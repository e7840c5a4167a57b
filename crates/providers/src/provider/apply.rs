//! Carries a decision out: writes only, no decisions.
//!
//! The finalizer comes first, so that nothing is begun that deletion would not see.

use std::time::Duration;

use api::{
    Run,
    provider::{FINALIZER, Kind, Provider},
};
use clusterctl::Version;
use controller::{Outcome, Until, backoff::jittered, finalizer};
use jiff::Timestamp;
use kube::{Api, Resource, ResourceExt};
use runs::object;

use super::{Context, Decision, Error, NewRun, Observed, observe};
use crate::{fetch::Failure, names::MANAGER};

/// How often ConfigMaps and Secrets are looked at that a provider waits for.
const PARTS_LOOK: Duration = Duration::from_secs(10);
/// How soon a provider goes on whose release was brought.
const FETCHED_LOOK: Duration = Duration::from_millis(50);
/// How often health is looked at: of what is well, and of what is not.
const HEALTH_LOOK: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(5));
/// And of what is well, where every change of it is told: what no watch tells is whether webhooks are reached.
const WATCHED_LOOK: Duration = Duration::from_hours(1);

/// What was done. Only `apply` makes it.
#[derive(Clone, Debug)]
pub struct Applied {
    decision: Decision,
    run: Option<Run>,
    fetched: Option<Result<Version, String>>,
}

impl Applied {
    #[cfg(test)]
    pub(super) fn of(decision: Decision, run: Option<Run>) -> Self {
        Self {
            decision,
            run,
            fetched: None,
        }
    }

    /// The decision that was carried out.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The run that stands for it, as stored.
    pub const fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// The version that was brought, or why none was.
    pub const fn fetched(&self) -> Option<&Result<Version, String>> {
        self.fetched.as_ref()
    }
}

pub(super) async fn apply<K: Kind>(
    provider: &Provider<K>,
    decision: Decision,
    observed: &Observed,
    context: &Context<K>,
) -> Result<Outcome<Applied>, Error> {
    if provider.meta().deletion_timestamp.is_none() {
        keep(provider, context).await?;
    }
    let client = &context.client;
    let mut fetched = None;
    let (run, until) = match &decision {
        Decision::Start(new) => (Some(start(provider, new, context).await?), Until::Changed),
        Decision::Follow(run) => (Some((**run).clone()), Until::Changed),
        Decision::Supersede(run, digest) => {
            object::supersede(client, run, digest)
                .await
                .map_err(|source| Error::Api("supersede the run", source))?;
            (Some((**run).clone()), Until::Changed)
        }
        Decision::Cancel(run) => {
            object::cancel(client, run, "deletion of the provider")
                .await
                .map_err(Error::Control)?;
            (Some((**run).clone()), Until::Changed)
        }
        Decision::Fetch(wanted) => {
            let brought = context.fetcher.bring(client, provider, wanted).await;
            let brought = brought.map_err(|source| Error::Api("keep the release", source))?;
            let look = brought.as_ref().err().map_or(FETCHED_LOOK, Failure::pause);
            fetched = Some(brought.map_err(|failure| failure.problem.to_string()));
            (None, Until::Elapsed(look))
        }
        Decision::Keep(run) => {
            let look = health_look(observed);
            (Some((**run).clone()), Until::Elapsed(jittered(look)))
        }
        // Who is first is seen by nobody else: the other one may go.
        Decision::Stall(_)
        | Decision::Await(_)
        | Decision::AwaitParts(..)
        | Decision::Stick(_)
        | Decision::Refuse(_) => (None, Until::Elapsed(jittered(PARTS_LOOK))),
        Decision::Forget => {
            forget(provider, context).await?;
            (None, Until::Changed)
        }
    };
    let applied = Applied {
        decision,
        run,
        fetched,
    };
    Ok(Outcome::Waiting { applied, until })
}

/// For how long it may be left alone where every change of it is told: until a certificate is to be renewed, at the latest.
pub(super) fn told_until(renewed_from: Option<Timestamp>, now: Timestamp) -> Duration {
    let left = renewed_from.map(|from| from.duration_since(now));
    let left = left.map(|left| Duration::try_from(left).unwrap_or_default());
    left.map_or(WATCHED_LOOK, |left| left.clamp(HEALTH_LOOK.0, WATCHED_LOOK))
}

/// How soon it is looked at again how it stands.
pub(super) fn health_look(observed: &Observed) -> Duration {
    let health = observed
        .health
        .as_ref()
        .and_then(|health| health.as_ref().ok());
    match health.filter(|health| health.is_well() && observed.drifted.is_empty()) {
        Some(health) => {
            let longest = observed.told_until.unwrap_or(HEALTH_LOOK.0);
            let again = health.webhooks.again;
            again.map_or(longest, |again| again.min(HEALTH_LOOK.0))
        }
        None => HEALTH_LOOK.1,
    }
}

async fn start<K: Kind>(
    provider: &Provider<K>,
    new: &NewRun,
    context: &Context<K>,
) -> Result<Run, Error> {
    let generation = provider.meta().generation.unwrap_or_default();
    let run = object::of(
        provider,
        new.name.clone(),
        new.operation.name(),
        generation,
        new.plan.clone(),
    );
    object::store(&context.client, MANAGER, run)
        .await
        .map_err(|source| Error::Api("store the run", source))
}

/// Keeps the object until what belongs to it is gone.
async fn keep<K: Kind>(provider: &Provider<K>, context: &Context<K>) -> Result<(), Error> {
    finalizer::hold(&api(provider, context), provider, FINALIZER)
        .await
        .map_err(|source| Error::Api("add the finalizer", source))
}

async fn forget<K: Kind>(provider: &Provider<K>, context: &Context<K>) -> Result<(), Error> {
    context.attention.forget(&observe::key(provider));
    finalizer::release(&api(provider, context), provider, FINALIZER)
        .await
        .map_err(|source| Error::Api("remove the finalizer", source))
}

pub(super) fn api<K: Kind>(provider: &Provider<K>, context: &Context<K>) -> Api<Provider<K>> {
    Api::namespaced(
        context.client.clone(),
        &provider.namespace().unwrap_or_default(),
    )
}
