//! What providers are made of in the cluster that has their objects: its changes wake the provider that it belongs to, so that a pod that ends
//! is told at once. What is installed in another cluster is looked at once a minute.

use api::provider::{Kind, Provider, label};
use controller::{Manager, WakeUps, Watch, manager::Registration};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    discovery::v1::EndpointSlice,
};
use kube::{
    Resource,
    api::ObjectMeta,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{health, inputs, target};

/// The watches of everything that has the label of a provider.
pub(super) struct Parts {
    deployments: Watch<Deployment>,
    sets: Watch<StatefulSet>,
    daemons: Watch<DaemonSet>,
    endpoints: Watch<EndpointSlice>,
}

impl Parts {
    pub(super) fn watch(manager: &mut Manager) -> Self {
        Self {
            deployments: manager.watch_labelled(label::PROVIDER),
            sets: manager.watch_labelled(label::PROVIDER),
            daemons: manager.watch_labelled(label::PROVIDER),
            endpoints: manager.watch_labelled(label::PROVIDER),
        }
    }

    /// Has them wake their providers.
    pub(super) fn wake<'a, K: Kind>(
        &self,
        providers: Registration<'a, Provider<K>>,
        own: &Watch<Provider<K>>,
    ) -> Registration<'a, Provider<K>> {
        let providers = providers.woken_by(
            &self.deployments,
            |one| read(one, health::deployment),
            whose(own),
        );
        let providers = providers.woken_by(
            &self.sets,
            |one| read(one, health::stateful_set),
            whose(own),
        );
        let providers = providers.woken_by(
            &self.daemons,
            |one| read(one, health::daemon_set),
            whose(own),
        );
        providers.woken_by(&self.endpoints, |one| read(one, endpoints), whose(own))
    }

    /// Has their end wake their providers.
    pub(super) fn gone_wake<K: Kind>(&self, own: &Watch<Provider<K>>, wake_ups: &WakeUps) {
        let told = || {
            let (store, wake_ups) = (own.store(), wake_ups.clone());
            move |meta: &ObjectMeta| {
                for provider in of_label(&store, meta) {
                    wake_ups.wake(&(provider.namespace.unwrap_or_default(), provider.name));
                }
            }
        };
        self.deployments.on_gone(told());
        self.sets.on_gone(told());
        self.daemons.on_gone(told());
        self.endpoints.on_gone(told());
    }
}

/// What a provider reads of a part.
fn read<P, T>(part: &DeserializeGuard<P>, of: impl FnOnce(&P) -> T) -> Option<T> {
    part.0.as_ref().ok().map(of)
}

/// Who answers, and who of them is ready to.
fn endpoints(slice: &EndpointSlice) -> Vec<(Vec<String>, Option<bool>)> {
    let endpoints = slice.endpoints.iter().map(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        let is_ready = conditions.and_then(|conditions| conditions.ready);
        (endpoint.addresses.clone(), is_ready)
    });
    let mut endpoints: Vec<_> = endpoints.collect();
    endpoints.sort();
    endpoints
}

/// From a part to the provider of this kind that it belongs to.
fn whose<K: Kind, P: controller::watch::Kind>(
    own: &Watch<Provider<K>>,
) -> impl Fn(&DeserializeGuard<P>) -> Vec<ObjectRef<DeserializeGuard<Provider<K>>>> + use<K, P> {
    let store = own.store();
    move |part| of_label(&store, part.meta())
}

fn of_label<K: Kind>(
    own: &Store<DeserializeGuard<Provider<K>>>,
    part: &ObjectMeta,
) -> Vec<ObjectRef<DeserializeGuard<Provider<K>>>> {
    let label = part
        .labels
        .as_ref()
        .and_then(|all| all.get(label::PROVIDER));
    let is_it = |meta: &ObjectMeta| {
        let name = meta.name.as_deref().unwrap_or_default();
        let provider = inputs::provider(K::TYPE, name).ok();
        let own = provider.map(|provider| provider.manifest_label());
        own.is_some() && own.as_ref() == label && target::of(meta).is_none()
    };
    let all = own.state();
    let all = all.iter().filter(|provider| is_it(provider.meta()));
    all.map(|provider| ObjectRef::from_obj(&**provider))
        .collect()
}
