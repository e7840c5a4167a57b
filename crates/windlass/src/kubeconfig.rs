//! `windlass kubeconfig`: the kubeconfig of a raised cluster, or one of it for a user.

use std::{io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::Context;
use api::Cluster;
use controller::kubeconfig::Foreign;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use secrecy::ExposeSecret;

mod user;

use crate::{
    cli::{Global, Kubeconfig},
    client::{answered, named_or_only},
};

/// Prints the kubeconfig, or writes it to a file that only its owner can read. Whoever may write Secrets there can have written
/// this one, and kubectl would run the programs that it names: it is rebuilt from what is harmless.
pub(crate) async fn kubeconfig(global: &Global, options: &Kubeconfig) -> anyhow::Result<()> {
    if let Some(user) = &options.user {
        user::check(user, options.group.as_deref(), options.expires)?;
    }
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let secret = cluster
        .status
        .and_then(|status| status.kubeconfig_secret)
        .with_context(|| {
            format!(
                "cluster {name} has no kubeconfig yet: windlass status {name} says how far it is"
            )
        })?;
    let secrets: Api<Secret> = Api::namespaced(client, &global.namespace);
    let found = secrets.get_opt(&secret).await;
    let found = answered(found, &format!("get the Secret {secret}"))?.with_context(|| {
        format!(
            "cluster {name} has no kubeconfig yet: the run that makes or adopts it keeps one in the Secret {secret}, which is not there; \
             how far it is is said by windlass status {name}, and why it stopped, if it did, by windlass explain failure"
        )
    })?;
    let value = found
        .data
        .and_then(|mut data| data.remove("value"))
        .with_context(|| format!("the Secret {secret} has no key `value`"))?;
    let config = Foreign::read(&value.0)
        .with_context(|| format!("the kubeconfig in the Secret {secret} is not to be used"))?;
    let config = match &options.user {
        Some(user) => user::of(&config, user, options.group.as_deref(), options.expires).await?,
        None => config,
    };
    let document = config.document();
    let content = document.expose_secret().as_bytes();
    match &options.write {
        Some(file) => write(file, content),
        None => std::io::stdout()
            .write_all(content)
            .context("failed to write to standard output"),
    }
}

fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    let shown = file.display();
    // Removed first, so that the mode of an older file does not stay.
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("failed to replace {shown}"));
        }
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    let mut handle = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("failed to create {shown}"))?;
    handle
        .write_all(content)
        .with_context(|| format!("failed to write {shown}"))
}
