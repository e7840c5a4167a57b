//! What clusters were rendered to, kept as FleetRevisions: a roll-out applies what it was begun with, whatever the inventory says by then.

use std::collections::{BTreeMap, BTreeSet};

use api::inventory::{FleetCluster, FleetProblem, FleetRevision, FleetRevisionSpec};
use controller::stream::in_namespace;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};
use serde_json::Value;

use super::{
    Context, Error, Pass,
    part::{self, Parts},
};
use crate::{inventories::Revision, names, rollout::history};

/// Keeps what a cluster is rendered to.
pub(super) async fn keep(
    cluster: &FleetCluster,
    revision: &Revision,
    context: &Context,
) -> Result<Result<(), FleetProblem>, Error> {
    if let Some(record) = read(cluster, &revision.name, context) {
        return Ok(told_apart(&record, &revision.name, &revision.objects));
    }
    let size = serde_json::to_vec(&revision.objects).map_or(0, |text| text.len());
    if size > names::LARGEST_RECORD {
        return Ok(Err(FleetProblem {
            object: cluster_title(cluster),
            rule: "TooLarge".to_owned(),
            message: format!(
                "it is rendered to {size} bytes, and {} can be kept",
                names::LARGEST_RECORD
            ),
            remedy:
                "make several clusters of it, or say in one place what its hosts have in common"
                    .to_owned(),
            ..FleetProblem::default()
        }));
    }
    let objects = revision.objects.iter().filter_map(Value::as_object);
    let spec = FleetRevisionSpec {
        cluster: cluster.name_any(),
        revision: revision.name.clone(),
        levels: revision.levels.clone(),
        objects: objects.cloned().collect(),
    };
    let name = names::record(&cluster.name_any(), &revision.name);
    let mut record = FleetRevision::new(&name, spec);
    record.metadata.namespace = cluster.namespace();
    record.metadata.owner_references = cluster.owner_ref(&()).map(|owner| vec![owner]);
    match api(cluster, context)
        .create(&PostParams::default(), &record)
        .await
    {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Ok(())),
        Err(error) => Err(Error::Api(format!("create FleetRevision {name}"), error)),
        Ok(_) => Ok(Ok(())),
    }
}

/// A name is a digest, and short enough that somebody may look for two contents of one: what was approved would be the other one.
fn told_apart(record: &FleetRevision, name: &str, objects: &[Value]) -> Result<(), FleetProblem> {
    let kept: Vec<_> = record
        .spec
        .objects
        .iter()
        .cloned()
        .map(Value::Object)
        .collect();
    // One that was altered is not what its name says, and is not used.
    if inventory::revision(&kept) != name || kept == objects {
        return Ok(());
    }
    Err(FleetProblem {
        object: format!("FleetRevision {}", record.name_any()),
        rule: "RevisionTaken".to_owned(),
        message: "holds other objects of the same digest than the inventory renders now".to_owned(),
        remedy: "this does not come by chance: find out who edits the inventory, and change any value of the cluster".to_owned(),
        ..FleetProblem::default()
    })
}

/// The objects of a revision, if they are those of its name.
pub(super) fn objects(
    cluster: &FleetCluster,
    revision: &str,
    context: &Context,
) -> Option<Vec<Value>> {
    let namespace = cluster.namespace().unwrap_or_default();
    kept(
        &context.revisions,
        (&namespace, &cluster.name_any()),
        revision,
    )
}

/// The objects of a revision of a cluster, which has a namespace and a name, if they are those of its name.
pub(crate) fn kept(
    revisions: &Store<DeserializeGuard<FleetRevision>>,
    (namespace, cluster): (&str, &str),
    revision: &str,
) -> Option<Vec<Value>> {
    let objects = record(revisions, (namespace, cluster), revision)?
        .spec
        .objects;
    let objects: Vec<_> = objects.into_iter().map(Value::Object).collect();
    (inventory::revision(&objects) == revision).then_some(objects)
}

/// What a cluster, which has a namespace and a name, belonged to when it was rendered to a revision.
pub(crate) fn levels(
    revisions: &Store<DeserializeGuard<FleetRevision>>,
    (namespace, cluster): (&str, &str),
    revision: &str,
) -> BTreeMap<String, String> {
    let record = record(revisions, (namespace, cluster), revision);
    record.map_or_else(BTreeMap::new, |record| record.spec.levels)
}

