//! APIs that cannot be used, or not enough: each is refused in plain words, and nothing is touched.

use std::path::{Path, PathBuf};

use axum::{
    Json,
    body::{Body, to_bytes},
    response::IntoResponse as _,
};
use k8s_openapi::api::authorization::v1::{SelfSubjectAccessReview, SubjectAccessReviewStatus};

use super::*;

/// Group, resource with its subresource, and verbs.
type Right = (&'static str, &'static str, &'static [&'static str]);

/// What is needed of the side that is left.
const HERE: [Right; 6] = [
    (KUBESPRAY, "clusters", &["list", "get", "patch", "delete"]),
    (
        KUBESPRAY,
        "clusternodes",
        &["list", "get", "patch", "delete"],
    ),
    (WORKFLOW, "runs", &["list", "get", "patch", "delete"]),
    // Recorded keys of hosts are put into one.
    ("", "secrets", &["list", "get", "create", "patch", "delete"]),
    ("", "configmaps", &["list", "get", "delete"]),
    (LEASES, "leases", &["get", "create", "update", "delete"]),
];

/// What is needed of the side that takes over.
const THERE: [Right; 8] = [
    (
        KUBESPRAY,
        "clusters",
        &["list", "get", "create", "update", "patch"],
    ),
    (KUBESPRAY, "clusters/status", &["patch"]),
    (
        KUBESPRAY,
        "clusternodes",
        &["list", "get", "create", "update", "patch"],
    ),
    (KUBESPRAY, "clusternodes/status", &["patch"]),
    (
        WORKFLOW,
        "runs",
        &["list", "get", "create", "update", "patch"],
    ),
    (WORKFLOW, "runs/status", &["patch"]),
    ("", "secrets", &["list", "get", "create", "update", "patch"]),
    (
        "",
        "configmaps",
        &["list", "get", "create", "update", "patch"],
    ),
];

/// What taking back needs of the side that was being left.
const BACK_HERE: [Right; 6] = [
    (KUBESPRAY, "clusters", &["list", "get", "patch"]),
    (KUBESPRAY, "clusternodes", &["list", "get", "patch"]),
    (WORKFLOW, "runs", &["list", "get", "patch"]),
    ("", "secrets", &["list", "get"]),
    ("", "configmaps", &["list", "get"]),
    (LEASES, "leases", &["get", "delete"]),
];

/// What taking back needs of the other side.
const BACK_THERE: [Right; 5] = [
    (KUBESPRAY, "clusters", &["list", "delete"]),
    (KUBESPRAY, "clusternodes", &["list", "delete"]),
    (WORKFLOW, "runs", &["list", "delete"]),
    ("", "secrets", &["list", "delete"]),
    ("", "configmaps", &["list", "delete"]),
];

const KUBESPRAY: &str = "kubespray.k8s.io";
const WORKFLOW: &str = "workflow.windlass.dev";
const LEASES: &str = "coordination.k8s.io";

/// A client of somebody who lacks one right.
fn without(server: &Server, resource: &str, verb: &str) -> Client {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let lacking = [resource, part, verb].map(|text| Some(text.to_owned()));
    let answer = move |request: Request, next: Next| {
        let lacking = lacking.clone();
        async move {
            if !request.uri().path().contains("selfsubjectaccessreviews") {
                return next.run(request).await;
            }
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let mut review: SelfSubjectAccessReview = serde_json::from_slice(&body).unwrap();
            let asked = review.spec.resource_attributes.clone().unwrap();
            if [asked.resource, asked.subresource, asked.verb] != lacking {
                let request = Request::from_parts(parts, Body::from(body));
                return next.run(request).await;
            }
            review.status = Some(SubjectAccessReviewStatus::default());
            (http::StatusCode::CREATED, Json(review)).into_response()
        }
    };
    let router = server.api.router();
    Client::new(router.layer(axum::middleware::from_fn(answer)), "default")
}

