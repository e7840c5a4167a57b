//! The life of objects through `kube::Client`, in-process: what controllers and clients rely on.
//!
//! Which test proves which pitfall of an embedded API:
//!
//! | pitfall | test |
//! |---|---|
//! | JSON patch is not RFC 6902: `test` null on a missing path passes | `json_patch_tests_null_on_a_missing_path`, `runtime.rs: finalizer_runs_cleanup` |
//! | a bookmark has no empty maps | `runtime.rs: streaming_list_then_events` |
//! | non-structural definitions are refused | `a_non_structural_definition_is_refused` |
//! | a write that changes nothing is none | `a_write_without_change_keeps_the_revision` |
//! | `metadata.name` is there before rules run | `apply_fills_in_the_name` |
//! | two Event APIs, one store | `events_are_converted_both_ways` |
//! | entering and leaving a selector | `leaving_a_selector_is_a_deletion` |
//! | a deletion is a revision; the last finalizer deletes | `the_last_finalizer_deletes_in_one_write` |
//! | bodies of DELETE | `delete_takes_any_body` |
//! | Tables in watches, `includeObject` | `tables_also_in_watches` |
//! | pages of one snapshot, else 410 | `pages_come_from_the_first_snapshot` |
//! | lists of the past, by undoing | `a_list_of_the_past_is_as_it_was` |
//! | a watcher that lags gets 410 | `an_old_watch_is_expired` |
//! | strategic merge of built-in kinds | `kubectl.rs: kubectl_talks_to_it` (client-side apply) |
//! | stringData, generateName, status split, generation | `secrets_take_string_data`, `generated_names_are_unique`, `status_is_split_and_generation_counts` |
//! | a full disk (`store.rs`) | `a_full_disk_changes_nothing_that_is_seen` |
//! | the crypto provider of rustls is named | `tls.rs: kubeconfig_works_and_anonymous_is_refused` |
//! | watch start is atomic with the list | `no_event_between_list_and_watch_is_lost` |

use http::{Method, StatusCode};
use kapi::Server;
use serde_json::{Value, json};

use crate::client::{Api, JSON, MAPS};

const CLUSTERS: &str = "/apis/kubespray.k8s.io/v1/namespaces/default/clusters";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// Of the objects in a list.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn objects_are_created_read_changed_and_deleted() {
    let api = Api::new().await;
    let (code, created) = api.post(MAPS, map("one")).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert!(
        created["metadata"]["uid"].is_string()
            && created["metadata"]["creationTimestamp"].is_string()
    );
    let (code, status) = api.post(MAPS, map("one")).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (StatusCode::CONFLICT, Some("AlreadyExists"))
    );
    let (_, changed) = api
        .merge(
            &format!("{MAPS}/one"),
            json!({"data": {"b": "2", "a": null}}),
        )
        .await;
    assert_eq!(changed["data"], json!({"b": "2"}));
    let mut stale = created.clone();
    stale["data"] = json!({"c": "3"});
    let (code, status) = api.put(&format!("{MAPS}/one"), stale).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (StatusCode::CONFLICT, Some("Conflict"))
    );
    let (code, status) = api.delete(&format!("{MAPS}/one")).await;
    assert_eq!(
        (code, status["status"].as_str()),
        (StatusCode::OK, Some("Success"))
    );
    let (code, status) = api.get(&format!("{MAPS}/one")).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(status["message"], "configmaps \"one\" not found");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_is_refused_as_kubectl_expects() {
    let api = Api::new().await;
    let (code, status) = api.get("/api/v1/namespaces/default/pods").await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(
        status["message"],
        "the server could not find the requested resource"
    );
    let (code, status) = api.put(MAPS, map("x")).await;
    assert_eq!(
        (code, status["kind"].as_str()),
        (StatusCode::METHOD_NOT_ALLOWED, Some("Status"))
    );
    let (code, _) = api
        .post("/api/v1/namespaces/absent/configmaps", map("x"))
        .await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let (code, status) = api
        .post(
            MAPS,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "No_Name"}}),
        )
        .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_change_keeps_the_revision() {
    let api = Api::new().await;
    let (_, created) = api.post(MAPS, map("one")).await;
    let (_, same) = api
        .merge(&format!("{MAPS}/one"), json!({"data": {"a": "1"}}))
        .await;
    assert_eq!(revision(&created), revision(&same));
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}});
    let path = format!("{MAPS}/one?fieldManager=me&force=true");
    let (_, first) = api
        .send(
            Method::PATCH,
            &path,
            "application/apply-patch+yaml",
            apply.clone(),
        )
        .await;
    let (_, second) = api
        .send(Method::PATCH, &path, "application/apply-patch+yaml", apply)
        .await;
    assert_eq!(revision(&first), revision(&second));
}

