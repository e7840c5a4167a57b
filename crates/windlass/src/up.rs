//! `windlass up`: the operator with its own API.

use std::{net::SocketAddr, path::Path, sync::Arc};

use ansible::source::Policy;
use anyhow::Context;
use api::crd::{SETS, Set};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use kapi::Server;
use kube::Client;
use runs::{operator::Place, supervisor::Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    apply,
    cli::{Global, Up},
    magnum,
    serve::{self, Standing},
    terminal::say,
};

/// How many objects of a kind are worked on at once.
pub(crate) const CONCURRENCY: u16 = 16;

/// Port 0: the port of the last time, or a free one.
const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Starts the embedded API and the controllers, and runs until it is told to end.
pub(crate) async fn up(global: &Global, options: Up) -> anyhow::Result<()> {
    let data = global.private_data_directory()?;
    let shutdown = shutdown_on_signals()?;
    let served = |set: &Set| match set {
        Set::Clusters => true,
        Set::Fleet => options.fleet,
        Set::Magnum => options.magnum.is_some(),
        Set::Openstack => false,
        Set::Providers => options.providers,
        Set::Vault => options.vault,
    };
    let sets = SETS.into_iter().filter(served);
    let server = Server::open(kapi::Options {
        data_dir: data.clone(),
        crds: sets.flat_map(Set::definitions).collect(),
        listen: Some(options.listen.unwrap_or(ANY_PORT)),
    })
    .await
    .with_context(|| format!("failed to open {}", data.display()))?;
    let client = Client::new(server.router(), "default");
    let advisor: Arc<dyn kapi::Advisor> = Arc::new(fleet::advice::Foretelling(client.clone()));
    if options.fleet {
        server.advise(&advisor);
    }
    let metrics = Metrics::default();
    let standing = Standing::new(metrics.clone());
    standing.lead();
    let telling = match options.metrics {
        Some(address) => Some(serve::metrics(address, None, &client, &standing).await?),
        None => None,
    };
    greet(
        &server,
        &data,
        telling.as_ref().map(|(address, _)| *address),
    );
    let kubeconfig = global.own_kubeconfig()?;
    let settings = Settings {
        namespace: None,
        concurrency: CONCURRENCY,
        metrics,
        shutdown: shutdown.clone(),
    };
    let sources = Policy::person();
    let own = kubespray::Options {
        runners: processes(&data, Some(&kubeconfig), &sources, None)?,
        data_dir: data,
        sources,
    };
    let providers = options.providers.then(|| providers::Options {
        runners: own.runners.clone(),
        fetch: providers::fetch::Policy::person(),
        runs_pods: false,
    });
    let mut operator = operator(client.clone(), settings, own, providers);
    if options.fleet {
        let own = fleet::Options {
            vault: options.vault,
            ..fleet::Options::default()
        };
        fleet::operate(&mut operator, own);
    }
    if options.vault {
        let own = secrets::Options {
            loopback: true,
            namespace: "default".to_owned(),
        };
        secrets::operate(&mut operator, own);
    }
    let answering = match &options.magnum {
        None => None,
        Some(keystone) => {
            let service = magnum::Serving::beside(
                global,
                keystone,
                options.magnum_listen,
                options.magnum_checkout.clone(),
            )?;
            ::magnum::operator::operate(&mut operator, service.operator());
            Some(service.serve(client, shutdown.clone()).await?)
        }
    };
    // Who asks before everything is counted waits.
    if let Some((_, telling)) = telling {
        tokio::spawn(telling);
    }
    let operator = operator.run();
    let serving = server.serve(shutdown.wait());
    let operating = async {
        let ended = operator.await;
        // An API without its operator would only look alive.
        shutdown.trigger();
        ended
    };
    let applying = async {
        if !options.filename.is_empty() {
            apply::apply_files(global, &options.filename, &options.age_keys).await?;
        }
        anyhow::Ok(())
    };
    let answering = async {
        match answering {
            Some(answering) => answering.await,
            None => Ok(()),
        }
    };
    let (served, operated, applied, answered) =
        tokio::join!(serving, operating, applying, answering);
    served.context("the API ended")?;
    answered?;
    operated.context("the operator ended")?;
    applied
}

/// The controllers of every domain, under one manager. Those of providers only where they are asked for: their definitions may be
/// another operator's, or not be there.
pub(crate) fn operator(
    client: Client,
    settings: Settings,
    options: kubespray::Options,
    providers: Option<providers::Options>,
) -> Manager {
    let mut manager = Manager::new(client, settings);
    kubespray::operate(&mut manager, options);
    if let Some(options) = providers {
        providers::operate(&mut manager, options);
    }
    manager
}

/// Runners as processes of this program.
pub(crate) fn processes(
    data: &Path,
    kubeconfig: Option<&Path>,
    sources: &Policy,
    helm: Option<&Path>,
) -> anyhow::Result<Place> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let mut arguments = Vec::new();
    if let Some(kubeconfig) = kubeconfig {
        arguments.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
    }
    let policy = serde_json::to_string(sources).context("failed to write the policy of sources")?;
    arguments.extend(["runner".to_owned(), "--source-policy".to_owned(), policy]);
    if let Some(helm) = helm {
        arguments.extend(["--helm".to_owned(), helm.display().to_string()]);
    }
    Ok(Place::Here(
        runs::Layout::new(data),
        Command { program, arguments },
    ))
}

fn greet(server: &Server, data: &Path, metrics: Option<SocketAddr>) {
    let address = server
        .address()
        .map(|address| address.to_string())
        .unwrap_or_default();
    let kubeconfig = server
        .kubeconfig()
        .map(|file| file.display().to_string())
        .unwrap_or_default();
    say!("windlass {} is up", env!("CARGO_PKG_VERSION"));
    say!("  API         https://{address}");
    say!("  data        {}", data.display());
    say!("  kubeconfig  {kubeconfig}");
    if let Some(address) = metrics {
        say!("  metrics     http://{address}/metrics");
    }
    say!("\nIn another terminal:");
    say!(
        "  windlass -n my-cluster init first           # writes objects of your hosts, and says what to type next"
    );
    say!("  windlass plan -f first                      # what would be done");
    say!("  kubectl --kubeconfig {kubeconfig} get clusters,clusternodes,runs -A\n");
    say!("Ctrl-C ends it; a run that is at work goes on and is found again at the next start.");
}

/// A shutdown that SIGINT and SIGTERM start.
pub(crate) fn shutdown_on_signals() -> anyhow::Result<Shutdown> {
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let shutdown = Shutdown::default();
    let trigger = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("ending");
        trigger.trigger();
    });
    Ok(shutdown)
}
