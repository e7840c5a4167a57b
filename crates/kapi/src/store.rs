//! The objects in memory, their history, and the one writer.
//!
//! Reads never touch the backend: every kind is a persistent map, so a snapshot of it is one reference count, and pages
//! of a list come from the first page's snapshot. A write is optimistic, as in etcd: the caller names the revision it
//! started from, and the writer refuses it when another was faster. All work that can be done outside (validation,
//! serialisation) is done outside, so the writer only splices the revision in, commits, and publishes.
//!
//! Order: commit, then publish, then reply. What a reader has seen is therefore durable, and what a writer was told is
//! visible. Watches read from a ring per kind under the same lock as the map, so that "list, then watch from its
//! revision" can neither lose nor repeat an event.

pub(crate) mod backend;
pub(crate) mod object;
pub(crate) mod seal;
pub(crate) mod sqlite;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc},
    thread::JoinHandle,
};

use rpds::RedBlackTreeMapSync;
use tokio::{
    sync::{oneshot, watch},
    time::{Duration, Instant},
};

use self::backend::{Backend, BackendError, Batch, Record};
pub(crate) use self::object::{Draft, Key, Object};

pub(crate) type Objects = RedBlackTreeMapSync<Key, Arc<Object>>;

/// A stored kind: what it is called in the backend, and which fields of it can be selected by.
#[derive(Debug, Clone)]
pub(crate) struct StoredKind {
    /// `plural.group`, the key in the backend.
    pub name: String,
    /// Paths of fields in field selectors, such as `spec.type`.
    pub fields: Vec<String>,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Added,
    Modified,
    Deleted,
}

/// The version of the object before an event.
#[derive(Debug, Clone)]
pub(crate) enum Previous {
    Absent,
    Known(Arc<Object>),
    /// The event was read back from disk and its predecessor is no longer there.
    Unknown,
}

/// One revision of the store.
#[derive(Debug)]
pub(crate) struct Event {
    pub edge: Edge,
    pub object: Arc<Object>,
    pub previous: Previous,
}

/// What the writer shall find before it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Write {
    pub kind: usize,
    pub key: Key,
    pub expect: Expect,
    pub draft: Draft,
    pub delete: bool,
}

/// Why a write was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("the object changed meanwhile")]
    Conflict,
    #[error("the object is there already")]
    Exists,
    #[error("the disk is full")]
    Full,
    #[error("the store failed: {0}")]
    Failed(String),
    #[error("the store is closed")]
    Closed,
}

/// A list as it was at one revision.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub revision: u64,
    pub objects: Objects,
}

/// Answer to a question for events after a revision.
pub(crate) enum Events {
    /// The events, oldest first, and the revision up to which they are complete.
    Some(Vec<Arc<Event>>, u64),
    /// The history does not reach back that far; the oldest revision a watch may start from.
    Gone(u64),
}

pub(crate) struct Store {
    shared: Arc<Shared>,
    writer: Writer,
    pages: Mutex<HashMap<(usize, u64), (Snapshot, Instant)>>,
}

impl Store {
    /// Opens a store whose writes are committed by the caller itself: for tests with paused time, where a reply from
    /// another thread would let the clock jump ahead.
    pub fn inline(kinds: Vec<StoredKind>, backend: Box<dyn Backend>) -> Result<Self, BackendError> {
        let mut backend = backend;
        let shared = Arc::new(Shared::load(kinds, backend.as_mut())?);
        Ok(Self::with(shared, Writer::Inline(Mutex::new(backend))))
    }

