//! `windlass magnum`: OpenStack's Container Infrastructure Management API over the objects of an API, and the controller of its
//! clusters.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, ensure};
use api::magnum::{Addon, CoeCluster};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use kube::{Api, Client, Resource, api::ListParams};
use magnum::{
    Service, bare_metal,
    identity::Keystone,
    operator::{self, addons},
    policy::Policy,
};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;

use crate::{
    cli::{Global, Magnum, MagnumCommand},
    client::answered,
    controller::placed,
    leader, sandbox,
    serve::tls,
    terminal::say,
    up::{CONCURRENCY, shutdown_on_signals},
};

mod cloud;
mod migrate;
mod register;

/// How many connections are open at once over TLS.
const CONNECTIONS: usize = 1024;

/// Serves until it is told to end. Every replica answers, and the one that holds the Lease works on clusters.
pub(crate) async fn magnum(global: &Global, options: Magnum) -> anyhow::Result<()> {
    match &options.command {
        Some(MagnumCommand::Register(options)) => return register::register(options).await,
        Some(MagnumCommand::Migrate(options)) => return migrate::migrate(global, options).await,
        None => {}
    }
    let shutdown = shutdown_on_signals()?;
    let client = global.client().await?;
    defined(&client).await?;
    let lease = options.lease.as_deref().map(|lease| placed(global, lease));
    let serving = Serving::of(global, options)?;
    let settings = Settings {
        namespace: None,
        concurrency: CONCURRENCY,
        metrics: Metrics::default(),
        shutdown: shutdown.clone(),
    };
    let mut manager = Manager::new(client.clone(), settings);
    operator::operate(&mut manager, serving.operator());
    let answering = serving.serve(client.clone(), shutdown.clone()).await?;
    let operating = async {
        let ended = operated(manager, client, lease, &shutdown).await;
        // Clusters that are accepted and never made would only look alive.
        shutdown.trigger();
        ended
    };
    let (answered, operated) = tokio::join!(answering, operating);
    operated?;
    answered
}

async fn operated(
    manager: Manager,
    client: Client,
    lease: Option<(String, String)>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let Some((namespace, name)) = lease else {
        return manager.run().await.context("the operator ended");
    };
    let mut leadership = tokio::select! {
        hold = leader::lead(client, namespace, name) => hold,
        () = shutdown.wait() => return Ok(()),
    };
    tokio::select! {
        ended = manager.run() => ended.context("the operator ended")?,
        // What is about to be written is no longer this replica's to write.
        lost = leadership.lost() => return Err(anyhow::Error::new(lost).context("failed to lead")),
    }
    leadership.release().await;
    Ok(())
}

/// Says what to do where the API does not know the objects.
async fn defined(client: &Client) -> anyhow::Result<()> {
    served::<CoeCluster>(client).await?;
    served::<Addon>(client).await
}

async fn served<K>(client: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let (objects, plural): (Api<K>, _) = (Api::all(client.clone()), K::plural(&()));
    match objects.list_metadata(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => anyhow::bail!(
            "the API does not know {plural}: start `windlass up --magnum`, or install what `windlass crds --magnum` prints"
        ),
        listed => answered(listed, &format!("list {plural}")).map(drop),
    }
}

/// How the service is served.
pub(crate) struct Serving {
    listen: SocketAddr,
    /// The files with the chain and the key.
    certificate: Option<(PathBuf, PathBuf)>,
    public_url: Option<String>,
    policy: Policy,
    max_clusters: u32,
    operator: operator::Options,
}

