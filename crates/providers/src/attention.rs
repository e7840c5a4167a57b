//! Watches of what a provider is made of and from, so that at rest nothing is asked of the API: whatever changes wakes the provider, and
//! only then it is looked at.
//!
//! Nothing of what is watched is kept, and of each object no more than its metadata comes. Which kinds a provider has is known when it is
//! installed, so watches begin and end as providers do, one a kind for all of them. Where one may not be watched, or where a watch is
//! just beginning, [`Attention::mark`] is None, and what belongs to the provider is looked at again and again instead.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use api::provider::label;
use controller::{WakeUps, backoff::jittered};
use futures::StreamExt;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ObjectMeta},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt, watcher,
        watcher::{Config, Error, Event},
    },
};
use tokio::{task::AbortHandle, time::Instant};

/// How soon what the API refuses to have watched is tried again.
const REFUSED: Duration = Duration::from_mins(5);
/// How often a provider is woken at most: some write their objects all the time.
const PAUSE: Duration = Duration::from_secs(5);

/// What is watched: objects of one kind.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Part {
    resource: ApiResource,
    /// None: those of all namespaces.
    namespace: Option<String>,
    which: Which,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Which {
    /// What has a provider's label.
    OfProviders,
    Labelled(String),
    Named(String),
}

impl Part {
    /// What has the label of a provider, whichever.
    pub fn of_providers(resource: ApiResource) -> Self {
        Self {
            resource,
            namespace: None,
            which: Which::OfProviders,
        }
    }

    /// What has these labels.
    pub fn labelled<K: Resource<DynamicType = ()>>(namespace: &str, selector: String) -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            namespace: Some(namespace.to_owned()),
            which: Which::Labelled(selector),
        }
    }

    /// One object.
    pub fn named<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            namespace: Some(namespace.to_owned()),
            which: Which::Named(name.to_owned()),
        }
    }

    fn api(&self, client: Client) -> Api<PartialObjectMeta<DynamicObject>> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }

    fn config(&self) -> Config {
        match &self.which {
            Which::OfProviders => Config::default().labels(label::PROVIDER),
            Which::Labelled(selector) => Config::default().labels(selector),
            Which::Named(name) => Config::default().fields(&format!("metadata.name={name}")),
        }
    }
}

/// Who is woken, and as what: an object of a kind.
#[derive(Clone, Debug)]
pub struct Who {
    /// What tells it from all others.
    pub key: String,
    /// The label of what belongs to it.
    pub label: String,
    /// Its namespace and name.
    pub object: (String, String),
    /// What wakes it.
    pub wake_ups: WakeUps,
}

/// The watches. Clones share them; they end with the last one.
#[derive(Clone, Debug, Default)]
pub struct Attention(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    watched: HashMap<Part, Watched>,
    attending: HashMap<String, Attending>,
    /// How many changes there were.
    changes: u64,
}

#[derive(Debug)]
struct Watched {
    /// Whether whatever changes is told.
    is_told: bool,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Attending {
    who: Who,
    parts: HashSet<Part>,
    /// Another one when something has changed.
    mark: u64,
    woken: Option<Instant>,
    /// Whether it is woken a moment later.
    is_due: bool,
}

impl Attention {
    /// Has changes of these wake somebody, and of no others.
    pub fn attend(&self, client: &Client, who: Who, parts: HashSet<Part>) {
        let mut state = self.state();
        let known = state.attending.get(&who.key);
        if known.is_some_and(|known| known.parts == parts) {
            return;
        }
        for part in &parts {
            if !state.watched.contains_key(part) {
                let listening = listen(client.clone(), part.clone(), Arc::downgrade(&self.0));
                let task = tokio::spawn(listening).abort_handle();
                let watched = Watched {
                    is_told: false,
                    task,
                };
                state.watched.insert(part.clone(), watched);
            }
        }
        let attending = Attending {
            parts,
            mark: state.next(),
            woken: None,
            is_due: false,
            who,
        };
        state.attending.insert(attending.who.key.clone(), attending);
        state.end_unwanted();
    }

    /// What belongs to somebody concerns nobody any more.
    pub fn forget(&self, key: &str) {
        let mut state = self.state();
        if state.attending.remove(key).is_some() {
            state.end_unwanted();
        }
    }