    /// Opens a store with a writer thread that commits all waiting writes as one batch.
    pub fn threaded(
        kinds: Vec<StoredKind>,
        backend: Box<dyn Backend>,
    ) -> Result<Self, BackendError> {
        let mut backend = backend;
        let shared = Arc::new(Shared::load(kinds, backend.as_mut())?);
        let (sender, jobs) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("kapi-writer".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || write_batches(&shared, backend.as_mut(), &jobs)
            })
            .map_err(|error| BackendError::Failed(error.to_string()))?;
        Ok(Self::with(
            shared,
            Writer::Thread(Mutex::new(Some(sender)), Mutex::new(Some(thread))),
        ))
    }

    fn with(shared: Arc<Shared>, writer: Writer) -> Self {
        Self {
            shared,
            writer,
            pages: Mutex::default(),
        }
    }

    /// Writes one object. Returns it with its new revision, after it became visible to readers.
    pub async fn write(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        let (reply, answer) = oneshot::channel();
        let job = Job { write, reply };
        match &self.writer {
            Writer::Inline(backend) => {
                let mut backend = lock(backend);
                self.shared.commit(backend.as_mut(), vec![job]);
            }
            Writer::Thread(sender, _) => {
                let sender = lock(sender).clone().ok_or(WriteError::Closed)?;
                sender.send(job).map_err(|_| WriteError::Closed)?;
            }
        }
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    pub fn revision(&self) -> u64 {
        self.shared.read().revision
    }

    pub fn kinds(&self) -> &[StoredKind] {
        &self.shared.kinds
    }

    pub fn object(&self, kind: usize, key: &Key) -> Option<Arc<Object>> {
        self.shared
            .read()
            .kinds
            .get(kind)?
            .objects
            .get(key)
            .cloned()
    }

    pub fn snapshot(&self, kind: usize) -> Snapshot {
        let inner = self.shared.read();
        Snapshot {
            revision: inner.revision,
            objects: inner
                .kinds
                .get(kind)
                .map(|kind| kind.objects.clone())
                .unwrap_or_default(),
        }
    }

    /// Keeps a snapshot for the next pages of a list, for [`PAGE_TTL`].
    pub fn keep_page(&self, kind: usize, snapshot: &Snapshot) {
        let mut pages = lock(&self.pages);
        pages.retain(|_, (_, since)| since.elapsed() < PAGE_TTL);
        if pages.len() >= PAGES_MAX
            && let Some(oldest) = pages
                .iter()
                .min_by_key(|(_, (_, since))| *since)
                .map(|(id, _)| *id)
        {
            pages.remove(&oldest);
        }
        pages
            .entry((kind, snapshot.revision))
            .or_insert_with(|| (snapshot.clone(), Instant::now()));
    }

    /// The snapshot that an earlier page came from, if it is still kept.
    pub fn page(&self, kind: usize, revision: u64) -> Option<Snapshot> {
        lock(&self.pages)
            .get(&(kind, revision))
            .filter(|(_, since)| since.elapsed() < PAGE_TTL)
            .map(|(snapshot, _)| snapshot.clone())
    }

    /// The events of a kind after `revision`.
    pub fn events(&self, kind: usize, revision: u64) -> Events {
        let inner = self.shared.read();
        let Some(history) = inner.kinds.get(kind) else {
            return Events::Gone(inner.revision);
        };
        if revision < history.floor || revision > inner.revision {
            return Events::Gone(history.floor);
        }
        let from = history
            .ring
            .partition_point(|event| event.object.revision <= revision);
        Events::Some(
            history.ring.range(from..).cloned().collect(),
            inner.revision,
        )
    }

    /// Wakes when the kind has new events. Subscribe before reading, and no event is missed.
    pub fn subscribe(&self, kind: usize) -> Option<watch::Receiver<u64>> {
        self.shared.changed.get(kind).map(watch::Sender::subscribe)
    }

    /// Wakes at every revision of any kind.
    pub fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.shared.any.subscribe()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Writer::Thread(sender, thread) = &self.writer {
            lock(sender).take();
            if let Some(thread) = lock(thread).take() {
                // The backend is closed when this returns, so that the directory can be opened again at once.
                let _ = thread.join();
            }
        }
    }
}

enum Writer {
    Inline(Mutex<Box<dyn Backend>>),
    Thread(
        Mutex<Option<mpsc::Sender<Job>>>,
        Mutex<Option<JoinHandle<()>>>,
    ),
}

struct Job {
    write: Write,
    reply: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

struct Shared {
    kinds: Vec<StoredKind>,
    inner: RwLock<Inner>,
    changed: Vec<watch::Sender<u64>>,
    any: watch::Sender<u64>,
}

struct Inner {
    revision: u64,
    kinds: Vec<History>,
}

#[derive(Default)]
struct History {
    objects: Objects,
    ring: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The oldest revision after which every event is in the ring.
    floor: u64,
}

impl History {
    fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.object.bytes.len();
        self.ring.push_back(event);
        while self.ring.len() > RING_EVENTS || (self.bytes > RING_BYTES && self.ring.len() > 1) {
            if let Some(event) = self.ring.pop_front() {
                self.bytes -= event.object.bytes.len();
                self.floor = event.object.revision;
            }
        }
    }
}

