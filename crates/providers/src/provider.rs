//! The reconciler of a provider: decides that a run is needed, and tells how the provider stands.
//!
//! How far a run got is the runner's business. At rest nothing is written, and in the cluster that has the objects nothing is asked: what a
//! provider is made of and from is watched ([`Attention`]), and looked at when it changes, and once an hour. What is installed in another
//! cluster, or may not be watched, is looked at once a minute. Webhooks are asked when their answer may have changed.

use std::sync::Arc;

use api::{
    Run,
    provider::{
        Addon, Bootstrap, ControlPlane, Core, Infrastructure, Ipam, Kind, Provider,
        RuntimeExtension,
    },
};
use clusterctl::Version;
use controller::{Events, Outcome, WakeUps, stream::readable};
use futures::FutureExt;
use kube::{
    Client, ResourceExt,
    api::ObjectMeta,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};
use runs::history;

use crate::{
    attention::Attention,
    check::Other,
    fetch::{self, Fetcher},
    target::{self, Place},
    webhooks::Memory,
};

mod apply;
mod observe;
pub(crate) mod past;
mod plan;
mod report;

pub use apply::Applied;
pub use observe::Observed;
pub use plan::{Decision, NewRun, plan};

/// What the passes over the providers of one kind share.
pub struct Context<K: Kind> {
    /// The API.
    pub client: Client,
    /// The providers of this kind.
    pub own: Store<DeserializeGuard<Provider<K>>>,
    /// All providers.
    pub all: Arc<All>,
    /// Their runs.
    pub runs: Store<DeserializeGuard<Run>>,
    /// What happened.
    pub events: Events,
    /// Brings releases over the network.
    pub fetcher: Arc<Fetcher>,
    /// What webhooks have answered.
    pub webhooks: Memory,
    /// Watches what they are made of.
    pub attention: Attention,
    /// What wakes those of this kind.
    pub wake_ups: WakeUps,
    /// Whether the API that has the objects can also run what they are made of: the embedded one cannot.
    pub runs_pods: bool,
}

/// The providers of all kinds, as they were seen last.
pub struct All {
    /// Of each kind.
    pub core: Store<DeserializeGuard<Provider<Core>>>,
    /// Of each kind.
    pub bootstrap: Store<DeserializeGuard<Provider<Bootstrap>>>,
    /// Of each kind.
    pub control_plane: Store<DeserializeGuard<Provider<ControlPlane>>>,
    /// Of each kind.
    pub infrastructure: Store<DeserializeGuard<Provider<Infrastructure>>>,
    /// Of each kind.
    pub ipam: Store<DeserializeGuard<Provider<Ipam>>>,
    /// Of each kind.
    pub runtime_extension: Store<DeserializeGuard<Provider<RuntimeExtension>>>,
    /// Of each kind.
    pub addon: Store<DeserializeGuard<Provider<Addon>>>,
}

impl All {
    /// All of them; None: not all kinds have been read yet, and one that is there could be missing.
    pub fn list(&self, runs: &Store<DeserializeGuard<Run>>) -> Option<Vec<Other>> {
        runs.wait_until_ready().now_or_never()?.ok()?;
        let runs = runs.state();
        let runs: Vec<_> = runs.iter().filter_map(|run| run.0.as_ref().ok()).collect();
        let Self {
            core,
            bootstrap,
            control_plane,
            infrastructure,
            ipam,
            runtime_extension,
            addon,
        } = self;
        let lists = [
            of(core, &runs)?,
            of(bootstrap, &runs)?,
            of(control_plane, &runs)?,
            of(infrastructure, &runs)?,
            of(ipam, &runs)?,
            of(runtime_extension, &runs)?,
            of(addon, &runs)?,
        ];
        Some(lists.into_iter().flatten().collect())
    }
}

fn of<K: Kind>(store: &Store<DeserializeGuard<Provider<K>>>, runs: &[&Run]) -> Option<Vec<Other>> {
    store.wait_until_ready().now_or_never()?.ok()?;
    let others = store.state().into_iter().map(|object| {
        let meta = match &object.0 {
            Ok(provider) => &provider.metadata,
            Err(invalid) => &invalid.metadata,
        };
        let status = object
            .0
            .as_ref()
            .ok()
            .and_then(|provider| provider.status.as_ref());
        let installed = status.and_then(|status| status.installed_version.as_deref());
        let installed: Option<Version> = installed.and_then(|version| version.parse().ok());
        let wanted: Option<Version> = object.0.as_ref().ok().and_then(fetch::version);
        Other {
            provider: K::TYPE,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            place: place(meta, runs),
            created: meta.creation_timestamp.clone(),
            is_ready: status.is_some_and(|status| {
                controller::conditions::is_true(&status.conditions, controller::conditions::READY)
            }),
            is_moving: installed.is_some() && wanted.is_some() && installed != wanted,
            installed,
            contract: status
                .and_then(|status| status.contract.as_deref())
                .and_then(|contract| contract.parse().ok()),
        }
    });
    Some(others.collect())
}

/// Where a provider is installed: where its runs, among these, have written, or else where its annotation leads.
fn place(meta: &ObjectMeta, runs: &[&Run]) -> Place {
    let own = past::of(
        runs.iter().copied(),
        meta.uid.as_deref().unwrap_or_default(),
    );
    let Some(there) = past::place(own) else {
        return target::of(meta);
    };
    let namespace = meta.namespace.clone().unwrap_or_default();
    there.target.map(|secret| (namespace, secret))
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(&'static str, #[source] kube::Error),
    /// Something could not be applied.
    #[error("apply")]
    Apply(#[source] controller::apply::Error),
    /// A run could not be steered.
    #[error("end the run")]
    Control(#[source] runs::control::Error),
    /// A plan could not be made.
    #[error("make a plan")]
    Plan(#[source] serde_json::Error),
}

/// One pass.
///
/// # Errors
///
/// The API refuses or does not answer. What is wrong with the provider is no error: its status says it.
pub async fn reconcile<K: Kind>(
    object: Arc<DeserializeGuard<Provider<K>>>,
    context: Arc<Context<K>>,
) -> Result<Action, Error> {
    let Some(provider) = readable(&object) else {
        return Ok(Action::await_change());
    };
    let Some(observed) = observe::observe(provider, &context).await? else {
        return Ok(Action::requeue(UNTIL_READ));
    };
    let decision = plan(provider, &observed).map_err(Error::Plan)?;
    let outcome = apply::apply(provider, decision, &observed, &context).await?;
    report::publish(provider, outcome.applied(), &observed, &context).await?;
    if provider.metadata.deletion_timestamp.is_none() {
        // It tells where something is, and of which version.
        let written = observed.runs.iter().rfind(|run| past::has_written(run));
        let kept = written.map(ResourceExt::name_any).into_iter().collect();
        history::keep(&context.client, &observed.runs, &kept)
            .await
            .map_err(|source| Error::Api("remove a run that was kept long enough", source))?;
    }
    Ok(Outcome::action(&outcome))
}

/// How soon a pass is tried again that began before the stores were read.
const UNTIL_READ: std::time::Duration = std::time::Duration::from_millis(50);

#[cfg(test)]
mod tests;
