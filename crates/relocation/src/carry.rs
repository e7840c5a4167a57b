//! Copies, comparison, the point of no return, and what follows it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ObjectMeta, PostParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Move,
    copy::{self, Uids},
    error::{Error, Result, ensure},
    graph::{Graph, Item},
    lease,
    mark::{self, MOVED, MOVING, is_from, is_marked, leaving},
    read,
    side::{FIELD_MANAGER, Side},
};

/// How often everything is copied again that changed while it was copied: the operator may still say a word of its own.
const PASSES: u8 = 4;

/// How often a deleted root is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Copies until every copy equals its original, and returns the originals.
pub(crate) async fn copy(this: &Move<'_>) -> Result<Graph> {
    ensure_namespace(this.target).await?;
    let mut differences = Vec::new();
    for _ in 0..PASSES {
        let graph = read::read(this.source, &this.domains).await?;
        pass(this, &graph).await?;
        differences = compare(this).await?;
        if differences.is_empty() {
            let count = graph.items().len();
            this.tell(&format!("compared {count} objects: all equal"));
            return Ok(graph);
        }
    }
    Err(Error::Stopped(format!(
        "the copies differ from what is here: {}. If fields are missing there, the kinds there are older: install them with \
         `windlass crds | kubectl apply --server-side -f -`, then start the same command again; --abort takes the move back",
        differences.join("; ")
    )))
}

async fn ensure_namespace(target: &Side) -> Result<()> {
    let namespaces = Api::<Namespace>::all(target.client.clone());
    let name = &target.namespace;
    let existing = namespaces.get_opt(name).await;
    let existing =
        existing.map_err(|source| Error::api(format!("get Namespace {name} there"), source))?;
    if existing.is_some() {
        return Ok(());
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created
            .map(drop)
            .map_err(|source| Error::api(format!("create Namespace {name} there"), source)),
    }
}

async fn pass(this: &Move<'_>, graph: &Graph) -> Result<()> {
    let mut uids = Uids::new();
    let count = graph.items().len();
    for (at, item) in graph.items().iter().enumerate() {
        let (stored, done) = bring(this, item, &uids).await?;
        if let (Some(here), Some(there)) = (item.object.uid(), stored.object.uid()) {
            uids.insert(here, there);
        }
        if done {
            this.tell(&format!("copied {} ({} of {count})", item.shown(), at + 1));
        }
    }
    Ok(())
}

/// Makes the copy of one object be what it should; whether something had to be written.
async fn bring(this: &Move<'_>, item: &Item, uids: &Uids) -> Result<(Item, bool)> {
    let (source, target) = (this.source, this.target);
    let wanted = copy::copy(item, source, target, uids);
    let existing = target.get(&item.kind, &item.name()).await?;
    let mut written = true;
    let stored = match existing {
        None => target.create(&wanted).await?,
        Some(existing) if copy::is_adopted(item, &existing) => return Ok((existing, false)),
        Some(existing) => {
            copy::check_own(source, item, &existing)?;
            if copy::difference(&wanted, &existing).is_some() {
                let mut changed = wanted.clone();
                changed.object.metadata.resource_version = existing.object.resource_version();
                target.replace(&changed).await?
            } else {
                written = false;
                existing
            }
        }
    };
    // As of the managers that the original has: a later apply of theirs must neither conflict with this nor leave fields.
    let managers = copy::managers(item, &this.domains);
    let stored_managers = stored.object.metadata.managed_fields.iter().flatten();
    let is_ours = stored_managers
        .into_iter()
        .any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    if is_ours && !managers.is_empty() {
        target
            .patch_metadata(&stored, json!({"managedFields": managers}))
            .await?;
        written = true;
    }
    if let Some(manager) = item.kind.status_manager
        && let Some(status) = copy::status(item, &stored)
        && copy::status_difference(item, &stored).is_some()
    {
        target.apply_status(&stored, manager, &status).await?;
        written = true;
    }
    Ok((stored, written))
}

/// Reads both sides anew and says what differs.
async fn compare(this: &Move<'_>) -> Result<Vec<String>> {
    let (source, target) = (this.source, this.target);
    let here = read::read(source, &this.domains).await?;
    let mut uids = Uids::new();
    let mut differences = Vec::new();
    for item in here.items() {
        let Some(there) = target.get(&item.kind, &item.name()).await? else {
            differences.push(format!("{} is not there", item.shown()));
            continue;
        };
        if let (Some(here), Some(there)) = (item.object.uid(), there.object.uid()) {
            uids.insert(here, there);
        }
        if copy::is_adopted(item, &there) {
            continue;
        }
        let wanted = copy::copy(item, source, target, &uids);
        let field =
            copy::difference(&wanted, &there).or_else(|| copy::status_difference(item, &there));
        differences.extend(field.map(|field| format!("{} {field}", item.shown())));
    }
    Ok(differences)
}

