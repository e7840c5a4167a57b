//! `windlass move --abort`: takes back a move that has not passed its point of no return.
//!
//! The mark of the Cluster here is changed first, and a move marks the Cluster as moved only while its own mark is there: of
//! a move and an abort at the same time one wins. Then the copies are deleted, and then what is here is let go: the
//! Lease before the Runs, because a runner that was refused would give its Run up, and the Cluster last, because its mark
//! says that there is something to take back. The same command goes on wherever an earlier one was stopped.

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use kubespray::{
    moving::{self, MOVED, MOVED_FROM, MOVING, returning},
    runner::lease_name,
};
use serde_json::json;

use super::{
    Outcome, Summary, Tell,
    graph::{self, Graph},
    preflight,
    settle::HOLDER,
    side::{Item, Kind, Side, is_from, is_marked, origin},
};

/// Takes a move back. Without a target, which may be lost for good, what is here is let go and the copies stay.
pub(crate) async fn take_back(
    source: &Side,
    target: Option<&Side>,
    tell: Tell<'_>,
) -> anyhow::Result<Summary> {
    preflight::may_take_back(source, target).await?;
    let graph = graph::read(source).await?;
    possible(source, target, &graph).await?;
    let mut copies = Copies::find(source, target).await?;
    copies.none_is_live()?;
    let leases = leases(source, &graph).await?;
    let marked = marked(source).await?;
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
    for cluster in graph.clusters() {
        announce(source, cluster, &place).await?;
    }
    if let Some(target) = target {
        // A move that was at work until now may have copied more.
        copies = Copies::find(source, Some(target)).await?;
        for copy in &copies.deletable {
            target.delete(copy).await?;
            tell(&format!("deleted the copy {} there", copy.shown()));
        }
    }
    release(source, &graph, tell).await?;
    Ok(summary(Outcome::TakenBack, &copies))
}

/// Refuses what cannot be taken back.
async fn possible(source: &Side, target: Option<&Side>, graph: &Graph) -> anyhow::Result<()> {
    if graph.clusters().next().is_none() {
        return Err(nothing_here(source, target).await);
    }
    for cluster in graph.clusters() {
        not_moved(cluster)?;
    }
    for item in marked(source).await? {
        let mark = moving::mark(&item.object.metadata).unwrap_or_default();
        let place = moving::destination(mark).with_context(|| {
            format!(
                "{}: annotation {MOVING} is {mark:?}, so this is the side that it is moved to; take the move back from the \
                 other one",
                item.shown()
            )
        })?;
        if let Some(target) = target {
            anyhow::ensure!(
                place == target.place(),
                "{}: annotation {MOVING} is {mark:?}, but --to-kubeconfig leads to {}; name what the move named, or leave \
                 --to-kubeconfig away if that API is lost for good",
                item.shown(),
                target.place()
            );
        }
    }
    Ok(())
}

async fn nothing_here(source: &Side, target: Option<&Side>) -> anyhow::Error {
    let place = source.place();
    let there = match target {
        Some(target) => target.list(Kind::Cluster).await,
        None => Ok(Vec::new()),
    };
    match there {
        Ok(there) if there.iter().any(|item| is_from(&item.object, &place)) => anyhow::anyhow!(
            "--namespace is {:?}: there is no Cluster in it any more, its copy there is the cluster now; to have it back, move \
             it from there to here",
            source.namespace
        ),
        Ok(_) => anyhow::anyhow!(
            "--namespace is {:?}: there is no Cluster in it, so nothing can be taken back; name the namespace of a Cluster",
            source.namespace
        ),
        Err(error) => error,
    }
}