/// What a kept revision is applied as.
pub(super) fn parts(
    cluster: &FleetCluster,
    revision: &str,
    context: &Context,
) -> Result<Parts, FleetProblem> {
    let name = names::record(&cluster.name_any(), revision);
    let problem = |message: &str| {
        FleetProblem {
        object: format!("FleetRevision {name}"),
        rule: "RevisionLost".to_owned(),
        message: message.to_owned(),
        remedy: "the cluster stays as it is; edit the inventory, or abort the roll-out, for another revision".to_owned(),
        ..FleetProblem::default()
    }
    };
    let objects = objects(cluster, revision, context)
        .ok_or_else(|| problem("is not there, or does not hold what its name says"))?;
    let namespace = cluster.namespace().unwrap_or_default();
    part::parts(&namespace, &cluster.name_any(), revision, &objects).map_err(|problems| {
        let first = problems.into_iter().next();
        first.unwrap_or_else(|| problem("cannot be applied"))
    })
}

/// Removes records that nothing refers to, but for the newest.
pub(super) async fn prune(
    cluster: &FleetCluster,
    pass: &Pass,
    context: &Context,
) -> Result<(), Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let mut wanted: BTreeSet<String> = [&pass.rendered, &pass.applied, &pass.target, &pass.begun]
        .into_iter()
        .flatten()
        .chain(&pass.abandoned)
        .chain(&pass.former)
        .cloned()
        .collect();
    for rollout in in_namespace(&context.rollouts, &namespace) {
        let Ok(rollout) = &rollout.0 else {
            // Nobody knows what one refers to that cannot be read.
            return Ok(());
        };
        let Some(status) = &rollout.status else {
            continue;
        };
        // Those that ended may be taken back.
        wanted.extend(history::revisions(status, &cluster.name_any()).cloned());
        let members = status.run.iter().flat_map(|run| &run.clusters);
        let own = members.filter(|member| member.name == cluster.name_any());
        // What it was before as well: the run may be rolled back.
        wanted.extend(
            own.flat_map(|member| [Some(member.revision.clone()), member.before.clone()])
                .flatten(),
        );
    }
    let records = in_namespace(&context.revisions, &namespace);
    let records = records.iter().filter_map(|record| record.0.as_ref().ok());
    let mut old: Vec<_> = records
        .filter(|record| record.spec.cluster == cluster.name_any())
        .filter(|record| !wanted.contains(&record.spec.revision))
        .collect();
    old.sort_by_key(|record| std::cmp::Reverse(record.creation_timestamp().map(|time| time.0)));
    for record in old.into_iter().skip(OLD_ONES) {
        let name = record.name_any();
        match api(cluster, context)
            .delete(&name, &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(Error::Api(format!("delete FleetRevision {name}"), error)),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn read(cluster: &FleetCluster, revision: &str, context: &Context) -> Option<FleetRevision> {
    let place = (&*cluster.namespace()?, &*cluster.name_any());
    record(&context.revisions, place, revision)
}

/// The record of a revision of a cluster, which has a namespace and a name.
fn record(
    revisions: &Store<DeserializeGuard<FleetRevision>>,
    (namespace, cluster): (&str, &str),
    revision: &str,
) -> Option<FleetRevision> {
    let reference = ObjectRef::new(&names::record(cluster, revision)).within(namespace);
    revisions.get(&reference)?.0.as_ref().ok().cloned()
}

fn api(cluster: &FleetCluster, context: &Context) -> Api<FleetRevision> {
    Api::namespaced(
        context.client.clone(),
        &cluster.namespace().unwrap_or_default(),
    )
}

fn cluster_title(cluster: &FleetCluster) -> String {
    let namespace = cluster.namespace().unwrap_or_default();
    format!("FleetCluster/{namespace}/{}", cluster.name_any())
}

/// Records that nothing refers to are kept for people: the last changes.
const OLD_ONES: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_content_of_the_same_name_is_refused() {
        let objects =
            |address: &str| vec![json!({"kind": "ClusterNode", "spec": {"address": address}})];
        let name = inventory::revision(&objects("10.0.0.1"));
        let record = |objects: Vec<Value>| {
            let objects = objects
                .iter()
                .filter_map(Value::as_object)
                .cloned()
                .collect();
            let spec = FleetRevisionSpec {
                cluster: "shop".to_owned(),
                revision: name.clone(),
                objects,
                ..FleetRevisionSpec::default()
            };
            FleetRevision::new("shop-x", spec)
        };
        let kept = record(objects("10.0.0.1"));
        assert_eq!(told_apart(&kept, &name, &objects("10.0.0.1")), Ok(()));
        let taken = told_apart(&kept, &name, &objects("10.0.0.2")).unwrap_err();
        assert_eq!(taken.rule, "RevisionTaken");
        // An altered record is none, and is told as lost where it is needed.
        let altered = record(objects("10.0.0.3"));
        assert_eq!(told_apart(&altered, &name, &objects("10.0.0.1")), Ok(()));
    }
}
