//! `windlass providers apply`: makes the object of a provider, with its release where that is at hand, and waits until it is installed.

use anyhow::{Context, bail};
use api::provider::{GROUP, VERSION};
use clusterctl::{
    Components, ImageOverrides, NonCanonical, Provider, ProviderType, Release, Scopes,
    Substitution, Version,
    source::{Files, config_map_labels},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use providers::{names::TARGET, stand::Stand};
use serde_json::{Value, json};

use super::{
    describe,
    follow::{self, Awaited},
    preload, stand,
    upgrade::kind,
};
use crate::{
    cli::{ApplyProvider, Global},
    client::answered,
};

const FIELD_MANAGER: &str = "windlass-providers";

pub(crate) async fn apply(global: &Global, options: &ApplyProvider) -> anyhow::Result<()> {
    let (provider, version) = options.provider.read()?;
    let release = match &options.from {
        Some(from) => Some(options.provider.release(from)?),
        None => None,
    };
    let version = release
        .as_ref()
        .map(|(_, version, _)| version.clone())
        .or(version);
    let version =
        version.context("no version is given: write it behind the name, as NAME:VERSION")?;
    let client = global.client().await?;
    if let Some((_, version, files)) = &release {
        show(global, &provider, version, files)?;
    }
    upgrades_nothing(&client, global, &provider, &version).await?;
    let object = object(global, options, &provider, &version);
    if options.dry_run {
        let text = serde_saphyr::to_string(&object).context("failed to print")?;
        print!("{text}");
        return Ok(());
    }
    namespace(&client, &global.namespace).await?;
    if let Some((_, version, files)) = &release {
        preload::keep_files(&client, global, &provider, version, files).await?;
    }
    let awaited = Awaited {
        provider: kind(provider.provider_type()),
        namespace: global.namespace.clone(),
        name: provider.name().to_owned(),
        version: Some(version.to_string()),
    };
    let applied = awaited
        .api(&client)
        .patch(
            provider.name(),
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&object),
        )
        .await;
    answered(applied, &format!("apply {provider}"))?;
    follow::follow(&client, &[awaited]).await
}

/// An upgrade has a plan, which is to be seen first.
async fn upgrades_nothing(
    client: &Client,
    global: &Global,
    provider: &Provider,
    version: &Version,
) -> anyhow::Result<()> {
    let stands = stand::all(client).await?;
    let is_it = |stand: &&Stand| {
        stand.provider.as_ref() == Some(provider) && stand.namespace == global.namespace
    };
    let installed = stands.iter().find(is_it);
    let installed = installed.and_then(Stand::installed_version);
    if let Some(installed) = installed.filter(|installed| *installed != version.to_string()) {
        let label = provider.manifest_label();
        bail!(
            "nothing was done: {provider} is installed in {installed}; to change that: windlass providers upgrade --to {label}={version}"
        );
    }
    Ok(())
}

fn show(
    global: &Global,
    provider: &Provider,
    version: &Version,
    files: &Files,
) -> anyhow::Result<()> {
    let metadata = files.metadata()?;
    let contract = metadata.contract(version)?;
    let release = Release {
        provider,
        version,
        components: &files.components,
        additional: None,
        target_namespace: Some(&global.namespace),
        images: &ImageOverrides::default(),
        non_canonical: NonCanonical::Keep,
        scopes: &Scopes::default(),
    };
    let components = Components::render(&release, &Substitution::Raw)
        .with_context(|| format!("{provider} {version}"))?;
    print!("{}", describe(&components, contract));
    Ok(())
}

fn object(
    global: &Global,
    options: &ApplyProvider,
    provider: &Provider,
    version: &Version,
) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": provider.provider_type().kind(),
        "metadata": {"name": provider.name(), "namespace": global.namespace},
        "spec": {"version": version.to_string()},
    });
    if let Some(secret) = &options.target_kubeconfig {
        object["metadata"]["annotations"] = json!({TARGET: secret});
    }
    if let Some(url) = &options.url {
        object["spec"]["fetchConfig"] = json!({"url": url});
    }
    if let Some(oci) = &options.oci {
        object["spec"]["fetchConfig"] = json!({"oci": oci});
    }
    if options.from.is_some()
        && let Some(kept) = kept(provider)
    {
        object["spec"]["fetchConfig"] = kept;
    }
    if let Some(secret) = &options.config_secret {
        object["spec"]["configSecret"] = json!({"name": secret});
    }
    object
}

/// Where the releases are that are kept of a provider. One that is known by its name needs no word for it.
fn kept(provider: &Provider) -> Option<Value> {
    let is_known = provider.provider_type() == ProviderType::Core
        || provider.is_cert_manager()
        || clusterctl::entry(provider).is_some();
    let labels = config_map_labels(provider);
    (!is_known).then(|| json!({"selector": {"matchLabels": labels}}))
}

/// Makes a namespace, where it is missing.
pub(super) async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let api = Api::<Namespace>::all(client.clone());
    if answered(
        api.get_metadata_opt(name).await,
        &format!("read namespace {name}"),
    )?
    .is_some()
    {
        return Ok(());
    }
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let made = api.create(&PostParams::default(), &namespace).await;
    answered(made, &format!("make namespace {name}"))?;
    println!("namespace {name} is made");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_provider_that_nobody_knows_says_where_its_releases_are_kept() {
        let of = |provider_type, name: &str| kept(&Provider::new(provider_type, name).unwrap());
        for (provider_type, name) in [
            (ProviderType::Core, "cluster-api"),
            (ProviderType::Infrastructure, "docker"),
            (ProviderType::Addon, "cert-manager"),
        ] {
            assert_eq!(of(provider_type, name), None, "{name}");
        }
        let labels = json!({
            "provider.cluster.x-k8s.io/type": "infrastructure",
            "provider.cluster.x-k8s.io/name": "boat",
        });
        assert_eq!(
            of(ProviderType::Infrastructure, "boat"),
            Some(json!({"selector": {"matchLabels": labels}}))
        );
    }
}
