//! What is known of a host: reads only, from what is in memory.

use std::sync::Arc;

use api::{ClusterNode, Run, radar::RadarStatus};
use kube::{ResourceExt, core::DeserializeGuard};
use runs::{
    is_active,
    object::{age, is_of},
    phase,
};

use crate::{
    cluster::built::{built_by, is_built},
    context::Context,
    health_book::Checked,
    inputs::Inputs,
    radar::book::Hosts,
};

/// What is known of a host.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The cluster's last run, if the host is part of its plan. As the watch has it: each host of a large cluster looks at the same
    /// large run.
    run: Option<Arc<DeserializeGuard<Run>>>,
    /// Whether the host is part of the cluster as it was built.
    pub built: bool,
    /// Whether the cluster stands, and nobody knows what it was built with.
    unknown: bool,
    /// What the last health probes of the cluster found.
    pub health: Option<Arc<Checked>>,
    /// How the hosts of the cluster stand against what the last run left on them.
    radar: Option<Arc<Hosts>>,
    /// Whether the cluster has a radar.
    watched: bool,
}

impl Observed {
    /// The cluster's last run, if the host is part of its plan.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()?.0.as_ref().ok()
    }

    /// How a host stands against what the last run left on it, if the cluster has a radar.
    pub fn radar(&self, name: &str, before: Option<RadarStatus>) -> Option<RadarStatus> {
        let seen = self.radar.as_ref().and_then(|hosts| hosts.get(name));
        seen.cloned().or(before).filter(|_| self.watched)
    }

    /// Whether the host is part of a cluster, or is about to be.
    pub fn is_needed(&self) -> bool {
        self.built || self.unknown || self.run().is_some_and(|run| is_active(phase(run)))
    }
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
    let mut runs: Vec<_> = found
        .iter()
        .filter_map(|seen| Some((seen, seen.0.as_ref().ok()?)))
        .filter(|(_, run)| is_of(run, cluster))
        .collect();
    runs.sort_by_cached_key(|(_, run)| age(run));
    let name = node.name_any();
    let has = |run: &Run| Inputs::has_host(&run.spec.plan.inputs, &name);
    let keeps = |run: &Run| has(run) && !Inputs::removes(&run.spec.plan.inputs, &name);
    let builder = built_by(runs.iter().map(|(_, run)| *run));
    let last = runs.last().filter(|(_, run)| has(run));
    Observed {
        run: last.map(|(seen, _)| Arc::clone(seen)),
        built: builder.is_some_and(keeps),
        unknown: builder.is_none() && is_built(cluster),
        health: context.health.latest(cluster),
        radar: context.radar.latest(cluster),
        watched: cluster.spec.radar.is_some(),
    }
}
