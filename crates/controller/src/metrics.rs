//! What a monitoring system asks of an operator, in the text format that Prometheus reads.
//!
//! Objects are counted when somebody asks, from what the watches keep anyway; passes of the reconcilers are counted as they
//! end. There is no label with an object's name, so that the number of series does not grow with the number of objects, but where
//! somebody must be told which one it is: a time of each object, as the end of a certificate, and what is amiss with one, which is a
//! series only for as long as it is.
//!
//! # Source
//! Prometheus exposition formats, text-based format 0.0.4.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Ready, ready},
};
use kube::{core::DeserializeGuard, runtime::reflector::Store};
use serde::Serialize;

/// What an operator counts. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    gauges: Mutex<Vec<(Gauge, Arc<dyn Watched>)>>,
    each: Mutex<Vec<(Gauge, Each)>>,
    passes: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("passes", &self.passes)
            .finish_non_exhaustive()
    }
}

/// What objects are counted as.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    /// The name of the metric.
    pub name: &'static str,
    /// What it tells.
    pub help: &'static str,
    /// The label by whose values objects are told apart.
    pub label: &'static str,
}

/// The values of single objects by their labels, as the format has them.
type Each = Arc<dyn Fn() -> BTreeMap<String, i64> + Send + Sync>;

/// Labels of a series, beside the namespace of its object.
pub type Labels = Vec<(&'static str, String)>;

/// Objects that a watch keeps.
trait Watched: Send + Sync {
    /// Whether the first list is there.
    fn ready(&self) -> BoxFuture<'_, bool>;
    /// How many there are by a value.
    fn tally(&self) -> BTreeMap<String, u64>;
}

struct Objects<K, F>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    store: Store<DeserializeGuard<K>>,
    value: F,
}

impl<K, V, F> Watched for Objects<K, F>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    V: Serialize,
    F: Fn(&K) -> Option<V> + Send + Sync,
{
    fn ready(&self) -> BoxFuture<'_, bool> {
        async { self.store.wait_until_ready().await.is_ok() }.boxed()
    }

    fn tally(&self) -> BTreeMap<String, u64> {
        tally(&self.store, &self.value)
    }
}

impl Metrics {
    /// Counts the objects of a store by one of their values from now on. The first of a name counts: a second operator in one
    /// process is a test's.
    pub fn gauge<K, V>(
        &self,
        gauge: Gauge,
        store: Store<DeserializeGuard<K>>,
        value: impl Fn(&K) -> Option<V> + Send + Sync + 'static,
    ) where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
        V: Serialize + 'static,
    {
        let mut gauges = lock(&self.inner.gauges);
        if gauges.iter().all(|(known, _)| known.name != gauge.name) {
            gauges.push((gauge, Arc::new(Objects { store, value })));
        }
    }

