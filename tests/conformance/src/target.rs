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
use lab::{ControlPlane, Kubernetes, progress::Terminal};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::play;

/// A running server that serves widgets. It ends with this value.
pub struct Target {
    /// What it is, for reports.
    pub name: String,
    /// An administrator's.
    pub client: Client,
    /// The kubeconfig of that administrator, for those that are reached over TLS.
    pub kubeconfig: Option<PathBuf>,
    _running: Running,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held for their ends")]
enum Running {
    InProcess,
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
        let server = Server::in_memory(&[play::widgets()?]).await?;
        Ok(Self {
            name: "embedded".into(),
            client: Client::new(server.router(), "default"),
            kubeconfig: None,
            _running: Running::InProcess,
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
            crds: vec![play::widgets()?],
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
            _running: Running::Embedded(Serving(serving), directory),
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
        let widgets = play::widgets()?;
        let name = widgets.metadata.name.clone().unwrap_or_default();
        let parameters = PatchParams::apply("conformance").force();
        definitions
            .patch(&name, &parameters, &Patch::Apply(widgets))
            .await?;
        await_condition(definitions, &name, conditions::is_crd_established()).await?;
        Ok(Self {
            name: format!("Kubernetes {}", plane.version()),
            client,
            kubeconfig: Some(plane.kubeconfig()),
            _running: Running::Real(Box::new(plane)),
        })
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
