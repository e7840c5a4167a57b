//! Pauses what is here, waits until it is, and lets it go on.
//!
//! The annotation that says who paused an object is written together with the pause, so wherever a move was stopped it is known
//! what is its own to let go on. Its value is what stood in `spec.paused` before.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Move, Tell, contract,
    error::{Error, Result, ensure},
    graph::Graph,
    kind::Kind,
    place::{Item, Place},
    record::{Paused, Record},
};

/// The annotation of what a move paused.
pub(crate) const OWN_PAUSE: &str = "windlass.dev/pivot-paused";

/// What stood in `spec.paused`.
const FALSE: &str = "false";

/// Whether a move paused it.
pub(crate) fn is_own(item: &Item) -> bool {
    item.annotation(OWN_PAUSE).is_some()
}

/// Whether somebody else did.
pub(crate) fn is_foreign(item: &Item) -> bool {
    contract::is_pausable(item) && contract::is_paused(item) && !is_own(item)
}

/// What a move pauses of what it found.
pub(crate) fn pausable(graph: &Graph) -> impl Iterator<Item = &Item> {
    graph.all().filter(|item| contract::is_pausable(item))
}

/// Pauses everything, after it was written down.
pub(crate) async fn pause(this: &Move<'_>, graph: &Graph, record: &mut Record) -> Result<()> {
    let wanted = pausable(graph).map(Paused::of);
    let before = record.paused.len();
    record.paused.extend(wanted);
    if record.paused.len() > before {
        record.write(&this.here).await?;
    }
    for item in pausable(graph) {
        pause_one(&this.here, item).await?;
    }
    Ok(())
}

async fn pause_one(here: &Place, item: &Item) -> Result<()> {
    let mut found = item.clone();
    loop {
        if is_own(&found) && contract::is_paused(&found) {
            return Ok(());
        }
        ensure(!is_foreign(&found), || {
            let shown = found.shown(&here.namespace);
            format!(
                "{shown} was paused by somebody else meanwhile; let it go on, then start the same command again"
            )
        })?;
        match here.patch(&found, pausing(&found)).await {
            Err(error) if error.has_code(&[409]) => {}
            paused => return paused.map(drop),
        }
        let again = here.same(item).await?;
        let again = again.filter(|again| again.uid() == item.uid());
        found = again.ok_or_else(|| {
            let shown = item.shown(&here.namespace);
            Error::Stopped(format!(
                "{shown} was deleted meanwhile; start the same command again"
            ))
        })?;
    }
}

fn pausing(item: &Item) -> Value {
    // What somebody pauses at this moment is theirs: the version tells.
    let version = item.object.resource_version();
    if item.kind.is_cluster() {
        json!({
            "metadata": {"resourceVersion": version, "annotations": {OWN_PAUSE: before(item)}},
            "spec": {"paused": true},
        })
    } else {
        json!({"metadata": {"resourceVersion": version, "annotations": {OWN_PAUSE: "", contract::PAUSED: ""}}})
    }
}

/// What [`OWN_PAUSE`] says of an object: what stood in `spec.paused` before a move paused it for the first time.
pub(crate) fn before(item: &Item) -> &str {
    let now = &item.object.data["spec"]["paused"];
    let is_false = item.kind.is_cluster() && *now == false;
    item.annotation(OWN_PAUSE)
        .unwrap_or(if is_false { FALSE } else { "" })
}

/// The patch with which something goes on that a move paused; none for what it did not.
pub(crate) fn resumption(item: &Item) -> Option<Value> {
    let before = item.annotation(OWN_PAUSE)?;
    Some(if item.kind.is_cluster() {
        let paused = if before == FALSE {
            json!(false)
        } else {
            Value::Null
        };
        json!({"metadata": {"annotations": {OWN_PAUSE: null}}, "spec": {"paused": paused}})
    } else {
        json!({"metadata": {"annotations": {OWN_PAUSE: null, contract::PAUSED: null}}})
    })
}

