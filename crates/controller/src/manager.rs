//! Operators of several kinds in one process: one watch a kind, a controller on each that has one, and one end.
//!
//! Every domain registers its controllers with the same manager, so that a kind which two of them look at, as Runs, is watched
//! once. Nothing is seen and nothing works before [`Manager::run`].

use std::{
    any::{Any, TypeId},
    sync::Arc,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use kube::{
    Api, Client, Resource,
    api::ObjectMeta,
    core::DeserializeGuard,
    runtime::{
        Controller,
        controller::{Action, Config},
        reflector::ObjectRef,
    },
};

use crate::{
    BackOff, Metrics, Shutdown,
    stream::{self, Shared},
    wake::{Key, WakeUps},
    watch::{Kind, Watch},
};

/// How the controllers of a process work.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The one namespace that is watched. None: all.
    pub namespace: Option<String>,
    /// How many objects of a kind are worked on at once.
    pub concurrency: u16,
    /// Where passes are counted and objects can be seen.
    pub metrics: Metrics,
    /// When to stop.
    pub shutdown: Shutdown,
}

/// Why an operator ended that nobody told to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the watches ended: nothing would be seen any more; start Windlass again")]
pub struct WatchesEnded;

/// The watches and controllers of a process.
pub struct Manager {
    client: Client,
    settings: Settings,
    watches: Vec<Known>,
    controllers: FuturesUnordered<BoxFuture<'static, ()>>,
    beside: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// A watch that there is.
struct Known {
    kind: TypeId,
    selector: Option<&'static str>,
    watch: Box<dyn Any + Send>,
    drive: Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>,
}

impl Manager {
    /// Of objects behind this client.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            watches: Vec::new(),
            controllers: FuturesUnordered::new(),
            beside: FuturesUnordered::new(),
        }
    }

    /// The API.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// How its controllers work.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The watch of a kind; it is made when the first one asks.
    pub fn watch<K: Kind>(&mut self) -> Watch<K> {
        self.watch_some(None)
    }

    /// The watch of the objects of a kind that have these labels.
    pub fn watch_labelled<K: Kind>(&mut self, selector: &'static str) -> Watch<K> {
        self.watch_some(Some(selector))
    }

    fn watch_some<K: Kind>(&mut self, selector: Option<&'static str>) -> Watch<K> {
        let kind = TypeId::of::<K>();
        let known = self.watches.iter();
        let mut known = known.filter(|known| known.kind == kind && known.selector == selector);
        if let Some(watch) = known.find_map(|known| known.watch.downcast_ref::<Watch<K>>()) {
            return watch.clone();
        }
        let api = match &self.settings.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let watch = Watch::new(match selector {
            Some(selector) => Shared::labelled(api, selector),
            None => Shared::new(api),
        });
        let driven = watch.clone();
        self.watches.push(Known {
            kind,
            selector,
            watch: Box::new(watch.clone()),
            drive: Box::new(move || Box::pin(driven.drive())),
        });
        watch
    }

    /// Begins a controller of a kind. `reads` is what it reads of its own objects: it is woken when that changes.
    pub fn controller<K: Kind, T>(
        &mut self,
        watch: &Watch<K>,
        reads: impl Fn(&DeserializeGuard<K>) -> T + Send + 'static,
    ) -> Registration<'_, K>
    where
        T: PartialEq + Send + 'static,
    {
        let config = Config::default().concurrency(self.settings.concurrency);
        let controller =
            Controller::for_shared_stream(stream::changed(watch.subscribe(), reads), watch.store())
                .with_config(config)
                .graceful_shutdown_on(self.settings.shutdown.wait());
        Registration {
            manager: self,
            controller,
        }
    }

    /// Lets something work beside the controllers. It does not end before they do.
    pub fn beside(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.beside.push(Box::pin(work));
    }

    /// Works until it is told to stop.
    ///
    /// # Errors
    ///
    /// A watch or a controller ended by itself: an operator that sees nothing must not look as if it were at work.
    pub async fn run(mut self) -> Result<(), WatchesEnded> {
        for known in self.watches {
            self.beside.push((known.drive)());
        }
        let shutdown = self.settings.shutdown;
        let told = async {
            while self.controllers.next().await.is_some() {
                // One that ended by itself takes the others along; told to stop, each ends when its passes have.
                if !shutdown.is_triggered() {
                    break;
                }
            }
        };
        tokio::select! {
            () = told => {}
            Some(()) = self.beside.next() => {}
        }
        if shutdown.is_triggered() {
            Ok(())
        } else {
            Err(WatchesEnded)
        }
    }
}

/// A controller that is being put together.
#[must_use = "it works when it has a reconciler"]
pub struct Registration<'a, K: Kind> {
    manager: &'a mut Manager,
    controller: Controller<DeserializeGuard<K>>,
}

