//! `windlass runner`: executes one Run. Windlass starts it by itself; by hand it is good for looking into a run.

use std::process::ExitCode;

use ansible::source::Policy;
use anyhow::Context;
use api::Cluster;
use kubespray::runner::Kubespray;
use runs::runner::{self, TakenUp};

use crate::cli::{Global, Runner, SourcePolicy};

/// Executes the run; the exit code says how it ended.
pub(crate) async fn run(global: &Global, options: Runner) -> anyhow::Result<ExitCode> {
    let (namespace, run) = options
        .run
        .split_once('/')
        .filter(|(namespace, run)| !namespace.is_empty() && !run.is_empty())
        .with_context(|| format!("--run is NAMESPACE/NAME, not {:?}", options.run))?;
    let own = global.own_kubeconfig()?;
    let sources = options
        .source_policy
        .map_or_else(Policy::tenants, |SourcePolicy(policy)| policy);
    let options_of_run = runner::Options {
        namespace: namespace.to_owned(),
        run: run.to_owned(),
        data_dir: global.private_data_directory()?,
        kubeconfig: global
            .kubeconfig
            .clone()
            .or_else(|| own.exists().then_some(own)),
    };
    let openstack = openstack::Engine {
        helm: options.helm,
        kubeconfig: options_of_run.kubeconfig.clone(),
    };
    // Each kind of subject has its engine.
    let exit = Box::pin(runner::main(options_of_run, async |run: TakenUp| {
        if run.subject().is_a::<Cluster>() {
            Box::pin(Kubespray { sources }.execute(run)).await
        } else if run.subject().api_group == api::provider::GROUP {
            Box::pin(run.execute(providers::Engine)).await
        } else if run.subject().api_group == api::openstack::GROUP {
            Box::pin(run.execute(openstack)).await
        } else {
            Err(run.without_engine())
        }
    }))
    .await
    .with_context(|| format!("failed to execute run {}", options.run))?;
    Ok(ExitCode::from(exit.code()))
}