/// Lets go on here what the move paused.
pub(crate) async fn resume(
    here: &Place,
    kinds: &[Arc<Kind>],
    record: &Record,
    tell: Tell<'_>,
) -> Result<()> {
    for found in recorded(here, kinds, record).await? {
        if let Some(patch) = resumption(&found) {
            match here.patch(&found, patch).await {
                // It went meanwhile.
                Err(error) if error.has_code(&[404]) => {}
                patched => drop(patched?),
            }
            tell(&format!(
                "{} goes on {}",
                found.shown(&here.namespace),
                here.word
            ));
        }
    }
    Ok(())
}

/// What there still is of what a move paused.
async fn recorded(here: &Place, kinds: &[Arc<Kind>], record: &Record) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for paused in &record.paused {
        let mut kinds = kinds.iter();
        let is_it = |kind: &&Arc<Kind>| kind.is(clusterctl::describe::CORE, &paused.kind);
        if let Some(kind) = kinds.find(is_it) {
            let found = here.get(kind, Some(&paused.namespace), &paused.name);
            items.extend(found.await?);
        }
    }
    Ok(items)
}

/// Pauses again what somebody let go on after the point of no return.
pub(crate) async fn again(this: &Move<'_>, record: &Record) -> Result<()> {
    for item in recorded(&this.here, &this.kinds, record).await? {
        // Whoever paused it instead: nothing works on it.
        if !contract::is_paused(&item) {
            pause_one(&this.here, &item).await?;
        }
    }
    Ok(())
}

/// Refuses to delete more here if somebody let something go on: what was deleted already might be made anew.
pub(crate) async fn ensure_still(this: &Move<'_>, record: &Record) -> Result<()> {
    for item in recorded(&this.here, &this.kinds, record).await? {
        ensure(contract::is_paused(&item), || {
            format!(
                "{} was let go on by somebody while what was moved is deleted here, so it may have changed; see who does that, then start \
                 the same command again, which pauses it and compares what is left",
                item.shown(&this.here.namespace)
            )
        })?;
    }
    Ok(())
}

/// Refuses to go on if somebody let something go on here, and so may have changed it.
pub(crate) fn ensure_paused(graph: &Graph, home: &str) -> Result<()> {
    for item in pausable(graph) {
        ensure(is_own(item) && contract::is_paused(item), || {
            let shown = item.shown(home);
            format!(
                "{shown} was let go on by somebody while it was moved, so it may have changed; start the same command again"
            )
        })?;
    }
    Ok(())
}

/// Waits until nobody asks to wait and everything that leaves says that it is paused, and returns what is there then.
pub(crate) async fn settle(this: &Move<'_>, leaves: impl Fn(&Item) -> bool) -> Result<Graph> {
    let deadline = Instant::now() + this.patience.settle;
    let mut told = Vec::new();
    loop {
        let graph = this.read().await?;
        let waits = waits(&graph, &leaves, &this.here.namespace);
        if waits.is_empty() {
            return Ok(graph);
        }
        if waits != told {
            this.tell(&format!("waiting: {}", waits.join("; ")));
        }
        ensure(Instant::now() < deadline, || {
            format!(
                "after {} s (--timeout) not everything is ready to be moved: {}; see that the controllers of these kinds run here \
                 and why they wait, or give them longer with --timeout, then start the same command again",
                this.patience.settle.as_secs(),
                waits.join("; ")
            )
        })?;
        told = waits;
        tokio::time::sleep(this.patience.look).await;
    }
}

/// What is waited for, a line each.
fn waits(graph: &Graph, leaves: impl Fn(&Item) -> bool, home: &str) -> Vec<String> {
    let mut waits = Vec::new();
    for node in graph.moving().filter(|node| leaves(&node.item)) {
        let shown = node.item.shown(home);
        if node.item.annotation(contract::BLOCK_MOVE).is_some() {
            waits.push(format!(
                "{shown} has annotation {}, its provider asks to wait",
                contract::BLOCK_MOVE
            ));
        } else if node.pauses() && contract::is_still_at_work(&node.item) {
            waits.push(format!(
                "{shown} status.conditions[Paused] is not True yet, its controller has not stopped"
            ));
        }
    }
    waits
}
