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
//!
//! Kinds may be opened at any time and keep their number. One that is opened again with another form is read anew as a
//! whole: so objects are always kept as they are served, and a list is their JSON.

pub(crate) mod backend;
mod history;
pub(crate) mod object;
pub(crate) mod packed;
pub(crate) mod seal;
pub(crate) mod sqlite;

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use nix::fcntl::Flock;
use rpds::RedBlackTreeMapSync;
use serde_json::Value;
use tokio::{
    sync::{oneshot, watch},
    time::{Duration, Instant},
};

pub(crate) use self::object::{Draft, Key, Object, Owner};
use self::{
    backend::{Backend, BackendError},
    history::{Job, Shared},
};

pub(crate) type Objects = RedBlackTreeMapSync<Key, Arc<Object>>;

/// A stored kind: what it is called in the backend, and which fields of it can be selected by.
#[derive(Debug, Clone)]
pub(crate) struct StoredKind {
    /// `plural.group`, the key in the backend.
    pub name: String,
    /// Paths of fields in field selectors, such as `spec.type`.
    pub fields: Vec<String>,
    /// Nothing: objects are read as they were written.
    pub read: Option<Reader>,
}

/// What reading makes of an object that was written when its kind looked otherwise.
#[derive(Clone)]
pub(crate) struct Reader(pub Arc<dyn Fn(&mut Value) + Send + Sync>);

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

/// Where a kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Its index, which stays.
    pub index: usize,
    /// Counts how often it was opened. What was drafted for another time is read anew when it is written.
    pub epoch: u64,
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

impl Event {
    /// The revision of the version before.
    fn replaces(&self) -> Option<u64> {
        match &self.previous {
            Previous::Known(object) => Some(object.revision),
            Previous::Absent | Previous::Unknown => None,
        }
    }
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
    #[error("the kind takes no new objects")]
    Terminating,
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
    /// The lock of the data directory. Fields are dropped after the writer has ended, so it is given back last.
    _lock: Option<Flock<File>>,
}

impl Store {
    /// Opens a store whose writes are committed by the caller itself: for tests with paused time, where a reply from
    /// another thread would let the clock jump ahead.
    pub fn inline(kinds: Vec<StoredKind>, backend: Box<dyn Backend>) -> Result<Self, BackendError> {
        let mut backend = backend;
        let shared = Arc::new(Shared::load(kinds, backend.as_mut())?);
        let writer = Writer::Inline(Mutex::new(backend));
        Ok(Self::with(shared, writer, None))
    }

    /// Opens a store with a writer thread that commits all waiting writes as one batch. A lone write to a quick disk is
    /// committed by its caller: the way to the thread and back costs half as much as the commit.
    pub fn threaded(
        kinds: Vec<StoredKind>,
        backend: Box<dyn Backend>,
        directory: Option<Flock<File>>,
    ) -> Result<Self, BackendError> {
        let mut backend = backend;
        let shared = Arc::new(Shared::load(kinds, backend.as_mut())?);
        let desk = Arc::new(Desk {
            backend: Mutex::new(backend),
            lone: AtomicBool::new(false),
        });
        let (sender, jobs) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("kapi-writer".into())
            .spawn({
                let (shared, desk) = (Arc::clone(&shared), Arc::clone(&desk));
                move || write_batches(&shared, &desk, &jobs)
            })
            .map_err(|error| BackendError::Failed(error.to_string()))?;
        Ok(Self::with(
            shared,
            Writer::Thread {
                desk,
                sender: Some(sender),
                thread: Some(thread),
            },
            directory,
        ))
    }

    fn with(shared: Arc<Shared>, writer: Writer, directory: Option<Flock<File>>) -> Self {
        Self {
            shared,
            writer,
            pages: Mutex::default(),
            _lock: directory,
        }
    }

    /// Opens a kind, with what the backend holds of it, or reads one that is there anew, and ends its watches. Reading
    /// takes as long as it took to load the objects.
    pub fn open_kind(&self, kind: StoredKind) -> Result<Opened, BackendError> {
        let opened = self.alone(|shared| shared.open(kind))?;
        // Later pages must not show what is read otherwise now.
        lock(&self.pages).retain(|(kind, _), _| *kind != opened.index);
        Ok(opened)
    }

