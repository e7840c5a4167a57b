//! Copies, comparison, the point of no return, and what follows it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;

use crate::{
    Move, contract,
    copy::{self, Uids},
    error::{Error, Result, ensure},
    graph::{Graph, Node},
    pause,
    place::{Item, Place},
    preflight, read,
    record::{NAME, Phase, Record},
    remove,
};

/// How often everything is copied again that changed while it was copied: whoever is not paused may still say a word.
const PASSES: u8 = 4;

/// Copies until every copy has what its original has.
pub(crate) async fn copy(this: &Move<'_>, record: &mut Record, graph: Graph) -> Result<()> {
    let mut graph = graph;
    let mut differences = Vec::new();
    for _ in 0..PASSES {
        // A take-back at the same time lets everything here go on, and deletes what this has copied.
        record.ensure_stands(&this.here).await?;
        ensure_movable(this, &graph)?;
        // A take-back has to find what was copied, so where it is written down before.
        let namespaces = read::namespaces(&graph, &this.here.namespace);
        if !namespaces.is_subset(&record.namespaces) {
            record.namespaces.extend(namespaces);
            record.write(&this.here).await?;
        }
        remove_forsaken(this, &graph, record).await?;
        ensure_namespaces(this, &graph).await?;
        pass(this, &graph).await?;
        graph = this.read().await?;
        differences = compare(this, &graph, record).await?;
        if differences.is_empty() {
            let count = graph.moving().count();
            this.tell(&format!("compared {count} objects: all equal"));
            return Ok(());
        }
    }
    Err(Error::Stopped(format!(
        "the copies differ from what is here: {}. If fields are missing there, its providers are older: upgrade them, then start the \
         same command again",
        differences.join("; ")
    )))
}

/// Deletes the copies of what is no longer here: at the end of the move they would come to life with the others.
async fn remove_forsaken(this: &Move<'_>, graph: &Graph, record: &Record) -> Result<()> {
    let copies = read::copies(&this.there, &this.kinds, &record.namespaces, &this.origin).await?;
    let forsaken: Vec<_> = forsaken(graph, &copies).cloned().collect();
    for copy in &forsaken {
        ensure(!is_live(copy), || live(&copy.shown(&this.here.namespace)))?;
    }
    remove::copies(&this.there, forsaken, this.patience, this.tell).await
}

/// The copies of what does not move, or not any more.
pub(crate) fn forsaken<'a>(
    graph: &Graph,
    copies: &'a BTreeMap<String, Item>,
) -> impl Iterator<Item = &'a Item> {
    let moving: BTreeSet<_> = graph
        .moving()
        .map(|node| node.item.uid().to_owned())
        .collect();
    let left = copies.iter().filter(move |(uid, _)| !moving.contains(*uid));
    left.map(|(_, copy)| copy)
}

/// Refuses to go on if somebody lets something go on here, deletes it, or makes what is not provisioned yet.
fn ensure_movable(this: &Move<'_>, graph: &Graph) -> Result<()> {
    preflight::still(graph, &this.here.namespace)?;
    pause::ensure_paused(graph, &this.here.namespace)
}

async fn ensure_namespaces(this: &Move<'_>, graph: &Graph) -> Result<()> {
    let namespaces = graph
        .moving()
        .filter_map(|node| node.item.object.namespace());
    for namespace in namespaces.collect::<BTreeSet<_>>() {
        ensure_namespace(&this.there, &namespace).await?;
    }
    Ok(())
}

async fn ensure_namespace(there: &Place, name: &str) -> Result<()> {
    let namespaces = Api::<Namespace>::all(there.client.clone());
    let wanted = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    there
        .persist(async || {
            let found = namespaces.get_opt(name).await;
            let failed =
                |verb| move |source| Error::api(format!("{verb} Namespace {name} there"), source);
            if found.map_err(failed("get"))?.is_some() {
                return Ok(());
            }
            match namespaces.create(&PostParams::default(), &wanted).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                created => created.map(drop).map_err(failed("create")),
            }
        })
        .await
}

async fn pass(this: &Move<'_>, graph: &Graph) -> Result<()> {
    let mut uids = Uids::new();
    let count = graph.moving().count();
    for (at, node) in graph.moving().enumerate() {
        let (stored, done) = bring(this, node, &uids).await?;
        uids.insert(node.item.uid().to_owned(), stored.uid().to_owned());
        if done {
            let shown = node.item.shown(&this.here.namespace);
            this.tell(&format!("copied {shown} ({} of {count})", at + 1));
        }
    }
    Ok(())
}