/// What each of the rights is called, and asked for by.
fn each(rights: &[Right]) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for (group, resource, verbs) in rights {
        for verb in *verbs {
            let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
            let mut full = kind.to_owned();
            if !group.is_empty() {
                full = format!("{kind}.{group}");
            }
            let mut command = format!("kubectl -n {TEAM} auth can-i {verb} {full}");
            let mut said = format!("\"{verb} {full}");
            if !part.is_empty() {
                command = format!("{command} --subresource={part}");
                said = format!("{said}/{part}");
            }
            let said = format!("{said}\": you do not have it in namespace {TEAM}");
            all.push((
                (*resource).to_owned(),
                (*verb).to_owned(),
                said + "|" + &command,
            ));
        }
    }
    all
}

#[tokio::test]
async fn every_right_that_is_missing_is_named_with_its_place_and_its_remedy() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    make_namespace(&there.client(), TEAM).await;
    let pictures = async || {
        let here = picture(&here.client(), TEAM).await;
        (here, picture(&there.client(), TEAM).await)
    };
    let before = pictures().await;
    let limited = async |server: &Server, resource: &str, verb: &str| {
        Side::find(without(server, resource, verb), TEAM)
            .await
            .unwrap()
    };
    let assert_named = |error: anyhow::Error, place: &str, said: &str| {
        let error = format!("{error:#}");
        let mut parts = said.split('|').chain([place, "nothing was changed"]);
        assert!(parts.all(|part| error.contains(part)), "{said}: {error}");
    };
    for (resource, verb, said) in each(&HERE) {
        let source = limited(&here, &resource, &verb).await;
        let target = there.side(TEAM).await;
        let error = carry_over(&source, &target, &wish()).await;
        assert_named(error.unwrap_err(), "right here (--kubeconfig)", &said);
    }
    for (resource, verb, said) in each(&THERE) {
        let source = here.side(TEAM).await;
        let target = limited(&there, &resource, &verb).await;
        let error = plan(&source, &target, &wish()).await;
        assert_named(error.unwrap_err(), "right there (--to-kubeconfig)", &said);
    }
    for (resource, verb, said) in each(&BACK_HERE) {
        let source = limited(&here, &resource, &verb).await;
        let error = take_back(&source, None).await;
        assert_named(error.unwrap_err(), "right here (--kubeconfig)", &said);
    }
    for (resource, verb, said) in each(&BACK_THERE) {
        let source = here.side(TEAM).await;
        let target = limited(&there, &resource, &verb).await;
        let error = take_back(&source, Some(&target)).await;
        assert_named(error.unwrap_err(), "right there (--to-kubeconfig)", &said);
    }
    assert_eq!(pictures().await, before);
}

#[tokio::test]
async fn a_namespace_that_is_missing_there_may_be_made_or_is_asked_for() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    let source = here.side(TEAM).await;
    let target = Side::find(without(&there, "namespaces", "create"), TEAM)
        .await
        .unwrap();
    let error = plan(&source, &target, &wish()).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("\"create namespaces\": you do not have it for the whole API"),
        "{error}"
    );
    make_namespace(&there.client(), TEAM).await;
    let planned = plan(&source, &target, &wish()).await.unwrap();
    assert_eq!(planned.outcome, Outcome::Planned);
}

