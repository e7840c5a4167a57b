//! The health of every built cluster, probed in the background and remembered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{Cluster, node::Health};
use controller::{Key, WakeUps, backoff::jittered, kubeconfig::Foreign};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, ResourceExt};

use crate::{
    certificates::{self, Served},
    health::{self, Check, Expected, Report},
    secret::{self, KubeconfigError},
};

/// How often a healthy cluster is probed.
const HEALTHY: Duration = Duration::from_mins(5);
/// How often another one is.
const UNHEALTHY: Duration = Duration::from_secs(20);
/// How often in a row something must be found worse than it was before that counts: one answer that is lost is no outage.
const TIMES: u32 = 3;
/// How soon it is looked again until then.
const AGAIN: Duration = Duration::from_secs(5);

/// How long hosts may lag behind while nothing that was found changes.
const HOSTS_TOLD: SignedDuration = SignedDuration::from_hours(1);

/// How long what servers showed counts.
const LOOKED: SignedDuration = SignedDuration::from_hours(1);

/// The longest wait between two tries to read a kubeconfig Secret; all waits together are twice that.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What the last probes found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// When.
    pub at: Timestamp,
    /// What, or why nothing could be probed.
    pub report: Result<Report, String>,
    /// What the servers of hosts showed, now or a while ago.
    pub served: Arc<Served>,
}

impl Checked {
    /// When the administrator's certificate ends.
    pub fn own_end(&self) -> Option<Timestamp> {
        self.report.as_ref().ok()?.own_end
    }

    /// The worst that was found.
    pub fn health(&self) -> Health {
        self.report.as_ref().map_or(Health::Err, Report::health)
    }
}

#[derive(Default)]
struct Entry {
    latest: Option<Arc<Checked>>,
    /// When the hosts were told last.
    told: Option<Timestamp>,
    next: Option<Instant>,
    running: bool,
    /// How often in a row something was found worse than it was.
    worse: u32,
}

/// What becomes of what was found.
#[derive(Debug, Eq, PartialEq)]
enum Taken {
    /// The hosts are to be told: it is something else than before, or they heard of it long ago.
    Told,
    /// It is as it was.
    Known,
    /// It is worse, and not often enough to count: it is as if nobody had looked.
    Doubted,
}

impl Entry {
    /// Notes what was found.
    fn take(&mut self, checked: Checked) -> Taken {
        self.worse = match &self.latest {
            Some(latest) if is_worse(&latest.report, &checked.report) => self.worse + 1,
            _ => TIMES,
        };
        if self.worse < TIMES {
            return Taken::Doubted;
        }
        self.worse = 0;
        let found = |checked: &Checked| (checked.report.clone(), checked.served.ends.clone());
        let same = |latest: &Arc<Checked>| found(latest) == found(&checked);
        let is_recent = |told: Timestamp| checked.at.duration_since(told) < HOSTS_TOLD;
        let known = self.latest.as_ref().is_some_and(same) && self.told.is_some_and(is_recent);
        if !known {
            self.told = Some(checked.at);
        }
        self.latest = Some(Arc::new(checked));
        if known { Taken::Known } else { Taken::Told }
    }
}

/// The health of every built cluster.
pub struct HealthBook {
    client: Client,
    entries: Arc<Mutex<HashMap<Key, Entry>>>,
    probed: WakeUps,
    changed: WakeUps,
}

impl HealthBook {
    /// A book that tells of every cluster that was probed, and of every one of which something else was found than before, or long
    /// ago.
    pub fn new(client: Client, probed: WakeUps, changed: WakeUps) -> Self {
        Self {
            client,
            entries: Arc::default(),
            probed,
            changed,
        }
    }

    /// What was found last.
    pub fn latest(&self, cluster: &Cluster) -> Option<Arc<Checked>> {
        lock(&self.entries).get(&key(cluster))?.latest.clone()
    }

    /// How long until the next probes are due. The end of those that are under way is told.
    pub fn interval(&self, cluster: &Cluster) -> Duration {
        lock(&self.entries)
            .get(&key(cluster))
            .filter(|entry| !entry.running)
            .and_then(|entry| entry.next)
            .map_or(UNHEALTHY, |next| {
                next.saturating_duration_since(Instant::now())
            })
            .max(Duration::from_secs(1))
    }

    /// Probes the cluster in the background if that is due.
    pub fn refresh(&self, cluster: &Cluster, expected: Expected) {
        let key = key(cluster);
        let known;
        {
            let mut entries = lock(&self.entries);
            let entry = entries.entry(key.clone()).or_default();
            let latest = entry.latest.as_ref();
            known = latest.map_or_else(Arc::default, |latest| Arc::clone(&latest.served));
            let due = entry.next.is_none_or(|next| next <= Instant::now());
            if entry.running || !(due || is_overtaken(&known, &expected)) {
                return;
            }
            entry.running = true;
        }
        let client = self.client.clone();
        let entries = Arc::clone(&self.entries);
        let (probed, changed) = (self.probed.clone(), self.changed.clone());
        tokio::spawn(async move {
            let checked = probe(&client, &key, &expected, known).await;
            let wait = match checked.health() {
                Health::Ok => HEALTHY,
                Health::Warn | Health::Err => UNHEALTHY,
            };
            if let Some(entry) = lock(&entries).get_mut(&key) {
                entry.running = false;
                let taken = entry.take(checked);
                let wait = match taken {
                    Taken::Doubted => AGAIN,
                    Taken::Told | Taken::Known => jittered(wait),
                };
                entry.next = Some(Instant::now() + wait);
                if taken == Taken::Told {
                    changed.wake(&key);
                }
            }
            probed.wake(&key);
        });
    }

