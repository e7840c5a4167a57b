//! Wiring: one watch a kind, a controller on each, and the queues through which background work wakes them.

use std::sync::Arc;

use ansible::source::Sources;
use api::{Cluster, ClusterNode, Run};
use controller::{BackOff, Events, Metrics, Shutdown, stream};
use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        Controller,
        controller::Config,
        reflector::{ObjectRef, Store},
    },
};
use runs::{job::Template, operator::Place, supervisor::Command};
use tokio::sync::mpsc;

use crate::{
    cluster,
    context::{Context, Stores},
    health_book::HealthBook,
    layout::Layout,
    metrics, node,
    playbooks::{Key, PlaybookCache},
    private,
    subjects::Clusters,
    sweep,
};

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory.
    pub data_dir: std::path::PathBuf,
    /// How runners are started; `--run NAMESPACE/NAME --data-dir DIR` is appended.
    pub runner: Command,
    /// How many objects of a kind are worked on at once.
    pub concurrency: u16,
    /// What a source of playbooks may be, and what it may cost.
    pub sources: ansible::source::Policy,
}

type Guard<K> = DeserializeGuard<K>;

/// What an operator works on, and where its runners are.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The one namespace that it watches. Default: all.
    pub namespace: Option<String>,
    /// Runners are Jobs after this template. Default: processes.
    pub jobs: Option<Template>,
    /// Where passes are counted and objects can be seen.
    pub metrics: Metrics,
}

impl Scope {
    fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }
}