#[tokio::test]
async fn kinds_there_that_lack_a_field_are_refused_before_anything_is_written() {
    let here = Server::start().await;
    populate(&here.client(), TEAM).await;
    let mut crds = serde_json::to_value(api::custom_resource_definitions()).unwrap();
    for crd in crds.as_array_mut().unwrap() {
        let versions = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties");
        if let Some(ssh) = versions
            .and_then(|properties| properties.pointer_mut("/spec/properties/ssh/properties"))
        {
            ssh.as_object_mut().unwrap().remove("user").unwrap();
        }
    }
    let there = Server::serving(serde_json::from_value(crds).unwrap()).await;
    let error = refused(&here, &there).await;
    for part in [
        "Cluster/first spec.ssh.user: Cluster has no such field there",
        "older",
        "windlass crds | kubectl apply --server-side -f -",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

/// An API server serves new fields a moment before it tells of them.
#[tokio::test]
async fn kinds_there_that_were_just_renewed_are_taken() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    make_namespace(&there.client(), TEAM).await;
    let stale = Arc::new(AtomicUsize::new(2));
    let tell = {
        let stale = Arc::clone(&stale);
        move |request: Request, next: Next| {
            let is_asked = request.uri().path().starts_with("/openapi/v3/apis/");
            let left = |left: usize| left.checked_sub(1);
            let is_stale = is_asked
                && stale
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left)
                    .is_ok();
            async move {
                let answer = next.run(request).await;
                if !is_stale {
                    return answer;
                }
                let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                let text = String::from_utf8(body.to_vec()).unwrap();
                text.replace("\"user\":", "\"login\":").into_response()
            }
        }
    };
    let router = there.api.router().layer(axum::middleware::from_fn(tell));
    let client = Client::new(router, "default");
    let target = Side::find(client, TEAM).await.unwrap();
    let planned = plan(&here.side(TEAM).await, &target, &wish()).await;
    assert_eq!(planned.unwrap().outcome, Outcome::Planned);
    assert_eq!(stale.load(Ordering::SeqCst), 0);
}

/// A kubeconfig for a server, with an authority and a token instead of what the server's own one has.
fn kubeconfig(directory: &Path, server: &str, authority: &Value) -> PathBuf {
    let file = directory.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "there",
        "clusters": [{"name": "there", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "kim"}}],
        "users": [{"name": "kim", "user": {"token": "expired"}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// A server on loopback, and its kubeconfig.
async fn listening(directory: &Path) -> (kapi::Server, Value) {
    let server = kapi::Server::open(kapi::Options {
        data_dir: directory.to_owned(),
        crds: api::custom_resource_definitions(),
        listen: Some(([127, 0, 0, 1], 0).into()),
    })
    .await
    .unwrap();
    let text = std::fs::read_to_string(server.kubeconfig().unwrap()).unwrap();
    (server, serde_saphyr::from_str(&text).unwrap())
}

#[tokio::test]
async fn an_api_that_cannot_be_reached_or_does_not_know_its_caller_is_said_to_be_so() {
    // Another test of the process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let (own, other) = (directory.path().join("own"), directory.path().join("other"));
    let (server, config) = listening(&own).await;
    let (_other, other) = listening(&other).await;
    let cluster = |config: &Value| config["clusters"][0]["cluster"].clone();
    let address = cluster(&config)["server"].as_str().unwrap().to_owned();
    let authority = |config: &Value| cluster(config)["certificate-authority-data"].clone();
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let refusing = format!("https://{}", closed.local_addr().unwrap());
    drop(closed);
    let cases = [
        (
            &refusing,
            authority(&config),
            "it cannot be reached; check server in the kubeconfig",
        ),
        (
            &address,
            authority(&other),
            "its certificate is not what the kubeconfig expects",
        ),
        (
            &address,
            authority(&config),
            "it does not know the credentials of the kubeconfig, or they have expired",
        ),
    ];
    let serve = server.serve(std::future::pending());
    let check = async {
        for (address, authority, said) in cases {
            let file = kubeconfig(directory.path(), address, &authority);
            let side = Side::there(&file, None, TEAM).await;
            let error = anyhow::Error::new(side.err().expect(said));
            let error = format!("{error:#}");
            let shown = file.display().to_string();
            for part in [said, address, &shown, "nothing was changed"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    };
    tokio::select! {
        served = serve => panic!("{served:?}"),
        () = check => {}
    }
    let missing = Side::there(&directory.path().join("none"), None, TEAM).await;
    let error = missing.err().unwrap().to_string();
    assert!(error.contains("failed to read the kubeconfig"), "{error}");
}