/// The point of no return: from here on the copies are what is worked on.
pub(crate) async fn commit(this: &Move<'_>, graph: &Graph) -> Result<()> {
    let mark = leaving(&this.target.place());
    for root in graph.roots() {
        let annotations = json!({MOVED: this.target.place()});
        let may = |found: &DynamicObject| {
            ensure(mark::of(&found.metadata) == Some(&mark), || {
                format!(
                    "{}: annotation {MOVING} has changed, so the move is being taken back; end that with --abort",
                    root.shown()
                )
            })
        };
        this.source.annotate_if(root, annotations, may).await?;
        this.tell(&format!("marked {} as moved for good", root.shown()));
    }
    Ok(())
}

/// Takes the marks from the copies, the roots last: then the operator there acts.
pub(crate) async fn take_over(this: &Move<'_>, graph: &Graph) -> Result<()> {
    let place = this.source.place();
    for root in graph.roots() {
        let there = this.target.get(&root.kind, &root.name()).await?;
        let is_there = there.is_some_and(|there| is_from(&there.object, &place));
        ensure(is_there, || {
            format!(
                "{}: it is marked as moved for good, but its copy in {} is not there any more. If it was deleted on purpose, \
                 delete this one too: {}",
                root.shown(),
                this.target.place(),
                spared(root, "is")
            )
        })?;
    }
    for kind in this.domains.members().chain(this.domains.roots()) {
        for item in this.target.list(kind).await? {
            if is_from(&item.object, &place) && is_marked(&item.object) {
                let patch = json!({"annotations": {MOVING: null}});
                this.target.patch_metadata(&item, patch).await?;
                if kind.is_root() {
                    this.tell(&format!("{} has taken over there", item.shown()));
                }
            }
        }
    }
    Ok(())
}

/// Deletes what was moved, owners after what they own and the roots last. Says what stays.
pub(crate) async fn delete(this: &Move<'_>, graph: &Graph) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let items = graph.items().iter().rev();
    for item in items.filter(|item| !item.kind.is_root()) {
        if was_copied(this, item).await? {
            this.source.delete(item).await?;
            if item.kind.finalizer.is_some()
                && let Some(held) = this.source.get(&item.kind, &item.name()).await?
                && held.object.uid() == item.object.uid()
            {
                unhold(this.source, &held).await?;
            }
        } else {
            left.push(format!(
                "{} came after the copy: it was not moved and stays",
                item.shown()
            ));
        }
    }
    this.tell("deleted what was moved with it here");
    for root in graph.roots().rev() {
        lease::delete(this.source, root).await?;
        delete_root(this, root).await?;
        this.tell(&format!(
            "deleted {} here; {}",
            root.shown(),
            spared(root, "was")
        ));
    }
    Ok(left)
}

/// What came after the copy was made carries no mark, or has no copy.
async fn was_copied(this: &Move<'_>, item: &Item) -> Result<bool> {
    if item.kind.is_acted_on() {
        let found = this.source.get(&item.kind, &item.name()).await?;
        Ok(found.is_none_or(|item| is_marked(&item.object)))
    } else {
        let copy = this.target.get(&item.kind, &item.name()).await?;
        Ok(copy.is_some())
    }
}

/// That nothing outside happens to what a root is about.
fn spared(root: &Item, verb: &str) -> String {
    let noun = root.kind.root.as_ref().map_or("", |root| root.spared);
    format!("no {noun} {verb} touched")
}

/// The operator lets go of a marked root, and sets its files aside; where none is at work its finalizer is taken away.
async fn delete_root(this: &Move<'_>, root: &Item) -> Result<()> {
    this.source.delete(root).await?;
    let deadline = Instant::now() + this.patience.let_go;
    loop {
        let Some(found) = this.source.get(&root.kind, &root.name()).await? else {
            return Ok(());
        };
        if found.object.uid() != root.object.uid() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return unhold(this.source, &found).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn unhold(source: &Side, held: &Item) -> Result<()> {
    let own = held.kind.finalizer;
    let finalizers = held.object.finalizers().iter().map(String::as_str);
    let rest: Vec<_> = finalizers.filter(|name| Some(*name) != own).collect();
    ensure(rest.is_empty(), || {
        format!(
            "{} metadata.finalizers: {} keeps the object here; remove it, then start the same command again",
            held.shown(),
            rest.join(", ")
        )
    })?;
    let metadata = json!({
        "finalizers": [], "resourceVersion": held.object.resource_version(),
    });
    match source.patch_metadata(held, metadata).await {
        // The operator was faster.
        Err(error) if error.has_code(&[404, 409]) => Ok(()),
        patched => patched,
    }
}