    /// From now on a kind takes no new objects: a creation that began before is refused as well.
    pub fn close_kind(&self, kind: usize) {
        self.alone(|shared| shared.close(kind));
    }

    pub fn end_watches(&self, kind: usize) {
        self.alone(|shared| shared.end_watches(kind));
    }

    /// Does something while nobody commits.
    fn alone<T>(&self, work: impl FnOnce(&Shared) -> T) -> T {
        let _turn = match &self.writer {
            Writer::Inline(backend) => lock(backend),
            Writer::Thread { desk, .. } => lock(&desk.backend),
        };
        work(&self.shared)
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
            Writer::Thread { desk, sender, .. } => {
                if let Some(mut backend) = desk.take_if_lone() {
                    desk.commit(&self.shared, backend.as_mut(), vec![job]);
                } else {
                    let sender = sender.as_ref().ok_or(WriteError::Closed)?;
                    sender.send(job).map_err(|_| WriteError::Closed)?;
                }
            }
        }
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    pub fn revision(&self) -> u64 {
        self.shared.read().revision
    }

    /// How many kinds there are; they are numbered from 0.
    pub fn kinds(&self) -> usize {
        self.shared.read().kinds.len()
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
        let inner = self.shared.read();
        inner.kinds.get(kind).map(|kind| kind.changed.subscribe())
    }

    /// Wakes at every revision of any kind.
    pub fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.shared.any.subscribe()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Writer::Thread { sender, thread, .. } = &mut self.writer {
            sender.take();
            if let Some(thread) = thread.take() {
                // The backend is closed when this returns, so that the directory can be opened again at once.
                let _ = thread.join();
            }
        }
    }
}

enum Writer {
    Inline(Mutex<Box<dyn Backend>>),
    Thread {
        desk: Arc<Desk>,
        /// Both are there until the store is dropped.
        sender: Option<mpsc::Sender<Job>>,
        thread: Option<JoinHandle<()>>,
    },
}

/// Where the writer thread and lone writers take turns.
struct Desk {
    backend: Mutex<Box<dyn Backend>>,
    /// The last commit was quick and of one write, so the next one is worth no thread.
    lone: AtomicBool,
}

impl Desk {
    /// The backend, if nobody uses it and no company is expected. A caller in an async task blocks its thread for one
    /// quick commit.
    fn take_if_lone(&self) -> Option<MutexGuard<'_, Box<dyn Backend>>> {
        let lone = self.lone.load(Ordering::Relaxed);
        lone.then(|| self.backend.try_lock().ok()).flatten()
    }

    fn commit(&self, shared: &Shared, backend: &mut dyn Backend, jobs: Vec<Job>) {
        let (one, start) = (jobs.len() == 1, std::time::Instant::now());
        shared.commit(backend, jobs);
        self.lone
            .store(one && start.elapsed() < QUICK, Ordering::Relaxed);
    }
}

/// The writer thread: takes what waits, commits it as one batch, and ends when the store is dropped.
fn write_batches(shared: &Shared, desk: &Desk, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX {
            match jobs.try_recv() {
                Ok(job) => batch.push(job),
                Err(_) => break,
            }
        }
        desk.commit(shared, lock(&desk.backend).as_mut(), batch);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the pages of a list stay consistent: as long as in Kubernetes by default.
const PAGE_TTL: Duration = Duration::from_mins(5);
/// Snapshots share almost all of their memory; this only bounds what a client in a loop can pin.
const PAGES_MAX: usize = 256;
/// Writes per commit. Above this the latency of the first grows without more throughput.
const BATCH_MAX: usize = 256;
/// A commit that takes longer is not waited for on a caller's thread.
const QUICK: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        backend::{Batch, Loaded},
        *,
    };

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
            read: None,
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
        let store = Arc::new(Store::threaded(kinds(), Box::new(backend::Memory), None).unwrap());
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
