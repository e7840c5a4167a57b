//! What clusters inherit from, kept as FleetRevisions of the Rollout: who is born in the middle of a run starts at what was tried.

use std::collections::BTreeMap;

use api::inventory::{FleetRevision, FleetRevisionSpec, Rollout, RolloutStatus};
use controller::stream::in_namespace;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};
use serde_json::Value;

use super::{Context, Error};
use crate::{cluster::records, inventories::Sources, names};

/// Keeps what the clusters inherit from now, where the status is about to name it.
pub(super) async fn keep(
    rollout: &Rollout,
    told: &RolloutStatus,
    sources: &Sources,
    context: &Context,
) -> Result<(), Error> {
    let name = record(&rollout.name_any(), &sources.revision);
    let namespace = rollout.namespace().unwrap_or_default();
    let reference = ObjectRef::new(&name).within(&namespace);
    let is_named = named(told).any(|revision| *revision == sources.revision);
    if !is_named || context.revisions.get(&reference).is_some() {
        return Ok(());
    }
    let objects = sources.objects.iter().filter_map(Value::as_object);
    let spec = FleetRevisionSpec {
        levels: BTreeMap::new(),
        cluster: owner(rollout),
        revision: sources.revision.clone(),
        objects: objects.cloned().collect(),
    };
    let mut record = FleetRevision::new(&name, spec);
    record.metadata.namespace = rollout.namespace();
    record.metadata.owner_references = rollout.owner_ref(&()).map(|owner| vec![owner]);
    match api(rollout, context)
        .create(&PostParams::default(), &record)
        .await
    {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(Error::Api("create a FleetRevision", error)),
        Ok(_) => Ok(()),
    }
}

/// Removes what the status does not name any more.
pub(super) async fn prune(
    rollout: &Rollout,
    told: &RolloutStatus,
    context: &Context,
) -> Result<(), Error> {
    let namespace = rollout.namespace().unwrap_or_default();
    for record in in_namespace(&context.revisions, &namespace) {
        let Ok(record) = &record.0 else {
            continue;
        };
        let is_named = named(told).any(|revision| *revision == record.spec.revision);
        if record.spec.cluster != owner(rollout) || is_named {
            continue;
        }
        match api(rollout, context)
            .delete(&record.name_any(), &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(Error::Api("delete a FleetRevision", error)),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// What was kept, if it is there and what its name says.
pub(crate) fn kept(
    revisions: &Store<DeserializeGuard<FleetRevision>>,
    rollout: &Rollout,
    revision: &str,
) -> Option<Vec<Value>> {
    let namespace = rollout.namespace()?;
    let name = format!("{}-{INFIX}", rollout.name_any());
    records::kept(revisions, (&namespace, &name), revision)
}

/// The name of the FleetRevision of it.
pub(crate) fn record(rollout: &str, revision: &str) -> String {
    names::record(&format!("{rollout}-{INFIX}"), revision)
}

fn named(status: &RolloutStatus) -> impl Iterator<Item = &String> {
    let run = status.run.as_ref().filter(|run| run.ended.is_none());
    let of_run = run.and_then(|run| run.sources.as_ref());
    // Those before runs that can be taken back as well.
    let before = status
        .history
        .iter()
        .filter_map(|record| record.sources.as_ref());
    status.sources.iter().chain(of_run).chain(before)
}

/// Whose it is: no name of a cluster.
fn owner(rollout: &Rollout) -> String {
    format!("Rollout/{}", rollout.name_any())
}

fn api(rollout: &Rollout, context: &Context) -> Api<FleetRevision> {
    Api::namespaced(
        context.client.clone(),
        &rollout.namespace().unwrap_or_default(),
    )
}

/// Between the names of a Rollout and of what it keeps.
const INFIX: &str = "sources";
