//! The state and the history of every kind, and how a batch of writes changes them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::{oneshot, watch};

use super::{
    Edge, Event, Expect, Key, Object, Objects, Opened, Previous, StoredKind, Write, WriteError,
    backend::{Backend, BackendError, Batch, Record},
    lock,
};

/// A write and where its outcome goes.
pub(super) struct Job {
    pub write: Write,
    pub reply: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

/// What readers and the writer share.
pub(super) struct Shared {
    inner: RwLock<Inner>,
    /// What the backend holds of kinds that were not opened yet: left as it is until they are.
    parked: Mutex<HashMap<Arc<str>, Vec<Record>>>,
    /// The revision after which the backend had every revision when it was loaded.
    floor: u64,
    pub any: watch::Sender<u64>,
}

pub(super) struct Inner {
    pub revision: u64,
    pub kinds: Vec<History>,
}

/// One kind.
pub(super) struct History {
    layout: Arc<Layout>,
    pub objects: Objects,
    pub ring: VecDeque<Arc<Event>>,
    /// What the ring holds.
    bytes: usize,
    newest: Newest,
    /// The oldest revision after which every event is in the ring.
    pub floor: u64,
    pub changed: watch::Sender<u64>,
}

/// How the objects of a kind are read, and whether there may be more of them.
struct Layout {
    kind: StoredKind,
    /// Shared with every record.
    name: Arc<str>,
    epoch: u64,
    creation: Creation,
}

/// Whether a kind takes new objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    Open,
    Closed,
}

impl Layout {
    fn read(&self, object: &Arc<Object>) -> Arc<Object> {
        let read = Object::read(
            object.key.clone(),
            object.revision,
            object.written(),
            &self.kind,
        );
        // What is kept was parsed or written by us before.
        read.map_or_else(|_| Arc::clone(object), Arc::new)
    }
}

/// The newest objects: those that are kept as they are sent, beside as they are stored.
#[derive(Default)]
struct Newest {
    objects: VecDeque<Arc<Object>>,
    bytes: usize,
}

impl Newest {
    fn push(&mut self, object: &Arc<Object>) {
        self.bytes += object.json_len();
        self.objects.push_back(Arc::clone(object));
        while self.objects.len() > NEWEST_OBJECTS || self.bytes > NEWEST_BYTES {
            let Some(object) = self.objects.pop_front() else {
                return;
            };
            self.bytes -= object.json_len();
            object.settle();
        }
    }
}

impl History {
    fn new(kind: StoredKind, epoch: u64, floor: u64, revision: u64) -> Self {
        Self {
            layout: Arc::new(Layout {
                name: kind.name.as_str().into(),
                kind,
                epoch,
                creation: Creation::Open,
            }),
            objects: Objects::default(),
            ring: VecDeque::new(),
            bytes: 0,
            newest: Newest::default(),
            floor,
            changed: watch::Sender::new(revision),
        }
    }

    /// Lets readers see an event. Where nobody holds a snapshot, the map is changed in place.
    fn publish(&mut self, event: &Arc<Event>) {
        let object = &event.object;
        if event.edge == Edge::Deleted {
            self.objects.remove_mut(&object.key);
        } else {
            self.objects
                .insert_mut(object.key.clone(), Arc::clone(object));
        }
        self.push(Arc::clone(event));
    }

    fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.object.size();
        self.newest.push(&event.object);
        self.ring.push_back(event);
        while self.ring.len() > RING_EVENTS || (self.bytes > RING_BYTES && self.ring.len() > 1) {
            if let Some(event) = self.ring.pop_front() {
                self.bytes -= event.object.size();
                self.floor = event.object.revision;
            }
        }
    }

    /// Brings back what a record of the backend did.
    fn replay(&mut self, record: &Record, floor: u64) -> Result<(), BackendError> {
        let key = Key {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
        };
        let object = Object::read(key, record.revision, &record.object, &self.layout.kind)
            .map_err(|error| {
                BackendError::Corrupt(format!("{}/{}: {error}", record.kind, record.name))
            })?;
        let object = Arc::new(object);
        let previous = match self.objects.get(&object.key) {
            Some(previous) => Previous::Known(Arc::clone(previous)),
            None if record.edge == Edge::Added => Previous::Absent,
            None => Previous::Unknown,
        };
        if record.edge == Edge::Deleted {
            self.objects.remove_mut(&object.key);
        } else {
            self.objects
                .insert_mut(object.key.clone(), Arc::clone(&object));
        }
        if record.revision > floor {
            self.push(Arc::new(Event {
                edge: record.edge,
                object,
                previous,
            }));
        }
        Ok(())
    }

    /// The same history as another layout reads it. Its watches end: what they look for may have changed.
    fn read_as(&self, layout: Layout, revision: u64) -> Self {
        let mut seen: HashMap<u64, Arc<Object>> = HashMap::new();
        let mut read = |object: &Arc<Object>| {
            let known = seen.entry(object.revision);
            Arc::clone(known.or_insert_with(|| layout.read(object)))
        };
        let mut objects = Objects::default();
        for (key, object) in &self.objects {
            objects.insert_mut(key.clone(), read(object));
        }
        let ring: VecDeque<Arc<Event>> = self
            .ring
            .iter()
            .map(|event| {
                Arc::new(Event {
                    edge: event.edge,
                    object: read(&event.object),
                    previous: match &event.previous {
                        Previous::Known(object) => Previous::Known(read(object)),
                        other => other.clone(),
                    },
                })
            })
            .collect();
        Self {
            bytes: ring.iter().map(|event| event.object.size()).sum(),
            newest: Newest::default(),
            layout: Arc::new(layout),
            objects,
            ring,
            floor: self.floor,
            changed: watch::Sender::new(revision),
        }
    }
}

impl Shared {
    pub fn load(kinds: Vec<StoredKind>, backend: &mut dyn Backend) -> Result<Self, BackendError> {
        let loaded = backend.load()?;
        let mut parked: HashMap<Arc<str>, Vec<Record>> = HashMap::new();
        for record in loaded.history {
            parked.entry(record.kind.clone()).or_default().push(record);
        }
        let shared = Self {
            inner: RwLock::new(Inner {
                revision: loaded.revision,
                kinds: Vec::new(),
            }),
            parked: Mutex::new(parked),
            floor: loaded.floor,
            any: watch::Sender::new(loaded.revision),
        };
        for kind in kinds {
            shared.open(kind)?;
        }
        Ok(shared)
    }

    /// Opens a kind, or reads one that is there anew. Only while nobody commits.
    pub fn open(&self, kind: StoredKind) -> Result<Opened, BackendError> {
        let (known, revision) = {
            let inner = self.read();
            let known = inner.kinds.iter().position(|h| *h.layout.name == kind.name);
            (known, inner.revision)
        };
        let Some(index) = known else {
            return self.append(kind, revision);
        };
        let history = {
            let inner = self.read();
            let old = &inner.kinds[index];
            let layout = Layout {
                kind,
                name: old.layout.name.clone(),
                epoch: old.layout.epoch + 1,
                creation: Creation::Open,
            };
            old.read_as(layout, revision)
        };
        let epoch = history.layout.epoch;
        self.inner_mut().kinds[index] = history;
        Ok(Opened { index, epoch })
    }

    fn append(&self, kind: StoredKind, revision: u64) -> Result<Opened, BackendError> {
        let mut history = History::new(kind, 0, self.floor, revision);
        let mut parked = lock(&self.parked);
        for record in parked.get(&history.layout.name).into_iter().flatten() {
            history.replay(record, self.floor)?;
        }
        parked.remove(&history.layout.name);
        let mut inner = self.inner_mut();
        inner.kinds.push(history);
        Ok(Opened {
            index: inner.kinds.len() - 1,
            epoch: 0,
        })
    }

    /// From now on a kind takes no new objects. Only while nobody commits.
    pub fn close(&self, kind: usize) {
        if let Some(history) = self.inner_mut().kinds.get_mut(kind) {
            let old = &history.layout;
            history.layout = Arc::new(Layout {
                kind: old.kind.clone(),
                name: old.name.clone(),
                epoch: old.epoch,
                creation: Creation::Closed,
            });
        }
    }