    /// Forgets a cluster.
    pub fn forget(&self, key: &Key) {
        lock(&self.entries).remove(key);
    }
}

/// Whether certificates may have been renewed since servers were looked at.
fn is_overtaken(served: &Served, expected: &Expected) -> bool {
    let since = expected.since;
    served
        .at
        .is_some_and(|at| since.is_some_and(|since| at <= since))
}

/// Whether servers are to be looked at again: certificates seldom change, and a server may write a line about each look.
fn is_old(served: &Served, expected: &Expected) -> bool {
    let long = |at| Timestamp::now().duration_since(at) >= LOOKED;
    served.at.is_none_or(long) || is_overtaken(served, expected)
}

/// Whether anything is worse than it was: the cluster as a whole, a part of it, or a host that was there.
fn is_worse(was: &Result<Report, String>, is: &Result<Report, String>) -> bool {
    match (was, is) {
        (Ok(was), Ok(is)) => {
            let checks = was.checks().into_iter().zip(is.checks());
            let mut members = is.members.iter().filter_map(|(name, is)| {
                let was = was.members.get(name)?;
                Some((&was.check, &is.check))
            });
            let worse = |(was, is): (&Check, &Check)| is.health > was.health;
            checks.into_iter().any(worse) || members.any(worse)
        }
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

async fn probe(client: &Client, key: &Key, expected: &Expected, known: Arc<Served>) -> Checked {
    let mut served = Arc::default();
    let report = async {
        let kubeconfig = kubeconfig(client, key).await?;
        served = known;
        if is_old(&served, expected) {
            served = certificates::look(&expected.places).await.into();
        }
        health::probe(&kubeconfig, expected, &served)
            .await
            .map_err(|error| format!("the kubeconfig cannot be used: {}", crate::chain(&error)))
    };
    let report = report.await;
    Checked {
        at: Timestamp::now(),
        report,
        served,
    }
}

async fn kubeconfig(client: &Client, (namespace, cluster): &Key) -> Result<Foreign, String> {
    read_kubeconfig(client, namespace, cluster)
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
        })
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

#[cfg(test)]
mod tests {
    use api::node::{NodeFacts, NodeVersions};

    use super::{
        Taken::{Doubted, Known, Told},
        *,
    };
    use crate::health::Member;

    #[test]
    fn hosts_are_told_of_what_is_new_and_once_an_hour() {
        let at = |minutes: i64, found: &str| Checked {
            at: Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes),
            report: Err(found.to_owned()),
            served: Arc::default(),
        };
        let mut entry = Entry::default();
        let told = [
            at(0, "it is away"),
            at(5, "it is away"),
            at(10, "it is slow"),
            at(15, "it is slow"),
            at(69, "it is slow"),
            at(70, "it is slow"),
            at(75, "it is slow"),
        ]
        .map(|checked| entry.take(checked) == Taken::Told);
        assert_eq!(told, [true, false, true, false, false, true, false]);
        assert_eq!(entry.latest.unwrap().at, at(75, "").at);
    }

    fn check(health: Health) -> Check {
        Check {
            health,
            message: String::new(),
        }
    }

    fn report(api_server: Health, host: Health) -> Checked {
        let member = Member {
            check: check(host),
            versions: NodeVersions::default(),
            facts: NodeFacts::default(),
        };
        Checked {
            at: Timestamp::UNIX_EPOCH,
            report: Ok(Report {
                api_server: check(api_server),
                etcd: check(Health::Ok),
                nodes: check(Health::Ok),
                certificates: check(Health::Ok),
                own_end: None,
                members: [("a".to_owned(), member)].into(),
                kubernetes: None,
            }),
            served: Arc::default(),
        }
    }

    fn well() -> Checked {
        report(Health::Ok, Health::Ok)
    }

    fn away() -> Checked {
        Checked {
            report: Err("it is away".to_owned()),
            ..well()
        }
    }

    #[test]
    fn what_is_worse_counts_when_it_was_found_three_times_in_a_row_and_what_is_better_at_once() {
        for worse in [
            away as fn() -> Checked,
            || report(Health::Err, Health::Ok),
            || report(Health::Ok, Health::Err),
        ] {
            let mut entry = Entry::default();
            let seen = [
                well(),
                worse(),
                worse(),
                // It was nothing.
                well(),
                worse(),
                worse(),
                worse(),
                worse(),
                well(),
            ];
            let taken = seen.map(|checked| entry.take(checked));
            assert_eq!(
                taken,
                [
                    Told, Doubted, Doubted, Known, Doubted, Doubted, Told, Known, Told
                ]
            );
        }
        // What is found first has nothing to be held against.
        assert_eq!(Entry::default().take(away()), Taken::Told);
    }
}
