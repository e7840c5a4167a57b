//! How the hosts of every cluster with a radar stand, looked at in the background and remembered.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ansible::{
    catalogue,
    probe::{self, Options, Target},
    ssh::{Access, HostKeys},
    write_private,
};
use api::{Cluster, cluster::SecretKeyRef, radar::RadarStatus};
use controller::{Key, WakeUps, backoff::jittered, kubeconfig};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::sync::Semaphore;

use super::{Mark, Watch, answer, answer::Look, compare::judged, hosts};
use crate::{
    host_keys,
    layout::Layout,
    private::{self, Lent},
    runner::carried,
    secret,
};

/// How many hosts are looked at at once, of all clusters together: each costs a process of this machine.
const AT_ONCE: usize = 48;
/// How long a host may take to answer that took the connection.
const ANSWER: Duration = Duration::from_secs(20);

/// How long a run waits for a look, at most.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How the hosts of a cluster stand, by name.
pub type Hosts = BTreeMap<String, RadarStatus>;

#[derive(Default)]
struct Entry {
    hosts: Option<Arc<Hosts>>,
    /// What they were held against.
    mark: Option<Mark>,
    next: Option<Instant>,
    /// The number of the look that is under way, and when it began.
    under_way: Option<(u64, Instant)>,
    /// When the last one began that has ended.
    looked: Option<Instant>,
    /// Since when a run waits for one.
    awaited: Option<Instant>,
    /// The number that was drawn when a run began: looks with smaller ones count no more.
    held: u64,
}

type Entries = Arc<Mutex<HashMap<Key, Entry>>>;

/// How the hosts of every cluster with a radar stand.
pub struct RadarBook {
    client: Client,
    layout: Layout,
    entries: Entries,
    /// The number of the next look. One counter for all: a cluster that is forgotten and made anew has no look of the one before.
    next: AtomicU64,
    /// Whose turn it is, of the hosts of all clusters.
    turns: Arc<Semaphore>,
    looked: WakeUps,
    changed: WakeUps,
}

impl RadarBook {
    /// A book that tells of every cluster whose hosts were looked at, and of every one of which something else was found than before.
    pub fn new(client: Client, layout: Layout, looked: WakeUps, changed: WakeUps) -> Self {
        Self {
            client,
            layout,
            entries: Arc::default(),
            next: AtomicU64::new(1),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            looked,
            changed,
        }
    }

    /// How its hosts stood at the last look.
    pub fn latest(&self, cluster: &Cluster) -> Option<Arc<Hosts>> {
        lock(&self.entries).get(&key(cluster))?.hosts.clone()
    }

    /// How long until the next look is due. The end of one that is under way is told.
    pub fn interval(&self, cluster: &Cluster) -> Option<Duration> {
        let entries = lock(&self.entries);
        let entry = entries.get(&key(cluster));
        let entry = entry.filter(|entry| entry.under_way.is_none())?;
        let left = entry.next?.saturating_duration_since(Instant::now());
        Some(left.max(Duration::from_secs(1)))
    }

    /// Looks in the background if that is due; `before` is what the hosts' statuses say, for a book that has just been opened.
    pub fn refresh(&self, cluster: &Cluster, watch: Watch, before: impl FnOnce() -> Hosts) {
        let key = key(cluster);
        let Some((under_way, known)) = self.begin(&key, &watch, before) else {
            return;
        };
        let (client, layout) = (self.client.clone(), self.layout.clone());
        let (turns, changed) = (Arc::clone(&self.turns), self.changed.clone());
        tokio::spawn(async move {
            let found = look((&client, &layout), &key, &watch, &known, &turns).await;
            if under_way.end(found) {
                changed.wake(&key);
            }
        });
    }

