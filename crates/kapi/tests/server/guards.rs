//! What a request may ask for at most, and what is refused instead of being passed over.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use crate::client::{Api, JSON, MAPS};

#[tokio::test(start_paused = true)]
async fn nobody_is_impersonated() {
    let api = Api::without_definitions().await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let asked = [
        (Method::GET, "/api/v1/namespaces", Body::empty()),
        (Method::GET, "/healthz", Body::empty()),
        (
            Method::POST,
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            Body::from(review.to_string()),
        ),
    ];
    for (method, path, body) in asked {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::CONTENT_TYPE, JSON);
        let (code, answer) = api
            .respond(request.header("Impersonate-User", "jane"), body)
            .await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}: {answer}");
        assert_eq!(answer["details"], json!({"name": "jane", "kind": "users"}));
    }
    for name in [
        "Impersonate-Group",
        "Impersonate-Uid",
        "Impersonate-Extra-scopes",
    ] {
        let request = Request::get("/api/v1/namespaces").header(name, "x");
        let (code, _) = api.respond(request, Body::empty()).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_given_in_a_form_that_is_accepted_or_not_at_all() {
    let api = Api::without_definitions().await;
    let ask = async |accept: &str| {
        let request = Request::get("/api/v1/namespaces").header(header::ACCEPT, accept);
        let (code, answer) = api.respond(request, Body::empty()).await;
        (
            code.as_u16(),
            answer["kind"].as_str().unwrap_or_default().to_owned(),
        )
    };
    for (accept, kind) in [
        ("", "NamespaceList"),
        ("*/*", "NamespaceList"),
        ("application/*", "NamespaceList"),
        ("application/json;stream=watch", "NamespaceList"),
        ("application/vnd.kubernetes.protobuf, */*", "NamespaceList"),
        ("text/html,application/xml;q=0.9,*/*;q=0.8", "NamespaceList"),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "Table",
        ),
        (
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            "NamespaceList",
        ),
    ] {
        assert_eq!(ask(accept).await, (200, kind.to_owned()), "{accept}");
    }
    for accept in [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Chair;v=v1;g=meta.k8s.io",
        "application/jsonp",
        "x",
    ] {
        assert_eq!(ask(accept).await, (406, "Status".to_owned()), "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_parse_is_refused() {
    let api = Api::without_definitions().await;
    for query in [
        "timeout=abc",
        "timeout=5",
        "labelSelector=a,,b",
        "labelSelector=a%20b",
        "labelSelector=a%20in%20(b",
        "labelSelector=a=_b",
    ] {
        let (code, answer) = api.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{query}: {answer}");
    }
    let (code, _) = api.get(&format!("{MAPS}?timeout=1m30s")).await;
    assert_eq!(code, StatusCode::OK);
    let deep = "[".repeat(500) + &"]".repeat(500);
    let media = "application/yaml";
    let body = Body::from(format!("{{metadata: {{name: a}}, data: {deep}}}"));
    let request = Request::post(MAPS).header(header::CONTENT_TYPE, media);
    let (code, answer) = api.respond(request, body).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_manager_is_short_and_can_be_read() {
    let api = Api::without_definitions().await;
    for (manager, reason) in [
        ("m".repeat(129), "FieldValueTooLong"),
        ("a%0Ab".to_owned(), "FieldValueInvalid"),
        ("a%E2%80%AEb".to_owned(), "FieldValueInvalid"),
    ] {
        let path = format!("{MAPS}?fieldManager={manager}");
        let (code, answer) = api.post(&path, json!({"metadata": {"name": "a"}})).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        let cause = &answer["details"]["causes"][0];
        assert_eq!(
            (&cause["reason"], &cause["field"]),
            (&json!(reason), &json!("fieldManager"))
        );
    }
    let path = format!("{MAPS}?fieldManager={}", "m".repeat(128));
    let (code, _) = api.post(&path, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(code, StatusCode::CREATED);
}

#[tokio::test(start_paused = true)]
async fn objects_have_the_bounds_of_kubernetes() {
    let api = Api::without_definitions().await;
    let mebibyte = 1 << 20;
    let map = |bytes: usize| json!({"data": {"k": "v".repeat(bytes)}});
    let secret = |bytes: usize| json!({"stringData": {"k": "v".repeat(bytes)}});
    let noted = |bytes: usize| json!({"metadata": {"annotations": {"k": "v".repeat(bytes - 1)}}});
    let secrets = MAPS.replace("configmaps", "secrets");
    let cases = [
        (MAPS, map(mebibyte), map(mebibyte + 1), "[]"),
        (&secrets, secret(mebibyte), secret(mebibyte + 1), "data"),
        (
            MAPS,
            noted(mebibyte / 4),
            noted(mebibyte / 4 + 1),
            "metadata.annotations",
        ),
    ];
    for (at, (path, mut most, mut more, field)) in cases.into_iter().enumerate() {
        more["metadata"]["name"] = json!(format!("n{at}"));
        let (code, answer) = api.post(path, more).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{field}");
        let cause = &answer["details"]["causes"][0];
        assert_eq!(
            (&cause["reason"], &cause["field"]),
            (&json!("FieldValueTooLong"), &json!(field))
        );
        most["metadata"]["name"] = json!(format!("n{at}"));
        let (code, answer) = api.post(path, most).await;
        assert_eq!(code, StatusCode::CREATED, "{field}: {}", answer["message"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_has_so_many_operations_at_most() {
    let api = Api::without_definitions().await;
    api.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}}))
        .await;
    let path = format!("{MAPS}/a");
    let test = json!({"op": "test", "path": "/data/k", "value": "v"});
    let (code, answer) = api
        .json_patch(&path, json!(vec![test.clone(); 10_001]))
        .await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
    let (code, _) = api.json_patch(&path, json!(vec![test; 10_000])).await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_finalized_and_its_status_patched_as_in_kubernetes() {
    let api = Api::without_definitions().await;
    let path = "/api/v1/namespaces/n";
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}}))
        .await;
    let noted = json!({"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}});
    let (code, answer) = api.merge(&format!("{path}/status"), noted).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(answer["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(answer["metadata"]["labels"]["c"], "d");
    assert_eq!(answer["spec"]["finalizers"], json!(["kubernetes"]));
    for body in [
        json!({"metadata": {"name": "n"}}),
        json!({"metadata": {"name": "n"}, "spec": {}}),
    ] {
        let (code, answer) = api.put(&format!("{path}/finalize"), body).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
        assert_eq!(answer["spec"]["finalizers"], Value::Null);
        assert_eq!(answer["status"]["phase"], "Active");
    }
    api.delete(path).await;
    api.gone(path).await;
}

#[tokio::test(start_paused = true)]
async fn what_client_side_apply_left_behind_follows_the_server_side() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let api = Api::without_definitions().await;
    let metadata = json!({"name": "a", "annotations": {LAST: "{\"data\":{\"k\":\"v\"}}"}});
    api.post(MAPS, json!({"metadata": metadata, "data": {"k": "v"}}))
        .await;
    let apply = async |manager: &str, data: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default"}, "data": data,
        });
        let path = format!("{MAPS}/a?fieldManager={manager}&force=true");
        let media = "application/apply-patch+yaml";
        let (code, answer) = api.send(Method::PATCH, &path, media, object).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
        answer["metadata"]["annotations"][LAST]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let applied = |value: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"data\":{{\"k\":\"{value}\"}},\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"a\",\"namespace\":\"default\"}}}}\n"
        )
    };
    assert_eq!(apply("kubectl", json!({"k": "w"})).await, applied("w"));
    assert_eq!(apply("other", json!({"k": "x"})).await, applied("w"));
    assert_eq!(
        apply("kubectl", json!({"k": "<&>"})).await,
        applied("\\u003c\\u0026\\u003e")
    );
}

/// Who still writes when the connection closes is told of a broken pipe, and never of the limit.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_heard_out() {
    let api = Api::without_definitions().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let parts = {
        let sent = sent.clone();
        stream::iter(0..8).map(move |_| {
            sent.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(vec![b' '; 1 << 20])
        })
    };
    let request = Request::post(MAPS).header(header::CONTENT_TYPE, JSON);
    let (code, answer) = api.respond(request, Body::from_stream(parts)).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("limit is 3145728 bytes"), "{message}");
    assert_eq!(sent.load(Ordering::Relaxed), 8);
}
