//! What a monitoring system asks of an operator, in the text format that Prometheus reads.
//!
//! Objects are counted when somebody asks, from what the watches keep anyway; passes of the reconcilers are counted as they
//! end. There is no label with a cluster's or host's name: the number of series does not grow with the number of objects.
//!
//! # Source
//! Prometheus exposition formats, text-based format 0.0.4.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use api::{Cluster, ClusterNode, Run};
use futures::future::{Ready, ready};
use kube::{core::DeserializeGuard, runtime::reflector::Store};
use serde::Serialize;

/// What an operator counts. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    stores: OnceLock<Stores>,
    passes: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("passes", &self.passes)
            .finish_non_exhaustive()
    }
}

struct Stores {
    clusters: Store<DeserializeGuard<Cluster>>,
    nodes: Store<DeserializeGuard<ClusterNode>>,
    runs: Store<DeserializeGuard<Run>>,
}

impl Metrics {
    /// Counts these objects from now on; the first call counts.
    pub fn watch(
        &self,
        clusters: Store<DeserializeGuard<Cluster>>,
        nodes: Store<DeserializeGuard<ClusterNode>>,
        runs: Store<DeserializeGuard<Run>>,
    ) {
        let stores = Stores {
            clusters,
            nodes,
            runs,
        };
        // A second operator in one process is a test's.
        let _ = self.inner.stores.set(stores);
    }

    /// Counts what a controller of `kind` reports.
    pub fn passes<T, E>(
        &self,
        kind: &'static str,
    ) -> impl FnMut(Result<T, E>) -> Ready<()> + use<T, E> {
        let inner = Arc::clone(&self.inner);
        move |pass| {
            let outcome = if pass.is_ok() { "success" } else { "error" };
            let mut passes = inner.passes.lock().unwrap_or_else(PoisonError::into_inner);
            *passes.entry((kind, outcome)).or_default() += 1;
            ready(())
        }
    }

    /// Whether every watch has delivered its first list.
    pub async fn are_watches_ready(&self) -> bool {
        let Some(stores) = self.inner.stores.get() else {
            return false;
        };
        stores.clusters.wait_until_ready().await.is_ok()
            && stores.nodes.wait_until_ready().await.is_ok()
            && stores.runs.wait_until_ready().await.is_ok()
    }

    /// Everything as text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let passes = self
            .inner
            .passes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let series = passes.iter().map(|((kind, outcome), count)| {
            (format!("kind=\"{kind}\",outcome=\"{outcome}\""), *count)
        });
        family(
            &mut text,
            "windlass_reconcile_total",
            "counter",
            "Passes of the reconcilers.",
            series,
        );
        drop(passes);
        let Some(stores) = self.inner.stores.get() else {
            return text;
        };
        gauge(
            &mut text,
            "windlass_clusters",
            "Clusters by what the operator does with them.",
            "state",
            tally(&stores.clusters, |cluster| cluster.status.as_ref()?.state),
        );
        gauge(
            &mut text,
            "windlass_cluster_health",
            "Clusters by their health.",
            "health",
            tally(&stores.clusters, |cluster| {
                Some(cluster.status.as_ref()?.cluster.as_ref()?.health)
            }),
        );
        gauge(
            &mut text,
            "windlass_nodes",
            "Hosts of clusters by their health.",
            "health",
            tally(&stores.nodes, |node| {
                Some(node.status.as_ref()?.node.as_ref()?.health)
            }),
        );
        gauge(
            &mut text,
            "windlass_runs",
            "Runs by how they stand.",
            "phase",
            tally(&stores.runs, |run| Some(run.status.as_ref()?.phase)),
        );
        text
    }
}

/// How many objects have which value; those without one count as Unknown.
fn tally<K, V>(
    store: &Store<DeserializeGuard<K>>,
    value: impl Fn(&K) -> Option<V>,
) -> BTreeMap<String, u64>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
    V: Serialize,
{
    let mut counts = BTreeMap::new();
    for object in store.state() {
        let name = object
            .0
            .as_ref()
            .ok()
            .and_then(&value)
            .and_then(|value| {
                serde_json::to_value(value)
                    .ok()?
                    .as_str()
                    .map(str::to_owned)
            })
            .unwrap_or_else(|| "Unknown".to_owned());
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn gauge(text: &mut String, name: &str, help: &str, label: &str, counts: BTreeMap<String, u64>) {
    let series = counts
        .into_iter()
        .map(|(value, count)| (format!("{label}=\"{value}\""), count));
    family(text, name, "gauge", help, series);
}

fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    series: impl Iterator<Item = (String, u64)>,
) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in series {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_by_kind_and_outcome() {
        let metrics = Metrics::default();
        let mut count = metrics.passes::<(), ()>("Run");
        for pass in [Ok(()), Ok(()), Err(())] {
            drop(count(pass));
        }
        let text = metrics.render();
        assert!(text.contains("windlass_reconcile_total{kind=\"Run\",outcome=\"success\"} 2\n"));
        assert!(text.contains("windlass_reconcile_total{kind=\"Run\",outcome=\"error\"} 1\n"));
    }
}
