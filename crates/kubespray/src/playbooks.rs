//! Playbooks brought and cut in the background, so that no reconciler waits for a network or a disk.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ansible::{catalogue::Installable, slice::Playbook};
use api::{Cluster, KubesprayVersion, cluster::Source};
use kube::ResourceExt;
use tokio::sync::{OnceCell, mpsc};

use crate::{inputs::SourceInput, layout::Layout, problem::Problem};

mod load;

pub use load::{LoadError, load};

/// How long until playbooks that could not be had are asked for again.
pub const RETRY: Duration = Duration::from_mins(1);

/// The upstream repository.
pub const UPSTREAM: &str = "https://github.com/kubernetes-sigs/kubespray.git";

/// Which playbooks are wanted.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Wish {
    /// The kubespray release that they are, or follow.
    pub release: KubesprayVersion,
    /// Where they are.
    pub place: Place,
}

/// Where playbooks are.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Place {
    /// In a git repository.
    Git {
        /// Its address.
        url: String,
        /// A tag, branch or commit.
        reference: String,
    },
    /// In a directory of this machine.
    Path(PathBuf),
    /// In an OCI image.
    Image(String),
}

impl Place {
    /// The place that a spec names, or the release's tag in the upstream repository.
    pub fn of(source: Option<Source>, release: KubesprayVersion) -> Self {
        let source = source.unwrap_or_default();
        if let Some(path) = source.path {
            return Self::Path(path.into());
        }
        if let Some(image) = source.image {
            return Self::Image(image);
        }
        let git = source.git.unwrap_or_default();
        Self::Git {
            url: git.url.unwrap_or_else(|| UPSTREAM.to_owned()),
            reference: git.reference.unwrap_or_else(|| format!("v{release}")),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Git { url, reference } => write!(f, "git {url} at {reference}"),
            Self::Path(path) => write!(f, "directory {}", path.display()),
            Self::Image(image) => write!(f, "image {image}"),
        }
    }
}

/// Playbooks that are there, cut into plays.
#[derive(Debug)]
pub struct Checkout {
    /// What they are.
    pub source: SourceInput,
    /// Where they lie.
    pub directory: PathBuf,
    /// The Kubernetes versions that they install.
    pub installable: Installable,
    /// The plays of cluster.yml.
    pub create: Playbook,
    /// The plays of reset.yml.
    pub reset: Playbook,
}

/// How playbooks stand.
#[derive(Clone, Debug)]
pub enum Playbooks {
    /// Nobody knows which are wanted.
    Unwanted,
    /// They are being brought.
    Fetching,
    /// They could not be had, which may pass.
    Unreachable(String),
    /// They cannot be used.
    Unusable(Problem),
    /// They are there.
    Ready(Arc<Checkout>),
}

/// A cluster by namespace and name.
pub type Key = (String, String);

struct Entry {
    wish: Wish,
    generation: i64,
    state: Playbooks,
    since: Instant,
}

/// The playbooks of every cluster.
pub struct PlaybookCache {
    layout: Layout,
    entries: Arc<Mutex<HashMap<Key, Entry>>>,
    loaded: Mutex<HashMap<Wish, Arc<OnceCell<Arc<Checkout>>>>>,
    changed: mpsc::UnboundedSender<Key>,
}

impl PlaybookCache {
    /// A cache below the data directory that tells `changed` of every cluster whose playbooks came or failed.
    pub fn new(layout: Layout, changed: mpsc::UnboundedSender<Key>) -> Self {
        Self {
            layout,
            entries: Arc::default(),
            loaded: Mutex::default(),
            changed,
        }
    }

    /// How the playbooks of a cluster stand. Starts bringing them where that is needed.
    pub fn get(&self, cluster: &Cluster, wish: Wish) -> Playbooks {
        let key = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let generation = cluster.metadata.generation.unwrap_or_default();
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(&key)
            && entry.wish == wish
            && !is_stale(entry, generation)
        {
            return entry.state.clone();
        }
        let before = entries.remove(&key).map(|entry| entry.state);
        // What was there is shown until the answer comes, so that a second look at a directory does not flicker.
        let state = match before {
            Some(state @ (Playbooks::Unreachable(_) | Playbooks::Unusable(_))) => state,
            _ => Playbooks::Fetching,
        };
        let entry = Entry {
            wish: wish.clone(),
            generation,
            state: state.clone(),
            since: Instant::now(),
        };
        entries.insert(key.clone(), entry);
        drop(entries);
        self.bring(key, wish);
        state
    }

    /// Forgets a cluster.
    pub fn forget(&self, key: &Key) {
        lock(&self.entries).remove(key);
    }

    fn bring(&self, key: Key, wish: Wish) {
        // A directory may have been edited; what has an address and was brought once stays what it is.
        let cell = match wish.place {
            Place::Path(_) => Arc::default(),
            _ => Arc::clone(lock(&self.loaded).entry(wish.clone()).or_default()),
        };
        let entries = Arc::clone(&self.entries);
        let changed = self.changed.clone();
        let layout = self.layout.clone();
        tokio::spawn(async move {
            let state = match cell
                .get_or_try_init(|| async { load(&wish, &layout).await.map(Arc::new) })
                .await
            {
                Ok(checkout) => Playbooks::Ready(Arc::clone(checkout)),
                Err(LoadError::Unusable(problem)) => Playbooks::Unusable(problem),
                Err(LoadError::Unreachable(reason)) => Playbooks::Unreachable(reason),
            };
            if let Some(entry) = lock(&entries).get_mut(&key)
                && entry.wish == wish
            {
                entry.state = state;
                entry.since = Instant::now();
            }
            // Nobody listens any more when the operator stops.
            let _ = changed.send(key);
        });
    }
}

fn is_stale(entry: &Entry, generation: i64) -> bool {
    match (&entry.state, &entry.wish.place) {
        (Playbooks::Ready(_), Place::Path(_)) => entry.generation != generation,
        (Playbooks::Fetching | Playbooks::Ready(_), _) => false,
        _ => entry.generation != generation || entry.since.elapsed() >= RETRY / 2,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directory of a source in the data directory.
pub fn directory(layout: &Layout, source: &SourceInput) -> PathBuf {
    layout.sources().join(Path::new(&source.digest))
}