    /// What stays while nothing changes of what belongs to somebody. None: a change might not be told.
    pub fn mark(&self, key: &str) -> Option<u64> {
        let state = self.state();
        let attending = state.attending.get(key)?;
        state.tells_all(attending).then_some(attending.mark)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watch tells everything from now on: whoever is watched as a whole by that is looked at.
    fn begun(&self, part: &Part) {
        let mut state = self.state();
        state.set(part, true);
        let attending = state.attending.iter();
        let whole = attending
            .filter(|(_, attending)| attending.parts.contains(part) && state.tells_all(attending));
        let whole: Vec<_> = whole.map(|(key, _)| key.clone()).collect();
        for key in whole {
            self.wake(&mut state, &key);
        }
    }

    /// A watch tells nothing for now: who relies on it looks again, and then by itself.
    fn ended(&self, part: &Part) {
        let mut state = self.state();
        if !state.set(part, false) {
            return;
        }
        let attending = state.attending.iter();
        let reliant = attending.filter(|(_, attending)| attending.parts.contains(part));
        let reliant: Vec<_> = reliant.map(|(key, _)| key.clone()).collect();
        for key in reliant {
            self.wake(&mut state, &key);
        }
    }

    /// Something has changed.
    fn changed(&self, part: &Part, meta: &ObjectMeta) {
        let mut guard = self.state();
        let state = &mut *guard;
        let label = meta.labels.as_ref();
        let label = label.and_then(|labels| labels.get(label::PROVIDER));
        let mark = state.next();
        let mut concerned = Vec::new();
        for (key, attending) in &mut state.attending {
            let is_other = part.which == Which::OfProviders
                && label.is_some_and(|label| *label != attending.who.label);
            if attending.parts.contains(part) && !is_other {
                attending.mark = mark;
                concerned.push(key.clone());
            }
        }
        for key in concerned {
            self.wake(state, &key);
        }
    }

    /// At once, or where that has just been done a moment later.
    fn wake(&self, state: &mut State, key: &str) {
        let Some(attending) = state.attending.get_mut(key) else {
            return;
        };
        let rest = attending
            .woken
            .map(|woken| PAUSE.saturating_sub(woken.elapsed()))
            .filter(|rest| !rest.is_zero());
        let Some(rest) = rest else {
            attending.woken = Some(Instant::now());
            attending.who.wake_ups.wake(&attending.who.object);
            return;
        };
        if std::mem::replace(&mut attending.is_due, true) {
            return;
        }
        let (shared, key) = (Arc::downgrade(&self.0), key.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(rest).await;
            let Some(attention) = shared.upgrade().map(Self) else {
                return;
            };
            let mut state = attention.state();
            if let Some(attending) = state.attending.get_mut(&key) {
                attending.is_due = false;
                attending.woken = Some(Instant::now());
                attending.who.wake_ups.wake(&attending.who.object);
            }
        });
    }
}

impl State {
    const fn next(&mut self) -> u64 {
        self.changes = self.changes.wrapping_add(1);
        self.changes
    }

    /// Whether a watch tells everything. Gives whether it did; what changed meanwhile is not known.
    fn set(&mut self, part: &Part, is_told: bool) -> bool {
        let mark = self.next();
        for attending in self.attending.values_mut() {
            if attending.parts.contains(part) {
                attending.mark = mark;
            }
        }
        let watched = self.watched.get_mut(part);
        watched.is_some_and(|watched| std::mem::replace(&mut watched.is_told, is_told))
    }

    fn tells_all(&self, attending: &Attending) -> bool {
        let mut parts = attending.parts.iter();
        parts.all(|part| {
            self.watched
                .get(part)
                .is_some_and(|watched| watched.is_told)
        })
    }

    fn end_unwanted(&mut self) {
        let wanted: HashSet<_> = self
            .attending
            .values()
            .flat_map(|attending| attending.parts.iter().cloned())
            .collect();
        self.watched.retain(|part, _| wanted.contains(part));
    }
}

/// Tells of changes until nobody wants to know.
async fn listen(client: Client, part: Part, shared: Weak<Mutex<State>>) {
    loop {
        let events = watcher(part.api(client.clone()), part.config());
        let mut events = pin!(events.default_backoff());
        while let Some(event) = events.next().await {
            let Some(attention) = shared.upgrade().map(Attention) else {
                return;
            };
            match event {
                Ok(Event::Init | Event::InitApply(_)) => {}
                // What the list does not have any more is told by nothing else.
                Ok(Event::InitDone) => attention.begun(&part),
                Ok(Event::Apply(object) | Event::Delete(object)) => {
                    attention.changed(&part, &object.metadata);
                }
                Err(error) if is_refused(&error) => {
                    tracing::debug!(kind = part.resource.kind, %error, "it may not be watched, and is looked at instead");
                    attention.ended(&part);
                    break;
                }
                // It goes on where it was.
                Err(error) => {
                    tracing::warn!(
                        kind = part.resource.kind,
                        error = &error as &dyn std::error::Error,
                        "watch failed, trying again"
                    );
                }
            }
        }
        tokio::time::sleep(jittered(REFUSED)).await;
    }
}

/// Whether the API has answered that it does not let it be watched: for want of a right, or because it does not serve the kind.
fn is_refused(error: &Error) -> bool {
    let (Error::InitialListFailed(source)
    | Error::WatchStartFailed(source)
    | Error::WatchFailed(source)) = error
    else {
        return false;
    };
    matches!(source, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404 | 405))
}

#[cfg(test)]
mod tests;
