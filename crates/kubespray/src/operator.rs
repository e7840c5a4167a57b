//! The controllers of Clusters and ClusterNodes, and what wakes them.

use std::{path::PathBuf, sync::Arc};

use ansible::source::Sources;
use api::{Cluster, ClusterNode, Run};
use controller::{Events, Key, Manager, WakeUps, reads};
use kube::{Resource, ResourceExt, core::DeserializeGuard, runtime::reflector::ObjectRef};
use runs::operator::Place;

use crate::{
    action,
    cluster::{self, Passes, decided::Decided},
    context::{Context, Stores},
    health_book::HealthBook,
    layout::Layout,
    metrics, node,
    playbooks::PlaybookCache,
    private,
    radar::RadarBook,
    subjects::Clusters,
    sweep,
};

/// How the operator works.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Where runners are.
    pub runners: Place,
    /// What a source of playbooks may be, and what it may cost.
    pub sources: ansible::source::Policy,
}

/// Has the manager work on Clusters, their hosts and their runs. Runners go on without it.
pub fn operate(manager: &mut Manager, options: Options) {
    let layout = Layout::new(options.data_dir);
    private::sweep(&layout);
    let clusters = manager.watch::<Cluster>();
    let nodes = manager.watch::<ClusterNode>();
    let runs = manager.watch::<Run>();
    // What hosts need not hear of wakes clusters alone: there may be thousands of hosts to each.
    let (wake_ups, of_clusters) = (WakeUps::default(), WakeUps::default());
    let client = manager.client().clone();
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
            of_clusters.clone(),
        ),
        radar: RadarBook::new(
            client.clone(),
            layout.clone(),
            of_clusters.clone(),
            wake_ups.clone(),
        ),
        health: HealthBook::new(client.clone(), of_clusters.clone(), wake_ups.clone()),
        pods: options.runners.template(),
        logs_in: ansible::ssh::is_there(),
        events: Events::new(client, "cluster"),
    });
    metrics::count(&manager.settings().metrics, clusters.store(), nodes.store());

    // A host, a run, a cluster that was there first: their end changes what a cluster is.
    clusters.gone_wakes(&clusters, &wake_ups);
    nodes.gone_wakes(&clusters, &wake_ups);
    runs.gone_wakes(&clusters, &wake_ups);
    // What was held for a cluster is let go.
    let of_nodes = WakeUps::default();
    clusters.gone_wakes(&nodes, &of_nodes);
    manager
        .controller(&clusters, reads::wish)
        .woken_by(&nodes, reads::wish, clusters.in_namespace_of())
        .woken_by(&runs, cluster::observe::of_run, subject)
        .woken_on(&wake_ups, named)
        .woken_on(&of_clusters, named)
        .reconcile(
            cluster::reconcile,
            Arc::new(Passes {
                context: Arc::clone(&context),
                decided: Decided::default(),
            }),
        );
    let of_a_cluster = nodes.clone();
    manager
        .controller(&nodes, reads::wish)
        .woken_by(&runs, node_view, nodes.in_namespace_of())
        .woken_by(&clusters, reads::existence, nodes.in_namespace_of())
        .woken_on(&of_nodes, named)
        .woken_on(&wake_ups, move |(namespace, _)| {
            of_a_cluster.in_namespace(Some(&namespace))
        })
        .reconcile(node::reconcile, context);
    let subjects = Clusters::new(clusters.store(), runs.store());
    runs::operate(manager, options.runners, subjects);
    let namespace = manager.settings().namespace.clone();
    manager.beside(sweep::keep_swept(
        layout,
        clusters.store(),
        runs.store(),
        namespace,
    ));
}

fn named<K>((namespace, name): Key) -> [ObjectRef<DeserializeGuard<K>>; 1]
where
    DeserializeGuard<K>: Resource<DynamicType = ()>,
{
    [ObjectRef::new(&name).within(&namespace)]
}

/// The Cluster that a run is of.
fn subject(run: &DeserializeGuard<Run>) -> Option<ObjectRef<DeserializeGuard<Cluster>>> {
    let run = run.0.as_ref().ok()?;
    if !run.spec.subject.is_a::<Cluster>() {
        return None;
    }
    Some(ObjectRef::new(&run.spec.subject.name).within(&run.namespace()?))
}

/// What the status of a host depends on in a run: not its progress.
fn node_view(object: &DeserializeGuard<Run>) -> String {
    let Ok(run) = &object.0 else {
        return String::new();
    };
    let status = run.status.clone().unwrap_or_default();
    let probe = status
        .steps
        .iter()
        .find(|step| step.id == action::PROBE)
        .map(|step| step.phase);
    format!(
        "{:?} {probe:?} {:?} {:?}",
        status.phase, status.excluded, status.failure
    )
}