    /// Ends the watches of a kind.
    pub fn end_watches(&self, kind: usize) {
        let mut inner = self.inner_mut();
        let revision = inner.revision;
        if let Some(history) = inner.kinds.get_mut(kind) {
            history.changed = watch::Sender::new(revision);
        }
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner_mut(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the jobs as one batch, publishes them, and replies. Only one caller at a time.
    pub fn commit(&self, backend: &mut dyn Backend, jobs: Vec<Job>) {
        let staged = Staged::new(&self.read(), jobs);
        if staged.done.is_empty() {
            return;
        }
        match backend.commit(&staged.batch) {
            Ok(()) => self.publish(staged),
            Err(error) => {
                tracing::error!(error = %error, "the store did not commit");
                for done in staged.done {
                    let _ = done.reply.send(Err(match &error {
                        BackendError::Full => WriteError::Full,
                        error => WriteError::Failed(error.to_string()),
                    }));
                }
            }
        }
    }

    fn publish(&self, staged: Staged) {
        let revision = staged.batch.revision;
        let mut touched: Vec<usize> = staged.done.iter().map(|done| done.kind).collect();
        touched.sort_unstable();
        touched.dedup();
        {
            let mut inner = self.inner_mut();
            inner.revision = revision;
            for done in &staged.done {
                if let Some(history) = inner.kinds.get_mut(done.kind) {
                    history.publish(&done.event);
                }
            }
        }
        let inner = self.read();
        for history in touched.iter().filter_map(|kind| inner.kinds.get(*kind)) {
            history.changed.send_replace(revision);
        }
        drop(inner);
        self.any.send_replace(revision);
        for done in staged.done {
            let _ = done.reply.send(Ok(Arc::clone(&done.event.object)));
        }
    }
}

/// A batch before it is committed: nobody sees anything of it yet.
struct Staged {
    done: Vec<Done>,
    batch: Batch,
    /// What the batch itself has made of objects.
    objects: HashMap<(usize, Key), Option<Arc<Object>>>,
}

/// A write that only has to be committed.
struct Done {
    kind: usize,
    event: Arc<Event>,
    reply: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

impl Staged {
    /// Stages what can be done, and refuses the rest.
    fn new(inner: &Inner, jobs: Vec<Job>) -> Self {
        let mut staged = Self {
            done: Vec::with_capacity(jobs.len()),
            batch: Batch {
                revision: inner.revision,
                records: Vec::with_capacity(jobs.len()),
            },
            objects: HashMap::with_capacity(jobs.len()),
        };
        for Job { write, reply } in jobs {
            let kind = write.kind;
            match staged.stage(inner, write) {
                Ok(event) => staged.done.push(Done { kind, event, reply }),
                Err(error) => {
                    let _ = reply.send(Err(error));
                }
            }
        }
        staged
    }

    /// Checks one write against what there is by then.
    fn stage(&mut self, inner: &Inner, write: Write) -> Result<Arc<Event>, WriteError> {
        let history = inner.kinds.get(write.kind).ok_or(WriteError::Conflict)?;
        let layout = &history.layout;
        let place = (write.kind, write.key.clone());
        let current = match self.objects.get(&place) {
            Some(staged) => staged.clone(),
            None => history.objects.get(&write.key).cloned(),
        };
        match (write.expect, &current) {
            (Expect::Absent, None) if layout.creation == Creation::Closed => {
                return Err(WriteError::Terminating);
            }
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(expected), Some(current)) if current.revision == expected => {}
            (Expect::Revision(_), _) => return Err(WriteError::Conflict),
        }
        let revision = self.batch.revision + 1;
        let fits = write.draft.epoch() == layout.epoch;
        let mut object = Arc::new(write.draft.finish(write.key, revision));
        if !fits {
            // The kind was changed after the request had begun.
            object = layout.read(&object);
        }
        let (edge, left) = match (&current, write.delete) {
            (_, true) => (Edge::Deleted, None),
            (None, false) => (Edge::Added, Some(Arc::clone(&object))),
            (Some(_), false) => (Edge::Modified, Some(Arc::clone(&object))),
        };
        self.objects.insert(place, left);
        let event = Event {
            edge,
            object,
            previous: current.map_or(Previous::Absent, Previous::Known),
        };
        self.batch.revision = revision;
        self.batch.records.push(Record {
            kind: layout.name.clone(),
            namespace: event.object.key.namespace.clone(),
            name: event.object.key.name.clone(),
            revision,
            edge,
            replaces: event.replaces(),
            object: event.object.written().clone(),
        });
        Ok(Arc::new(event))
    }
}

/// History per kind; a watcher that is further behind must list again.
const RING_EVENTS: usize = 4096;
/// Old versions are pinned by the history: bound them by size as well.
const RING_BYTES: usize = 32 << 20;
/// Of each kind: enough for the watchers that keep up.
const NEWEST_OBJECTS: usize = 64;
const NEWEST_BYTES: usize = 1 << 20;
