//! One watch a kind, shared by every controller of the process.
//!
//! Objects come as [`DeserializeGuard`], so that one broken object cannot stop a list; managedFields are dropped before they
//! are kept. What a watch delivers goes into a store that everybody reads and to every subscriber; nothing moves unless
//! [`Shared::drive`] is polled beside the controllers.

use std::{
    fmt::Debug,
    hash::Hash,
    sync::Arc,
    task::{Context, Wake, Waker},
};

use futures::{Stream, StreamExt, future};
use kube::{
    Api, Resource, ResourceExt,
    api::ObjectMeta,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, ReflectHandle, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc,
    time::{Duration, Instant, sleep},
};

/// How many events wait for a slow subscriber before the watch waits for it.
const BUFFER: usize = 1024;
/// How long a pass waits for its own write to be seen.
const LAG: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A kind's objects as one watch delivers them.
pub struct Shared<K>
where
    K: Resource + Clone + Debug + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    store: Store<DeserializeGuard<K>>,
    writer: reflector::store::Writer<DeserializeGuard<K>>,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
}

impl<K> Shared<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Prepares the watch; [`Shared::drive`] runs it.
    pub fn new(api: Api<DeserializeGuard<K>>) -> Self {
        let (store, writer) = reflector::store_shared(BUFFER);
        Self {
            store,
            writer,
            api,
            config: watcher::Config::default(),
        }
    }

    /// As [`Shared::new`], for the objects with these labels alone.
    pub fn labelled(api: Api<DeserializeGuard<K>>, selector: &str) -> Self {
        Self {
            config: watcher::Config::default().labels(selector),
            ..Self::new(api)
        }
    }

    /// The objects as they were seen last.
    pub fn store(&self) -> Store<DeserializeGuard<K>> {
        self.store.clone()
    }

    /// The objects as they change. Subscribe before the watch is driven.
    pub fn subscribe(
        &self,
    ) -> Option<impl Stream<Item = Arc<DeserializeGuard<K>>> + Send + use<K>> {
        self.writer.subscribe().map(awake)
    }

    /// Runs the watch for as long as it is polled; errors are logged and tried again with back-off.
    pub fn drive(self) -> impl Future<Output = ()> + Send {
        self.drive_telling(|_| ())
    }

    /// As [`Shared::drive`], and tells of each object that goes: subscribers see only what is there, so the end of an object
    /// without a finalizer would wake nobody.
    pub fn drive_telling(
        self,
        gone: impl Fn(&ObjectMeta) + Send + Sync,
    ) -> impl Future<Output = ()> + Send {
        watcher(self.api, self.config)
            .modify(|object| object.managed_fields_mut().clear())
            .reflect_shared(self.writer)
            .default_backoff()
            .for_each(move |event| {
                match event {
                    Ok(watcher::Event::Delete(object)) => gone(object.meta()),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(kind = %K::kind(&()), error = &error as &dyn std::error::Error, "watch failed, trying again");
                    }
                }
                future::ready(())
            })
    }
}

/// A subscription that never falls asleep over an object that is gone.
///
/// kube 5.0's [`ReflectHandle`] answers Pending for an object that was deleted before it was looked at, without having asked
/// to be woken: what comes next would wait for a wake-up from elsewhere. Whether it asked shows in who holds the waker.
fn awake<K>(handle: ReflectHandle<K>) -> impl Stream<Item = Arc<K>>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let mut handle = Box::pin(handle);
    futures::stream::poll_fn(move |context| {
        loop {
            let bell = Arc::new(Bell(context.waker().clone()));
            let waker = Waker::from(Arc::clone(&bell));
            let polled = handle.as_mut().poll_next(&mut Context::from_waker(&waker));
            // The two that are ours, and that of whoever will ring.
            if polled.is_ready() || Arc::strong_count(&bell) > 2 {
                return polled;
            }
        }
    })
}

/// A waker that passes the call on.
struct Bell(Waker);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

/// Passes an object on only when `key` of it is another than when it was passed on last.
///
/// kube's predicates keep a hash; a hash of what a reconciler reads is all that is needed here too, so `key` may be one.
pub fn changed<K, T, S>(
    stream: S,
    key: impl Fn(&K) -> T + Send + 'static,
) -> impl Stream<Item = Arc<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    T: PartialEq + Send + 'static,
    S: Stream<Item = Arc<K>> + Send + 'static,
{
    let mut seen = std::collections::HashMap::<(Option<String>, Option<String>), T>::new();
    stream.filter_map(move |object| {
        let meta = object.meta();
        let identity = (meta.namespace.clone(), meta.uid.clone());
        let key = key(&object);
        let pass = seen.get(&identity) != Some(&key);
        if meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty) {
            seen.remove(&identity);
        } else if pass {
            seen.insert(identity, key);
        }
        future::ready(pass.then_some(object))
    })
}

/// Waits until a store shows an object in this version or a newer one. A pass that began with an older one would take what the
/// pass before it wrote for never written.
///
/// Not longer than a second: a watch that is further behind is broken.
pub async fn await_version<K>(
    store: &Store<DeserializeGuard<K>>,
    object: &ObjectRef<DeserializeGuard<K>>,
    version: &str,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    let deadline = Instant::now() + LAG;
    let is_behind = || {
        let seen = store.get(object)?;
        let seen = seen.meta().resource_version.as_deref()?;
        Some(is_older(seen, version))
    };
    while is_behind() == Some(true) && Instant::now() < deadline {
        sleep(LOOK_AGAIN).await;
    }
}

/// Versions are numbers that grow, by the rule of Kubernetes since 1.35 and before it by what every API server does.
fn is_older(seen: &str, version: &str) -> bool {
    match (seen.parse::<u64>(), version.parse::<u64>()) {
        (Ok(seen), Ok(version)) => seen < version,
        _ => seen != version,
    }
}

/// What comes through a channel, as a stream that wakes a controller.
pub fn received<T: Send + 'static>(
    receiver: mpsc::UnboundedReceiver<T>,
) -> impl Stream<Item = T> + Send {
    futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|item| (item, receiver))
    })
}

/// The object of a pass. None, told in the log: what is stored is not what its kind has, as where a newer Windlass wrote it, and the next
/// change of it is awaited.
pub fn readable<K: Resource<DynamicType = ()>>(object: &DeserializeGuard<K>) -> Option<&K> {
    match &object.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let (kind, name) = (K::kind(&()), invalid.metadata.name.as_deref());
            tracing::warn!(%kind, name, error = %invalid.error, "cannot be read");
            None
        }
    }
}

/// The valid objects of one namespace.
pub fn in_namespace<K>(
    store: &Store<DeserializeGuard<K>>,
    namespace: &str,
) -> Vec<Arc<DeserializeGuard<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    store.state_filter(|object| object.meta().namespace.as_deref() == Some(namespace))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn event(version: &str) -> watcher::Event<DeserializeGuard<ConfigMap>> {
        let meta = ObjectMeta {
            name: Some("one".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        watcher::Event::Apply(DeserializeGuard(Ok(ConfigMap {
            metadata: meta,
            ..ConfigMap::default()
        })))
    }

    #[tokio::test]
    async fn a_pass_ends_when_its_own_write_is_seen() {
        let (store, mut writer) = reflector::store();
        let object = ObjectRef::new("one");
        writer.apply_watcher_event(&event("9"));
        let mut wait = Box::pin(await_version(&store, &object, "10"));
        assert_eq!((&mut wait).now_or_never(), None);
        writer.apply_watcher_event(&event("11"));
        wait.await;
        await_version(&store, &ObjectRef::new("gone"), "10").await;
    }
}