/// Makes the copy of one object be what it should; whether something had to be written.
async fn bring(this: &Move<'_>, node: &Node, uids: &Uids) -> Result<(Item, bool)> {
    let item = &node.item;
    let wanted = copy::copy(item, &this.origin, uids);
    let mut stored = match this.there.same(item).await? {
        Some(existing) => existing,
        None => match this.there.create(&wanted).await {
            // Nobody answered a write that was done all the same, or somebody was faster.
            Err(error) if error.has_code(&[409]) => this.there.same(item).await?.ok_or(error)?,
            created => created?,
        },
    };
    if serves(node, &stored) {
        return Ok((stored, false));
    }
    check_own(this, item, &stored)?;
    let mut done = false;
    if copy::difference(&wanted, &stored).is_some() {
        done = true;
        let mut changed = wanted;
        changed.object.metadata.resource_version = stored.object.resource_version();
        stored = match this.there.replace(&changed).await {
            // Somebody wrote it meanwhile, this command itself if nobody answered: the comparison says whether that will do.
            Err(error) if error.has_code(&[409]) => this.there.same(item).await?.ok_or(error)?,
            written => written?,
        };
    }
    let managers = copy::managers(item);
    if copy::is_managed(&stored) && !managers.is_empty() {
        let patch = json!({"metadata": {"managedFields": managers}});
        this.there.patch(&stored, patch).await?;
        done = true;
    }
    Ok((stored, done))
}

/// Whether what is there already is used as it is: what is in no namespace has one name for everybody, and the same class is the same.
pub(crate) fn serves(node: &Node, existing: &Item) -> bool {
    let is_shared = node.is_global || node.stays() && copy::is_same_content(&node.item, existing);
    !copy::is_any_copy(existing) && is_shared
}

/// Refuses what is there under the name if it is no copy of this very object, or one that somebody lets act.
pub(crate) fn check_own(this: &Move<'_>, item: &Item, existing: &Item) -> Result<()> {
    let shown = item.shown(&this.here.namespace);
    ensure(this.origin.is_copy(existing, item), || {
        format!(
            "{shown} metadata.name: there is another object of that name there; delete it, or rename one of them"
        )
    })?;
    ensure(!is_live(existing), || live(&shown))
}

/// Whether a copy acts before everything here is gone.
pub(crate) fn is_live(copy: &Item) -> bool {
    copy.kind.is_cluster() && !contract::is_paused(copy)
}

pub(crate) fn live(shown: &str) -> String {
    format!(
        "{shown} spec.paused: its copy there was let go on before the move had ended, so two management clusters may act on it; set \
         spec.paused to true there, see that nothing was made there, then start the same command again"
    )
}

/// Says what of the objects here is not there, as it is now.
async fn compare(this: &Move<'_>, graph: &Graph, record: &Record) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    let copies = read::copies(&this.there, &this.kinds, &record.namespaces, &this.origin).await?;
    let mut uids = Uids::new();
    for node in graph.moving() {
        let (item, shown) = (&node.item, node.item.shown(&this.here.namespace));
        let existing = match copies.get(item.uid()) {
            Some(copy) => {
                let wanted = copy::copy(item, &this.origin, &uids);
                let lack = copy::lack(&wanted, copy);
                differences.extend(lack.map(|field| format!("{shown} {field}")));
                Some(copy.clone())
            }
            None => this
                .there
                .same(item)
                .await?
                .filter(|there| serves(node, there)),
        };
        match existing {
            Some(there) => drop(uids.insert(item.uid().to_owned(), there.uid().to_owned())),
            None => differences.push(format!("{shown} is not there")),
        }
    }
    differences.extend(forsaken(graph, &copies).map(|copy| {
        let shown = copy.shown(&this.here.namespace);
        format!("{shown} is there and no longer here")
    }));
    Ok(differences)
}

/// The point of no return: from here on the copies are what counts.
pub(crate) async fn commit(this: &Move<'_>, record: &mut Record) -> Result<()> {
    ensure_movable(this, &this.read().await?)?;
    record.enter(&this.here, Phase::Deleting).await?;
    this.tell("everything is there: what is here goes for good");
    Ok(())
}