impl Shared {
    fn load(kinds: Vec<StoredKind>, backend: &mut dyn Backend) -> Result<Self, BackendError> {
        let loaded = backend.load()?;
        let index: HashMap<&str, usize> = kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| (kind.name.as_str(), index))
            .collect();
        let mut histories: Vec<History> = kinds
            .iter()
            .map(|_| History {
                floor: loaded.floor,
                ..History::default()
            })
            .collect();
        for record in loaded.objects {
            if let Some((history, object)) = place(&kinds, &index, &mut histories, &record)? {
                history.objects.insert_mut(object.key.clone(), object);
            }
        }
        let mut latest: HashMap<(String, Key), Arc<Object>> = HashMap::new();
        for record in loaded.log {
            let Some((history, object)) = place(&kinds, &index, &mut histories, &record)? else {
                continue;
            };
            let previous = latest.insert(
                (record.kind.to_string(), object.key.clone()),
                Arc::clone(&object),
            );
            let previous = match (record.edge, previous) {
                (Edge::Added, _) => Previous::Absent,
                (_, Some(object)) => Previous::Known(object),
                (_, None) => Previous::Unknown,
            };
            history.push(Arc::new(Event {
                edge: record.edge,
                object,
                previous,
            }));
        }
        let revision = loaded.revision;
        Ok(Self {
            changed: kinds.iter().map(|_| watch::Sender::new(revision)).collect(),
            any: watch::Sender::new(revision),
            inner: RwLock::new(Inner {
                revision,
                kinds: histories,
            }),
            kinds,
        })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the jobs as one batch, publishes them, and replies. Only one caller at a time.
    fn commit(&self, backend: &mut dyn Backend, jobs: Vec<Job>) {
        let (mut revision, mut maps) = {
            let inner = self.read();
            let maps: Vec<Objects> = inner.kinds.iter().map(|k| k.objects.clone()).collect();
            (inner.revision, maps)
        };
        let mut done = Vec::with_capacity(jobs.len());
        let mut batch = Batch::default();
        for job in jobs {
            match stage(job.write, revision + 1, &mut maps) {
                Ok((kind, event)) => {
                    revision += 1;
                    batch.revision = revision;
                    batch.records.push(Record {
                        kind: self.kinds[kind].name.clone().into(),
                        namespace: event.object.key.namespace.clone(),
                        name: event.object.key.name.clone(),
                        revision,
                        edge: event.edge,
                        bytes: event.object.bytes.clone(),
                    });
                    done.push((kind, event, job.reply));
                }
                Err(error) => {
                    let _ = job.reply.send(Err(error));
                }
            }
        }
        if done.is_empty() {
            return;
        }
        if let Err(error) = backend.commit(&batch) {
            tracing::error!(error = %error, "the store did not commit");
            for (_, _, reply) in done {
                let _ = reply.send(Err(match &error {
                    BackendError::Full => WriteError::Full,
                    error => WriteError::Failed(error.to_string()),
                }));
            }
            return;
        }
        self.publish(revision, maps, done);
    }

    fn publish(&self, revision: u64, maps: Vec<Objects>, done: Vec<Done>) {
        let mut touched = vec![false; maps.len()];
        {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            inner.revision = revision;
            for (history, map) in inner.kinds.iter_mut().zip(maps) {
                history.objects = map;
            }
            for (kind, event, _) in &done {
                if let Some(history) = inner.kinds.get_mut(*kind) {
                    history.push(Arc::clone(event));
                }
                if let Some(touched) = touched.get_mut(*kind) {
                    *touched = true;
                }
            }
        }
        for (sender, touched) in self.changed.iter().zip(touched) {
            if touched {
                sender.send_replace(revision);
            }
        }
        self.any.send_replace(revision);
        for (_, event, reply) in done {
            let _ = reply.send(Ok(Arc::clone(&event.object)));
        }
    }
}

