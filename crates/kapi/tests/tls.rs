//! TLS: the kubeconfig works, nobody else gets in, and a restart changes neither.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is the server's own"
)]

use std::{net::SocketAddr, os::unix::fs::PermissionsExt, path::Path};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kapi::{Options, Server, ServerError};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::sync::oneshot;

async fn open(directory: &Path, address: &str) -> Result<Server, ServerError> {
    let options = Options {
        data_dir: directory.to_path_buf(),
        crds: api::custom_resource_definitions(),
        listen: Some(address.parse::<SocketAddr>().unwrap()),
    };
    Server::open(options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfig_works_and_anonymous_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(directory.path(), "127.0.0.1:0").await.unwrap();
    let path = server.kubeconfig().unwrap().to_path_buf();
    let address = server.address().unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let before = std::fs::read_to_string(&path).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        server
            .serve(async { stopped.await.unwrap_or_default() })
            .await
            .unwrap();
    });

    let kubeconfig = Kubeconfig::read_from(&path).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config.clone()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let parameters = WatchParams::default().timeout(1);
    let events: Vec<_> = maps
        .watch(&parameters, "0")
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, WatchEvent::Added(_)))
    );

    config.auth_info = kube::config::AuthInfo::default();
    let anonymous = Client::try_from(config).unwrap();
    let error = Api::<Namespace>::all(anonymous.clone())
        .list(&ListParams::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 401),
        "{error}"
    );
    let health = http::Request::get("/readyz").body(Vec::new()).unwrap();
    assert_eq!(anonymous.request_text(health).await.unwrap(), "ok");

    stop.send(()).unwrap();
    serving.await.unwrap();
    let again = open(directory.path(), "127.0.0.1:0").await.unwrap();
    assert_eq!(
        again.address(),
        Some(address),
        "the port is the one of the last time"
    );
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        before,
        "the kubeconfig is the same"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_loopback_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let error = open(directory.path(), "0.0.0.0:0").await.unwrap_err();
    assert!(matches!(error, ServerError::NotLoopback(_)), "{error}");
}
