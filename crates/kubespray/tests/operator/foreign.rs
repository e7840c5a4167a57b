//! Kubeconfigs that somebody else wrote, as whoever may write Secrets of the namespace can.

use std::{path::Path, time::Duration};

use base64::Engine;
use controller::kubeconfig::Foreign;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kapi::Server;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::world::{World, condition};

/// A kubeconfig whose user has one field more than a certificate authority vouches for.
fn kubeconfig(field: &str, value: &Value) -> String {
    let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap();
    let authority = base64::engine::general_purpose::STANDARD.encode(authority.cert.pem());
    json!({
        "clusters": [{"name": "a", "cluster": {
            "server": "https://192.0.2.1:6443", "certificate-authority-data": authority,
        }}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
        "users": [{"name": "a", "user": {field: value}}],
    })
    .to_string()
}

/// Programs and files of the operator are out of reach, and the person reads which field it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_secret_runs_nothing_in_the_operator() {
    let traces = tempfile::tempdir().unwrap();
    let trace = traces.path().join("trace");
    let shell = format!("touch {}; echo '{{}}'", trace.display());
    let secret = traces.path().join("of-the-operator");
    std::fs::write(&secret, "hunter2").unwrap();
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", shell],
        "interactiveMode": "Never",
    });
    for (field, value) in [("exec", exec), ("tokenFile", json!(secret))] {
        let world = World::start().await;
        world
            .apply::<Secret>(
                "first-kubeconfig",
                json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "first-kubeconfig"},
                    "stringData": {"value": kubeconfig(field, &value)},
                }),
            )
            .await;
        world.built().await;
        let path = format!("users[0].user.{field}");
        let named = |cluster: &api::Cluster| {
            condition(cluster, "Ready").is_some_and(|(_, _, message)| message.contains(&path))
        };
        let cluster = world.until("first", "names the field", named).await;
        assert!(!format!("{:?}", cluster.status).contains("hunter2"));
        assert!(!trace.exists(), "{field} ran a program");
    }
}

/// What is refused is not too much: a server with certificates of its own is used as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_kubeconfig_is_good_for_a_real_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(directory.path()).await;
    let text = std::fs::read(server.kubeconfig().unwrap()).unwrap();
    let address = server.address().unwrap();
    let serving = tokio::spawn(async move { server.serve(std::future::pending()).await });
    let foreign = Foreign::read(&text).unwrap();
    // That loopback is refused has its own test; here it stands for a host.
    let client = foreign
        .client(vec![address], Duration::from_secs(5))
        .unwrap();
    let namespaces = Api::<Namespace>::all(client);
    namespaces.list(&ListParams::default()).await.unwrap();
    serving.abort();
}

async fn open(directory: &Path) -> Server {
    let options = kapi::Options {
        data_dir: directory.to_path_buf(),
        crds: api::custom_resource_definitions(),
        listen: Some("127.0.0.1:0".parse().unwrap()),
    };
    Server::open(options).await.unwrap()
}
