//! `windlass move --abort`: takes back a move that has not passed its point of no return.
//!
//! The marks of the roots here are changed first, and a move marks a root as moved only while its own mark is there: of a
//! move and an abort at the same time one wins. Then the copies are deleted, and then what is here is let go: the Leases
//! before the objects that are worked on, because a worker that was refused would give up, and the roots last, because their
//! marks say that there is something to take back. The same command goes on wherever an earlier one was stopped.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::json;

use crate::{
    Outcome, Summary, Tell,
    domain::{Domain, Domains},
    error::{Error, Result, ensure},
    graph::{Graph, Item},
    lease,
    mark::{self, MOVED, MOVED_FROM, MOVING, is_from, is_marked, origin, returning},
    preflight, read,
    side::Side,
};

/// Takes a move back. Without a target, which may be lost for good, what is here is let go and the copies stay.
///
/// # Errors
/// It cannot be taken back, and nothing was changed; or it was stopped on its way, and the same call goes on.
pub async fn take_back(
    source: &Side,
    target: Option<&Side>,
    domains: &[Domain],
    tell: Tell<'_>,
) -> Result<Summary> {
    let domains = &read::present(domains, source, target).await?;
    preflight::may_take_back(source, target, domains).await?;
    let graph = read::read(source, domains).await?;
    possible(source, target, domains, &graph).await?;
    let mut copies = Copies::find(source, target, domains).await?;
    copies.none_is_live()?;
    let leases = lease::held(source, &graph).await?;
    let marked = marked(source, domains).await?;
    let summary = |outcome, copies: &Copies| Summary {
        outcome,
        namespace: source.namespace.clone(),
        to_namespace: target.map(|target| target.namespace.clone()),
        objects: copies.deletable.iter().map(Item::shown).collect(),
        warnings: copies.warnings(target),
    };
    if marked.is_empty() && leases.is_empty() && copies.deletable.is_empty() {
        return Ok(summary(Outcome::NothingToTakeBack, &copies));
    }
    let place = place(target, &marked, &leases);
    for root in graph.roots() {
        announce(source, root, &place).await?;
    }
    if let Some(target) = target {
        // A move that was at work until now may have copied more.
        copies = Copies::find(source, Some(target), domains).await?;
        for copy in &copies.deletable {
            target.delete(copy).await?;
            tell(&format!("deleted the copy {} there", copy.shown()));
        }
    }
    release(source, domains, &graph, tell).await?;
    Ok(summary(Outcome::TakenBack, &copies))
}

/// Refuses what cannot be taken back.
async fn possible(
    source: &Side,
    target: Option<&Side>,
    domains: &Domains<'_>,
    graph: &Graph,
) -> Result<()> {
    if !graph.has_roots() {
        return Err(nothing_here(source, target, domains).await);
    }
    for root in graph.roots() {
        not_moved(root)?;
    }
    for item in marked(source, domains).await? {
        let mark = mark::of(&item.object.metadata).unwrap_or_default();
        let Some(place) = mark::destination(mark) else {
            return Err(Error::Stopped(format!(
                "{}: annotation {MOVING} is {mark:?}, so this is the side that it is moved to; take the move back from the \
                 other one",
                item.shown()
            )));
        };
        let Some(target) = target else { continue };
        ensure(place == target.place(), || {
            format!(
                "{}: annotation {MOVING} is {mark:?}, but --to-kubeconfig leads to {}; name what the move named, or leave \
                 --to-kubeconfig away if that API is lost for good",
                item.shown(),
                target.place()
            )
        })?;
    }
    Ok(())
}

async fn nothing_here(source: &Side, target: Option<&Side>, domains: &Domains<'_>) -> Error {
    let names = domains.root_names();
    let namespace = &source.namespace;
    match copied_root(source, target, domains).await {
        Ok(Some(copy)) => Error::Stopped(format!(
            "--namespace is {namespace:?}: there is no {names} in it any more, its copy there is the {} now; to have it back, \
             move it from there to here",
            noun(&copy)
        )),
        Ok(None) => Error::Stopped(format!(
            "--namespace is {namespace:?}: there is no {names} in it, so nothing can be taken back; name the namespace of one"
        )),
        Err(error) => error,
    }
}

async fn copied_root(
    source: &Side,
    target: Option<&Side>,
    domains: &Domains<'_>,
) -> Result<Option<Item>> {
    let Some(target) = target else {
        return Ok(None);
    };
    for kind in domains.roots() {
        let mut there = target.list(kind).await?.into_iter();
        let copy = there.find(|item| is_from(&item.object, &source.place()));
        if copy.is_some() {
            return Ok(copy);
        }
    }
    Ok(None)
}