fn not_moved(cluster: &Item) -> anyhow::Result<()> {
    let moved = cluster.object.annotations().get(MOVED);
    anyhow::ensure!(
        moved.is_none(),
        "{}: annotation {MOVED} is {:?}: the point of no return is behind, the copy there is the cluster now. End the move \
         with the same command without --abort; to have the cluster back, move it from there to here afterwards",
        cluster.shown(),
        moved.map_or("", String::as_str)
    );
    Ok(())
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
    async fn find(source: &Side, target: Option<&Side>) -> anyhow::Result<Self> {
        let place = source.place();
        let mut copies = Self {
            deletable: Vec::new(),
            live: Vec::new(),
            last: Vec::new(),
        };
        let Some(target) = target else {
            return Ok(copies);
        };
        for kind in Kind::ALL.into_iter().rev() {
            for copy in target.list(kind).await? {
                if !is_from(&copy.object, &place) {
                    continue;
                }
                let original = source.get(kind, &copy.name()).await?;
                let is_copy = original.is_some_and(|original| {
                    let uid = original.object.uid().unwrap_or_default();
                    copy.object.annotations().get(MOVED_FROM) == Some(&origin(&place, &uid))
                });
                match (is_copy, kind.is_ours(), is_marked(&copy.object)) {
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

    fn none_is_live(&self) -> anyhow::Result<()> {
        let live: Vec<_> = self.live.iter().map(Item::shown).collect();
        anyhow::ensure!(
            live.is_empty(),
            "nothing was taken back and nothing was changed: the copies of {} there have lost annotation {MOVING} before the \
             move had ended, so they may have changed; delete them there with --cascade=orphan and without a finalizer, then \
             start the same command again",
            live.join(", ")
        );
        Ok(())
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

/// What is marked here.
async fn marked(source: &Side) -> anyhow::Result<Vec<Item>> {
    let mut marked = Vec::new();
    for kind in [Kind::Run, Kind::ClusterNode, Kind::Cluster] {
        let items = source.list(kind).await?;
        marked.extend(items.into_iter().filter(|item| is_marked(&item.object)));
    }
    Ok(marked)
}

/// The Leases of the clusters that a move holds. One that a runner holds is none of them.
async fn leases(source: &Side, graph: &Graph) -> anyhow::Result<Vec<Lease>> {
    let api = Api::<Lease>::namespaced(source.client.clone(), &source.namespace);
    let mut held = Vec::new();
    for cluster in graph.clusters() {
        let found = api.get_opt(&lease_name(&cluster.name())).await;
        let found =
            found.with_context(|| format!("failed to get the Lease of {}", cluster.shown()))?;
        held.extend(found.filter(|lease| destination(lease).is_some()));
    }
    Ok(held)
}

fn destination(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    holder.strip_prefix(HOLDER)
}

/// Where the move was to.
fn place(target: Option<&Side>, marked: &[Item], leases: &[Lease]) -> String {
    let marked = marked
        .iter()
        .filter_map(|item| moving::destination(moving::mark(&item.object.metadata)?));
    let mut known = marked.chain(leases.iter().filter_map(destination));
    target
        .map(Side::place)
        .or_else(|| known.next().map(str::to_owned))
        .unwrap_or_default()
}

/// From here on the move that is taken back cannot pass its point of no return.
async fn announce(source: &Side, cluster: &Item, place: &str) -> anyhow::Result<()> {
    let annotations = json!({MOVING: returning(place)});
    let may = |found: &kube::api::DynamicObject| {
        not_moved(&Item {
            kind: cluster.kind,
            object: found.clone(),
        })
    };
    source.annotate_if(cluster, annotations, may).await
}

async fn release(source: &Side, graph: &Graph, tell: Tell<'_>) -> anyhow::Result<()> {
    let api = Api::<Lease>::namespaced(source.client.clone(), &source.namespace);
    for lease in leases(source, graph).await? {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: lease.uid(),
                resource_version: lease.resource_version(),
            }),
            ..DeleteParams::default()
        };
        let name = lease.name_any();
        api.delete(&name, &parameters)
            .await
            .with_context(|| format!("failed to delete Lease {name} here"))?;
    }
    for item in marked(source).await? {
        let annotations = json!({"annotations": {MOVING: null}});
        source.patch_metadata(&item, annotations).await?;
        if item.kind == Kind::Cluster {
            tell(&format!("{} is at work here again", item.shown()));
        }
    }
    Ok(())
}
