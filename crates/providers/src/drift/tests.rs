//! What is drift, and when it is put back.

use api::run::Plan;
use kube::Resource as _;
use serde_json::{Value, json};

use super::*;

fn meta(value: &Value) -> ObjectMeta {
    serde_json::from_value(value.clone()).unwrap()
}

fn entry(manager: &str, operation: &str, minute: u8, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "time": format!("2026-01-01T00:{minute:02}:00Z"), "fieldsV1": fields,
    })
}

fn deployments() -> ApiResource {
    OfResource {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        plural: "deployments".to_owned(),
        objects: BTreeMap::new(),
    }
    .resource()
}

/// What is told of an object with these managed fields that was applied with the first of them.
fn told(now: &[Value]) -> Vec<String> {
    let object = |entries: &[Value]| {
        meta(&json!({"namespace": "capi-system", "name": "m", "managedFields": entries}))
    };
    let mut applied = Applied::default();
    applied.note(&deployments(), &object(&[ours()]));
    applied.0[0].differences([object(now)].iter(), Timestamp::UNIX_EPOCH)
}

fn ours() -> Value {
    entry(
        COMPONENTS_MANAGER,
        "Apply",
        0,
        &json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}),
    )
}

#[test]
fn fields_that_others_took_are_drift_and_fields_that_they_added_are_none() {
    let added = entry(
        "kubectl-label",
        "Update",
        1,
        &json!({"f:metadata": {"f:labels": {"f:a": {}}}}),
    );
    let mut scale = entry(
        "kube-controller-manager",
        "Update",
        2,
        &json!({"f:status": {}}),
    );
    scale["subresource"] = json!("status");
    assert_eq!(told(&[ours(), added.clone(), scale.clone()]), [""; 0]);
    let less = entry(
        COMPONENTS_MANAGER,
        "Apply",
        0,
        &json!({"f:spec": {"f:paused": {}}}),
    );
    let taken = entry(
        "kubectl-edit",
        "Update",
        3,
        &json!({"f:spec": {"f:replicas": {}}}),
    );
    assert_eq!(
        told(&[less, added, taken, scale]),
        ["Deployment capi-system/m was changed by kubectl-edit"]
    );
    assert_eq!(told(&[]), ["Deployment capi-system/m was changed"]);
}

#[test]
fn what_somebody_else_installed_has_drifted_when_it_is_written_again() {
    let installed = |minute: u8| {
        entry(
            "clusterctl",
            "Update",
            minute,
            &json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:replicas": {}}}),
        )
    };
    let label = entry(
        "kubectl-label",
        "Update",
        2,
        &json!({"f:metadata": {"f:labels": {"f:team": {}}}}),
    );
    let object = |entries: &[Value]| {
        meta(&json!({"namespace": "capi-system", "name": "m", "managedFields": entries}))
    };
    let told = |now: &[Value]| {
        let mut applied = Applied::default();
        applied.note(&deployments(), &object(&[installed(0)]));
        applied.0[0].differences([object(now)].iter(), Timestamp::UNIX_EPOCH)
    };
    assert_eq!(told(&[installed(0)]), [""; 0]);
    assert_eq!(told(&[installed(0), label]), [""; 0]);
    assert_eq!(
        told(&[installed(1)]),
        ["Deployment capi-system/m was changed by clusterctl"]
    );
}

#[test]
fn what_is_gone_is_told() {
    let mut applied = Applied::default();
    applied.note(
        &deployments(),
        &meta(&json!({"namespace": "a", "name": "b"})),
    );
    assert_eq!(
        applied.0[0].differences([].iter(), Timestamp::UNIX_EPOCH),
        ["Deployment a/b is gone"]
    );
}

#[test]
fn a_certificate_is_renewed_in_time() {
    let secret = meta(&json!({
        "namespace": "a", "name": "b", "annotations": {RENEWED_FROM: "2026-09-01T00:00:00Z"},
    }));
    let mut applied = Applied::default();
    applied.note(
        &ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
        &secret,
    );
    let told = |now: &str| applied.0[0].differences([&secret].into_iter(), now.parse().unwrap());
    assert_eq!(told("2026-08-31T23:59:59Z"), [""; 0]);
    assert_eq!(
        told("2026-09-01T00:00:00Z"),
        ["Secret a/b has a certificate to be renewed"]
    );
}

#[test]
fn it_is_kept_as_it_is_read() {
    let mut applied = Applied::default();
    applied.note(
        &deployments(),
        &meta(&json!({"namespace": "a", "name": "b"})),
    );
    applied.note(
        &deployments(),
        &meta(&json!({"namespace": "a", "name": "c"})),
    );
    let text = serde_json::to_string(&applied).unwrap();
    assert_eq!(serde_json::from_str::<Applied>(&text).unwrap(), applied);
    assert_eq!(
        applied.0.len(),
        1,
        "one list of objects is read for each resource"
    );
}

#[test]
fn who_writes_again_and_again_is_answered_ever_more_slowly() {
    let run = |operation: &str, minute: i64| {
        let finished = Timestamp::UNIX_EPOCH + minute.minutes();
        let plan = Plan::default();
        let run = json!({
            "apiVersion": Run::api_version(&()), "kind": "Run", "metadata": {"name": "r"},
            "spec": {"subject": {"apiGroup": "g", "kind": "k", "name": "n"}, "operation": operation, "generation": 1, "plan": plan},
            "status": {"phase": "Succeeded", "finishedAt": finished.to_string()},
        });
        serde_json::from_value::<Run>(run).unwrap()
    };
    let at = |minute: i64| Timestamp::UNIX_EPOCH + minute.minutes();
    let mut runs = vec![run("Install", 0)];
    assert!(is_due(&runs, at(0)));
    for (finished, due) in [(1, 2), (2, 4), (4, 8), (8, 16)] {
        runs.push(run("Repair", finished));
        assert!(!is_due(&runs, at(due - 1)), "{finished}");
        assert!(is_due(&runs, at(due)), "{finished}");
    }
    for _ in 0..40 {
        runs.push(run("Repair", 100));
    }
    assert!(is_due(&runs, at(164)), "an hour is the most");
    runs.push(run("Upgrade", 200));
    assert!(is_due(&runs, at(200)));
}
