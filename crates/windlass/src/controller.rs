//! `windlass controller`: the operator against an API that runs elsewhere, such as that of the cluster that it is a pod of.

use anyhow::Context;
use kubespray::{Scope, job::Template, metrics::Metrics};

use crate::{
    cli::{Controller, Global, Runners},
    leader::Leadership,
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
        let serving = serve::bind(address, standing.clone()).await?;
        tokio::spawn(serving);
    }
    let scope = Scope {
        namespace: options
            .watch_namespace
            .clone()
            .filter(|namespace| !namespace.is_empty()),
        jobs: jobs(&options),
        metrics,
    };
    let mut leadership = None;
    if let Some(lease) = &options.lease {
        let (namespace, name) = lease.split_once('/').map_or_else(
            || (own_namespace(global), lease.clone()),
            |(namespace, name)| (namespace.to_owned(), name.to_owned()),
        );
        let candidate = Leadership::new(client.clone(), namespace, name);
        tokio::select! {
            () = candidate.acquire() => {}
            () = shutdown.wait() => return Ok(()),
        }
        leadership = Some(candidate);
    }
    standing.lead();
    let data = global.private_data_directory()?;
    let own = up::options(
        &data,
        global.kubeconfig.as_deref(),
        options.sources.policy(),
    )?;
    let operating = Box::pin(kubespray::operate_within(
        client,
        own,
        scope,
        shutdown.clone(),
    ));
    let Some(leadership) = leadership else {
        operating.await;
        return Ok(());
    };
    tokio::select! {
        () = operating => {}
        // Without a word to the controllers: what they are about to write is no longer theirs to write.
        () = leadership.lost() => anyhow::bail!("the lease is another's"),
    }
    leadership.release().await;
    Ok(())
}

fn jobs(options: &Controller) -> Option<Template> {
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let runners = options.runners.unwrap_or(if in_pod {
        Runners::Job
    } else {
        Runners::Process
    });
    (runners == Runners::Job).then(|| Template {
        image: options.image.clone(),
        runner_image: options.runner_image.clone(),
        cluster_role: options.runner_role.clone(),
        // The chart writes an empty text where there are none.
        pull_secrets: options
            .runner_pull_secret
            .iter()
            .filter(|name| !name.is_empty())
            .cloned()
            .collect(),
        pull_policy: options.image_pull_policy.clone(),
        sources: options.sources.policy(),
    })
}

/// The namespace of this pod, else the one of the command line.
fn own_namespace(global: &Global) -> String {
    std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        .context("no pod")
        .unwrap_or_else(|_| global.namespace.clone())
}