    /// Begins a look if one is due, and says how the hosts stood before.
    fn begin(
        &self,
        key: &Key,
        watch: &Watch,
        before: impl FnOnce() -> Hosts,
    ) -> Option<(UnderWay, Arc<Hosts>)> {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key.clone()).or_default();
        let due = entry.next.is_none_or(|next| next <= Instant::now());
        if entry.under_way.is_some() || !(due || entry.mark.as_ref() != Some(&watch.mark)) {
            return None;
        }
        let number = self.draw();
        entry.under_way = Some((number, Instant::now()));
        let known = entry.hosts.clone().unwrap_or_else(|| Arc::new(before()));
        let under_way = UnderWay {
            entries: Arc::clone(&self.entries),
            key: key.clone(),
            number,
            every: watch.every,
            mark: watch.mark.clone(),
            looked: self.looked.clone(),
        };
        Some((under_way, known))
    }

    fn draw(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether its hosts were looked at since a run waits for that, or it has waited for so long that it waits no more.
    pub fn has_looked(&self, cluster: &Cluster) -> bool {
        let entries = lock(&self.entries);
        let entry = entries.get(&key(cluster));
        entry.is_some_and(|entry| {
            entry.awaited.is_some_and(|awaited| {
                entry.looked.is_some_and(|began| began >= awaited) || awaited.elapsed() >= PATIENCE
            })
        })
    }

    /// Has the next look be due now where a run waits for it.
    pub fn awaits(&self, cluster: &Cluster, does_a_run: bool) {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key(cluster)).or_default();
        if does_a_run {
            entry.next = None;
            entry.awaited.get_or_insert_with(Instant::now);
        } else {
            entry.awaited = None;
        }
    }

    /// Lets nothing count that is seen from now on until the next look: a run changes hosts.
    pub fn hold(&self, cluster: &Cluster) {
        if let Some(entry) = lock(&self.entries).get_mut(&key(cluster)) {
            entry.held = self.draw();
            entry.next = None;
            entry.looked = None;
            entry.awaited = None;
        }
    }

    /// Forgets a cluster.
    pub fn forget(&self, key: &Key) {
        lock(&self.entries).remove(key);
    }
}

/// A look that is under way. Where it comes to no end, the next one is due as after any other.
struct UnderWay {
    entries: Entries,
    key: Key,
    number: u64,
    every: Duration,
    mark: Mark,
    looked: WakeUps,
}

impl UnderWay {
    /// Writes down what was found, if it still counts, and says whether that is something else than before.
    fn end(self, found: Hosts) -> bool {
        let mut entries = lock(&self.entries);
        let Some((entry, began)) = self.entry(&mut entries) else {
            return false;
        };
        if self.number < entry.held {
            return false;
        }
        entry.looked = Some(began);
        self.pass(entry);
        let is_new = entry.hosts.as_deref() != Some(&found);
        entry.hosts = Some(Arc::new(found));
        is_new
    }

    /// The entry that waits for this look, which waits no more.
    fn entry<'a>(&self, entries: &'a mut HashMap<Key, Entry>) -> Option<(&'a mut Entry, Instant)> {
        let entry = entries.get_mut(&self.key)?;
        let ours = entry
            .under_way
            .take_if(|(number, _)| *number == self.number);
        ours.map(|(_, began)| (entry, began))
    }

    fn pass(&self, entry: &mut Entry) {
        entry.next = Some(Instant::now() + jittered(self.every));
        entry.mark = Some(self.mark.clone());
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some((entry, _)) = self.entry(&mut lock(&self.entries)) {
            self.pass(entry);
        }
        self.looked.wake(&self.key);
    }
}

async fn look(
    (client, layout): (&Client, &Layout),
    key: &Key,
    watch: &Watch,
    before: &Hosts,
    turns: &Semaphore,
) -> Hosts {
    let names = hosts(&watch.inputs);
    let targets = watch.inputs.targets(&names);
    // The key goes with it, also where this is given up in the middle.
    let lent = lend(&layout.cluster(&key.0, &key.1).join("radar"));
    let options = match &lent {
        Ok(lent) => options((client, layout), key, watch, lent).await,
        Err(why) => Err(why.clone()),
    };
    let options = match options {
        Ok(options) => open(&options).await.map(|()| options),
        Err(why) => Err(why),
    };
    let asked = targets.iter().map(async |target| {
        let _turn = turns.acquire().await;
        let seen = match &options {
            Ok(options) => ask(target, options).await,
            Err(why) => Err(why.clone()),
        };
        let before = before.get(target.name.as_str());
        let judged = judged(&target.name, before, seen, &watch.mark, Timestamp::now());
        (target.name.to_string(), judged)
    });
    join_all(asked).await.into_iter().collect()
}