impl<K: Kind> Registration<'_, K> {
    /// Objects of another kind wake the objects that `wakes` names, when what is `read` of them changes.
    pub fn woken_by<O: Kind, T, I>(
        mut self,
        other: &Watch<O>,
        reads: impl Fn(&DeserializeGuard<O>) -> T + Send + 'static,
        wakes: impl Fn(&DeserializeGuard<O>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        T: PartialEq + Send + 'static,
        I: IntoIterator<Item = ObjectRef<DeserializeGuard<K>>> + 'static,
        I::IntoIter: Send,
    {
        let changes = stream::changed(other.subscribe(), reads);
        self.controller = self
            .controller
            .watches_shared_stream(changes, move |object: Arc<_>| wakes(&object));
        self
    }

    /// What is woken by hand wakes the objects that `wakes` names.
    pub fn woken_on<I>(
        mut self,
        wake_ups: &WakeUps,
        wakes: impl Fn(Key) -> I + Send + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = ObjectRef<DeserializeGuard<K>>>,
        I::IntoIter: Send + 'static,
    {
        let woken = wake_ups.stream();
        let woken = woken.flat_map(move |key| futures::stream::iter(wakes(key)));
        self.controller = self.controller.reconcile_on(woken);
        self
    }

    /// Works on the objects so. A pass that failed is logged, and tried again after a while that grows with each failure in a row.
    pub fn reconcile<C, F, E>(
        self,
        reconcile: impl Fn(Arc<DeserializeGuard<K>>, Arc<C>) -> F + Send + Sync + 'static,
        context: Arc<C>,
    ) where
        C: Send + Sync + 'static,
        F: Future<Output = Result<Action, E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let Self {
            manager,
            controller,
        } = self;
        let kind: &'static str = kind_of::<K>();
        let back_off = Arc::new(BackOff::default());
        let passes = Arc::clone(&back_off);
        let pass = move |object: Arc<DeserializeGuard<K>>, context| {
            let (pass, back_off) = (reconcile(Arc::clone(&object), context), Arc::clone(&passes));
            async move {
                let ended = pass.await;
                if ended.is_ok() {
                    back_off.reset(&identity(object.meta()));
                }
                ended
            }
        };
        let failed = move |object: Arc<DeserializeGuard<K>>, error: &E, _| {
            let object = identity(object.meta());
            let wait = back_off.failed(&object);
            tracing::warn!(kind, object, error = error as &dyn std::error::Error, wait = ?wait, "a pass failed, trying again");
            Action::requeue(wait)
        };
        let counted = manager.settings.metrics.passes(kind);
        let controller = controller.run(pass, failed, context).for_each(counted);
        manager.controllers.push(Box::pin(controller));
    }
}

/// The kind's name, for as long as the process: there are a few kinds.
fn kind_of<K: Kind>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(kind) => Box::leak(kind.into_boxed_str()),
    }
}

fn identity(meta: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{metrics::Metrics, reads};

    fn manager(shutdown: &Shutdown) -> Manager {
        // Nothing answers: what a manager does by itself needs no API.
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
            pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        });
        let settings = Settings {
            namespace: None,
            concurrency: 1,
            metrics: Metrics::default(),
            shutdown: shutdown.clone(),
        };
        Manager::new(Client::new(nobody, "default"), settings)
    }

    #[tokio::test]
    async fn an_operator_that_sees_nothing_any_more_ends_with_an_error() {
        let shutdown = Shutdown::default();
        let mut blind = manager(&shutdown);
        blind.controllers.push(pending().boxed());
        blind.beside(ready(()));
        assert_eq!(blind.run().await, Err(WatchesEnded));
        // Controllers end with their watches.
        let mut idle = manager(&shutdown);
        idle.controllers.push(pending().boxed());
        idle.controllers.push(ready(()).boxed());
        idle.beside(pending());
        assert_eq!(idle.run().await, Err(WatchesEnded));
    }

    #[tokio::test]
    async fn controllers_end_when_they_are_told_to() {
        let shutdown = Shutdown::default();
        let mut manager = manager(&shutdown);
        for _ in 0..2 {
            manager.controllers.push(shutdown.wait().boxed());
        }
        manager.beside(pending());
        let running = tokio::spawn(manager.run());
        shutdown.trigger();
        assert_eq!(running.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn a_kind_is_watched_once_for_all_that_ask() {
        let mut manager = manager(&Shutdown::default());
        let (one, other) = (manager.watch::<ConfigMap>(), manager.watch::<ConfigMap>());
        for watch in [&one, &other] {
            manager.controller(watch, reads::wish).reconcile(
                async |_, _: Arc<()>| Ok::<_, WatchesEnded>(Action::await_change()),
                Arc::new(()),
            );
        }
        manager.watch_labelled::<ConfigMap>("a=b");
        assert_eq!(manager.watches.len(), 2, "one of all, one of some");
        assert_eq!(manager.controllers.len(), 2);
    }
}
