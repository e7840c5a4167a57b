//! Copies, comparison, the point of no return, and what follows it.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ObjectMeta, PostParams},
};
use kubespray::{
    cluster::FINALIZER,
    moving::{self, MOVED, MOVED_FROM, MOVING, leaving},
    runner::lease_name,
};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Tell, Wish,
    graph::{self, Graph, Uids},
    side::{FIELD_MANAGER, Item, Kind, Side, has_code, is_from, is_marked, origin},
};

/// How often everything is copied again that changed while it was copied: the operator may still say a word of its own.
const PASSES: u8 = 4;

/// How often a deleted Cluster is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Copies until every copy equals its original, and returns the originals.
pub(super) async fn copy(source: &Side, target: &Side, tell: Tell<'_>) -> anyhow::Result<Graph> {
    ensure_namespace(target).await?;
    let mut differences = Vec::new();
    for _ in 0..PASSES {
        let graph = graph::read(source).await?;
        pass(source, target, &graph, tell).await?;
        differences = compare(source, target).await?;
        if differences.is_empty() {
            tell(&format!(
                "compared {} objects: all equal",
                graph.items.len()
            ));
            return Ok(graph);
        }
    }
    anyhow::bail!(
        "the copies differ from what is here: {}. If fields are missing there, the kinds there are older: install them with \
         `windlass crds | kubectl apply --server-side -f -`, then start the same command again; --abort takes the move back",
        differences.join("; ")
    )
}

async fn ensure_namespace(target: &Side) -> anyhow::Result<()> {
    let namespaces = Api::<Namespace>::all(target.client.clone());
    let name = &target.namespace;
    let existing = namespaces.get_opt(name).await;
    if existing
        .with_context(|| format!("failed to get Namespace {name} there"))?
        .is_some()
    {
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
            .with_context(|| format!("failed to create Namespace {name} there")),
    }
}

async fn pass(source: &Side, target: &Side, graph: &Graph, tell: Tell<'_>) -> anyhow::Result<()> {
    let mut uids = Uids::new();
    let count = graph.items.len();
    for (at, item) in graph.items.iter().enumerate() {
        let (stored, done) = ensure(source, target, item, &uids).await?;
        if let (Some(here), Some(there)) = (item.object.uid(), stored.object.uid()) {
            uids.insert(here, there);
        }
        if done {
            tell(&format!("copied {} ({} of {count})", item.shown(), at + 1));
        }
    }
    Ok(())
}

