//! `windlass providers preload`: releases in ConfigMaps, as the existing operator keeps them.

use anyhow::Context;
use clusterctl::{
    Provider, Version,
    source::{Files, config_map},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};

use crate::{
    cli::{Global, Preload},
    client::answered,
};

const FIELD_MANAGER: &str = "windlass-preload";

pub(crate) async fn preload(global: &Global, options: &Preload) -> anyhow::Result<()> {
    let (provider, version, files) = options.provider.release(&options.from)?;
    // One that cannot be installed is not kept either.
    files.metadata()?.contract(&version)?;
    if options.print {
        let map = config_map(&provider, &version, &global.namespace, &files)?;
        let text = serde_saphyr::to_string(map.value()).context("failed to print")?;
        print!("{text}");
        return Ok(());
    }
    keep(&global.client().await?, global, &provider, &version, &files).await
}

/// Keeps a release in a ConfigMap.
pub(super) async fn keep(
    client: &Client,
    global: &Global,
    provider: &Provider,
    version: &Version,
    files: &Files,
) -> anyhow::Result<()> {
    let map = config_map(provider, version, &global.namespace, files)?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), &global.namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let name = map.name();
    let applied = api
        .patch(name, &parameters, &Patch::Apply(map.value()))
        .await;
    answered(
        applied,
        &format!("apply ConfigMap {}/{name}", global.namespace),
    )?;
    println!(
        "{provider} {version} is kept in ConfigMap {}/{name}",
        global.namespace
    );
    Ok(())
}
