//! Deletes objects that are no longer what counts, without what they stand for: their finalizers are taken away, so that no controller
//! deletes machines, and what they own is orphaned, so that the garbage collector takes nothing else.

use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Patience, Tell, contract,
    error::{Result, ensure},
    graph::owners_first,
    place::{Item, Place},
};

/// The finalizer of the garbage collector, which looks for what the object owns.
const ORPHAN: &str = "orphan";
/// How often a deleted object is looked at, in parts of [`Patience::look`].
const OFTENER: u32 = 20;

/// Deletes objects of which none owns another one, and returns when they are gone.
pub(crate) async fn remove(
    place: &Place,
    items: Vec<Item>,
    patience: Patience,
    tell: Tell<'_>,
) -> Result<()> {
    for item in &items {
        if let_go(place, item).await? {
            place.delete(item).await?;
        }
    }
    let deadline = Instant::now() + patience.gone;
    for item in &items {
        gone(place, item, deadline, patience).await?;
        tell(&format!(
            "deleted {} {}",
            item.shown(&place.namespace),
            place.word
        ));
    }
    Ok(())
}

/// Deletes copies, each before its owners.
pub(crate) async fn copies(
    place: &Place,
    copies: Vec<Item>,
    patience: Patience,
    tell: Tell<'_>,
) -> Result<()> {
    for group in owners_first(copies).into_iter().rev() {
        remove(place, group, patience, tell).await?;
    }
    Ok(())
}

/// Takes the finalizers of controllers away, and says why; false: it is gone, or goes and is not as it was read.
async fn let_go(place: &Place, item: &Item) -> Result<bool> {
    if is_free(item) {
        return Ok(true);
    }
    let patched = if is_going(item) {
        // The collector may be through since it was read, and what goes is given no finalizer again.
        prepare(place, item).await
    } else {
        place.patch(item, letting_go(item)).await
    };
    match patched {
        Err(error) if error.has_code(&[404, 409]) => Ok(false),
        patched => patched.map(|_| true),
    }
}

/// As the deletion does, takes the finalizers of controllers away, if the object is as it was read; 409: it is not.
pub(crate) async fn prepare(place: &Place, item: &Item) -> Result<Item> {
    if is_free(item) {
        return Ok(item.clone());
    }
    let mut patch = letting_go(item);
    patch["metadata"]["resourceVersion"] = json!(item.object.resource_version());
    place.patch(item, patch).await
}

fn letting_go(item: &Item) -> Value {
    // One write, so that no controller sees an object without a finalizer and without the reason.
    json!({"metadata": {
        "annotations": {contract::DELETE_FOR_MOVE: ""},
        "finalizers": of_collector(item),
    }})
}

async fn gone(place: &Place, item: &Item, deadline: Instant, patience: Patience) -> Result<()> {
    loop {
        let found = place.same(item).await?;
        let Some(found) = found.filter(|found| found.uid() == item.uid()) else {
            return Ok(());
        };
        // A controller may have put its finalizer back before it saw the deletion.
        if !is_going(&found) {
            place.delete(&found).await?;
        } else if !held_by(&found).is_empty() {
            let_go(place, &found).await?;
        }
        ensure(Instant::now() < deadline, || {
            format!(
                "{} metadata.finalizers: {} still keeps the deleted object {}; the finalizer {ORPHAN} is taken away by the garbage \
                 collector of kube-controller-manager, see that it runs and that no controller puts another one back, then start the \
                 same command again",
                item.shown(&place.namespace),
                found.object.finalizers().join(", "),
                place.word
            )
        })?;
        tokio::time::sleep(patience.look / OFTENER).await;
    }
}

/// Whether somebody else deleted it, and its controllers hold it.
pub(crate) fn is_wanted_gone(item: &Item) -> bool {
    is_going(item) && item.annotation(contract::DELETE_FOR_MOVE).is_none()
}

fn is_going(item: &Item) -> bool {
    item.object.metadata.deletion_timestamp.is_some()
}

/// Whether no controller holds it, and it says why.
fn is_free(item: &Item) -> bool {
    item.annotation(contract::DELETE_FOR_MOVE).is_some() && held_by(item).is_empty()
}

/// The finalizers of controllers.
fn held_by(item: &Item) -> Vec<&str> {
    let finalizers = item.object.finalizers().iter().map(String::as_str);
    finalizers.filter(|name| *name != ORPHAN).collect()
}

fn of_collector(item: &Item) -> Vec<&str> {
    let finalizers = item.object.finalizers().iter().map(String::as_str);
    finalizers.filter(|name| *name == ORPHAN).collect()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use kube::{
        Api, Client,
        api::{DynamicObject, PostParams},
    };

    use super::*;
    use crate::kind::Kind;

    #[tokio::test]
    async fn what_the_collector_was_through_with_meanwhile_goes_all_the_same() {
        let server = kapi::Server::in_memory(&[]).await.unwrap();
        let place = Place {
            client: Client::new(server.router(), "default"),
            namespace: "default".to_owned(),
            api: String::new(),
            word: "here",
        };
        let kind = Arc::new(Kind::config_map());
        let made: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "namespace": "default", "finalizers": ["example.com/held"]},
        }))
        .unwrap();
        let api: Api<DynamicObject> =
            Api::namespaced_with(place.client.clone(), "default", &kind.resource);
        api.create(&PostParams::default(), &made).await.unwrap();
        let item = async || place.get(&kind, Some("default"), "held").await.unwrap();
        place.delete_alone(&item().await.unwrap()).await.unwrap();

        // As it was read a moment ago, when the collector held it too.
        let mut before = item().await.unwrap();
        before.object.finalizers_mut().push(ORPHAN.to_owned());
        let changes = json!({"metadata": {"labels": {"example.com/meanwhile": "changed"}}});
        place.patch(&before, changes).await.unwrap();

        let patience = Patience {
            settle: Duration::ZERO,
            gone: Duration::from_secs(20),
            look: Duration::from_millis(20),
        };
        remove(&place, vec![before], patience, &|_| {})
            .await
            .unwrap();
        assert!(item().await.is_none());
    }
}