impl Serving {
    fn of(global: &Global, options: Magnum) -> anyhow::Result<Self> {
        let keystone = options.keystone.context("--keystone is missing")?;
        // A chart without one gives an empty one.
        let region = options.region.filter(|region| !region.is_empty());
        let keystone = self::keystone(&keystone)?.in_region(region);
        let beside = Self::over(global, keystone, options.listen, options.checkout)?;
        let settings = bare_metal::Settings {
            kubespray: options
                .kubespray_version
                .or(beside.operator.settings.kubespray),
            ..beside.operator.settings.clone()
        };
        Ok(Self {
            certificate: options.tls_cert.zip(options.tls_key),
            public_url: options.public_url,
            policy: options
                .policy
                .as_deref()
                .map(policy)
                .transpose()?
                .unwrap_or_default(),
            max_clusters: options.max_clusters,
            operator: operator::Options {
                pool: options.pool,
                key: options.ssh_key,
                settings,
                addons: addons::Settings {
                    helm: options.helm,
                    ..beside.operator.addons
                },
                ..beside.operator
            },
            ..beside
        })
    }

    /// As beside an API of our own, where nobody says more.
    pub(crate) fn beside(
        global: &Global,
        keystone: &str,
        listen: SocketAddr,
        checkout: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        Self::over(global, self::keystone(keystone)?, listen, checkout)
    }

    fn over(
        global: &Global,
        keystone: Keystone,
        listen: SocketAddr,
        checkout: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let playbooks = checkout.map(std::path::absolute).transpose();
        let playbooks = playbooks.context("failed to resolve the directory of the checkout")?;
        // The Python environment is that of the release which it is.
        let kubespray = playbooks.as_deref().map(sandbox::version).transpose()?;
        Ok(Self {
            listen,
            certificate: None,
            public_url: None,
            policy: Policy::default(),
            max_clusters: 20,
            operator: operator::Options {
                pool: "default".to_owned(),
                key: "magnum-ssh".to_owned(),
                settings: bare_metal::Settings {
                    kubespray,
                    playbooks: playbooks.map(|directory| directory.display().to_string()),
                },
                keystone: Arc::new(keystone),
                addons: addons::Settings {
                    helm: PathBuf::from("helm"),
                    locks: global.private_data_directory()?.join("addons"),
                },
            },
        })
    }

    /// How its controller works.
    pub(crate) fn operator(&self) -> operator::Options {
        self.operator.clone()
    }

    /// Listens; what is returned serves until it is told to end.
    pub(crate) async fn serve(
        self,
        client: Client,
        shutdown: Shutdown,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send> {
        let address = self.listen;
        // A token is as good as its user.
        ensure!(
            self.certificate.is_some() || address.ip().is_loopback(),
            "failed to listen on {address}: without TLS only loopback addresses are served; give --tls-cert and --tls-key, or put a proxy with TLS in front"
        );
        let certificate = self.certificate;
        let certificate = certificate.map(|(chain, key)| tls::Certificate::of_files(chain, key));
        let certificate = certificate.transpose()?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen on {address}"))?;
        let address = listener.local_addr().context("failed to listen")?;
        let scheme = if certificate.is_some() {
            "https"
        } else {
            "http"
        };
        let options = magnum::Options {
            max_clusters_per_project: self.max_clusters,
            host: host(),
            scheme,
            policy: self.policy,
            public_url: self.public_url,
        };
        let router = Service::new(client, self.operator.keystone, options).router();
        say!("  Magnum      {scheme}://{address}/v1");
        Ok(async move {
            let Some(certificate) = certificate else {
                return axum::serve(listener, router)
                    .with_graceful_shutdown(async move { shutdown.wait().await })
                    .await
                    .context("the Magnum API ended");
            };
            tokio::select! {
                () = tls::serve(listener, certificate, router, CONNECTIONS) => {}
                () = shutdown.wait() => {}
            }
            Ok(())
        })
    }
}

fn keystone(address: &str) -> anyhow::Result<Keystone> {
    Keystone::new(address).context("--keystone is not to be used")
}

/// The rules of a policy file, which is YAML or JSON.
fn policy(file: &Path) -> anyhow::Result<Policy> {
    let what = || format!("failed to use the policy {}", file.display());
    let text = fs::read_to_string(file).with_context(what)?;
    let entries: BTreeMap<String, String> = serde_saphyr::from_str(&text).with_context(what)?;
    Policy::of(entries).with_context(what)
}

/// The name of this machine.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}
