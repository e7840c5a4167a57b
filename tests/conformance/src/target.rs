//! The servers that are asked.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kapi::{Options, Server};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{conditions, wait::await_condition},
};
use lab::{ControlPlane, Kubernetes, command::output, progress::Terminal};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::play::{self, send};

/// A running server that serves [`play::definitions`]. It ends with this value.
pub struct Target {
    /// What it is, for reports.
    pub name: String,
    /// An administrator's.
    pub client: Client,
    /// The kubeconfig of that administrator, for those that are reached over TLS.
    pub kubeconfig: Option<PathBuf>,
    running: Running,
}

#[derive(Debug)]
enum Running {
    InProcess,
    #[expect(dead_code, reason = "held for their ends")]
    Embedded(Serving, TempDir),
    Real(Box<ControlPlane>),
}

/// A task that ends with this value.
#[derive(Debug)]
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Target {
    /// The embedded API, reached by function calls.
    ///
    /// # Errors
    ///
    /// It does not take the definition of the scenarios.
    pub async fn in_process() -> Result<Self> {
        let server = Server::in_memory(&play::definitions()?).await?;
        Ok(Self {
            name: "embedded".into(),
            client: Client::new(server.router(), "default"),
            kubeconfig: None,
            running: Running::InProcess,
        })
    }

    /// The embedded API on a disk, reached as kubectl does: TLS on loopback with the client certificate that it made.
    ///
    /// # Errors
    ///
    /// It cannot be opened or reached.
    pub async fn over_tls() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let options = Options {
            data_dir: directory.path().to_owned(),
            crds: play::definitions()?,
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let server = Server::open(options).await?;
        let kubeconfig = server.kubeconfig().context("it listens")?.to_owned();
        let serving = tokio::spawn(async move {
            if let Err(error) = server.serve(std::future::pending()).await {
                eprintln!("the embedded API: {error}");
            }
        });
        Ok(Self {
            name: "embedded over TLS".into(),
            client: client(&kubeconfig).await?,
            kubeconfig: Some(kubeconfig),
            running: Running::Embedded(Serving(serving), directory),
        })
    }

    /// A real API server with etcd and a controller manager.
    ///
    /// # Errors
    ///
    /// Not root, or it does not start.
    pub async fn real(kubernetes: Kubernetes) -> Result<Self> {
        let start = move || ControlPlane::start(kubernetes, &Terminal::default());
        let plane = tokio::task::spawn_blocking(start).await??;
        let client = client(&plane.kubeconfig()).await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let parameters = PatchParams::apply("conformance").force();
        for definition in play::definitions()? {
            let name = definition.metadata.name.clone().unwrap_or_default();
            definitions
                .patch(&name, &parameters, &Patch::Apply(definition))
                .await?;
            let established = conditions::is_crd_established();
            await_condition(definitions.clone(), &name, established).await?;
        }
        Ok(Self {
            name: format!("Kubernetes {}", plane.version()),
            client,
            kubeconfig: Some(plane.kubeconfig()),
            running: Running::Real(Box::new(plane)),
        })
    }

    /// Has the server forget some of what was, as it does by itself in time: a real one compacts its etcd, and an embedded one
    /// has room for so many lists and changes of a kind only.
    ///
    /// # Errors
    ///
    /// It cannot be reached.
    pub async fn forget(&self) -> Result<()> {
        match &self.running {
            Running::Real(plane) => compact(plane).await,
            Running::InProcess | Running::Embedded(..) => crowd(&self.client).await,
        }
    }
}

/// Compacts etcd up to now, as an API server does: it also tells the others.
async fn compact(plane: &ControlPlane) -> Result<()> {
    let mut etcdctl = [plane.etcdctl(), plane.etcdctl(), plane.etcdctl()];
    let compacting = move || {
        let [get, put, compaction] = &mut etcdctl;
        let seen = output(get.args(["get", COMPACTED, "--write-out=json"]))?;
        let seen: Value = serde_json::from_str(&seen).context("read what etcdctl prints")?;
        let revision = seen["header"]["revision"].to_string();
        output(put.args(["put", COMPACTED, &revision]))?;
        // An API server may have been faster.
        let _ = output(compaction.args(["compaction", &revision]));
        anyhow::Ok(())
    };
    tokio::task::spawn_blocking(compacting).await?
}

/// Writes and lists so much that older lists and changes have to go.
async fn crowd(client: &Client) -> Result<()> {
    let namespace = format!("crowd-{}", play::suffix());
    let metadata =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let path = format!("/apis/example.com/v1/namespaces/{namespace}/widgets");
    let change = |name: &str, spec: Value| {
        let (path, body) = (format!("{path}/{name}"), json!({"spec": spec}));
        async move { send(client, "merge", &path, &body).await }
    };
    send(client, "post", "/api/v1/namespaces", &metadata).await?;
    for name in ["a", "b"] {
        let widget =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
        send(client, "post", &path, &widget).await?;
    }
    for round in 0..LISTS {
        change("a", json!({"size": 1 + round % 2})).await?;
        send(client, "get", &format!("{path}?limit=1"), &Value::Null).await?;
    }
    for _ in 0..CHANGES {
        // What is kept is compressed: only what never repeats fills it.
        let digits = std::iter::repeat_with(|| uuid::Uuid::new_v4().simple().to_string());
        let filling: String = digits.take(CHANGE_BYTES / 32).collect();
        change("b", json!({"free": {"filling": filling}})).await?;
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    send(client, "delete", &path, &Value::Null).await?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is of a server of the test's own"
)]
async fn client(kubeconfig: &Path) -> Result<Client> {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The key by which API servers tell each other how far etcd is compacted.
const COMPACTED: &str = "compact_rev_key";
/// A little more than the embedded API keeps for next pages.
const LISTS: u32 = 300;
/// Together more than the embedded API keeps of one kind.
const CHANGES: u32 = 40;
const CHANGE_BYTES: usize = 1 << 19;
