//! `windlass providers delete`: removes a provider that nothing needs any more, and its definitions where a person asks for that.
//!
//! An operator may delete no definition, so these go by the rights of who types the command, after the provider: as long as that is there, its
//! webhooks convert what is looked for. A command that was interrupted in between is repeated for what is left.

use anyhow::{Context, bail, ensure};
use clusterctl::Provider;
use kube::{Client, api::DeleteParams};
use providers::{
    definitions::{self, Definition},
    health,
    stand::{Stand, Unread},
    target::{self, Place},
};

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
    if !options.include_crds {
        return without_definitions(global, options, &client, &provider).await;
    }
    let stands = located(&client, stand::all_there(&client).await?).await?;
    let stand = meant(&stands, &global.namespace, &provider).ok();
    let there = match stand {
        Some(stand) => target::client(&client, &stand.namespace, stand.target.as_deref()).await?,
        None => client.clone(),
    };
    let place = stand.and_then(|stand| stand.place.clone());
    nobody_needs(&there, &stands, &provider, &place).await?;
    // Before the provider goes too: nothing is deleted of what leaves its definitions to somebody else.
    nowhere_else(&stands, &provider, stand)?;
    match stand {
        Some(stand) => nothing_stays(&there, &provider, &stand.namespace).await?,
        None => nothing_runs(&there, &provider).await?,
    }
    let found = definitions::of(&there, &provider).await;
    let (kept, going): (Vec<_>, Vec<_>) = answered(found, "look for its definitions")?
        .into_iter()
        .partition(|definition| definition.keeper().is_some());
    for definition in &kept {
        let (name, keeper) = (definition.name(), definition.keeper().unwrap_or_default());
        say!("leaves definition {name} to {keeper}");
    }
    if stand.is_none() && going.is_empty() {
        bail!("nothing was done: there is no {provider}, and nothing is left of it");
    }
    foretold(&provider, stand, &going);
    let wanted = confirmation(&provider, going.len());
    ensure!(
        options.confirm.as_deref() == Some(wanted.as_str()),
        "nothing was done; if that is wanted, say so: {}",
        global.confirmed(&wanted)
    );
    if let Some(stand) = stand {
        let awaited = begun(&client, stand, &provider).await?;
        if going.is_empty() {
            return follow::follow(&client, &[awaited]).await;
        }
        say!(
            "Ctrl-C leaves the definitions, and not the provider; repeat the command for what is left"
        );
        follow::watch(&client, &[awaited]).await?;
        nothing_runs(&there, &provider).await?;
    }
    for definition in &going {
        let removed = definitions::remove(&there, definition).await;
        removed.context("the provider is gone, and not all of its definitions; mend what is named, and repeat the command")?;
        say!("definition {} is gone", definition.name());
    }
    Ok(())
}

/// What is deleted is where it was installed, and so is who needs it: an annotation may have been changed since.
async fn located(client: &Client, mut stands: Vec<Stand>) -> anyhow::Result<Vec<Stand>> {
    let located = Stand::locate(client, &mut stands).await;
    located.or_else(|Unread { what, source }| answered(Err(source), &what))?;
    Ok(stands)
}

/// Definitions stay.
async fn without_definitions(
    global: &Global,
    options: &DeleteProvider,
    client: &Client,
    provider: &Provider,
) -> anyhow::Result<()> {
    let stands = located(client, stand::all(client).await?).await?;
    let stand = meant(&stands, &global.namespace, provider)?;
    let there = target::client(client, &stand.namespace, stand.target.as_deref()).await?;
    nobody_needs(&there, &stands, provider, &stand.place).await?;
    foretold(provider, Some(stand), &[]);
    ensure!(
        options.confirm.as_deref() == Some(provider.name()),
        "nothing was done; if that is wanted, say its name once more: {}",
        global.confirmed(provider.name())
    );
    gone(client, stand, provider).await
}

/// What has to be typed: whoever types it has seen how many definitions go.
fn confirmation(provider: &Provider, definitions: usize) -> String {
    match definitions {
        0 => provider.name().to_owned(),
        1 => format!("{}-and-1-definition", provider.name()),
        more => format!("{}-and-{more}-definitions", provider.name()),
    }
}

