//! Runs as a domain makes them of a plan, ends them for a newer one, and knows them again.

use std::collections::BTreeMap;

use api::{
    Run,
    run::{DesiredState, Plan, RunSpec, Subject},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use workflow::Rest;

use crate::{
    control::{self, Change, RESTS_AFTER, SUPERSEDED_BY},
    number,
};

/// A name that none of these runs has had: that of the subject, the operation, and the next number.
pub fn next_name(
    subject: &str,
    operation: &str,
    names: impl IntoIterator<Item = String>,
) -> String {
    let last = names.into_iter().map(|name| number(&name)).max();
    let word = operation.to_lowercase();
    format!("{subject}-{word}-{}", last.unwrap_or_default() + 1)
}

/// As [`next_name`] of the runs of an object, with its kind in front: objects of two kinds may have one name.
pub fn next<'a, K: Resource<DynamicType = ()>>(
    object: &K,
    operation: &str,
    runs: impl IntoIterator<Item = &'a Run>,
) -> String {
    let subject = format!("{}-{}", K::kind(&()).to_lowercase(), object.name_any());
    let names = runs.into_iter().map(ResourceExt::name_any);
    next_name(&subject, operation, names)
}

/// A run of `subject`, which owns it. `generation` is that of the wish that `plan` was compiled from.
pub fn of<K: Resource<DynamicType = ()>>(
    subject: &K,
    name: String,
    operation: &str,
    generation: i64,
    plan: Plan,
) -> Run {
    Run {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: subject.meta().namespace.clone(),
            owner_references: subject.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: RunSpec {
            subject: Subject::of(subject),
            operation: operation.to_owned(),
            generation,
            plan,
            control: None,
        },
        status: None,
    }
}

/// Stores a run, in the name of this field manager. One of the same subject that is there already was stored by an earlier pass
/// that the watch has not shown yet: it is that one.
///
/// # Errors
///
/// The API refused, as where a run of another subject has the name, or did not answer.
pub async fn store(client: &Client, manager: &str, run: Run) -> Result<Run, kube::Error> {
    let parameters = PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    };
    let api = api(client, &run);
    match api.create(&parameters, &run).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let there = api.get_opt(&run.name_any()).await?;
            there
                .filter(|there| there.spec.subject == run.spec.subject)
                .ok_or(kube::Error::Api(status))
        }
        stored => stored,
    }
}

/// Ends a run at the next place where it may, for the plan with this digest, or for what these words say.
///
/// # Errors
///
/// The API refused, or did not answer.
pub async fn supersede(client: &Client, run: &Run, digest: &str) -> Result<(), kube::Error> {
    if is_told(run, digest) {
        return Ok(());
    }
    mark(client, run, SUPERSEDED_BY, digest).await
}

/// Marks a run by an annotation.
///
/// # Errors
///
/// The API refused, or did not answer.
pub async fn mark(client: &Client, run: &Run, mark: &str, value: &str) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"annotations": {mark: value}}});
    let parameters = PatchParams::default();
    api(client, run)
        .patch(&run.name_any(), &parameters, &Patch::Merge(&patch))
        .await
        .map(drop)
}

/// Has a run rest after a step, with these words, or rest no more; and marks it so.
///
/// # Errors
///
/// The API refused, or did not answer.
pub async fn rest(
    client: &Client,
    run: &Run,
    rest: Option<&Rest>,
    marks: impl IntoIterator<Item = (String, String)>,
) -> Result<(), kube::Error> {
    let rest = rest.map(|Rest { after, why }| format!("{after} {why}"));
    let mut annotations: BTreeMap<_, _> = marks
        .into_iter()
        .map(|(mark, value)| (mark, Some(value)))
        .collect();
    annotations.insert(RESTS_AFTER.to_owned(), rest);
    let patch = json!({"metadata": {"annotations": annotations}});
    let parameters = PatchParams::default();
    api(client, run)
        .patch(&run.name_any(), &parameters, &Patch::Merge(&patch))
        .await
        .map(drop)
}

