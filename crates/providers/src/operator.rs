//! The controllers of the seven kinds and of sets of them, and what wakes them.

use std::sync::Arc;

use api::{
    Run,
    provider::{
        Addon, Bootstrap, ControlPlane, Core, GROUP, Infrastructure, Ipam, Kind, Provider,
        ProviderSet, ProviderStatus, RuntimeExtension,
    },
};
use controller::{Events, Manager, WakeUps, Watch, conditions, manager::Registration, reads};
use kube::{ResourceExt, core::DeserializeGuard, runtime::reflector::ObjectRef};
use runs::{operator::Place, subject::OfGroup};

use crate::{
    attention::Attention,
    fetch::{self, Fetcher},
    provider::{self, All, Context},
    set,
    webhooks::Memory,
};

/// How the operator works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where runners are.
    pub runners: Place,
    /// Where releases may be brought from.
    pub fetch: fetch::Policy,
    /// Whether the API can run what providers are made of: the embedded one cannot.
    pub runs_pods: bool,
}

/// Has the manager work on providers, sets of them, and their runs. Runners go on without it.
pub fn operate(manager: &mut Manager, options: Options) {
    operate_kinds(manager, &options);
    operate_sets(manager);
    runs::operate(manager, options.runners, OfGroup(GROUP));
}

/// Has the manager decide which runs providers need, and tell how they stand.
pub fn operate_kinds(manager: &mut Manager, options: &Options) {
    let all = Arc::new(All {
        core: manager.watch::<Provider<Core>>().store(),
        bootstrap: manager.watch::<Provider<Bootstrap>>().store(),
        control_plane: manager.watch::<Provider<ControlPlane>>().store(),
        infrastructure: manager.watch::<Provider<Infrastructure>>().store(),
        ipam: manager.watch::<Provider<Ipam>>().store(),
        runtime_extension: manager.watch::<Provider<RuntimeExtension>>().store(),
        addon: manager.watch::<Provider<Addon>>().store(),
    });
    let shared = Shared {
        all,
        attention: Attention::default(),
        fetcher: Arc::new(Fetcher::new(options.fetch.clone())),
        runs_pods: options.runs_pods,
    };
    of_kind::<Core>(manager, &shared);
    of_kind::<Bootstrap>(manager, &shared);
    of_kind::<ControlPlane>(manager, &shared);
    of_kind::<Infrastructure>(manager, &shared);
    of_kind::<Ipam>(manager, &shared);
    of_kind::<RuntimeExtension>(manager, &shared);
    of_kind::<Addon>(manager, &shared);
}

/// Has the manager work on sets of providers. A set is woken by every provider: which are its own is seen by where they are installed.
pub fn operate_sets(manager: &mut Manager) {
    let own = manager.watch::<ProviderSet>();
    let core = manager.watch::<Provider<Core>>();
    let bootstrap = manager.watch::<Provider<Bootstrap>>();
    let control_plane = manager.watch::<Provider<ControlPlane>>();
    let infrastructure = manager.watch::<Provider<Infrastructure>>();
    let ipam = manager.watch::<Provider<Ipam>>();
    let runtime_extension = manager.watch::<Provider<RuntimeExtension>>();
    let addon = manager.watch::<Provider<Addon>>();
    let client = manager.client().clone();
    // The second set of a namespace is the only one then, and releases come and go.
    let wake_ups = WakeUps::default();
    let context = Arc::new(set::Context {
        client: client.clone(),
        sets: own.store(),
        runs: manager.watch::<Run>().store(),
        events: Events::new(client, "provider-set"),
        attention: Attention::default(),
        wake_ups: wake_ups.clone(),
    });
    own.gone_wakes(&own, &wake_ups);
    let sets = manager.controller(&own, reads::wish);
    let sets = woken(sets, &core, &own);
    let sets = woken(sets, &bootstrap, &own);
    let sets = woken(sets, &control_plane, &own);
    let sets = woken(sets, &infrastructure, &own);
    let sets = woken(sets, &ipam, &own);
    let sets = woken(sets, &runtime_extension, &own);
    woken(sets, &addon, &own)
        .woken_on(&wake_ups, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(set::reconcile, context);
}

fn woken<'a, K: Kind>(
    sets: Registration<'a, ProviderSet>,
    providers: &Watch<Provider<K>>,
    own: &Watch<ProviderSet>,
) -> Registration<'a, ProviderSet> {
    let own = own.clone();
    sets.woken_by(providers, standing, move |_| own.in_all())
}