/// Why an operator ended that nobody told to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}: nothing would be seen any more; start Windlass again")]
pub struct WatchesEnded(&'static str);

/// Runs the controllers on every namespace, with processes as runners, until `shutdown`. Runners go on without them.
///
/// # Errors
///
/// As [`operate_within`].
pub async fn operate(
    client: Client,
    options: Options,
    shutdown: Shutdown,
) -> Result<(), WatchesEnded> {
    Box::pin(operate_within(client, options, Scope::default(), shutdown)).await
}

/// Runs the controllers until `shutdown`. Runners go on without them.
///
/// # Errors
///
/// The watches ended: an operator that sees nothing must not look as if it were at work.
pub async fn operate_within(
    client: Client,
    options: Options,
    scope: Scope,
    shutdown: Shutdown,
) -> Result<(), WatchesEnded> {
    let layout = Layout::new(&options.data_dir);
    private::sweep(&layout);
    let clusters = stream::Shared::<Cluster>::new(scope.api(&client));
    let nodes = stream::Shared::<ClusterNode>::new(scope.api(&client));
    let runs = stream::Shared::<Run>::new(scope.api(&client));
    let (wake, woken) = mpsc::unbounded_channel();
    let gone = tell_clusters(clusters.store(), wake.clone());
    let place = match scope.jobs {
        Some(template) => Place::Jobs(Arc::new(template), scope.namespace.clone()),
        None => Place::Here((*layout).clone(), options.runner.clone()),
    };
    let runners = runs::Operator::new(client.clone(), place, Clusters::new(clusters.store()));
    metrics::count(&scope.metrics, clusters.store(), nodes.store());
    let context = Arc::new(Context {
        client: client.clone(),
        layout: layout.clone(),
        stores: Stores {
            clusters: clusters.store(),
            nodes: nodes.store(),
            runs: runs.store(),
        },
        playbooks: PlaybookCache::new(
            Sources::new(layout.sources(), options.sources),
            wake.clone(),
        ),
        health: HealthBook::new(client.clone(), wake),
        pods: runners.template(),
        events: Events::new(client, "cluster"),
        backoff: BackOff::default(),
    });
    let config = Config::default().concurrency(options.concurrency);
    let (Some(of_clusters), Some(of_nodes)) = (clusters.subscribe(), nodes.subscribe()) else {
        return Err(WatchesEnded("the shared watches cannot be subscribed to"));
    };
    let (
        Some(nodes_of_clusters),
        Some(clusters_of_nodes),
        Some(runs_of_clusters),
        Some(runs_of_nodes),
    ) = (
        nodes.subscribe(),
        clusters.subscribe(),
        runs.subscribe(),
        runs.subscribe(),
    )
    else {
        return Err(WatchesEnded("the shared watches cannot be subscribed to"));
    };
    let (probed, woken) = fan_out(woken);
    let cluster_store = context.stores.clusters.clone();
    let node_store = context.stores.nodes.clone();
    let probed_nodes = context.stores.nodes.clone();

    let cluster_controller = Controller::for_shared_stream(
        stream::changed(of_clusters, wish::<Cluster>),
        context.stores.clusters.clone(),
    )
    .with_config(config.clone())
    .watches_shared_stream(
        stream::changed(nodes_of_clusters, wish::<ClusterNode>),
        move |node| in_namespace_of(&cluster_store, node.meta()),
    )
    .watches_shared_stream(runs_of_clusters, |run: Arc<Guard<Run>>| owner(&run))
    .reconcile_on(woken.map(|(namespace, name)| ObjectRef::new(&name).within(&namespace)))
    .graceful_shutdown_on(shutdown.wait())
    .run(cluster::reconcile, cluster::failed, Arc::clone(&context))
    .for_each(scope.metrics.passes("Cluster"));

    let Some((run_controller, watch_runners)) =
        runners.operate(&runs, config.clone(), &scope.metrics, &shutdown)
    else {
        return Err(WatchesEnded("the shared watches cannot be subscribed to"));
    };

    let node_controller =
        Controller::for_shared_stream(
            stream::changed(of_nodes, wish::<ClusterNode>),
            context.stores.nodes.clone(),
        )
        .with_config(config)
        .watches_shared_stream(stream::changed(runs_of_nodes, node_view), {
            let store = node_store.clone();
            move |run| in_namespace_of(&store, run.meta())
        })
        .watches_shared_stream(
            stream::changed(clusters_of_nodes, existence),
            move |cluster| in_namespace_of(&node_store, cluster.meta()),
        )
        .reconcile_on(probed.flat_map(move |(namespace, _)| {
            futures::stream::iter(refs_in(&probed_nodes, &namespace))
        }))
        .graceful_shutdown_on(shutdown.wait())
        .run(node::reconcile, node::failed, Arc::clone(&context))
        .for_each(scope.metrics.passes("ClusterNode"));

    let controllers = async {
        futures::join!(cluster_controller, run_controller, node_controller);
    };
    let swept = sweep::keep_swept(context.layout.clone(), &context.stores, scope.namespace);
    let watches = async {
        futures::join!(
            clusters.drive_telling(&gone),
            nodes.drive_telling(&gone),
            runs.drive_telling(&gone),
            watch_runners,
            swept
        );
    };
    until_told(Box::pin(controllers), Box::pin(watches), &shutdown).await
}

/// Waits for the controllers, which end when they are told to. That they or what they see ends otherwise is an error.
async fn until_told(
    controllers: impl Future<Output = ()>,
    watches: impl Future<Output = ()>,
    shutdown: &Shutdown,
) -> Result<(), WatchesEnded> {
    tokio::select! {
        () = controllers => {}
        () = watches => {}
    }
    if shutdown.is_triggered() {
        Ok(())
    } else {
        Err(WatchesEnded("the watches ended"))
    }
}

/// What a reconciler reads of its own object: not its status, which it writes.
fn wish<K: Resource<DynamicType = ()>>(object: &Guard<K>) -> impl PartialEq + Send + use<K> {
    let meta = object.meta();
    let annotations = meta.annotations.iter().flatten();
    (
        meta.generation,
        meta.deletion_timestamp.is_some(),
        meta.finalizers.clone().unwrap_or_default(),
        annotations
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Vec<_>>(),
    )
}

fn existence(object: &Guard<Cluster>) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// What the status of a host depends on in a run: not its progress.
fn node_view(object: &Guard<Run>) -> String {
    let Ok(run) = &object.0 else {
        return String::new();
    };
    let status = run.status.clone().unwrap_or_default();
    let probe = status
        .steps
        .iter()
        .find(|step| step.id == cluster::compile::PROBE)
        .map(|step| step.phase);
    format!(
        "{:?} {probe:?} {:?} {:?}",
        status.phase, status.excluded, status.failure
    )
}

fn owner(run: &Guard<Run>) -> Option<ObjectRef<Guard<Cluster>>> {
    let run = run.0.as_ref().ok()?;
    if !run.spec.subject.is_a::<Cluster>() {
        return None;
    }
    Some(ObjectRef::new(&run.spec.subject.name).within(&run.namespace()?))
}

fn in_namespace_of<K>(
    store: &Store<Guard<K>>,
    meta: &kube::api::ObjectMeta,
) -> Vec<ObjectRef<Guard<K>>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + 'static,
{
    refs_in(store, meta.namespace.as_deref().unwrap_or_default())
}

fn refs_in<K>(store: &Store<Guard<K>>, namespace: &str) -> Vec<ObjectRef<Guard<K>>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + 'static,
{
    stream::in_namespace(store, namespace)
        .iter()
        .map(|object| ObjectRef::from_obj(&**object))
        .collect()
}

/// Wakes the clusters of a namespace in which something is gone: a host, a run, a cluster that was there first.
fn tell_clusters(
    store: Store<Guard<Cluster>>,
    wake: mpsc::UnboundedSender<Key>,
) -> impl Fn(&kube::api::ObjectMeta) {
    move |meta| {
        for cluster in in_namespace_of(&store, meta) {
            // Nobody listens any more when the operator stops.
            let _ = wake.send((cluster.namespace.unwrap_or_default(), cluster.name));
        }
    }
}

/// One stream as two.
fn fan_out(
    mut receiver: mpsc::UnboundedReceiver<Key>,
) -> (
    impl Stream<Item = Key> + Send,
    impl Stream<Item = Key> + Send,
) {
    let (one, first) = mpsc::unbounded_channel();
    let (two, second) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(key) = receiver.recv().await {
            // Each is closed when the operator stops.
            let _ = one.send(key.clone());
            let _ = two.send(key);
        }
    });
    (stream::received(first), stream::received(second))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn an_operator_that_sees_nothing_any_more_ends_with_an_error() {
        let shutdown = Shutdown::default();
        let blind = WatchesEnded("the watches ended");
        assert_eq!(
            until_told(pending(), ready(()), &shutdown).await,
            Err(blind)
        );
        // The controllers end with their watches.
        assert_eq!(
            until_told(ready(()), pending(), &shutdown).await,
            Err(blind)
        );
        shutdown.trigger();
        assert_eq!(until_told(ready(()), pending(), &shutdown).await, Ok(()));
    }
}
