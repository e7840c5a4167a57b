//! Objects that are on their way to another API: who may touch them, and what tells how old they were.
//!
//! `windlass move` marks an object with [`MOVING`] before it is copied, and the copy carries the mark from its first moment.
//! No reconciler acts on a marked object and no runner works on a marked Run, so neither side does anything until the mark
//! goes, which on the side that the objects leave it never does. A mark on each object, not one of the namespace: what is
//! read with an object cannot be older than it.

use api::Cluster;
use controller::{Conditions, Occurrence, Severity, Standing, Summary};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    cluster::{FIELD_MANAGER, apply},
    context::{Context, Error},
};

/// The annotation of an object that is being moved: nobody acts on it. Its value says where from and where to.
pub const MOVING: &str = "windlass.dev/moving";
/// The annotation of a Cluster that was moved for good, beside [`MOVING`]: the other side is, or is about to be, at work.
pub const MOVED: &str = "windlass.dev/moved-to";
/// The annotation of a copy that says which object it was copied from.
pub const MOVED_FROM: &str = "windlass.dev/moved-from";
/// The annotation of a copy with the time at which its first original was created, from which hosts have their order.
pub const CREATED: &str = "windlass.dev/created";
/// The annotation of a copied Cluster with what is to be added to its generation, so that its next run is not older than the
/// last one of the side that it came from.
pub const GENERATIONS: &str = "windlass.dev/generations-before";

/// How the mark of a copy begins.
const ARRIVING: &str = "being moved here from ";
/// How the mark of what is being moved away begins.
const LEAVING: &str = "being moved to ";
/// How the mark of a Cluster begins whose move is being taken back.
const RETURNING: &str = "being taken back from ";

/// What the condition and the Event of a Cluster that is being moved are called.
const REASON: &str = "Moving";

/// The name of the Secret that carries the recorded keys of a cluster's hosts to where there is no file of them.
pub fn host_keys_name(cluster: &str) -> String {
    format!("{cluster}-host-keys")
}

/// The mark of what is being moved to `place`.
pub fn leaving(place: &str) -> String {
    format!("{LEAVING}{place}")
}

/// The mark of a Cluster whose move to `place` is being taken back.
pub fn returning(place: &str) -> String {
    format!("{RETURNING}{place}")
}

/// Where to an object is being moved, or was before its move began to be taken back; none: it is a copy.
pub fn destination(mark: &str) -> Option<&str> {
    let leaving = mark.strip_prefix(LEAVING);
    leaving.or_else(|| mark.strip_prefix(RETURNING))
}

/// The mark of the copy of what is being moved from `place`.
pub fn arriving(place: &str) -> String {
    format!("{ARRIVING}{place}")
}

/// Where an object is being moved from and to, if it is.
pub fn mark(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, MOVING)
}

/// When the object, or the first one that it is a copy of, was created.
pub fn created(meta: &ObjectMeta) -> Option<Time> {
    annotation(meta, CREATED)
        .and_then(|text| text.parse().ok())
        .map(Time)
        .or_else(|| meta.creation_timestamp.clone())
}

/// The generation of a Cluster, counted on over its moves.
pub fn generation(meta: &ObjectMeta) -> i64 {
    let before: i64 = annotation(meta, GENERATIONS)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    before.saturating_add(meta.generation.unwrap_or_default())
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let annotations = meta.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

/// A pass over a Cluster that is being moved: it says so, and lets go of an object that is deleted. No host is touched,
/// whatever the deletion policy says, because the hosts belong to the other side.
pub(crate) async fn rest(cluster: &Cluster, mark: &str, context: &Context) -> Result<(), Error> {
    if cluster.meta().deletion_timestamp.is_some() {
        return apply::let_go(cluster, context).await;
    }
    // What was copied is compared with its original: a copy says nothing before it is at work.
    if mark.starts_with(ARRIVING) {
        return Ok(());
    }
    let status = cluster.status.clone().unwrap_or_default();
    let before = &status.conditions;
    let generation = cluster.metadata.generation;
    let mut conditions = Conditions::new(before, generation, Timestamp::now());
    let message = format!(
        "{mark}: nothing is done here; if it was stopped, start the same `windlass move` again"
    );
    conditions.summarise(&Summary {
        standing: Standing::AtWork,
        reason: REASON,
        message: message.clone(),
    });
    let mut wanted = status.clone();
    wanted.conditions = conditions.into_vec();
    if wanted.conditions == status.conditions {
        return Ok(());
    }
    let occurrence = Occurrence {
        severity: Severity::Normal,
        reason: REASON.to_owned(),
        note: message,
        edge: mark.to_owned(),
    };
    context
        .events
        .publish(&cluster.object_ref(&()), &occurrence)
        .await
        .map_err(|source| Error::api("publish an Event", source))?;
    let namespace = cluster.namespace().unwrap_or_default();
    let body = json!({
        "apiVersion": Cluster::api_version(&()),
        "kind": Cluster::kind(&()),
        // Of this revision only: a status that was carried here meanwhile is not taken back.
        "metadata": {"name": cluster.name_any(), "resourceVersion": cluster.resource_version()},
        "status": wanted,
    });
    let written = Api::<Cluster>::namespaced(context.client.clone(), &namespace)
        .patch_status(
            &cluster.name_any(),
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&body),
        )
        .await;
    match written {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result
            .map(drop)
            .map_err(|source| Error::api("write the Cluster's status", source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(annotations: &[(&str, &str)]) -> ObjectMeta {
        ObjectMeta {
            generation: Some(2),
            creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            annotations: Some(
                annotations
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_copy_is_as_old_as_its_original_and_counts_its_generations_on() {
        let copy = meta(&[(CREATED, "2026-11-01T10:00:00Z"), (GENERATIONS, "4")]);
        assert_eq!(
            created(&copy).map(|time| time.0.to_string()),
            Some("2026-11-01T10:00:00Z".to_owned())
        );
        assert_eq!(generation(&copy), 6);
        assert_eq!(created(&meta(&[])), Some(Time(Timestamp::UNIX_EPOCH)));
        assert_eq!(generation(&meta(&[(GENERATIONS, "many")])), 2);
    }
}