/// Makes the copy of one object be what it should; whether something had to be written.
async fn ensure(
    source: &Side,
    target: &Side,
    item: &Item,
    uids: &Uids,
) -> anyhow::Result<(Item, bool)> {
    let wanted = graph::copy(item, source, target, uids);
    let existing = target.get(item.kind, &item.name()).await?;
    let mut written = true;
    let stored = match existing {
        None => target.create(&wanted).await?,
        Some(existing) if is_adopted(item, &existing) => return Ok((existing, false)),
        Some(existing) => {
            check_own(source, item, &existing)?;
            if graph::difference(&wanted, &existing).is_some() {
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
    let managers = graph::managers(item);
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
    if let Some(manager) = item.kind.status_manager()
        && let Some(status) = graph::status(item, &stored)
        && graph::status_difference(item, &stored).is_some()
    {
        target.apply_status(&stored, manager, &status).await?;
        written = true;
    }
    Ok((stored, written))
}

/// Whether what stands there under the name serves as it is: a Secret with the same content that somebody made before.
pub(super) fn is_adopted(item: &Item, existing: &Item) -> bool {
    let content = |item: &Item| {
        let data = &item.object.data;
        (
            data["data"].clone(),
            data["binaryData"].clone(),
            data["type"].clone(),
        )
    };
    !item.kind.is_ours()
        && !existing.object.annotations().contains_key(MOVED_FROM)
        && item.object.owner_references().is_empty()
        && content(item) == content(existing)
}

/// Whether what stands there under the name is the copy of this very object, and not at work yet.
pub(super) fn check_own(source: &Side, item: &Item, existing: &Item) -> anyhow::Result<()> {
    let own = origin(&source.place(), &item.object.uid().unwrap_or_default());
    let found = existing.object.annotations().get(MOVED_FROM);
    anyhow::ensure!(
        found == Some(&own),
        "{} metadata.name: there is another object of that name there; delete it, or move to another namespace with \
         --to-namespace",
        item.shown()
    );
    anyhow::ensure!(
        !item.kind.is_ours() || is_marked(&existing.object),
        "{}: its copy there has lost annotation {MOVING} before the move had ended, so it may have changed; delete the copy \
         there with --cascade=orphan and without a finalizer, then start the same command again",
        item.shown()
    );
    Ok(())
}

/// Reads both sides anew and says what differs.
async fn compare(source: &Side, target: &Side) -> anyhow::Result<Vec<String>> {
    let here = graph::read(source).await?;
    let mut uids = Uids::new();
    let mut differences = Vec::new();
    for item in &here.items {
        let Some(there) = target.get(item.kind, &item.name()).await? else {
            differences.push(format!("{} is not there", item.shown()));
            continue;
        };
        if let (Some(here), Some(there)) = (item.object.uid(), there.object.uid()) {
            uids.insert(here, there);
        }
        if is_adopted(item, &there) {
            continue;
        }
        let wanted = graph::copy(item, source, target, &uids);
        let field =
            graph::difference(&wanted, &there).or_else(|| graph::status_difference(item, &there));
        differences.extend(field.map(|field| format!("{} {field}", item.shown())));
    }
    Ok(differences)
}

/// The point of no return: from here on the copies are the cluster.
pub(super) async fn commit(
    source: &Side,
    target: &Side,
    graph: &Graph,
    tell: Tell<'_>,
) -> anyhow::Result<()> {
    let mark = leaving(&target.place());
    for cluster in graph.clusters() {
        let annotations = json!({MOVED: target.place()});
        let may = |found: &DynamicObject| {
            anyhow::ensure!(
                moving::mark(&found.metadata) == Some(&mark),
                "{}: annotation {MOVING} has changed, so the move is being taken back; end that with --abort",
                cluster.shown()
            );
            Ok(())
        };
        source.annotate_if(cluster, annotations, may).await?;
        tell(&format!("marked {} as moved for good", cluster.shown()));
    }
    Ok(())
}

/// Takes the marks from the copies, the Cluster last: then the operator there acts.
pub(super) async fn take_over(
    source: &Side,
    target: &Side,
    graph: &Graph,
    tell: Tell<'_>,
) -> anyhow::Result<()> {
    let place = source.place();
    for cluster in graph.clusters() {
        let there = target.get(Kind::Cluster, &cluster.name()).await?;
        anyhow::ensure!(
            there.is_some_and(|there| is_from(&there.object, &place)),
            "{}: it is marked as moved for good, but its copy in {} is not there any more. If it was deleted on purpose, \
             delete this one too: no host is touched",
            cluster.shown(),
            target.place()
        );
    }
    for kind in [Kind::ClusterNode, Kind::Run, Kind::Cluster] {
        for item in target.list(kind).await? {
            if is_from(&item.object, &place) && is_marked(&item.object) {
                let patch = json!({"annotations": {MOVING: null}});
                target.patch_metadata(&item, patch).await?;
                if kind == Kind::Cluster {
                    tell(&format!("{} has taken over there", item.shown()));
                }
            }
        }
    }
    Ok(())
}

/// Deletes what was moved, owners after what they own and the Cluster last. Says what stays.
pub(super) async fn delete(
    source: &Side,
    target: &Side,
    graph: &Graph,
    wish: &Wish,
    tell: Tell<'_>,
) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    let others = graph
        .items
        .iter()
        .rev()
        .filter(|item| item.kind != Kind::Cluster);
    for item in others {
        // What came after the copy was made carries no mark, or has no copy.
        let was_copied = if item.kind.is_ours() {
            source
                .get(item.kind, &item.name())
                .await?
                .is_none_or(|item| is_marked(&item.object))
        } else {
            target.get(item.kind, &item.name()).await?.is_some()
        };
        if was_copied {
            source.delete(item).await?;
        } else {
            left.push(format!(
                "{} came after the copy: it was not moved and stays",
                item.shown()
            ));
        }
    }
    tell("deleted what the Cluster owns here");
    for cluster in graph.clusters() {
        delete_lease(source, &cluster.name()).await?;
        delete_cluster(source, cluster, wish).await?;
        tell(&format!(
            "deleted {} here; no host was touched",
            cluster.shown()
        ));
    }
    Ok(left)
}

async fn delete_lease(source: &Side, cluster: &str) -> anyhow::Result<()> {
    let leases = Api::<Lease>::namespaced(source.client.clone(), &source.namespace);
    match leases
        .delete(&lease_name(cluster), &DeleteParams::default())
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted
            .map(drop)
            .with_context(|| format!("failed to delete the Lease of Cluster {cluster} here")),
    }
}

/// The operator lets go of a marked Cluster, and sets its files aside; where none is at work its finalizer is taken away.
async fn delete_cluster(source: &Side, cluster: &Item, wish: &Wish) -> anyhow::Result<()> {
    source.delete(cluster).await?;
    let deadline = Instant::now() + wish.let_go;
    loop {
        let Some(found) = source.get(Kind::Cluster, &cluster.name()).await? else {
            return Ok(());
        };
        if found.object.uid() != cluster.object.uid() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return unhold(source, &found).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn unhold(source: &Side, cluster: &Item) -> anyhow::Result<()> {
    let finalizers = cluster.object.finalizers();
    let rest: Vec<_> = finalizers
        .iter()
        .filter(|finalizer| *finalizer != FINALIZER)
        .collect();
    anyhow::ensure!(
        rest.is_empty(),
        "{} metadata.finalizers: {} keeps the object here; remove it, then start the same command again",
        cluster.shown(),
        rest.iter()
            .map(|name| name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    );
    let metadata = json!({
        "finalizers": [], "resourceVersion": cluster.object.resource_version(),
    });
    match source.patch_metadata(cluster, metadata).await {
        // The operator was faster.
        Err(error) if has_code(&error, &[404, 409]) => Ok(()),
        patched => patched,
    }
}