#[tokio::test(start_paused = true)]
async fn the_last_finalizer_deletes_in_one_write() {
    let api = Api::new().await;
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    api.post(MAPS, held).await;
    let (code, marked) = api.delete(&format!("{MAPS}/held")).await;
    assert_eq!(code, StatusCode::OK);
    assert!(
        marked["metadata"]["deletionTimestamp"].is_string(),
        "{marked}"
    );
    let (_, last) = api
        .merge(
            &format!("{MAPS}/held"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!(
        api.get(&format!("{MAPS}/held")).await.0,
        StatusCode::NOT_FOUND
    );
    let events = api
        .watched(
            &format!("{MAPS}?resourceVersion={}", revision(&marked)),
            JSON,
        )
        .await;
    assert_eq!(kinds(&events), ["DELETED"]);
    assert_eq!(revision(&events[0]["object"]), revision(&last));
    assert!(revision(&last) > revision(&marked));
}

#[tokio::test(start_paused = true)]
async fn leaving_a_selector_is_a_deletion() {
    let api = Api::new().await;
    let (_, created) = api.post(MAPS, map("one")).await;
    let path = format!("{MAPS}/one");
    api.merge(&path, json!({"metadata": {"labels": {"tier": "front"}}}))
        .await;
    api.merge(&path, json!({"data": {"b": "2"}})).await;
    api.merge(&path, json!({"metadata": {"labels": {"tier": "back"}}}))
        .await;
    let from = revision(&created);
    let watch = format!("{MAPS}?resourceVersion={from}&labelSelector=tier%3Dfront");
    let events = api.watched(&watch, JSON).await;
    assert_eq!(kinds(&events), ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(events[2]["object"]["metadata"]["labels"]["tier"], "front");
    assert_eq!(revision(&events[2]["object"]), from + 3);
    let (_, list) = api
        .get(&format!(
            "{MAPS}?labelSelector=tier%20in%20(back,middle),!absent"
        ))
        .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (_, list) = api
        .get(&format!("{MAPS}?fieldSelector=metadata.name%3Dother"))
        .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_event_between_list_and_watch_is_lost() {
    let api = Api::new().await;
    for index in 0..5 {
        api.post(MAPS, map(&format!("before-{index}"))).await;
    }
    let (_, list) = api.get(MAPS).await;
    api.post(MAPS, map("after")).await;
    let events = api
        .watched(&format!("{MAPS}?resourceVersion={}", revision(&list)), JSON)
        .await;
    assert_eq!(kinds(&events), ["ADDED"]);
    assert_eq!(events[0]["object"]["metadata"]["name"], "after");
}

#[tokio::test(start_paused = true)]
async fn an_old_watch_is_expired() {
    let api = Api::new().await;
    let (_, created) = api.post(MAPS, map("one")).await;
    for index in 0..4200 {
        api.merge(
            &format!("{MAPS}/one"),
            json!({"data": {"n": index.to_string()}}),
        )
        .await;
    }
    let events = api
        .watched(
            &format!("{MAPS}?resourceVersion={}", revision(&created)),
            JSON,
        )
        .await;
    assert_eq!(kinds(&events), ["ERROR"]);
    assert_eq!(events[0]["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn pages_come_from_the_first_snapshot() {
    let api = Api::new().await;
    for index in 0..10 {
        api.post(MAPS, map(&format!("m{index}"))).await;
    }
    let (_, first) = api.get(&format!("{MAPS}?limit=4")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 6);
    api.delete(&format!("{MAPS}/m7")).await;
    api.post(MAPS, map("m9z")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    // At once from what is kept for next pages, later from the history.
    for seconds in [0, 301] {
        tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        let (_, rest) = api.get(&format!("{MAPS}?limit=100&continue={token}")).await;
        assert_eq!(names(&rest), ["m4", "m5", "m6", "m7", "m8", "m9"]);
        assert_eq!(revision(&rest), revision(&first));
    }
    for index in 0..4200 {
        let change = json!({"data": {"n": index.to_string()}});
        api.merge(&format!("{MAPS}/m0"), change).await;
    }
    let (code, status) = api.get(&format!("{MAPS}?limit=100&continue={token}")).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (StatusCode::GONE, Some("Expired"))
    );
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = api.get(&format!("{MAPS}?limit=100&continue={token}")).await;
    assert_eq!(names(&rest), ["m4", "m5", "m6", "m8", "m9", "m9z"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_the_past_is_as_it_was() {
    let api = Api::new().await;
    let (_, one) = api.post(MAPS, map("one")).await;
    let (_, two) = api.post(MAPS, map("two")).await;
    let change = json!({"data": {"n": "changed"}});
    let (_, changed) = api.merge(&format!("{MAPS}/one"), change).await;
    api.delete(&format!("{MAPS}/two")).await;
    let at = async |object: &Value| {
        let exact = "resourceVersionMatch=Exact";
        let path = format!("{MAPS}?{exact}&resourceVersion={}", revision(object));
        api.get(&path).await.1
    };
    let lists = [at(&one).await, at(&two).await, at(&changed).await];
    let [first, second, third] = &lists;
    assert_eq!(names(first), ["one"]);
    assert_eq!(names(second), ["one", "two"]);
    assert_eq!(second["items"][0], one);
    assert_eq!(third["items"], json!([changed, two]));
    assert_eq!(revision(third), revision(&changed));
    let (_, now) = api.get(MAPS).await;
    assert_eq!(now["items"], json!([changed]));
}

#[tokio::test(start_paused = true)]
async fn delete_takes_any_body() {
    let api = Api::new().await;
    let (_, one) = api.post(MAPS, map("one")).await;
    let path = format!("{MAPS}/one");
    let wrong =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    assert_eq!(api.delete_with(&path, wrong).await.0, StatusCode::CONFLICT);
    let dry = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
    assert_eq!(api.delete_with(&path, dry).await.0, StatusCode::OK);
    assert_eq!(api.get(&path).await.0, StatusCode::OK);
    let right = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": one["metadata"]["uid"]}, "propagationPolicy": "Background"});
    assert_eq!(api.delete_with(&path, right).await.0, StatusCode::OK);
    api.post(MAPS, map("two")).await;
    assert_eq!(api.delete(MAPS).await.0, StatusCode::OK);
    assert_eq!(api.get(MAPS).await.1["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn secrets_take_string_data() {
    let api = Api::new().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let (_, secret) = api.post(secrets, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "value"}})).await;
    assert_eq!(
        (
            &secret["data"]["key"],
            &secret["type"],
            secret.get("stringData")
        ),
        (&json!("dmFsdWU="), &json!("Opaque"), None)
    );
    let (code, _) = api.post(secrets, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t"}, "data": {"key": "?"}})).await;
    assert!(code.is_client_error());
}

#[tokio::test(start_paused = true)]
async fn generated_names_are_unique() {
    let api = Api::new().await;
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "run-"}});
    let (_, one) = api.post(MAPS, body.clone()).await;
    let (_, two) = api.post(MAPS, body).await;
    let name = |o: &Value| o["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&one).starts_with("run-") && name(&one).len() == 9 && name(&one) != name(&two));
}

#[tokio::test(start_paused = true)]
async fn events_are_converted_both_ways() {
    let api = Api::new().await;
    let new = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e1"}, "type": "Normal", "reason": "Started",
        "action": "Start", "note": "hello", "regarding": {"kind": "Cluster", "name": "c"}, "reportingController": "windlass",
        "reportingInstance": "x", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let (code, created) = api
        .post("/apis/events.k8s.io/v1/namespaces/default/events", new)
        .await;
    assert_eq!(
        (code, &created["note"]),
        (StatusCode::CREATED, &json!("hello"))
    );
    let (_, older) = api.get("/api/v1/namespaces/default/events/e1").await;
    assert_eq!(
        (
            &older["message"],
            &older["involvedObject"]["name"],
            &older["apiVersion"]
        ),
        (&json!("hello"), &json!("c"), &json!("v1"))
    );
    let (_, list) = api
        .get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dc")
        .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e1";
    let (code, _) = api.merge(path, json!({"note": "again"})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let (code, _) = api
        .merge(
            "/api/v1/namespaces/default/events/e1",
            json!({"message": "again"}),
        )
        .await;
    assert_eq!(code, StatusCode::OK);
    let (_, patched) = api.get(path).await;
    assert_eq!(patched["note"], "again");
    let events = api
        .watched("/apis/events.k8s.io/v1/namespaces/default/events", JSON)
        .await;
    assert_eq!(events[0]["object"]["note"], "again");
    let events = api.watched("/api/v1/namespaces/default/events", JSON).await;
    assert_eq!(events[0]["object"]["message"], "again");
}

#[tokio::test(start_paused = true)]
async fn tables_also_in_watches() {
    let api = Api::new().await;
    api.post(MAPS, map("one")).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let events = api
        .watched(&format!("{MAPS}?includeObject=Object"), accept)
        .await;
    assert_eq!(events[0]["object"]["kind"], "Table");
    assert_eq!(events[0]["object"]["rows"][0]["cells"][0], "one");
    assert_eq!(events[0]["object"]["rows"][0]["object"]["data"]["a"], "1");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_too_large_is_refused() {
    let api = Api::new().await;
    let large = json!({
        "metadata": {"name": "large"}, "involvedObject": {"namespace": "default"},
        "message": "x".repeat(1_600_000),
    });
    let events = MAPS.replace("configmaps", "events");
    let (code, status) = api.post(&events, large).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("\"large\"") && message.contains("1572864"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn status_is_split_and_generation_counts() {
    let api = Api::new().await;
    let body = json!({"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "c"}, "spec": {}, "status": {"state": "Created"}});
    let (code, created) = api.post(CLUSTERS, body).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(
        (created.get("status"), &created["metadata"]["generation"]),
        (None, &json!(1))
    );
    let path = format!("{CLUSTERS}/c");
    let (_, with_status) = api
        .merge(
            &format!("{path}/status"),
            json!({"status": {"state": "Creating"}, "spec": {"kubernetesVersion": "1.35.4"}}),
        )
        .await;
    assert_eq!(with_status["status"]["state"], "Creating", "{with_status}");
    assert_eq!(
        (&with_status["spec"], &with_status["metadata"]["generation"]),
        (&json!({}), &json!(1))
    );
    let (_, changed) = api
        .merge(
            &path,
            json!({"spec": {"kubernetesVersion": "1.35.4"}, "status": null}),
        )
        .await;
    assert_eq!(
        (
            &changed["metadata"]["generation"],
            &changed["status"]["state"]
        ),
        (&json!(2), &json!("Creating"))
    );
    let mut blind = changed.clone();
    blind["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    assert_eq!(
        api.put(&path, blind).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_names_no_revision_makes_an_object_and_changes_none() {
    let api = Api::new().await;
    let path = format!("{CLUSTERS}/c?fieldManager=me&force=true");
    for (version, expected) in [
        ("1.35.4", StatusCode::CREATED),
        ("1.35.5", StatusCode::CONFLICT),
    ] {
        let body = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "c", "resourceVersion": "0"}, "spec": {"kubernetesVersion": version},
        });
        let (code, answer) = api
            .send(Method::PATCH, &path, "application/apply-patch+yaml", body)
            .await;
        assert_eq!(code, expected, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_to_a_status_heeds_the_revision_that_it_names() {
    let api = Api::new().await;
    let cluster = |metadata: Value, state: &str| {
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": metadata,
            "spec": {}, "status": {"state": state},
        })
    };
    let (_, created) = api
        .post(CLUSTERS, cluster(json!({"name": "c"}), "Waiting"))
        .await;
    let seen = &created["metadata"]["resourceVersion"];
    let path = format!("{CLUSTERS}/c/status?fieldManager=me");
    for (metadata, state, expected) in [
        (json!({"resourceVersion": seen}), "Creating", StatusCode::OK),
        (
            json!({"resourceVersion": seen}),
            "Failed",
            StatusCode::CONFLICT,
        ),
        (json!({}), "Created", StatusCode::OK),
    ] {
        let mut body = cluster(metadata, state);
        body.as_object_mut().unwrap().remove("spec");
        let (code, answer) = api
            .send(Method::PATCH, &path, "application/apply-patch+yaml", body)
            .await;
        assert_eq!(code, expected, "{state}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn json_patch_tests_null_on_a_missing_path() {
    let api = Api::new().await;
    api.post(MAPS, map("one")).await;
    let patch = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.org/f"]},
    ]);
    let (code, patched) = api
        .send(
            Method::PATCH,
            &format!("{MAPS}/one"),
            "application/json-patch+json",
            patch,
        )
        .await;
    assert_eq!(code, StatusCode::OK, "{patched}");
}

#[tokio::test(start_paused = true)]
async fn apply_fills_in_the_name() {
    let api = Api::new().await;
    let body = json!({"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "spec": {}});
    let path = format!("{CLUSTERS}/named?fieldManager=me");
    let (code, created) = api
        .send(Method::PATCH, &path, "application/apply-patch+yaml", body)
        .await;
    assert_eq!(
        (code, &created["metadata"]["name"]),
        (StatusCode::CREATED, &json!("named")),
        "{created}"
    );
    let managed = &created["metadata"]["managedFields"][0];
    assert_eq!(
        (&managed["manager"], &managed["operation"]),
        (&json!("me"), &json!("Apply"))
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_warn_or_fail() {
    let api = Api::new().await;
    let body = json!({"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "c"}, "spec": {"nope": 1}});
    let (code, status) = api
        .post(&format!("{CLUSTERS}?fieldValidation=Strict"), body.clone())
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"spec.nope\"")
    );
    let (code, created) = api.post(CLUSTERS, body).await;
    assert_eq!(
        (code, created["spec"].get("nope")),
        (StatusCode::CREATED, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_non_structural_definition_is_refused() {
    let mut definitions = api::custom_resource_definitions();
    definitions[0].spec.versions[0].schema = serde_json::from_value(json!({
        "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "array", "items": {}}}}
    })).unwrap();
    let error = Server::in_memory(&definitions)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("clusters.kubespray.k8s.io"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner() {
    let api = Api::new().await;
    let (_, owner) = api.post(MAPS, map("owner")).await;
    let reference = |block: bool| json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}]);
    let mut child = map("child");
    child["metadata"]["ownerReferences"] = reference(true);
    api.post(MAPS, child).await;
    let (_, marked) = api
        .delete_with(
            &format!("{MAPS}/owner"),
            json!({"propagationPolicy": "Foreground"}),
        )
        .await;
    assert_eq!(
        marked["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    api.gone(&format!("{MAPS}/owner")).await;
    assert_eq!(
        api.get(&format!("{MAPS}/child")).await.0,
        StatusCode::NOT_FOUND
    );
}

/// Each of two owners waits for the other; a third object holds the second back.
#[tokio::test(start_paused = true)]
async fn owners_in_a_circle_go_in_the_foreground() {
    let api = Api::new().await;
    let [one, two, child] = ["one", "two", "child"].map(|name| format!("{MAPS}/{name}"));
    let owned_by = |owner: &Value| {
        let (name, uid) = (&owner["metadata"]["name"], &owner["metadata"]["uid"]);
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true}])
    };
    let (_, first) = api.post(MAPS, map("one")).await;
    let mut body = map("two");
    body["metadata"]["ownerReferences"] = owned_by(&first);
    let (_, second) = api.post(MAPS, body).await;
    let mut body = map("child");
    body["metadata"]["ownerReferences"] = owned_by(&second);
    body["metadata"]["finalizers"] = json!(["example.org/wait"]);
    api.post(MAPS, body).await;
    let circle = json!({"metadata": {"ownerReferences": owned_by(&second)}});
    api.merge(&one, circle).await;
    api.delete_with(&one, json!({"propagationPolicy": "Foreground"}))
        .await;
    api.gone(&one).await;
    api.until(&two, |two| {
        two["metadata"]["finalizers"] == json!(["foregroundDeletion"])
            && two["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] == false
    })
    .await;
    api.merge(&child, json!({"metadata": {"finalizers": null}}))
        .await;
    api.gone(&two).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_background_dependents_go() {
    let api = Api::new().await;
    for (policy, stays) in [("Orphan", true), ("Background", false)] {
        let (_, owner) = api.post(MAPS, map("owner")).await;
        let mut child = map("child");
        child["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
        api.post(MAPS, child).await;
        api.delete_with(
            &format!("{MAPS}/owner"),
            json!({"propagationPolicy": policy}),
        )
        .await;
        api.gone(&format!("{MAPS}/owner")).await;
        if stays {
            let (_, child) = api.get(&format!("{MAPS}/child")).await;
            assert_eq!(child["metadata"].get("ownerReferences"), None);
            api.delete(&format!("{MAPS}/child")).await;
        } else {
            api.gone(&format!("{MAPS}/child")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_is_emptied() {
    let api = Api::new().await;
    api.post(
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
    )
    .await;
    api.post("/api/v1/namespaces/team/configmaps", map("one"))
        .await;
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    api.post("/api/v1/namespaces/team/configmaps", held).await;
    let (_, namespace) = api.delete("/api/v1/namespaces/team").await;
    assert_eq!(namespace["status"]["phase"], "Terminating", "{namespace}");
    api.gone("/api/v1/namespaces/team/configmaps/one").await;
    let (code, status) = api
        .post("/api/v1/namespaces/team/configmaps", map("late"))
        .await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (StatusCode::FORBIDDEN, &json!("NamespaceTerminating"))
    );
    assert_eq!(api.get("/api/v1/namespaces/team").await.0, StatusCode::OK);
    api.merge(
        "/api/v1/namespaces/team/configmaps/held",
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    api.gone("/api/v1/namespaces/team").await;
}
