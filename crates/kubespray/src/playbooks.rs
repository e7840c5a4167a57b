//! Playbooks brought and cut in the background, so that no reconciler waits for a network or a disk.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use ansible::{
    catalogue::{self, Contract, Installable},
    slice::Playbook,
    source::{SourceRequest, Sources},
};
use api::{Cluster, KubesprayVersion, cluster::Source};
use controller::{Key, WakeUps};
use kube::ResourceExt;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use crate::{cluster::resolve::policy, inputs::SourceInput, problem::Problem};

mod load;
mod own;

pub use load::{LoadError, load};
pub use own::Own;

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

impl Wish {
    /// Where the playbooks should come from. Known before anything is fetched.
    ///
    /// # Errors
    ///
    /// Windlass does not know the release, or the address of the repository names a user or a password.
    pub fn of(cluster: &Cluster) -> Result<Self, Problem> {
        let kubespray = cluster.spec.kubespray.clone().unwrap_or_default();
        // A newer Windlass knows newer releases: what was built stays, where nothing is written.
        let status = cluster.status.as_ref();
        let built = status.and_then(|status| status.kubespray_version);
        let wanted = kubespray.version.max(policy::release(cluster));
        let release = match wanted.or(built) {
            None => catalogue::newest(),
            Some(version) => catalogue::release(version).map_err(|unknown| {
                let nearest: Vec<_> = unknown.nearest.iter().map(ToString::to_string).collect();
                Problem::new(
                    "Cluster spec.kubespray.version",
                    version,
                    format!(
                        "Windlass knows the releases from {} to {}",
                        unknown.oldest, unknown.newest
                    ),
                    format!("use one of the nearest: {}", nearest.join(", ")),
                )
            })?,
        };
        let place = Place::of(kubespray.source, release.version);
        if let Place::Git { url, .. } = &place
            && let Some(bare) = without_login(url)
        {
            return Err(Problem::new(
                "Cluster spec.kubespray.source.git.url",
                bare,
                "an address over HTTP names no user and no password: it stands in plans, status and logs",
                "write it without, and let git have them of a credential helper, or use ssh with a key",
            ));
        }
        Ok(Self {
            release: release.version,
            place,
        })
    }
}

/// An address over HTTP without the user and password that it names; none: it names none.
fn without_login(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (_, host) = authority.rsplit_once('@')?;
    let http = scheme.to_ascii_lowercase().starts_with("http");
    http.then(|| format!("{scheme}://{host}/{path}"))
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
        /// The commit that a release's tag in the upstream repository stands for.
        commit: Option<String>,
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
        let url = git.url.unwrap_or_else(|| UPSTREAM.to_owned());
        let reference = git.reference.unwrap_or_else(|| format!("v{release}"));
        let commit = pinned(&url, &reference).map(str::to_owned);
        Self::Git {
            url,
            reference,
            commit,
        }
    }

    /// What is asked for.
    pub fn request(self) -> SourceRequest {
        match self {
            Self::Git {
                url,
                reference,
                commit,
            } => SourceRequest::Git {
                url,
                reference,
                commit,
            },
            Self::Path(path) => SourceRequest::Path(path),
            Self::Image(image) => SourceRequest::Image(image),
        }
    }
}

/// The commit of a release's tag, by the catalogue, where the tag is meant.
fn pinned(url: &str, reference: &str) -> Option<&'static str> {
    let plain = |url: &str| {
        let url = url.trim_end_matches('/');
        url.strip_suffix(".git").unwrap_or(url).to_ascii_lowercase()
    };
    if plain(url) != plain(UPSTREAM) {
        return None;
    }
    let tag = reference.strip_prefix("refs/tags/").unwrap_or(reference);
    let release = tag.strip_prefix('v')?.parse().ok()?;
    Some(catalogue::release(release).ok()?.commit)
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Git { url, reference, .. } => write!(f, "git {url} at {reference}"),
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
    /// What they demand of the variables that they are given.
    pub contract: Contract,
    /// The plays of cluster.yml.
    pub create: Playbook,
    /// The plays of scale.yml, which playbooks of somebody's own may lack.
    pub scale: Option<Playbook>,
    /// The plays of remove-node.yml, which they may lack too.
    pub remove: Option<Playbook>,
    /// The plays of upgrade-cluster.yml, likewise.
    pub upgrade: Option<Playbook>,
    /// The plays of recover-control-plane.yml, which they may lack too.
    pub recover: Option<Playbook>,
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

