//! `windlass controller`: the operator against an API that runs elsewhere, such as that of the cluster that it is a pod of.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use controller::{Metrics, manager::Settings};
use runs::{
    job::{Bounds, Template},
    operator::Place,
};

use crate::{
    cli::{Allowed, Controller, Global, Runners},
    leader,
    serve::{self, Standing},
    up,
};

/// Starts the controllers alone.
pub(crate) async fn controller(global: &Global, options: Controller) -> anyhow::Result<()> {
    let shutdown = up::shutdown_on_signals()?;
    let client = global.client().await?;
    let metrics = Metrics::default();
    let standing = Standing::new(metrics.clone());
    if let Some(address) = options.listen {
        let serving = serve::probes(address, standing.clone()).await?;
        tokio::spawn(serving);
    }
    if let Some(address) = options.metrics {
        // The manifests write an empty text where there is none.
        let certificate = options.metrics_certificate.as_ref();
        let certificate = certificate.filter(|directory| !directory.is_empty());
        let certificate = certificate.map(PathBuf::from);
        let (_, serving) = serve::metrics(address, certificate, &client, &standing).await?;
        tokio::spawn(serving);
    }
    if let Some((address, certificate)) = advised(&options)? {
        let serving = serve::advice::advice(address, certificate, client.clone()).await?;
        tokio::spawn(serving);
    }
    let settings = Settings {
        namespace: options
            .watch_namespace
            .clone()
            .filter(|namespace| !namespace.is_empty()),
        concurrency: up::CONCURRENCY,
        metrics,
        shutdown: shutdown.clone(),
    };
    let jobs = jobs(&options)?;
    let mut leadership = None;
    if let Some(lease) = &options.lease {
        let (namespace, name) = placed(global, lease);
        tokio::select! {
            hold = leader::lead(client.clone(), namespace, name) => leadership = Some(hold),
            () = shutdown.wait() => return Ok(()),
        }
    }
    standing.lead();
    let data = global.private_data_directory()?;
    let sources = options.sources.policy();
    let runners = match jobs {
        Some(template) => Place::Jobs(Arc::new(template)),
        None => up::processes(
            &data,
            global.kubeconfig.as_deref(),
            &sources,
            Some(&options.helm),
        )?,
    };
    let releases = options.releases.policy()?;
    let providers = options.providers.then(|| {
        // Their steps are calls of an API, for which no pod of another image is needed.
        let here = match &runners {
            Place::Jobs(_) => up::processes(&data, global.kubeconfig.as_deref(), &sources, None)?,
            Place::Here(..) => runners.clone(),
        };
        anyhow::Ok(providers::Options {
            runners: here,
            fetch: releases,
            runs_pods: true,
        })
    });
    anyhow::ensure!(
        !options.openstack || runners.template().is_none(),
        "--openstack needs --runners process: a Job has no right to what services are made of"
    );
    let own = kubespray::Options {
        data_dir: data,
        runners: runners.clone(),
        sources,
    };
    let mut operator = up::operator(client, settings, own, providers.transpose()?);
    if options.openstack {
        openstack::operate(&mut operator, runners);
    }
    if options.fleet {
        let own = fleet::Options {
            vault: options.vault,
            ..fleet::Options::default()
        };
        fleet::operate(&mut operator, own);
    }
    if options.vault {
        // A shared operator: what listens on its machine for itself alone is not its users' to ask.
        let own = secrets::Options {
            loopback: false,
            namespace: own_namespace(global),
        };
        secrets::operate(&mut operator, own);
    }
    let operating = Box::pin(operator.run());
    let Some(mut leadership) = leadership else {
        return operating.await.context("the operator ended");
    };
    tokio::select! {
        ended = operating => ended.context("the operator ended")?,
        // Without a word to the controllers: what they are about to write is no longer theirs to write.
        lost = leadership.lost() => return Err(anyhow::Error::new(lost).context("failed to lead")),
    }
    leadership.release().await;
    Ok(())
}

/// Where edits that are tried are told of, and the directory with the certificate; the manifests write an empty text where they are not.
fn advised(options: &Controller) -> anyhow::Result<Option<(SocketAddr, &Path)>> {
    let address = options.fleet_advice.as_deref();
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        return Ok(None);
    };
    anyhow::ensure!(
        options.fleet,
        "--fleet-advice tells of fleets: give --fleet too"
    );
    let parsed = address.parse().with_context(|| {
        format!("--fleet-advice is {address:?}: write an address and a port, as in 0.0.0.0:9443")
    })?;
    let certificate = options.fleet_advice_certificate.as_deref();
    let certificate = certificate.context(
        "--fleet-advice is asked over TLS alone: name a directory with tls.crt and tls.key by --fleet-advice-certificate",
    )?;
    Ok(Some((parsed, certificate)))
}

fn jobs(options: &Controller) -> anyhow::Result<Option<Template>> {
    let runners = options.runners.unwrap_or(if in_pod() {
        Runners::Job
    } else {
        Runners::Process
    });
    if runners == Runners::Process {
        return Ok(None);
    }
    let ports = options.runner_egress_ports.split(',');
    let ports = ports.map(str::trim).filter(|port| !port.is_empty());
    let ports = ports.map(|port| {
        port.parse()
            .with_context(|| format!("--runner-egress-ports holds {port:?}, which is no port"))
    });
    Ok(Some(Template {
        image: options.image.clone(),
        runner_image: options.runner_image.clone(),
        pull_secrets: filled(&options.runner_pull_secret),
        pull_policy: options.image_pull_policy.clone(),
        // For the runner as for the operator.
        arguments: vec![
            "--source-policy".to_owned(),
            serde_json::to_string(&options.sources.policy())?,
        ],
        bounds: bounds(&options.allowed),
        egress_ports: ports.collect::<anyhow::Result<_>>()?,
    }))
}

/// Whether this is a container of a pod.
fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

fn bounds(allowed: &Allowed) -> Bounds {
    let Allowed {
        allow_image,
        allow_host_network,
        allow_priority_class,
        allow_runtime_class,
        allow_toleration,
        allow_storage_class,
    } = allowed;
    Bounds {
        images: filled(allow_image),
        host_network: *allow_host_network,
        priority_classes: filled(allow_priority_class),
        runtime_classes: filled(allow_runtime_class),
        tolerations: filled(allow_toleration),
        storage_classes: filled(allow_storage_class),
    }
}

/// The manifests write an empty text where there are none. An empty prefix would cover every image.
fn filled(names: &[String]) -> Vec<String> {
    let names = names.iter().map(|name| name.trim());
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The namespace and the name of a Lease.
pub(crate) fn placed(global: &Global, lease: &str) -> (String, String) {
    lease.split_once('/').map_or_else(
        || (own_namespace(global), lease.to_owned()),
        |(namespace, name)| (namespace.to_owned(), name.to_owned()),
    )
}

/// The namespace of this pod, else the one of the command line.
fn own_namespace(global: &Global) -> String {
    std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        .context("no pod")
        .unwrap_or_else(|_| global.namespace.clone())
}
