//! The watch of a kind, as the domains of a process share it.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, future::Either};
use kube::{
    Resource,
    api::ObjectMeta,
    core::{DeserializeGuard, NamespaceResourceScope},
    runtime::reflector::{ObjectRef, Store},
};
use serde::de::DeserializeOwned;

use crate::{
    stream::{self, Shared},
    wake::WakeUps,
};

/// A kind of objects that can be watched.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Is told of objects that are gone.
type Listener = Box<dyn Fn(&ObjectMeta) + Send + Sync>;

/// A kind's objects as one watch delivers them. Clones are the same watch.
#[derive(Clone)]
pub struct Watch<K: Kind> {
    store: Store<DeserializeGuard<K>>,
    /// None once it is driven.
    shared: Arc<Mutex<Option<Shared<K>>>>,
    gone: Arc<Mutex<Vec<Listener>>>,
}

impl<K: Kind> Watch<K> {
    pub(crate) fn new(shared: Shared<K>) -> Self {
        Self {
            store: shared.store(),
            shared: Arc::new(Mutex::new(Some(shared))),
            gone: Arc::default(),
        }
    }

    /// The objects as they were seen last.
    pub fn store(&self) -> Store<DeserializeGuard<K>> {
        self.store.clone()
    }

    /// Tells of each object that goes: controllers see only what is there, so the end of an object without a finalizer would
    /// wake nobody.
    pub fn on_gone(&self, listener: impl Fn(&ObjectMeta) + Send + Sync + 'static) {
        lock(&self.gone).push(Box::new(listener));
    }

    /// The objects of one namespace, to be woken.
    pub fn in_namespace(&self, namespace: Option<&str>) -> Vec<ObjectRef<DeserializeGuard<K>>> {
        stream::in_namespace(&self.store, namespace.unwrap_or_default())
            .iter()
            .map(|object| ObjectRef::from_obj(&**object))
            .collect()
    }

    /// All objects, to be woken.
    pub fn in_all(&self) -> Vec<ObjectRef<DeserializeGuard<K>>> {
        let all = self.store.state();
        all.iter()
            .map(|object| ObjectRef::from_obj(&**object))
            .collect()
    }

    /// From an object of any kind to those of this one that are in its namespace, to be woken.
    pub fn in_namespace_of<O: Kind>(
        &self,
    ) -> impl Fn(&DeserializeGuard<O>) -> Vec<ObjectRef<DeserializeGuard<K>>> + use<K, O> {
        let watch = self.clone();
        move |object| watch.in_namespace(object.meta().namespace.as_deref())
    }

    /// Has the end of an object wake the others of its namespace.
    pub fn gone_wakes<O: Kind>(&self, others: &Watch<O>, wake_ups: &WakeUps) {
        let (others, wake_ups) = (others.clone(), wake_ups.clone());
        self.on_gone(move |meta| {
            for other in others.in_namespace(meta.namespace.as_deref()) {
                wake_ups.wake(&(other.namespace.unwrap_or_default(), other.name));
            }
        });
    }

    /// The objects as they change; nothing more comes for who asks when the watch is driven already.
    pub(crate) fn subscribe(&self) -> impl Stream<Item = Arc<DeserializeGuard<K>>> + Send + use<K> {
        match lock(&self.shared).as_ref().and_then(Shared::subscribe) {
            Some(objects) => Either::Left(objects),
            None => Either::Right(futures::stream::empty()),
        }
    }

    /// Runs the watch for as long as it is polled.
    pub(crate) async fn drive(self) {
        let Some(shared) = lock(&self.shared).take() else {
            return;
        };
        let gone = self.gone;
        shared
            .drive_telling(move |meta| lock(&gone).iter().for_each(|listener| listener(meta)))
            .await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