/// Checks one write against the working copy and puts it there.
fn stage(
    write: Write,
    revision: u64,
    maps: &mut [Objects],
) -> Result<(usize, Arc<Event>), WriteError> {
    let map = maps.get_mut(write.kind).ok_or(WriteError::Conflict)?;
    let current = map.get(&write.key).cloned();
    match (write.expect, &current) {
        (Expect::Absent, None) => {}
        (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
        (Expect::Revision(expected), Some(current)) if current.revision == expected => {}
        (Expect::Revision(_), _) => return Err(WriteError::Conflict),
    }
    let object = Arc::new(write.draft.finish(write.key.clone(), revision));
    if write.delete {
        map.remove_mut(&write.key);
    } else {
        map.insert_mut(write.key, Arc::clone(&object));
    }
    let edge = match (&current, write.delete) {
        (_, true) => Edge::Deleted,
        (None, false) => Edge::Added,
        (Some(_), false) => Edge::Modified,
    };
    let previous = current.map_or(Previous::Absent, Previous::Known);
    Ok((
        write.kind,
        Arc::new(Event {
            edge,
            object,
            previous,
        }),
    ))
}

type Done = (
    usize,
    Arc<Event>,
    oneshot::Sender<Result<Arc<Object>, WriteError>>,
);

/// Parses a record of the backend, unless nothing serves its kind any more.
fn place<'a>(
    kinds: &[StoredKind],
    index: &HashMap<&str, usize>,
    histories: &'a mut [History],
    record: &Record,
) -> Result<Option<(&'a mut History, Arc<Object>)>, BackendError> {
    let Some(kind) = index.get(&*record.kind).copied() else {
        return Ok(None);
    };
    let (Some(history), Some(stored)) = (histories.get_mut(kind), kinds.get(kind)) else {
        return Ok(None);
    };
    let object = Object::parse(record, &stored.fields).map_err(|error| {
        BackendError::Corrupt(format!("{}/{}: {error}", record.kind, record.name))
    })?;
    Ok(Some((history, Arc::new(object))))
}

/// The writer thread: takes what waits, commits it as one batch, and ends when the store is dropped.
fn write_batches(shared: &Shared, backend: &mut dyn Backend, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX {
            match jobs.try_recv() {
                Ok(job) => batch.push(job),
                Err(_) => break,
            }
        }
        shared.commit(backend, batch);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the pages of a list stay consistent: as long as in Kubernetes by default.
const PAGE_TTL: Duration = Duration::from_mins(5);
/// Snapshots share almost all of their memory; this only bounds what a client in a loop can pin.
const PAGES_MAX: usize = 256;
/// History per kind; a watcher that is further behind must list again.
const RING_EVENTS: usize = 4096;
/// Old versions are pinned by the history: bound them by size as well.
const RING_BYTES: usize = 32 << 20;
/// Writes per commit. Above this the latency of the first grows without more throughput.
const BATCH_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{backend::Loaded, *};

    /// A disk that is full for one commit.
    struct FullOnce(bool);

    impl Backend for FullOnce {
        fn load(&mut self) -> Result<Loaded, BackendError> {
            backend::Memory.load()
        }

        fn commit(&mut self, _: &Batch) -> Result<(), BackendError> {
            if std::mem::replace(&mut self.0, false) {
                Err(BackendError::Full)
            } else {
                Ok(())
            }
        }
    }

    fn kinds() -> Vec<StoredKind> {
        vec![StoredKind {
            name: "configmaps".into(),
            fields: Vec::new(),
        }]
    }

    fn write(name: &str) -> Write {
        Write {
            kind: 0,
            key: Key::new("default", name),
            expect: Expect::Absent,
            draft: Draft::new(&json!({"metadata": {"name": name}}), &[]),
            delete: false,
        }
    }

    #[tokio::test]
    async fn a_full_disk_changes_nothing_that_is_seen() {
        let store = Store::inline(kinds(), Box::new(FullOnce(true))).unwrap();
        let before = store.revision();
        let error = store.write(write("one")).await.unwrap_err();
        assert!(matches!(error, WriteError::Full));
        assert_eq!(store.revision(), before);
        assert!(store.object(0, &Key::new("default", "one")).is_none());
        store.write(write("one")).await.unwrap();
        assert_eq!(store.revision(), before + 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_two_writers_that_expect_the_same_one_wins() {
        let store = Arc::new(Store::threaded(kinds(), Box::new(backend::Memory)).unwrap());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let store = Arc::clone(&store);
            tasks.spawn(async move { store.write(write("one")).await.is_ok() });
        }
        let won = tasks
            .join_all()
            .await
            .into_iter()
            .filter(|won| *won)
            .count();
        assert_eq!(won, 1);
    }
}