/// What a set reads of a provider, but for what its runs tell on their way.
fn standing<K: Kind>(provider: &DeserializeGuard<Provider<K>>) -> impl PartialEq + Send + use<K> {
    let provider = provider.0.as_ref().ok();
    let meta = provider.map(|provider| &provider.metadata);
    let status = provider.and_then(|provider| provider.status.clone());
    let status = status.unwrap_or_default();
    let conditions = status.conditions.into_iter();
    (
        meta.and_then(|meta| meta.generation),
        meta.and_then(|meta| meta.annotations.clone()),
        status.observed_generation,
        status.installed_version,
        conditions
            .map(|condition| (condition.type_, condition.status, condition.reason))
            .collect::<Vec<_>>(),
    )
}

/// What the controllers of all kinds share.
struct Shared {
    all: Arc<All>,
    attention: Attention,
    fetcher: Arc<Fetcher>,
    runs_pods: bool,
}

fn of_kind<K: Kind>(manager: &mut Manager, shared: &Shared) {
    let own = manager.watch::<Provider<K>>();
    let core = manager.watch::<Provider<Core>>();
    let runs = manager.watch::<Run>();
    let client = manager.client().clone();
    // A run that was deleted, a provider of that name that was there first, what a provider is made of.
    let wake_ups = WakeUps::default();
    let context = Arc::new(Context {
        client: client.clone(),
        own: own.store(),
        all: Arc::clone(&shared.all),
        runs: runs.store(),
        events: Events::new(client, "provider"),
        fetcher: Arc::clone(&shared.fetcher),
        webhooks: Memory::default(),
        attention: shared.attention.clone(),
        wake_ups: wake_ups.clone(),
        runs_pods: shared.runs_pods,
    });
    runs.gone_wakes(&own, &wake_ups);
    own.gone_wakes(&own, &wake_ups);
    let every = own.clone();
    manager
        .controller(&own, reads::wish)
        .woken_by(&runs, progress, subject)
        .woken_by(&core, readiness, move |_| everywhere(&every))
        .woken_on(&wake_ups, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(provider::reconcile, context);
}

fn everywhere<K: Kind>(own: &Watch<Provider<K>>) -> Vec<ObjectRef<DeserializeGuard<Provider<K>>>> {
    own.store()
        .state()
        .iter()
        .map(|object| ObjectRef::from_obj(&**object))
        .collect()
}

/// What others wait for: that it is ready, and the contract that it keeps.
fn readiness(core: &DeserializeGuard<Provider<Core>>) -> (bool, Option<String>) {
    let status = core.0.as_ref().ok().and_then(|core| core.status.as_ref());
    let is_ready =
        |status: &ProviderStatus| conditions::is_true(&status.conditions, conditions::READY);
    (
        status.is_some_and(is_ready),
        status.and_then(|status| status.contract.clone()),
    )
}

/// What a provider tells of its run. A retry may fail at the same step for another reason, and nobody have seen it at work in between.
fn progress(run: &DeserializeGuard<Run>) -> String {
    let status = run.0.as_ref().ok().and_then(|run| run.status.as_ref());
    status
        .map(|status| {
            let failure = status.failure.as_ref();
            let failure = failure.map(|failure| (&failure.code, &failure.message));
            format!("{:?} {:?} {failure:?}", status.phase, status.step)
        })
        .unwrap_or_default()
}

/// The provider of this kind that a run is of.
fn subject<K: Kind>(
    run: &DeserializeGuard<Run>,
) -> Option<ObjectRef<DeserializeGuard<Provider<K>>>> {
    let run = run.0.as_ref().ok()?;
    if !run.spec.subject.is_a::<Provider<K>>() {
        return None;
    }
    Some(ObjectRef::new(&run.spec.subject.name).within(&run.namespace()?))
}
