//! Garbage collection: dependents of deleted owners, foreground and orphan deletion, and namespaces on their way out.
//!
//! One task that follows the history of all kinds. It keeps two indices (who exists, who depends on whom), marks what an
//! event may have changed, and works the marks off; whatever it writes are events again. After a gap it starts from
//! a full pass, so it holds no state that matters.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Weak},
};

use serde_json::{Value, json};

use crate::{
    definitions::{CLEANUP, Live, status},
    failure::Failure,
    registry::Form,
    rest::{
        delete::{self, FOREGROUND, ORPHAN, Options, Preconditions},
        update::finished,
        write::draft,
    },
    state::Api,
    store::{Edge, Events, Expect, Key, Object, Owner, Previous, Write},
    value::remove,
};

type Place = (usize, Key);

/// Follows the store until it is dropped.
pub(crate) async fn collect(live: Weak<Live>) {
    let changed = live.upgrade().map(|live| live.now().store.subscribe_all());
    let Some(mut changed) = changed else {
        return;
    };
    let mut collector = Collector::default();
    loop {
        changed.mark_unchanged();
        match live.upgrade() {
            Some(live) => collector.run(&live).await,
            None => return,
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct Collector {
    /// Position in the history; 0 before the first full pass.
    position: u64,
    /// How many kinds there were.
    kinds: usize,
    existing: HashMap<Arc<str>, Place>,
    dependents: HashMap<Arc<str>, HashSet<Place>>,
    /// Owners that were seen to go: so they are known to be gone, even when their kind is not served any more.
    gone: HashSet<Arc<str>>,
    marked: BTreeSet<Place>,
}

impl Collector {
    async fn run(&mut self, live: &Live) {
        self.follow(&live.now());
        // Each place once per pass; what is written here comes back as an event.
        while let Some((kind, key)) = self.marked.pop_first() {
            if let Err(failure) = self.settle(live, kind, &key).await {
                if failure.code.is_server_error() {
                    tracing::warn!(object = %key.name, message = failure.message, "garbage collection");
                } else {
                    // Changed meanwhile: its event marks it again.
                    tracing::debug!(object = %key.name, message = failure.message, "garbage collection");
                }
            }
            if self.marked.is_empty() {
                self.follow(&live.now());
            }
        }
    }

    /// Reads the history up to now.
    fn follow(&mut self, api: &Api) {
        let revision = api.store.revision();
        let kinds = api.store.kinds();
        if self.position == revision && self.kinds == kinds {
            return;
        }
        if self.kinds != kinds {
            // A kind that is new here may have objects already.
            return self.rebuild(api);
        }
        let mut events = Vec::new();
        for kind in 0..kinds {
            match api.store.events(kind, self.position) {
                Events::Some(more, _) if self.position > 0 => {
                    events.extend(more.into_iter().map(|event| (kind, event)));
                }
                _ => return self.rebuild(api),
            }
        }
        events.retain(|(_, event)| event.object.revision <= revision);
        events.sort_by_key(|(_, event)| event.object.revision);
        // Many objects have one namespace.
        let mut touched = HashSet::new();
        for (kind, event) in events {
            touched.insert((kind, event.object.key.namespace.clone()));
            let place = (kind, event.object.key.clone());
            if event.edge == Edge::Deleted {
                self.forget(api, &place, &event.object);
                continue;
            }
            if let Previous::Known(previous) = &event.previous {
                self.compare(&place, previous, &event.object);
            }
            self.learn(api, place, &event.object);
        }
        self.mark_all_holders(api, touched);
        self.position = revision;
    }

    fn rebuild(&mut self, api: &Api) {
        *self = Self::default();
        self.position = api.store.revision();
        self.kinds = api.store.kinds();
        let mut touched = HashSet::new();
        for kind in 0..self.kinds {
            for object in api.store.snapshot(kind).objects.values() {
                touched.insert((kind, object.key.namespace.clone()));
                self.learn(api, (kind, object.key.clone()), object);
            }
        }
        self.mark_all_holders(api, touched);
    }

    fn learn(&mut self, api: &Api, place: Place, object: &Object) {
        self.existing.insert(object.meta.uid.clone(), place.clone());
        for owner in &object.meta.owners {
            let dependents = self.dependents.entry(owner.uid.clone()).or_default();
            dependents.insert(place.clone());
        }
        if !object.meta.owners.is_empty() || object.meta.deleting || is_definition(api, &place) {
            self.marked.insert(place);
        }
    }

    fn forget(&mut self, api: &Api, place: &Place, object: &Object) {
        // The same name may have been made anew with another uid.
        self.existing.remove(&object.meta.uid);
        for owner in &object.meta.owners {
            self.release(place, &owner.uid);
        }
        if let Some(dependents) = self.dependents.get(&object.meta.uid) {
            self.marked.extend(dependents.iter().cloned());
            self.gone.insert(object.meta.uid.clone());
        }
        if is_definition(api, place) {
            self.marked.insert(place.clone());
        }
    }

    /// Notes which owners an object does not have any more, or does not block any more.
    fn compare(&mut self, place: &Place, before: &Object, now: &Object) {
        for owner in &before.meta.owners {
            let kept = now.meta.owners.iter().find(|kept| kept.uid == owner.uid);
            match kept {
                None => self.release(place, &owner.uid),
                Some(kept) if kept.block != owner.block => self.mark_owner(&owner.uid),
                Some(_) => {}
            }
        }
    }

    /// An object depends no longer on an owner, which may have waited for that.
    fn release(&mut self, place: &Place, owner: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(place);
            if dependents.is_empty() {
                self.dependents.remove(owner);
                self.gone.remove(owner);
            }
        }
        self.mark_owner(owner);
    }

    fn mark_owner(&mut self, uid: &str) {
        if let Some(owner) = self.existing.get(uid) {
            self.marked.insert(owner.clone());
        }
    }

    fn mark_all_holders(&mut self, api: &Api, touched: HashSet<(usize, Arc<str>)>) {
        for (kind, namespace) in touched {
            self.mark_holders(api, kind, &namespace);
        }
    }

    /// What goes when its objects are gone: a namespace, and the definition of a kind.
    fn mark_holders(&mut self, api: &Api, kind: usize, namespace: &str) {
        let custom = api.registry.of_stored(kind);
        if let Some(resource) = custom.filter(|resource| resource.terminating)
            && let Some(definitions) = api.registry.of_form(Form::Definition)
        {
            let key = Key::new("", &resource.qualified());
            self.marked.insert((definitions.stored, key));
        }
        let Some(namespaces) = api.registry.of_form(Form::Namespace) else {
            return;
        };
        let key = Key::new("", namespace);
        let found = api.store.object(namespaces.stored, &key);
        if found.is_some_and(|namespace| namespace.meta.deleting) {
            self.marked.insert((namespaces.stored, key));
        }
    }

    /// Does for one object what is due.
    async fn settle(&mut self, live: &Live, kind: usize, key: &Key) -> Result<(), Failure> {
        let mut api = live.now();
        let form = api.registry.of_stored(kind).map(|resource| resource.form);
        if form == Some(Form::Definition) {
            live.settle().await;
            api = live.now();
        }
        let api = &*api;
        let Some(object) = api.store.object(kind, key) else {
            return Ok(());
        };
        if object.meta.deleting {
            if has_finalizer(&object, ORPHAN) {
                self.orphan(api, kind, &object).await?;
            } else if is_waiting(&object) {
                self.foreground(api, kind, &object).await?;
            }
            return match form {
                Some(Form::Namespace) => empty_namespace(api, kind, &object).await,
                Some(Form::Definition) => empty_definition(live, kind, &object).await,
                _ => Ok(()),
            };
        }
        self.settle_owned(api, kind, &object).await
    }

    /// Deletes an object that no owner holds any more. One that is held loses the owners that do not, as in Kubernetes.
    async fn settle_owned(
        &mut self,
        api: &Api,
        kind: usize,
        object: &Object,
    ) -> Result<(), Failure> {
        // The owners that the object names are older than it, so they are known then.
        self.follow(api);
        let (held, lost): (Vec<_>, Vec<_>) = object
            .meta
            .owners
            .iter()
            .map(|owner| (self.hold(api, owner, object), &owner.uid))
            .partition(|(hold, _)| *hold == Hold::Firm);
        if lost.is_empty() {
            return Ok(());
        }
        if !held.is_empty() {
            return change(api, kind, &object.key, |value| {
                for (_, uid) in &lost {
                    take_owner(value, uid);
                }
            })
            .await;
        }
        let waited_for = lost.iter().any(|(hold, _)| *hold == Hold::Waiting);
        let has_dependents = self.dependents.contains_key(&object.meta.uid);
        if waited_for && self.is_in_a_circle(api, object) {
            change(api, kind, &object.key, unblock).await?;
            return match api.store.object(kind, &object.key) {
                Some(object) => Box::pin(self.settle_owned(api, kind, &object)).await,
                None => Ok(()),
            };
        }
        tracing::debug!(object = %object.key.name, "the owners are gone");
        let policy = (waited_for && has_dependents).then(|| "Foreground".to_owned());
        let options = Options {
            propagation_policy: policy,
            // One that was changed meanwhile may be held again: its event marks it.
            preconditions: Some(Preconditions {
                uid: Some(object.meta.uid.to_string()),
                resource_version: Some(object.revision.to_string()),
            }),
            ..Options::default()
        };
        delete_place(api, kind, &object.key, &options).await
    }

    fn hold(&self, api: &Api, owner: &Owner, dependent: &Object) -> Hold {
        // Of a kind that is not served nothing is known: leave its dependents alone.
        let Some(resource) = api.registry.by_kind(&owner.api_version, &owner.kind) else {
            let is_gone = self.gone.contains(&owner.uid);
            return if is_gone { Hold::Gone } else { Hold::Firm };
        };
        let Some((kind, key)) = self.existing.get(&owner.uid) else {
            return Hold::Gone;
        };
        // A namespaced owner must be in the namespace of its dependent.
        if resource.namespaced && key.namespace != dependent.key.namespace {
            return Hold::Gone;
        }
        match api.store.object(*kind, key) {
            Some(owner) if is_waiting(&owner) => Hold::Waiting,
            _ => Hold::Firm,
        }
    }

    /// Whether an object blocks an owner and has a dependent that waits for its own dependents, so that both could wait for
    /// each other. As in Kubernetes, it is not looked whether they really do.
    fn is_in_a_circle(&self, api: &Api, object: &Object) -> bool {
        let waits = |(kind, key): &Place| {
            let dependent = api.store.object(*kind, key);
            dependent.is_some_and(|dependent| is_waiting(&dependent))
        };
        object.meta.owners.iter().any(|owner| owner.block)
            && self.dependents_of(object).iter().any(waits)
    }

    fn dependents_of(&self, object: &Object) -> Vec<Place> {
        self.dependents
            .get(&object.meta.uid)
            .map(|places| places.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Takes the owner out of its dependents, then lets it go.
    async fn orphan(&self, api: &Api, kind: usize, owner: &Object) -> Result<(), Failure> {
        for (kind, key) in self.dependents_of(owner) {
            change(api, kind, &key, |value| take_owner(value, &owner.meta.uid)).await?;
        }
        change(api, kind, &owner.key, |value| {
            drop_finalizer(value, ORPHAN);
        })
        .await
    }

    /// Settles the dependents, and lets the owner go when none is left that blocks it.
    async fn foreground(&mut self, api: &Api, kind: usize, owner: &Object) -> Result<(), Failure> {
        let mut blocked = false;
        for (kind, key) in self.dependents_of(owner) {
            let dependent = || api.store.object(kind, &key);
            if let Some(dependent) = dependent().filter(|dependent| !dependent.meta.deleting) {
                self.settle_owned(api, kind, &dependent).await?;
            }
            let blocks = |reference: &Owner| reference.uid == owner.meta.uid && reference.block;
            blocked |= dependent().is_some_and(|left| left.meta.owners.iter().any(blocks));
        }
        if blocked {
            return Ok(());
        }
        change(api, kind, &owner.key, |value| {
            drop_finalizer(value, FOREGROUND);
        })
        .await
    }
}

/// How an owner holds its dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Firm,
    /// It is deleted in the foreground, and goes when its dependents have gone.
    Waiting,
    Gone,
}

/// Whether an object is deleted in the foreground, and waits for its dependents to go.
fn is_waiting(object: &Object) -> bool {
    object.meta.deleting && has_finalizer(object, FOREGROUND)
}

fn has_finalizer(object: &Object, wanted: &str) -> bool {
    let mut finalizers = object.meta.finalizers.iter();
    finalizers.any(|finalizer| **finalizer == *wanted)
}

fn is_definition(api: &Api, place: &Place) -> bool {
    let resource = api.registry.of_stored(place.0);
    resource.is_some_and(|resource| resource.form == Form::Definition)
}

async fn empty_namespace(api: &Api, kind: usize, namespace: &Object) -> Result<(), Failure> {
    let name = &namespace.key.name;
    let mut left = false;
    for kind in 0..api.store.kinds() {
        // Of what is not served nothing can be asked to go.
        if api.registry.of_stored(kind).is_some() {
            left |= empty(api, kind, Some(name)).await?;
        }
    }
    if left {
        return Ok(());
    }
    change(api, kind, &namespace.key, |value| {
        if let Some(finalizers) = value["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != "kubernetes");
        }
    })
    .await
}

/// Deletes the objects of a definition, and lets it go when none is left.
async fn empty_definition(live: &Live, kind: usize, definition: &Object) -> Result<(), Failure> {
    let held = definition
        .meta
        .finalizers
        .iter()
        .any(|finalizer| **finalizer == *CLEANUP);
    if !held {
        return Ok(());
    }
    // It was settled, so nothing is created any more.
    let api = &*live.now();
    let name = &definition.key.name;
    let served = api
        .registry
        .definitions
        .iter()
        .find(|served| *served.name == **name);
    let kept = served.and_then(|served| served.kept.as_ref());
    let (holds, reason, message) = match kept {
        None => (false, "NeverEstablished", "resource was never established"),
        Some(kept) if empty(api, kept.stored, None).await? => (
            true,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        ),
        Some(_) => (false, "InstanceDeletionCompleted", "removed all instances"),
    };
    change(api, kind, &definition.key, |value| {
        status::terminating(value, holds, reason, message);
        if !holds {
            drop_finalizer(value, CLEANUP);
        }
    })
    .await?;
    live.settle().await;
    Ok(())
}

/// Deletes the objects of a kind. Returns whether some are held back.
async fn empty(api: &Api, kind: usize, namespace: Option<&str>) -> Result<bool, Failure> {
    let snapshot = api.store.snapshot(kind);
    let mut left = false;
    for object in crate::rest::read::within(&snapshot, namespace, None) {
        if !object.meta.deleting {
            delete_place(api, kind, &object.key, &Options::default()).await?;
        }
        left |= api.store.object(kind, &object.key).is_some();
    }
    Ok(left)
}

async fn delete_place(api: &Api, kind: usize, key: &Key, options: &Options) -> Result<(), Failure> {
    let Some(resource) = api.registry.of_stored(kind) else {
        return Ok(());
    };
    let current = || {
        api.store
            .object(kind, key)
            .ok_or_else(|| Failure::not_found(resource, &key.name))
    };
    match delete::delete(api, resource, options, current).await {
        Err(failure) if failure.code != http::StatusCode::NOT_FOUND => Err(failure),
        _ => Ok(()),
    }
}

/// Changes an object if it is still there; deletes it if that was the last thing that held it.
async fn change(
    api: &Api,
    kind: usize,
    key: &Key,
    edit: impl FnOnce(&mut Value),
) -> Result<(), Failure> {
    let (Some(resource), Some(object)) =
        (api.registry.of_stored(kind), api.store.object(kind, key))
    else {
        return Ok(());
    };
    let old = object.value();
    let mut new = old.clone();
    edit(&mut new);
    let gone = finished(resource, &new);
    if new == old && !gone {
        return Ok(());
    }
    let write = Write {
        kind,
        key: key.clone(),
        expect: Expect::Revision(object.revision),
        draft: draft(resource, &new)?,
        delete: gone,
    };
    let written: Result<Arc<Object>, _> = api.store.write(write).await;
    written
        .map(|_| ())
        .map_err(|error| Failure::of_write(&error, resource, &key.name))
}

/// Takes an owner out of its dependent.
fn take_owner(dependent: &mut Value, uid: &str) {
    let owners = dependent["metadata"]["ownerReferences"].as_array_mut();
    let Some(owners) = owners else {
        return;
    };
    owners.retain(|reference| reference["uid"].as_str() != Some(uid));
    let is_last = owners.is_empty();
    if is_last {
        remove(&mut dependent["metadata"], "ownerReferences");
    }
    disown(dependent, uid, is_last);
}

/// Has an object hold none of its owners back.
fn unblock(dependent: &mut Value) {
    let owners = dependent["metadata"]["ownerReferences"].as_array_mut();
    for owner in owners.into_iter().flatten() {
        if owner["blockOwnerDeletion"] == true {
            owner["blockOwnerDeletion"] = json!(false);
        }
    }
}

/// Takes a reference that is gone out of what managers own; the last one goes with the list.
fn disown(object: &mut Value, owner: &str, is_last: bool) {
    let key = format!("k:{}", json!({"uid": owner}));
    let managers = object["metadata"]["managedFields"].as_array_mut();
    for manager in managers.into_iter().flatten() {
        let Some(fields) = manager["fieldsV1"]["f:metadata"].as_object_mut() else {
            continue;
        };
        if is_last {
            fields.remove("f:ownerReferences");
        } else if let Some(owners) = fields.get_mut("f:ownerReferences") {
            remove(owners, &key);
        }
        if fields.is_empty() {
            remove(&mut manager["fieldsV1"], "f:metadata");
        }
    }
}

fn drop_finalizer(value: &mut Value, name: &str) {
    let metadata = &mut value["metadata"];
    if let Some(finalizers) = metadata["finalizers"].as_array_mut() {
        finalizers.retain(|finalizer| finalizer != name);
    }
    if metadata["finalizers"] == json!([]) {
        remove(metadata, "finalizers");
    }
}
