//! The state and the history of every kind, and how a batch of writes changes them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use tokio::sync::{oneshot, watch};

use super::{
    Edge, Event, Expect, Object, Objects, Previous, StoredKind, Write, WriteError,
    backend::{Backend, BackendError, Batch, Record},
};

/// A write and where its outcome goes.
pub(super) struct Job {
    pub write: Write,
    pub reply: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

/// What readers and the writer share.
pub(super) struct Shared {
    pub kinds: Vec<StoredKind>,
    /// Of the kinds, shared with every record.
    names: Vec<Arc<str>>,
    inner: RwLock<Inner>,
    pub changed: Vec<watch::Sender<u64>>,
    pub any: watch::Sender<u64>,
}

pub(super) struct Inner {
    pub revision: u64,
    pub kinds: Vec<History>,
}

/// One kind.
#[derive(Default)]
pub(super) struct History {
    pub objects: Objects,
    pub ring: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The oldest revision after which every event is in the ring.
    pub floor: u64,
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

    /// Brings back what a record of the backend did.
    fn replay(
        &mut self,
        record: &Record,
        kind: &StoredKind,
        floor: u64,
    ) -> Result<(), BackendError> {
        let object = Object::parse(record, &kind.fields).map_err(|error| {
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
}

impl Shared {
    pub fn load(kinds: Vec<StoredKind>, backend: &mut dyn Backend) -> Result<Self, BackendError> {
        let loaded = backend.load()?;
        let mut histories: Vec<History> = kinds
            .iter()
            .map(|_| History {
                floor: loaded.floor,
                ..History::default()
            })
            .collect();
        let index: HashMap<&str, usize> = kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| (kind.name.as_str(), index))
            .collect();
        for record in &loaded.history {
            // What nothing serves any more stays where it is.
            let Some(place) = index.get(&*record.kind) else {
                continue;
            };
            if let (Some(kind), Some(history)) = (kinds.get(*place), histories.get_mut(*place)) {
                history.replay(record, kind, loaded.floor)?;
            }
        }
        let revision = loaded.revision;
        Ok(Self {
            changed: kinds.iter().map(|_| watch::Sender::new(revision)).collect(),
            any: watch::Sender::new(revision),
            names: kinds.iter().map(|kind| kind.name.as_str().into()).collect(),
            inner: RwLock::new(Inner {
                revision,
                kinds: histories,
            }),
            kinds,
        })
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the jobs as one batch, publishes them, and replies. Only one caller at a time.
    pub fn commit(&self, backend: &mut dyn Backend, jobs: Vec<Job>) {
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
                        kind: self.names[kind].clone(),
                        namespace: event.object.key.namespace.clone(),
                        name: event.object.key.name.clone(),
                        revision,
                        edge: event.edge,
                        replaces: event.replaces(),
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

/// History per kind; a watcher that is further behind must list again.
const RING_EVENTS: usize = 4096;
/// Old versions are pinned by the history: bound them by size as well.
const RING_BYTES: usize = 32 << 20;