    /// Tells a time of each object of a store that has one, in seconds since 1970, by its namespace and by its name under the label
    /// of the gauge. As with [`Metrics::gauge`] the first of a name counts.
    pub fn time<K>(
        &self,
        gauge: Gauge,
        store: Store<DeserializeGuard<K>>,
        value: impl Fn(&K) -> Option<i64> + Send + Sync + 'static,
    ) where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        self.each(gauge, store, move |object| {
            let time = value(object);
            time.map(|time| (Labels::new(), time)).into_iter().collect()
        });
    }

    /// Tells times of each object of a store as [`Metrics::time`] does, each with further labels beside its namespace and its name. Of those
    /// with the same labels one is told: what labels there can be bounds the number of series.
    pub fn times<K>(
        &self,
        gauge: Gauge,
        store: Store<DeserializeGuard<K>>,
        values: impl Fn(&K) -> Vec<(Labels, i64)> + Send + Sync + 'static,
    ) where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        self.each(gauge, store, values);
    }

    /// Tells what is amiss with single objects: a series of value 1 for each set of further labels, beside its namespace and its name
    /// under the label of the gauge. There are none of an object that is well, which bounds their number. As with [`Metrics::gauge`] the
    /// first of a name counts.
    pub fn amiss<K>(
        &self,
        gauge: Gauge,
        store: Store<DeserializeGuard<K>>,
        value: impl Fn(&K) -> Vec<Labels> + Send + Sync + 'static,
    ) where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        self.each(gauge, store, move |object| {
            value(object)
                .into_iter()
                .map(|labels| (labels, 1))
                .collect()
        });
    }

    fn each<K>(
        &self,
        gauge: Gauge,
        store: Store<DeserializeGuard<K>>,
        values: impl Fn(&K) -> Vec<(Labels, i64)> + Send + Sync + 'static,
    ) where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        let mut each = lock(&self.inner.each);
        if each.iter().any(|(known, _)| known.name == gauge.name) {
            return;
        }
        let told = move || {
            let mut told = BTreeMap::new();
            for object in store.state() {
                let Ok(object) = &object.0 else { continue };
                let meta = object.meta();
                let place = [
                    ("namespace", meta.namespace.clone().unwrap_or_default()),
                    (gauge.label, meta.name.clone().unwrap_or_default()),
                ];
                for (labels, value) in values(object) {
                    let labels = place.iter().chain(&labels);
                    let labels =
                        labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
                    told.insert(labels.collect::<Vec<_>>().join(","), value);
                }
            }
            told
        };
        each.push((gauge, Arc::new(told)));
    }

    /// Counts what a controller of `kind` reports.
    pub fn passes<T, E>(
        &self,
        kind: &'static str,
    ) -> impl FnMut(Result<T, E>) -> Ready<()> + use<T, E> {
        let inner = Arc::clone(&self.inner);
        move |pass| {
            let outcome = if pass.is_ok() { "success" } else { "error" };
            *lock(&inner.passes).entry((kind, outcome)).or_default() += 1;
            ready(())
        }
    }

    /// Whether every watch has delivered its first list.
    pub async fn are_watches_ready(&self) -> bool {
        let mut seen = 0;
        // None is ready before the last is known: watches are driven when all are.
        while let Some(objects) = self.watched(seen) {
            if !objects.ready().await {
                return false;
            }
            seen += 1;
        }
        seen > 0
    }

    fn watched(&self, place: usize) -> Option<Arc<dyn Watched>> {
        let gauges = lock(&self.inner.gauges);
        gauges.get(place).map(|(_, objects)| Arc::clone(objects))
    }

    /// Everything as text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let passes = lock(&self.inner.passes);
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
        for (Gauge { name, help, label }, objects) in lock(&self.inner.gauges).iter() {
            let tally = objects.tally();
            let series = tally
                .into_iter()
                .map(|(value, count)| (format!("{label}=\"{value}\""), count));
            family(&mut text, name, "gauge", help, series);
        }
        for (Gauge { name, help, .. }, told) in lock(&self.inner.each).iter() {
            family(&mut text, name, "gauge", help, told().into_iter());
        }
        text
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The value of a label as the format wants it.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', "\\\"");
    value.replace('\n', r"\n")
}

fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    series: impl Iterator<Item = (String, impl Display)>,
) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in series {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher::Event;
    use serde_json::json;

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

    #[test]
    fn what_is_amiss_is_told_of_that_object_alone() {
        let (store, mut writer) = kube::runtime::reflector::store();
        for name in ["well", "ill"] {
            let object: ConfigMap = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "demo"},
            }))
            .unwrap();
            let object = DeserializeGuard(Ok(object));
            writer.apply_watcher_event(&Event::Apply(object));
        }
        let metrics = Metrics::default();
        let gauge = Gauge {
            name: "amiss",
            help: "What is amiss.",
            label: "object",
        };
        metrics.amiss(gauge, store, |object: &ConfigMap| {
            let is_ill = object.metadata.name.as_deref() == Some("ill");
            let labels = vec![("why", "it \"is\" so".to_owned())];
            is_ill.then_some(labels).into_iter().collect()
        });
        let text = metrics.render();
        let (_, told) = text.split_once("# TYPE amiss gauge\n").unwrap();
        assert_eq!(
            told,
            "amiss{namespace=\"demo\",object=\"ill\",why=\"it \\\"is\\\" so\"} 1\n"
        );
    }
}
