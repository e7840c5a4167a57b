//! The health of every built cluster, probed in the background and remembered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{Cluster, node::Health};
use controller::{Key, WakeUps, backoff::jittered, kubeconfig::Foreign};
use jiff::Timestamp;
use kube::{Client, ResourceExt};

use crate::{
    health::{self, Expected, Report},
    secret::{self, KubeconfigError},
};

/// How often a healthy cluster is probed.
const HEALTHY: Duration = Duration::from_mins(5);
/// How often another one is.
const UNHEALTHY: Duration = Duration::from_secs(20);

/// The longest wait between two tries to read a kubeconfig Secret; all waits together are twice that.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What the last probes found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// When.
    pub at: Timestamp,
    /// What, or why nothing could be probed.
    pub report: Result<Report, String>,
}

impl Checked {
    /// The worst that was found.
    pub fn health(&self) -> Health {
        self.report.as_ref().map_or(Health::Err, Report::health)
    }
}

#[derive(Default)]
struct Entry {
    latest: Option<Arc<Checked>>,
    next: Option<Instant>,
    running: bool,
}

/// The health of every built cluster.
pub struct HealthBook {
    client: Client,
    entries: Arc<Mutex<HashMap<Key, Entry>>>,
    changed: WakeUps,
}

impl HealthBook {
    /// A book that wakes every cluster that was probed.
    pub fn new(client: Client, changed: WakeUps) -> Self {
        Self {
            client,
            entries: Arc::default(),
            changed,
        }
    }

    /// What was found last.
    pub fn latest(&self, cluster: &Cluster) -> Option<Arc<Checked>> {
        lock(&self.entries).get(&key(cluster))?.latest.clone()
    }

    /// How long until the next probes are due.
    pub fn interval(&self, cluster: &Cluster) -> Duration {
        lock(&self.entries)
            .get(&key(cluster))
            .and_then(|entry| entry.next)
            .map_or(UNHEALTHY, |next| {
                next.saturating_duration_since(Instant::now())
            })
            .max(Duration::from_secs(1))
    }

    /// Probes the cluster in the background if that is due.
    pub fn refresh(&self, cluster: &Cluster, expected: Expected) {
        let key = key(cluster);
        {
            let mut entries = lock(&self.entries);
            let entry = entries.entry(key.clone()).or_default();
            let due = entry.next.is_none_or(|next| next <= Instant::now());
            if entry.running || !due {
                return;
            }
            entry.running = true;
        }
        let client = self.client.clone();
        let entries = Arc::clone(&self.entries);
        let changed = self.changed.clone();
        tokio::spawn(async move {
            let report = probe(&client, &key, &expected).await;
            let checked = Checked {
                at: Timestamp::now(),
                report,
            };
            let wait = match checked.health() {
                Health::Ok => HEALTHY,
                Health::Warn | Health::Err => UNHEALTHY,
            };
            if let Some(entry) = lock(&entries).get_mut(&key) {
                entry.next = Some(Instant::now() + jittered(wait));
                entry.latest = Some(Arc::new(checked));
                entry.running = false;
            }
            changed.wake(&key);
        });
    }

    /// Forgets a cluster.
    pub fn forget(&self, key: &Key) {
        lock(&self.entries).remove(key);
    }
}

async fn probe(client: &Client, key: &Key, expected: &Expected) -> Result<Report, String> {
    let (namespace, cluster) = key;
    let kubeconfig = read_kubeconfig(client, namespace, cluster)
        .await
        .map_err(|error| match &error {
            KubeconfigError::Api(kube::Error::Api(status)) => {
                format!("{error}: {}", status.message)
            }
            _ => crate::chain(&error),
        })?
        .ok_or_else(|| {
            format!(
                "Secret {} with the cluster's kubeconfig is not there",
                secret::kubeconfig_name(cluster)
            )
        })?;
    health::probe(&kubeconfig, expected)
        .await
        .map_err(|error| format!("the kubeconfig cannot be used: {}", crate::chain(&error)))
}

/// Reads the Secret, a few times while the API is busy or away: that says nothing of the cluster's health.
async fn read_kubeconfig(
    client: &Client,
    namespace: &str,
    cluster: &str,
) -> Result<Option<Foreign>, KubeconfigError> {
    let mut wait = Duration::from_millis(200);
    loop {
        let read = secret::read_kubeconfig(client, namespace, cluster).await;
        let refused = |error: &KubeconfigError| match error {
            KubeconfigError::Api(kube::Error::Api(status)) => {
                status.code < 500 && status.code != 429
            }
            KubeconfigError::Api(_) => false,
            KubeconfigError::Refused { .. } => true,
        };
        match &read {
            Err(error) if !refused(error) && wait < LONGEST_WAIT => {}
            _ => return read,
        }
        tokio::time::sleep(jittered(wait)).await;
        wait *= 2;
    }
}

fn key(cluster: &Cluster) -> Key {
    (cluster.namespace().unwrap_or_default(), cluster.name_any())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