fn lend(directory: &Path) -> Result<Lent, String> {
    let made = private::directory(directory).and_then(|()| Lent::make(directory));
    made.map_err(|error| unwritten(directory, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Logs in to the bastion, if there is one. That may take as long as the answer of a host.
async fn open(options: &Options) -> Result<(), String> {
    let patient = Options {
        login_timeout: options.login_timeout.saturating_add(ANSWER),
        ..options.clone()
    };
    let opened = probe::open(&patient).await;
    opened.map_err(|unusable| unusable.message())
}

async fn ask(target: &Target, options: &Options) -> Result<Look, String> {
    if options.access.bastion.is_none() {
        only_others(&target.address, target.port).await?;
    }
    let limit = options.connect_timeout.saturating_add(ANSWER);
    let began = Timestamp::now().as_second();
    let said = probe::run(target, options, answer::question(), limit).await;
    let said = said.map_err(|unusable| unusable.message())?;
    answer::read(&said, (began, Timestamp::now().as_second()))
}

/// Only other machines are logged in to, as for everything that a Cluster has the operator reach.
async fn only_others(address: &str, port: u16) -> Result<(), String> {
    let found = kubeconfig::addresses(address, port).await;
    found
        .map(drop)
        .map_err(|error| format!("{address}: {error}"))
}

/// How hosts are reached: as a runner reaches them, with the key in memory for as long as the look takes.
async fn options(
    (client, layout): (&Client, &Layout),
    key: &Key,
    watch: &Watch,
    lent: &Lent,
) -> Result<Options, String> {
    let (namespace, cluster) = key;
    let ssh = &watch.inputs.ssh;
    let unwritten = |error: std::io::Error| unwritten(&lent.run, &error);
    let place = &lent.place;
    let sockets = place.path.join("c");
    private::directory(&sockets).map_err(unwritten)?;
    let bastion = ssh.bastion(sockets);
    if let Some(bastion) = &bastion {
        only_others(&bastion.address, bastion.port).await?;
    }
    let read = async |reference: &SecretKeyRef, of: &str| {
        let api = Api::<Secret>::namespaced(client.clone(), namespace);
        let secret = api.get_opt(&reference.name).await;
        let name = &reference.name;
        let secret = secret.map_err(|error| {
            format!("the Secret {name} cannot be read: {}", crate::chain(&error))
        })?;
        let bytes = secret.and_then(|secret| secret.data?.remove(of));
        bytes.ok_or_else(|| format!("Secret {name} with key {of} is not there"))
    };
    let mut private_key = None;
    if let Some(reference) = &ssh.key {
        if !place.in_memory {
            return Err("secrets are kept in memory only, and neither /dev/shm nor $XDG_RUNTIME_DIR is memory here".to_owned());
        }
        let path = place.path.join("key");
        let bytes = read(reference, secret::key_of(reference)).await?;
        write_private(&path, &bytes.0).map_err(unwritten)?;
        private_key = Some(path);
    }
    let given = match &ssh.known_hosts_secret {
        Some(reference) => Some(read(reference, host_keys::key_of(reference)).await?.0),
        None => ssh.known_hosts.clone().map(String::into_bytes),
    };
    let (known_hosts, host_keys) = if let Some(mut lines) = given {
        let path = place.path.join("known_hosts");
        lines.push(b'\n');
        write_private(&path, &lines).map_err(unwritten)?;
        (path, HostKeys::Strict)
    } else {
        let path = layout.cluster(namespace, cluster).join("known_hosts");
        let brought = carried::bring(client, namespace, cluster, &path).await;
        brought.map_err(|failure| failure.message)?;
        (path, HostKeys::AcceptNew)
    };
    Ok(Options {
        access: Access {
            key: private_key,
            known_hosts,
            host_keys,
            bastion,
        },
        connect_timeout: ssh.connect_timeout.into(),
        // A host that is not there costs no more than it may take to answer a connection.
        login_timeout: ssh.connect_timeout.into(),
        oldest_python: catalogue::newest().host_python(),
    })
}

/// How the hosts stand that statuses tell of.
pub fn told<'a>(nodes: impl IntoIterator<Item = &'a api::ClusterNode>) -> Hosts {
    let nodes = nodes.into_iter();
    let told =
        nodes.filter_map(|node| Some((node.name_any(), node.status.as_ref()?.radar.clone()?)));
    told.collect()
}

fn key(cluster: &Cluster) -> Key {
    (cluster.namespace().unwrap_or_default(), cluster.name_any())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use serde_json::json;

    use super::*;

    const EVERY: Duration = Duration::from_mins(5);

    /// A book that asks nobody: its looks are begun and ended by hand.
    fn book() -> RadarBook {
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let layout = Layout::new("/nonexistent");
        RadarBook::new(client, layout, WakeUps::default(), WakeUps::default())
    }

    fn cluster() -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"namespace": "demo", "name": "one"}, "spec": {},
        }))
        .unwrap()
    }

    fn watch() -> Watch {
        let inputs = serde_json::from_value(json!({
            "kubespray": "2.30.0", "source": {"origin": "", "digest": ""}, "renew": "1d",
            "ssh": {"user": "root", "port": 22, "connectTimeout": "5s"}, "hosts": [],
        }));
        Watch {
            every: EVERY,
            inputs: inputs.unwrap(),
            mark: Mark::default(),
        }
    }

    fn begun(book: &RadarBook) -> Option<UnderWay> {
        let begun = book.begin(&key(&cluster()), &watch(), Hosts::new);
        begun.map(|(under_way, _)| under_way)
    }

    fn found(host: &str) -> Hosts {
        [(host.to_owned(), RadarStatus::default())].into()
    }

    #[tokio::test]
    async fn a_look_counts_once_and_the_next_is_due_in_an_interval() {
        let (book, cluster) = (book(), cluster());
        let look = begun(&book).unwrap();
        assert!(begun(&book).is_none());
        assert!(look.end(found("old")));
        assert_eq!(*book.latest(&cluster).unwrap(), found("old"));
        assert!(begun(&book).is_none());
        assert!(book.interval(&cluster).unwrap() > Duration::from_secs(1));
    }

    #[tokio::test]
    async fn what_a_forgotten_cluster_was_seen_to_be_is_not_told_of_the_next_by_its_name() {
        let (book, cluster) = (book(), cluster());
        let before = begun(&book).unwrap();
        book.forget(&key(&cluster));
        let anew = begun(&book).unwrap();
        assert!(!before.end(found("old")));
        assert!(book.latest(&cluster).is_none());
        assert!(begun(&book).is_none());
        assert!(anew.end(found("new")));
        assert_eq!(*book.latest(&cluster).unwrap(), found("new"));
    }

    #[tokio::test]
    async fn what_was_seen_before_a_run_changed_hosts_counts_no_more() {
        let (book, cluster) = (book(), cluster());
        let before = begun(&book).unwrap();
        book.hold(&cluster);
        book.awaits(&cluster, true);
        assert!(!before.end(found("old")));
        assert!(book.latest(&cluster).is_none());
        assert!(!book.has_looked(&cluster));
        book.awaits(&cluster, true);
        assert!(begun(&book).unwrap().end(found("new")));
        assert!(book.has_looked(&cluster));
    }

    #[tokio::test]
    async fn a_look_that_comes_to_no_end_holds_the_next_up_for_an_interval_alone() {
        let (book, cluster) = (book(), cluster());
        let look = begun(&book).unwrap();
        assert!(book.interval(&cluster).is_none());
        let failed = tokio::spawn(async move {
            let _look = look;
            panic!("as a defect does");
        });
        assert!(failed.await.unwrap_err().is_panic());
        assert!(book.interval(&cluster).unwrap() > Duration::from_secs(1));
        assert!(begun(&book).is_none());
        book.awaits(&cluster, true);
        assert!(begun(&book).is_some());
    }
}
