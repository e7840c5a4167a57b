//! The metrics as a stranger meets them: over TLS, with an API server behind that knows two accounts.

use std::sync::Arc;

use axum::{Json, routing::post};
use controller::Metrics;
use kube::Client;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::*;
use crate::serve::Standing;

/// Any address but that of the machine itself.
const ELSEWHERE: &str = "0.0.0.0:0";

/// An API server that knows the tokens `reader` and `stranger`, and lets the first one get `/metrics`.
fn api() -> Client {
    let known = async |Json(review): Json<Value>| {
        let token = review["spec"]["token"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let authenticated = ["reader", "stranger"].contains(&token.as_str());
        let status =
            json!({"authenticated": authenticated, "user": {"username": token, "groups": ["all"]}});
        Json(json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}, "status": status,
        }))
    };
    let allowed = async |Json(review): Json<Value>| {
        let spec = &review["spec"];
        let asked = json!({"path": "/metrics", "verb": "get"});
        let allowed = spec["user"] == "reader"
            && spec["groups"] == json!(["all"])
            && spec["nonResourceAttributes"] == asked;
        Json(json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {},
            "status": {"allowed": allowed},
        }))
    };
    let router = Router::new()
        .route("/apis/authentication.k8s.io/v1/tokenreviews", post(known))
        .route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            post(allowed),
        );
    Client::new(router, "default")
}

/// What is answered to a request with this header line.
async fn ask(port: u16, trusted: &[u8], header: &str) -> String {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("windlass-metrics").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A peer that ends without a farewell of TLS has said all the same what it had to say.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// A certificate in a directory, as a mounted Secret has it.
fn kept(directory: &std::path::Path) -> Vec<u8> {
    let names = vec!["windlass-metrics".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let chain = made.cert.pem();
    fs::write(directory.join("tls.crt"), &chain).unwrap();
    fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    chain.into_bytes()
}

/// A free port; what had it lets go of it before it is had again.
fn free() -> u16 {
    let listener = std::net::TcpListener::bind(ELSEWHERE).unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn metrics_off_the_machine_are_told_to_whom_the_api_server_lets() {
    let directory = tempfile::tempdir().unwrap();
    let trusted = kept(directory.path());
    let port = free();
    let address = SocketAddr::from(([0, 0, 0, 0], port));
    let standing = Standing::new(Metrics::default());
    let certificate = Some(directory.path().to_owned());
    let client = api();
    let serving = crate::serve::metrics(address, certificate, &client, &standing);
    tokio::spawn(serving.await.unwrap().1);

    for (header, status) in [
        ("", "401"),
        ("Authorization: Basic cmVhZGVyOg==\r\n", "401"),
        ("Authorization: Bearer \r\n", "401"),
        ("Authorization: Bearer unknown\r\n", "401"),
        ("Authorization: Bearer stranger\r\n", "403"),
        ("Authorization: Bearer reader\r\n", "200"),
    ] {
        let answer = ask(port, &trusted, header).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{header}: {answer}"
        );
        assert_eq!(
            answer.contains("windlass_leader"),
            status == "200",
            "{answer}"
        );
    }

    // A certificate that was renewed serves the next connection.
    let trusted = kept(directory.path());
    let answer = ask(port, &trusted, "Authorization: Bearer reader\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    // Who does not speak TLS is told nothing.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer reader\r\n\r\n";
    plain.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("windlass_leader"));
}

#[tokio::test]
async fn probes_tell_nothing_of_clusters() {
    let port = free();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let standing = Standing::new(Metrics::default());
    tokio::spawn(crate::serve::probes(address, standing).await.unwrap());
    for (path, status) in [("/healthz", "200"), ("/readyz", "200"), ("/metrics", "404")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{path}: {answer}"
        );
    }
}

#[test]
fn a_certificate_that_is_none_is_told_of_before_anything_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let address = ELSEWHERE.parse().unwrap();
    let given = || Certificate::new(Some(directory.path().to_owned()), address);
    let said = |found: anyhow::Result<Certificate>| format!("{:#}", found.err().unwrap());
    assert!(said(given()).contains("tls.crt"));
    fs::write(directory.path().join("tls.crt"), "x").unwrap();
    fs::write(directory.path().join("tls.key"), "x").unwrap();
    assert!(said(given()).contains("PEM"), "{}", said(given()));
}

#[test]
fn a_certificate_that_is_half_written_leaves_the_last_one_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name| directory.path().join(name);
    kept(directory.path());
    let certificate = Certificate::of_files(file("tls.crt"), file("tls.key")).unwrap();
    let first = certificate.config().unwrap();
    assert!(Arc::ptr_eq(&first, &certificate.config().unwrap()));
    fs::write(file("tls.key"), "x").unwrap();
    assert!(Arc::ptr_eq(&first, &certificate.config().unwrap()));
    fs::remove_file(file("tls.crt")).unwrap();
    assert!(Arc::ptr_eq(&first, &certificate.config().unwrap()));
    kept(directory.path());
    assert!(!Arc::ptr_eq(&first, &certificate.config().unwrap()));
}