fn not_moved(root: &Item) -> Result<()> {
    let Some(moved) = root.object.annotations().get(MOVED) else {
        return Ok(());
    };
    let noun = noun(root);
    Err(Error::Stopped(format!(
        "{}: annotation {MOVED} is {moved:?}: the point of no return is behind, the copy there is the {noun} now. End the move \
         with the same command without --abort; to have the {noun} back, move it from there to here afterwards",
        root.shown()
    )))
}

/// What messages call what a root stands for.
fn noun(root: &Item) -> &'static str {
    root.kind.root.as_ref().map_or("", |root| root.noun)
}

/// What stands on the other side and came from here.
struct Copies {
    /// Their originals are here, and nobody acts on them: in the order of their deletion.
    deletable: Vec<Item>,
    /// Their originals are here, and they have lost their mark.
    live: Vec<Item>,
    /// Their originals are gone, and nobody acts on them.
    last: Vec<Item>,
}

impl Copies {
    async fn find(source: &Side, target: Option<&Side>, domains: &Domains<'_>) -> Result<Self> {
        let place = source.place();
        let mut copies = Self {
            deletable: Vec::new(),
            live: Vec::new(),
            last: Vec::new(),
        };
        let Some(target) = target else {
            return Ok(copies);
        };
        for kind in domains.kinds().rev() {
            for copy in target.list(kind).await? {
                if !is_from(&copy.object, &place) {
                    continue;
                }
                let original = source.get(kind, &copy.name()).await?;
                let is_copy = original.is_some_and(|original| {
                    let uid = original.object.uid().unwrap_or_default();
                    copy.object.annotations().get(MOVED_FROM) == Some(&origin(&place, &uid))
                });
                match (is_copy, kind.is_acted_on(), is_marked(&copy.object)) {
                    (true, true, false) => copies.live.push(copy),
                    (true, _, _) => copies.deletable.push(copy),
                    (false, true, true) => copies.last.push(copy),
                    // Of a move that ended: somebody's own.
                    (false, _, _) => {}
                }
            }
        }
        Ok(copies)
    }

    fn none_is_live(&self) -> Result<()> {
        let live: Vec<_> = self.live.iter().map(Item::shown).collect();
        ensure(live.is_empty(), || {
            format!(
                "nothing was taken back and nothing was changed: the copies of {} there have lost annotation {MOVING} before \
                 the move had ended, so they may have changed; delete them there with --cascade=orphan and without a \
                 finalizer, then start the same command again",
                live.join(", ")
            )
        })
    }

    fn warnings(&self, target: Option<&Side>) -> Vec<String> {
        let last = self.last.iter().map(|copy| {
            format!(
                "{} there stays: it is the copy of an object that is not here any more; delete it if nobody needs it",
                copy.shown()
            )
        });
        let unseen = target.is_none().then(|| {
            "without --to-kubeconfig copies there, if there are any, stay; nobody acts on them while they are marked"
                .to_owned()
        });
        last.chain(unseen).collect()
    }
}

/// What is marked here, the roots last.
async fn marked(source: &Side, domains: &Domains<'_>) -> Result<Vec<Item>> {
    let mut marked = Vec::new();
    for kind in domains.members().rev().chain(domains.roots().rev()) {
        let items = source.list(kind).await?;
        marked.extend(items.into_iter().filter(|item| is_marked(&item.object)));
    }
    Ok(marked)
}

/// Where the move was to.
fn place(target: Option<&Side>, marked: &[Item], leases: &[Lease]) -> String {
    let marked = marked
        .iter()
        .filter_map(|item| mark::destination(mark::of(&item.object.metadata)?));
    let mut known = marked.chain(leases.iter().filter_map(lease::destination));
    target
        .map(Side::place)
        .or_else(|| known.next().map(str::to_owned))
        .unwrap_or_default()
}

/// From here on the move that is taken back cannot pass its point of no return.
async fn announce(source: &Side, root: &Item, place: &str) -> Result<()> {
    let annotations = json!({MOVING: returning(place)});
    let may = |found: &DynamicObject| {
        not_moved(&Item {
            kind: root.kind.clone(),
            object: found.clone(),
        })
    };
    source.annotate_if(root, annotations, may).await
}

async fn release(
    source: &Side,
    domains: &Domains<'_>,
    graph: &Graph,
    tell: Tell<'_>,
) -> Result<()> {
    for lease in lease::held(source, graph).await? {
        lease::release(source, &lease).await?;
    }
    for item in marked(source, domains).await? {
        let annotations = json!({"annotations": {MOVING: null}});
        source.patch_metadata(&item, annotations).await?;
        if item.kind.is_root() {
            tell(&format!("{} is at work here again", item.shown()));
        }
    }
    Ok(())
}
