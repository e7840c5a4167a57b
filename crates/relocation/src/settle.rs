//! Brings what is to be moved to rest: marks it, takes the Leases so that nobody works on it, and puts what lies beside the
//! objects into Secrets.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Move,
    error::{Error, Result, ensure},
    graph::{Graph, Item},
    lease,
    mark::{MOVING, is_marked, leaving},
    read,
    side::{FIELD_MANAGER, Side},
};

/// How often it is looked whether those who work have come to rest.
const LOOK: Duration = Duration::from_millis(500);

/// Marks everything, the roots first so that nothing new is begun, then waits until nobody works.
pub(crate) async fn settle(this: &Move<'_>, graph: &Graph) -> Result<()> {
    let mark = leaving(&this.target.place());
    for root in graph.roots() {
        put(this.source, root, &mark).await?;
    }
    // What was made meanwhile is among these.
    mark_members(this, &mark).await?;
    let items = graph.items().iter();
    let marked = items.filter(|item| item.kind.is_acted_on()).count();
    this.tell(&format!(
        "marked {marked} objects: nothing is begun here any more"
    ));
    for root in graph.roots() {
        rest(this, root).await?;
    }
    // And what somebody made who had not seen the mark: the Lease keeps it from being worked on.
    mark_members(this, &mark).await?;
    ended(this).await
}

async fn mark_members(this: &Move<'_>, mark: &str) -> Result<()> {
    for kind in this.domains.members().rev() {
        for item in this.source.list(kind).await? {
            put(this.source, &item, mark).await?;
        }
    }
    Ok(())
}

async fn put(source: &Side, item: &Item, mark: &str) -> Result<()> {
    if is_marked(&item.object) {
        return Ok(());
    }
    source
        .patch_metadata(item, json!({"annotations": {MOVING: mark}}))
        .await
}

/// Waits until nobody works on a root: takes its Lease, so that whoever comes later is refused, or asks its domain.
async fn rest(this: &Move<'_>, root: &Item) -> Result<()> {
    let deadline = Instant::now() + this.patience.pause;
    let mut told = String::new();
    let mut candidate = lease::candidate(this.source, &this.target.place(), root);
    loop {
        let waiting = match &mut candidate {
            Some(candidate) => match candidate.attempt().await {
                Ok(()) => None,
                Err(controller::lease::Error::Held { holder, .. }) => {
                    Some(at_work(this, root).await?.unwrap_or(holder))
                }
                Err(controller::lease::Error::Api {
                    source: kube::Error::Api(status),
                    ..
                }) if status.code == 409 => continue,
                Err(source) => {
                    let root = root.shown();
                    return Err(Error::Lease { root, source });
                }
            },
            None => at_work(this, root).await?,
        };
        let Some(waiting) = waiting else {
            return Ok(());
        };
        ensure(Instant::now() < deadline, || {
            format!(
                "--timeout {}s: {waiting} has not paused and is still at work on {}. Everything is still here and marked; start \
                 the same command again, with a longer --timeout, or take the move back with --abort",
                this.patience.pause.as_secs(),
                root.shown()
            )
        })?;
        if waiting != told {
            this.tell(&format!("waiting for {waiting} to pause"));
            told = waiting;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn at_work(this: &Move<'_>, root: &Item) -> Result<Option<String>> {
    let graph = read::read(this.source, &this.domains).await?;
    Ok(this.domains.at_work(&graph, root))
}

/// Nobody who sees the API works. One who did not see it for a while, and went on, stops on seeing it again: it is given the
/// time for that.
async fn ended(this: &Move<'_>) -> Result<()> {
    let deadline = Instant::now() + this.patience.settle;
    loop {
        let graph = read::read(this.source, &this.domains).await?;
        if !this.domains.may_be_at_work(&graph) || Instant::now() >= deadline {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Puts what lies beside the objects into Secrets here, which then move with the others.
pub(crate) async fn store(this: &Move<'_>) -> Result<()> {
    let graph = read::read(this.source, &this.domains).await?;
    let api = Api::<Secret>::namespaced(this.source.client.clone(), &this.source.namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    for brought in this.domains.brings(&graph)? {
        let name = brought.secret.name_any();
        api.patch(&name, &parameters, &Patch::Apply(&brought.secret))
            .await
            .map_err(|source| Error::api(format!("write Secret {name} here"), source))?;
        this.tell(&format!("stored {} in Secret/{name}", brought.what));
    }
    Ok(())
}
