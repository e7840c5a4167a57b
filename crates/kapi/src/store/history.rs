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
    bytes: usize,
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
    fn read(&self, object: &Object) -> Arc<Object> {
        let read = Object::read(
            object.key.clone(),
            object.revision,
            object.written().clone(),
            &self.kind,
        );
        // What is kept was parsed or written by us before.
        Arc::new(read.unwrap_or_else(|_| object.clone()))
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
            floor,
            changed: watch::Sender::new(revision),
        }
    }

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

    /// Brings back what a record of the backend did.
    fn replay(&mut self, record: &Record, floor: u64) -> Result<(), BackendError> {
        let key = Key {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
        };
        let object = Object::read(
            key,
            record.revision,
            record.bytes.clone(),
            &self.layout.kind,
        )
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
            bytes: ring.iter().map(|event| event.object.bytes.len()).sum(),
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
        let (mut revision, mut kinds) = {
            let inner = self.read();
            let kinds = inner.kinds.iter().map(|history| Working {
                objects: history.objects.clone(),
                layout: Arc::clone(&history.layout),
            });
            (inner.revision, kinds.collect::<Vec<_>>())
        };
        let mut done = Vec::with_capacity(jobs.len());
        let mut batch = Batch::default();
        for job in jobs {
            let kind = job.write.kind;
            let staged = match kinds.get_mut(kind) {
                Some(working) => working.stage(job.write, revision + 1),
                None => Err(WriteError::Conflict),
            };
            match staged {
                Ok(event) => {
                    revision += 1;
                    batch.revision = revision;
                    batch.records.push(Record {
                        kind: kinds[kind].layout.name.clone(),
                        namespace: event.object.key.namespace.clone(),
                        name: event.object.key.name.clone(),
                        revision,
                        edge: event.edge,
                        replaces: event.replaces(),
                        bytes: event.object.written().clone(),
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
        self.publish(revision, kinds, done);
    }

    fn publish(&self, revision: u64, kinds: Vec<Working>, done: Vec<Done>) {
        {
            let mut inner = self.inner_mut();
            inner.revision = revision;
            for (history, working) in inner.kinds.iter_mut().zip(kinds) {
                history.objects = working.objects;
            }
            for (kind, event, _) in &done {
                if let Some(history) = inner.kinds.get_mut(*kind) {
                    history.push(Arc::clone(event));
                }
            }
        }
        let mut touched: Vec<usize> = done.iter().map(|(kind, ..)| *kind).collect();
        touched.sort_unstable();
        touched.dedup();
        let inner = self.read();
        for history in touched.iter().filter_map(|kind| inner.kinds.get(*kind)) {
            history.changed.send_replace(revision);
        }
        drop(inner);
        self.any.send_replace(revision);
        for (_, event, reply) in done {
            let _ = reply.send(Ok(Arc::clone(&event.object)));
        }
    }
}

/// One kind while a batch is put together.
struct Working {
    objects: Objects,
    layout: Arc<Layout>,
}

impl Working {
    /// Checks one write against the working copy and puts it there.
    fn stage(&mut self, write: Write, revision: u64) -> Result<Arc<Event>, WriteError> {
        let current = self.objects.get(&write.key).cloned();
        match (write.expect, &current) {
            (Expect::Absent, None) if self.layout.creation == Creation::Closed => {
                return Err(WriteError::Terminating);
            }
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(expected), Some(current)) if current.revision == expected => {}
            (Expect::Revision(_), _) => return Err(WriteError::Conflict),
        }
        let fits = write.draft.epoch() == self.layout.epoch;
        let mut object = Arc::new(write.draft.finish(write.key.clone(), revision));
        if !fits {
            // The kind was changed after the request had begun.
            object = self.layout.read(&object);
        }
        if write.delete {
            self.objects.remove_mut(&write.key);
        } else {
            self.objects.insert_mut(write.key, Arc::clone(&object));
        }
        let edge = match (&current, write.delete) {
            (_, true) => Edge::Deleted,
            (None, false) => Edge::Added,
            (Some(_), false) => Edge::Modified,
        };
        let previous = current.map_or(Previous::Absent, Previous::Known);
        Ok(Arc::new(Event {
            edge,
            object,
            previous,
        }))
    }
}

type Done = (
    usize,
    Arc<Event>,
    oneshot::Sender<Result<Arc<Object>, WriteError>>,
);

/// History per kind; a watcher that is further behind must list again.
const RING_EVENTS: usize = 4096;
/// Old versions are pinned by the history: bound them by size as well.
const RING_BYTES: usize = 32 << 20;