/// Whether a run has been told already that it is superseded by that plan.
pub fn is_told(run: &Run, digest: &str) -> bool {
    run.annotations().get(SUPERSEDED_BY).map(String::as_str) == Some(digest)
}

/// Ends a run for good, in the name of `by`.
///
/// # Errors
///
/// The API refused, or did not answer.
pub async fn cancel(client: &Client, run: &Run, by: &str) -> Result<(), control::Error> {
    let control = run.spec.control.as_ref();
    if control.and_then(|control| control.state) == Some(DesiredState::Cancelled) {
        return Ok(());
    }
    let namespace = run.namespace().unwrap_or_default();
    control::steer(client, &namespace, &run.name_any(), Change::Cancel, by)
        .await
        .map(drop)
}

/// What orders the runs of a subject, oldest first: their numbers. Times would not do, for runs that were carried to another
/// API are all new there.
pub fn age(run: &Run) -> (u32, Option<Time>, String) {
    let name = run.name_any();
    (number(&name), run.creation_timestamp(), name)
}

/// Whether a run belongs to this very object, not to an earlier one of the same name. One that is a step of another run belongs to
/// that: what it does to its subject is between its parent and the Lease.
pub fn is_of<K: Resource>(run: &Run, object: &K) -> bool {
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    run.owner_references().iter().any(|owner| owner.uid == uid)
}

fn api(client: &Client, run: &Run) -> Api<Run> {
    Api::namespaced(client.clone(), &run.namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::Cluster;

    use super::*;

    #[test]
    fn runs_that_were_carried_to_another_api_keep_their_order() {
        let run = |name: &str, second: u32| -> Run {
            serde_json::from_value(json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
                "metadata": {
                    "name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                },
                "spec": {
                    "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"}, "operation": "Create", "generation": 1,
                    "plan": {"digest": "d", "steps": []},
                },
            }))
            .unwrap()
        };
        let mut runs = [
            run("first-converge-10", 0),
            run("first-create-1", 1),
            run("first-converge-2", 1),
            run("by-hand", 2),
        ];
        runs.sort_by_key(age);
        let names = runs.map(|run| run.name_any());
        let expected = [
            "by-hand",
            "first-create-1",
            "first-converge-2",
            "first-converge-10",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn no_name_comes_twice() {
        let names = ["first-create-9", "first-converge-10", "by-hand"].map(str::to_owned);
        assert_eq!(next_name("first", "Converge", names), "first-converge-11");
        assert_eq!(next_name("first", "Create", []), "first-create-1");
        let first = cluster("first", "u");
        let run = of(
            &first,
            "first-reset-3".to_owned(),
            "Reset",
            1,
            Plan::default(),
        );
        assert_eq!(next(&first, "Reset", [&run]), "cluster-first-reset-4");
    }

    fn cluster(name: &str, uid: &str) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "default", "uid": uid}, "spec": {},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_name_that_another_subject_has_is_no_run_of_this_one() {
        let server = kapi::Server::in_memory(&api::custom_resource_definitions())
            .await
            .unwrap();
        let client = Client::new(server.router(), "default");
        let run = |subject: &Cluster, operation: &str| {
            let mut run = of(subject, "r-1".to_owned(), operation, 1, Plan::default());
            // What owns it is not there, and it would go with that.
            run.metadata.owner_references = None;
            run
        };
        let first = store(&client, "test", run(&cluster("a", "u"), "Reset"))
            .await
            .unwrap();
        let again = store(&client, "test", run(&cluster("a", "u"), "Probe"))
            .await
            .unwrap();
        assert_eq!(
            (again.uid(), again.spec),
            (first.uid(), first.spec),
            "what is there"
        );
        for other in [cluster("b", "u"), cluster("a", "of a later one")] {
            let refused = store(&client, "test", run(&other, "Reset"))
                .await
                .unwrap_err();
            assert!(matches!(refused, kube::Error::Api(status) if status.is_already_exists()));
        }
    }
}
