//! What is known of a host: reads only, from what is in memory.

use std::sync::Arc;

use api::{ClusterNode, Run};
use kube::ResourceExt;
use runs::object::{age, is_of};

use crate::{cluster::built::built_by, context::Context, health_book::Checked, inputs::Inputs};

/// What is known of a host.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The cluster's last run, if the host is part of its plan.
    pub run: Option<Run>,
    /// Whether the host is part of the cluster as it was built.
    pub built: bool,
    /// What the last health probes of the cluster found.
    pub health: Option<Arc<Checked>>,
}

/// Reads what is known.
pub fn observe(node: &ClusterNode, context: &Context) -> Observed {
    let namespace = node.namespace().unwrap_or_default();
    let clusters = controller::stream::in_namespace(&context.stores.clusters, &namespace);
    let Some(cluster) = clusters
        .iter()
        .filter_map(|cluster| cluster.0.as_ref().ok())
        .min_by_key(|cluster| (cluster.creation_timestamp(), cluster.name_any()))
    else {
        return Observed::default();
    };
    let found = controller::stream::in_namespace(&context.stores.runs, &namespace);
    let readable = found.iter().filter_map(|run| run.0.as_ref().ok());
    let mut runs: Vec<_> = readable.filter(|run| is_of(run, cluster)).collect();
    runs.sort_by_cached_key(|run| age(run));
    let name = node.name_any();
    let has = |run: &&Run| Inputs::has_host(&run.spec.plan.inputs, &name);
    Observed {
        run: runs.last().copied().filter(has).cloned(),
        built: built_by(runs.iter().copied()).is_some_and(|run| has(&run)),
        health: context.health.latest(cluster),
    }
}