/// Deletes what was moved, owners after what they own. Says what stays, and why.
pub(crate) async fn delete(
    this: &Move<'_>,
    graph: &Graph,
    copies: &BTreeMap<String, Item>,
    record: &Record,
) -> Result<Vec<String>> {
    let uids = uids(this, graph, copies).await?;
    // Nothing is deleted if something would be lost that is known now.
    for node in graph.moving().filter(|node| !node.stays()) {
        if let Some(copy) = copies.get(node.item.uid()) {
            ensure_nothing_lost(this, &node.item, copy, &uids)?;
        }
    }
    let mut left = Vec::new();
    for group in graph.groups().rev() {
        pause::ensure_still(this, record).await?;
        let mut going = Vec::new();
        for node in group {
            let shown = node.item.shown(&this.here.namespace);
            if node.stays() {
                left.push(format!(
                    "{shown} was copied and stays here too: more than this namespace may need it"
                ));
            } else if let Some(copy) = copies.get(node.item.uid()) {
                going.extend(prepare(this, &node.item, copy, &uids, &mut left).await?);
            } else {
                left.push(format!(
                    "{shown} has no copy there, as it came after everything was compared or its copy was deleted: it stays here"
                ));
            }
        }
        remove::remove(&this.here, going, this.patience, this.tell).await?;
    }
    left.reverse();
    Ok(left)
}

/// The copies of all that has one, and what serves as such.
async fn uids(this: &Move<'_>, graph: &Graph, copies: &BTreeMap<String, Item>) -> Result<Uids> {
    let mut uids = Uids::new();
    for node in graph.moving() {
        let item = &node.item;
        let there = match copies.get(item.uid()) {
            Some(copy) => Some(copy.clone()),
            None => this
                .there
                .same(item)
                .await?
                .filter(|there| serves(node, there)),
        };
        if let Some(there) = there {
            uids.insert(item.uid().to_owned(), there.uid().to_owned());
        }
    }
    Ok(uids)
}

/// Takes from an original what holds it, once it is seen that its copy has everything; none: it is gone. Says what a person should know.
async fn prepare(
    this: &Move<'_>,
    item: &Item,
    copy: &Item,
    uids: &Uids,
    left: &mut Vec<String>,
) -> Result<Option<Item>> {
    for _ in 0..PASSES {
        let found = this.here.same(item).await?;
        let Some(found) = found.filter(|found| found.uid() == item.uid()) else {
            return Ok(None);
        };
        ensure_nothing_lost(this, &found, copy, uids)?;
        match remove::prepare(&this.here, &found).await {
            // Somebody wrote it meanwhile, this command itself if nobody answered: it is compared once more.
            Err(error) if error.has_code(&[409]) => {}
            Err(error) if error.has_code(&[404]) => return Ok(None),
            prepared => {
                let prepared = prepared?;
                if remove::is_wanted_gone(&found) {
                    left.push(format!(
                        "{} was being deleted by somebody when it left, and its copy is not: delete it there",
                        found.shown(&this.here.namespace)
                    ));
                }
                return Ok(Some(prepared));
            }
        }
    }
    Err(Error::Stopped(format!(
        "{} is written again and again while it is to be deleted here; see who writes it, then start the same command again",
        item.shown(&this.here.namespace)
    )))
}

fn ensure_nothing_lost(this: &Move<'_>, item: &Item, copy: &Item, uids: &Uids) -> Result<()> {
    let lost = copy::lost(item, &this.origin, uids, copy);
    lost.map_or(Ok(()), |field| {
        Err(Error::Stopped(format!(
            "{} {field}: it was changed here after everything was compared, and its copy there, which is what counts now, has not that; \
             it is not deleted. See what else was changed here meanwhile; give the copy what it lacks, or the object here what the copy \
             has, then start the same command again",
            item.shown(&this.here.namespace)
        )))
    })
}

/// Makes the copies objects like any other: last the classes and then the clusters, which go on by it. Says what arrived.
pub(crate) async fn release(this: &Move<'_>, record: &Record) -> Result<Vec<String>> {
    let copies = read::copies(&this.there, &this.kinds, &record.namespaces, &this.origin).await?;
    let rank = |item: &Item| (item.kind.is_cluster(), item.kind.is_cluster_class());
    let mut copies: Vec<_> = copies.into_values().collect();
    copies.sort_by_cached_key(|item| (rank(item), item.key()));
    for copy in &copies {
        match this.there.patch(copy, copy::release(copy)).await {
            // Its controller may delete it as soon as it acts.
            Err(error) if error.has_code(&[404]) => {}
            patched => drop(patched?),
        }
        if copy.kind.is_cluster() {
            this.tell(&format!(
                "{} goes on there",
                copy.shown(&this.here.namespace)
            ));
        }
    }
    this.tell(&format!(
        "the move is done but for ConfigMap/{NAME}, which goes now"
    ));
    let names = copies.iter().map(|item| item.shown(&this.here.namespace));
    Ok(names.collect())
}
