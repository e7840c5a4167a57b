//! `windlass providers preload`: releases in ConfigMaps, as the existing operator keeps them.

use std::env;

use anyhow::Context;
use clusterctl::{
    Overlay, Provider, Version,
    source::{Artefact, Files, config_map},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use providers::{
    fetch::{Fetcher, Place, Policy, Wanted, login_of},
    names::FETCHED_FROM,
};
use serde_json::{Value, json};

use crate::{
    cli::{Global, Preload},
    client::answered,
};

const FIELD_MANAGER: &str = "windlass-preload";

pub(crate) async fn preload(global: &Global, options: &Preload) -> anyhow::Result<()> {
    let (provider, version, files) = match (&options.from, &options.oci) {
        (Some(from), _) => options.provider.release(from)?,
        (None, oci) => fetched(options, oci.as_deref().unwrap_or_default()).await?,
    };
    // One that cannot be installed is not kept either.
    files.metadata()?.contract(&version)?;
    let mut map = config_map(&provider, &version, &global.namespace, &files)?
        .value()
        .clone();
    if let Some(oci) = &options.oci {
        map["metadata"]["annotations"][FETCHED_FROM] = json!(oci);
    }
    if options.print {
        let text = serde_saphyr::to_string(&map).context("failed to print")?;
        print!("{text}");
        return Ok(());
    }
    keep(&global.client().await?, global, &map).await?;
    told(global, &provider, &version);
    Ok(())
}

/// The release that a registry has.
async fn fetched(options: &Preload, oci: &str) -> anyhow::Result<(Provider, Version, Files)> {
    let (provider, version) = options.provider.read()?;
    let artefact = Artefact::parse(oci).with_context(|| format!("--oci {oci}"))?;
    let wanted = Wanted {
        provider,
        field: "--oci".to_owned(),
        url: oci.to_owned(),
        version: version.or_else(|| artefact.version()),
        place: Place::Artefact(artefact),
        pin: None,
        overlay: Overlay::default(),
        refetch: None,
    };
    let login = login_of(|name| env::var(name).ok());
    let release = Fetcher::new(Policy::person()).release(&wanted, login).await;
    let (version, files) = release
        .map_err(|error| anyhow::anyhow!("{}; {}", controller::chain(&error), error.remedy()))?;
    Ok((wanted.provider, version, files))
}

/// Keeps a release of a directory in a ConfigMap.
pub(super) async fn keep_files(
    client: &Client,
    global: &Global,
    provider: &Provider,
    version: &Version,
    files: &Files,
) -> anyhow::Result<()> {
    let map = config_map(provider, version, &global.namespace, files)?;
    keep(client, global, map.value()).await?;
    told(global, provider, version);
    Ok(())
}

async fn keep(client: &Client, global: &Global, map: &Value) -> anyhow::Result<()> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), &global.namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let name = map["metadata"]["name"].as_str().unwrap_or_default();
    let applied = api.patch(name, &parameters, &Patch::Apply(map)).await;
    answered(
        applied,
        &format!("apply ConfigMap {}/{name}", global.namespace),
    )?;
    Ok(())
}

fn told(global: &Global, provider: &Provider, version: &Version) {
    println!(
        "{provider} {version} is kept in ConfigMap {}/{}",
        global.namespace,
        provider.config_map(version)
    );
}
