//! `windlass providers delete`: removes a provider that nothing needs any more.

use anyhow::{Context, bail, ensure};
use clusterctl::Provider;
use kube::{Client, api::DeleteParams};
use providers::{health, stand::Stand, target};

use super::{
    follow::{self, Awaited},
    stand,
    upgrade::kind,
};
use crate::{
    cli::{DeleteProvider, Global},
    client::answered,
    terminal::say,
};

pub(crate) async fn delete(global: &Global, options: &DeleteProvider) -> anyhow::Result<()> {
    let (provider, version) = options.provider.read()?;
    ensure!(
        version.is_none(),
        "a provider is deleted whatever its version is: leave that out"
    );
    let client = global.client().await?;
    let stands = stand::all(&client).await?;
    let stand = meant(&stands, &global.namespace, &provider)?;
    let label = provider.manifest_label();
    let there = target::client(&client, &stand.namespace, stand.target.as_deref()).await?;
    let mut dependents: Vec<_> = stands
        .iter()
        .filter(|other| other.place == stand.place && other.kind != stand.kind)
        .filter(|_| stand.kind == api::provider::ProviderType::Core)
        .map(Stand::title)
        .collect();
    dependents.extend(answered(
        health::objects(&there, &label).await,
        "look for what needs it",
    )?);
    if !dependents.is_empty() {
        bail!(
            "nothing was done: these need {provider}: {}; delete them first",
            dependents.join(", ")
        );
    }
    say!(
        "deletes {}{} and all of its objects but definitions and namespaces",
        stand.title(),
        stand
            .installed_version()
            .map(|version| format!(" {version}"))
            .unwrap_or_default()
    );
    ensure!(
        options.confirm.as_deref() == Some(provider.name()),
        "nothing was done; if that is wanted, say its name once more: {}",
        global.confirmed(provider.name())
    );
    gone(&client, stand, &provider).await
}

/// Deletes the object of a provider, and shows the steps until it is gone.
pub(super) async fn gone(
    client: &Client,
    stand: &Stand,
    provider: &Provider,
) -> anyhow::Result<()> {
    let awaited = Awaited {
        provider: kind(provider.provider_type()),
        namespace: stand.namespace.clone(),
        name: stand.name.clone(),
        version: None,
    };
    let api = awaited.api(client);
    let deleted = api.delete(&awaited.name, &DeleteParams::default()).await;
    answered(deleted, &format!("delete {provider}"))?;
    follow::follow(client, &[awaited]).await
}

/// The one of a namespace that is meant.
pub(super) fn meant<'a>(
    stands: &'a [Stand],
    namespace: &str,
    provider: &Provider,
) -> anyhow::Result<&'a Stand> {
    let is_it =
        |stand: &&Stand| stand.provider.as_ref() == Some(provider) && stand.namespace == namespace;
    stands.iter().find(is_it).with_context(|| {
        format!(
            "there is no {provider} in namespace {namespace}: windlass providers status lists all"
        )
    })
}