/// Says what goes.
fn foretold(provider: &Provider, stand: Option<&Stand>, definitions: &[Definition]) {
    if let Some(stand) = stand {
        let version = stand.installed_version();
        let version = version.map(|version| format!(" {version}"));
        let but = if definitions.is_empty() {
            "definitions and namespaces"
        } else {
            "namespaces"
        };
        say!(
            "deletes {}{} and all of its objects but {but}",
            stand.title(),
            version.unwrap_or_default()
        );
    } else {
        say!("{provider} is gone already");
    }
    for definition in definitions {
        say!("deletes definition {}", definition.name());
    }
}

/// That no other provider, and no object of its definitions, is there.
async fn nobody_needs(
    there: &Client,
    stands: &[Stand],
    provider: &Provider,
    place: &Place,
) -> anyhow::Result<()> {
    let of = kind(provider.provider_type());
    let mut dependents: Vec<_> = stands
        .iter()
        .filter(|other| other.place == *place && other.kind != of)
        .filter(|_| of == api::provider::ProviderType::Core)
        .filter(|other| {
            !other
                .provider
                .as_ref()
                .is_some_and(Provider::is_cert_manager)
        })
        .map(Stand::title)
        .collect();
    let objects = health::objects(there, &provider.manifest_label()).await;
    dependents.extend(answered(objects, "look for what needs it")?);
    if !dependents.is_empty() {
        bail!(
            "nothing was done: these need {provider}: {}; delete them first",
            dependents.join(", ")
        );
    }
    Ok(())
}

/// That the provider is not installed from another namespace than that of the one that is meant.
fn nowhere_else(
    stands: &[Stand],
    provider: &Provider,
    meant: Option<&Stand>,
) -> anyhow::Result<()> {
    let place = meant.and_then(|meant| meant.place.clone());
    let is_other = |stand: &&Stand| meant.is_none_or(|meant| stand.uid != meant.uid);
    let mut others = stands
        .iter()
        .filter(|stand| stand.place == place)
        .filter(is_other);
    if let Some(other) = others.find(|stand| stand.provider.as_ref() == Some(provider)) {
        if let Some(meant) = meant {
            bail!(
                "nothing was done: the definitions are those of {} too: delete {} without --include-crds first, and then the other one with it",
                other.title(),
                meant.title()
            );
        }
        bail!(
            "nothing was done: {} is the provider, in another namespace: name that with --namespace",
            other.title()
        );
    }
    Ok(())
}

/// That nothing of it is at work when the provider has gone: what somebody else keeps needs the definitions.
async fn nothing_stays(there: &Client, provider: &Provider, namespace: &str) -> anyhow::Result<()> {
    let left = definitions::workloads_left(there, provider, namespace).await;
    let left = answered(left, "see what is at work without it")?;
    ensure!(
        left.is_empty(),
        "nothing was done: these have the label of {provider}, and are somebody else's, who needs the definitions: {}; remove them as they were \
         installed, or leave the definitions: without --include-crds",
        left.join(", ")
    );
    Ok(())
}

/// That nothing of it is at work, whoever installed it or had it left: without its definitions that would fail.
async fn nothing_runs(there: &Client, provider: &Provider) -> anyhow::Result<()> {
    let health = match health::look(there, &provider.manifest_label()).await {
        // An API without pods has no workloads either.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        health => health,
    };
    let workloads = answered(health, "see whether it is gone")?.workloads;
    ensure!(
        workloads == 0,
        "no definition was deleted: {workloads} workloads with the label of {provider} are there, which somebody else has installed or was to keep: remove them as they were installed, or make its object first"
    );
    Ok(())
}

/// Deletes the object of a provider, and shows the steps until it is gone.
pub(super) async fn gone(
    client: &Client,
    stand: &Stand,
    provider: &Provider,
) -> anyhow::Result<()> {
    let awaited = begun(client, stand, provider).await?;
    follow::follow(client, &[awaited]).await
}

/// Deletes the object of a provider, which then is to be gone.
async fn begun(client: &Client, stand: &Stand, provider: &Provider) -> anyhow::Result<Awaited> {
    let awaited = Awaited {
        provider: kind(provider.provider_type()),
        namespace: stand.namespace.clone(),
        name: stand.name.clone(),
        version: None,
        before: None,
    };
    let api = awaited.api(client);
    let deleted = api.delete(&awaited.name, &DeleteParams::default()).await;
    answered(deleted, &format!("delete {provider}"))?;
    Ok(awaited)
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