struct Entry {
    wish: Wish,
    generation: i64,
    state: Playbooks,
    since: Instant,
    /// Keeps what was brought for the next cluster of the namespace that wishes for it.
    cell: Option<Cell>,
    /// Ends with the entry: nobody waits for what was wished before.
    bringing: Option<AbortOnDropHandle<()>>,
}

/// Where playbooks of one wish come to be, for the clusters of one namespace.
type Cell = Arc<OnceCell<Arc<Checkout>>>;

/// How many trees are brought for one namespace at once.
const AT_ONCE: usize = 2;

/// What a namespace has to itself: its playbooks are brought beside those of all others, so that what hangs in one holds
/// up nobody else, not even where both wish for the same.
struct Tenant {
    places: Arc<Semaphore>,
    loaded: HashMap<Wish, Weak<OnceCell<Arc<Checkout>>>>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            loaded: HashMap::new(),
        }
    }
}

impl Tenant {
    /// The cell of a wish; it lives as long as a cluster has the wish.
    fn cell(&mut self, wish: &Wish) -> Cell {
        self.loaded.retain(|_, cell| cell.strong_count() > 0);
        // A directory may have been edited; what has an address and was brought once stays what it is.
        if matches!(wish.place, Place::Path(_)) {
            return Arc::default();
        }
        if let Some(cell) = self.loaded.get(wish).and_then(Weak::upgrade) {
            return cell;
        }
        let cell = Arc::default();
        self.loaded.insert(wish.clone(), Arc::downgrade(&cell));
        cell
    }
}

/// The playbooks of every cluster.
pub struct PlaybookCache {
    sources: Sources,
    entries: Arc<Mutex<HashMap<Key, Entry>>>,
    tenants: Mutex<HashMap<String, Tenant>>,
    changed: WakeUps,
}

impl PlaybookCache {
    /// A cache that wakes every cluster whose playbooks came or failed.
    pub fn new(sources: Sources, changed: WakeUps) -> Self {
        Self {
            sources,
            entries: Arc::default(),
            tenants: Mutex::default(),
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
        let mut entry = Entry {
            wish: wish.clone(),
            generation,
            state: state.clone(),
            since: Instant::now(),
            cell: None,
            bringing: None,
        };
        // It finds its entry, because the lock is held.
        entry.bringing = Some(self.bring(key.clone(), wish));
        entries.insert(key, entry);
        state
    }

    /// Forgets a cluster.
    pub fn forget(&self, key: &Key) {
        let mut entries = lock(&self.entries);
        entries.remove(key);
        if !entries.keys().any(|(namespace, _)| *namespace == key.0) {
            lock(&self.tenants).remove(&key.0);
        }
    }

    fn bring(&self, key: Key, wish: Wish) -> AbortOnDropHandle<()> {
        let (places, cell) = {
            let mut tenants = lock(&self.tenants);
            let tenant = tenants.entry(key.0.clone()).or_default();
            (Arc::clone(&tenant.places), tenant.cell(&wish))
        };
        let entries = Arc::clone(&self.entries);
        let changed = self.changed.clone();
        let sources = self.sources.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let loading = async || {
                // It is never closed.
                let _place = places.acquire().await;
                load(&wish, &key.0, &sources).await.map(Arc::new)
            };
            let state = match cell.get_or_try_init(loading).await {
                Ok(checkout) => Playbooks::Ready(Arc::clone(checkout)),
                Err(LoadError::Unusable(problem)) => Playbooks::Unusable(problem),
                Err(LoadError::Unreachable(reason)) => Playbooks::Unreachable(reason),
            };
            if let Some(entry) = lock(&entries).get_mut(&key)
                && entry.wish == wish
            {
                entry.state = state;
                entry.since = Instant::now();
                entry.cell = Some(cell);
            }
            changed.wake(&key);
        }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_refused_and_not_shown() {
        for (url, bare) in [
            (
                "https://u:secret@h.example/a@b.git",
                Some("https://h.example/a@b.git"),
            ),
            ("HTTPS://secret@h.example", Some("HTTPS://h.example/")),
            ("https://h.example/a@b.git", None),
            ("ssh://git@h.example/a.git", None),
            ("git@h.example:a.git", None),
        ] {
            assert_eq!(without_login(url).as_deref(), bare, "{url}");
        }
    }
}
