//! `windlass providers preload`: releases in ConfigMaps, as the existing operator keeps them.

use std::env;

use anyhow::{Context, anyhow, bail};
use api::text::plain;
use clusterctl::{
    Overlay, Provider, Version,
    source::{Artefact, Files, Location, config_map},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use providers::{
    check::without_user,
    fetch::{FetchError, Fetcher, Place, Policy, Wanted, login_of},
    names::FETCHED_FROM,
    signature::Key,
};
use serde_json::{Value, json};

use super::apply;
use crate::{
    cli::{Global, Preload},
    client::answered,
};

const FIELD_MANAGER: &str = "windlass-preload";
/// How much of an address is repeated.
const SHOWN: usize = 256;

pub(crate) async fn preload(global: &Global, options: &Preload) -> anyhow::Result<()> {
    let address = address(options)?;
    let key = key(options)?;
    let (provider, version, files) = match (&options.from, &address) {
        (Some(from), _) => options.provider.release(from)?,
        (None, Some(address)) => fetched(options, address, key.clone()).await?,
        (None, None) => bail!("no place of the release is given; see --help"),
    };
    // One that cannot be installed is not kept either.
    if let Some(key) = key {
        let verified = key.verify(&files.components, files.signature.as_deref());
        verified.with_context(|| format!("nothing was kept of {provider} {version}"))?;
    }
    files.metadata()?.contract(&version)?;
    let mut map = config_map(&provider, &version, &global.namespace, &files)?
        .value()
        .clone();
    if let Some(address) = address {
        map["metadata"]["annotations"][FETCHED_FROM] = json!(address.text);
    }
    if options.print {
        let (text, namespace) = (serde_saphyr::to_string(&map), &global.namespace);
        let text = text.context("failed to print")?;
        // Not the Namespace itself: whoever deletes by this file what is of an old release would delete all that is in it.
        print!("# its namespace must be there: kubectl create namespace {namespace}\n{text}");
        return Ok(());
    }
    keep(&global.client().await?, &global.namespace, &map).await?;
    told(global, &provider, &version);
    Ok(())
}

/// Where a release is on the network.
struct Address {
    field: &'static str,
    text: String,
    place: Place,
}

impl Address {
    /// The version that it says.
    fn version(&self) -> Option<Version> {
        match &self.place {
            Place::Files(location) => location.version().cloned(),
            Place::Artefact(artefact) => artefact.version(),
        }
    }
}

/// The address that is given, which is the person's own to name.
fn address(options: &Preload) -> anyhow::Result<Option<Address>> {
    let (field, text, place) = match (&options.url, &options.oci) {
        (Some(url), _) => {
            let location = Location::parse(url);
            let location = location.map_err(|rule| {
                let shown = plain(&without_user(url), SHOWN);
                anyhow!("--url is {shown:?}: releases are at an address that {rule}; write for example https://github.com/OWNER/REPOSITORY/releases")
            })?;
            ("--url", url, Place::Files(location))
        }
        (None, Some(oci)) => {
            let artefact = Artefact::parse(oci);
            let artefact =
                artefact.with_context(|| format!("--oci {}", plain(&without_user(oci), SHOWN)))?;
            ("--oci", oci, Place::Artefact(artefact))
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Address {
        field,
        text: text.clone(),
        place,
    }))
}

/// The key that the components must be signed by.
fn key(options: &Preload) -> anyhow::Result<Option<Key>> {
    let Some(file) = &options.key else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("failed to read {}", file.display()))?;
    let key = text
        .parse::<Key>()
        .with_context(|| format!("--key {}", file.display()))?;
    Ok(Some(key))
}

/// The release that a server or a registry has.
async fn fetched(
    options: &Preload,
    address: &Address,
    key: Option<Key>,
) -> anyhow::Result<(Provider, Version, Files)> {
    let (provider, version) = options.provider.read()?;
    let authorities = options.authorities.as_ref().map(|file| {
        std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))
    });
    let policy = Policy {
        authorities: authorities.transpose()?,
        ..Policy::person()
    };
    let wanted = Wanted {
        provider,
        field: address.field.to_owned(),
        url: address.text.clone(),
        version: version.or_else(|| address.version()),
        place: address.place.clone(),
        pin: None,
        key,
        overlay: Overlay::default(),
        refetch: None,
    };
    let login = login_of(|name| env::var(name).ok());
    let release = Fetcher::new(policy).release(&wanted, login).await;
    let (version, files) = release.map_err(|error| {
        let remedy = match &error {
            FetchError::NoVersion => "write it behind the name, as NAME:VERSION",
            error => error.remedy(),
        };
        anyhow!("{}; {remedy}", controller::chain(&error))
    })?;
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
    keep(client, &global.namespace, map.value()).await?;
    told(global, provider, version);
    Ok(())
}

/// Applies the ConfigMap, in a namespace that is made where it is missing: the provider of a release that is kept need not be there yet.
async fn keep(client: &Client, namespace: &str, map: &Value) -> anyhow::Result<()> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let name = map["metadata"]["name"].as_str().unwrap_or_default();
    let mut applied = api.patch(name, &parameters, &Patch::Apply(map)).await;
    // Not asked before: who may write into one namespace may not look at it.
    if matches!(&applied, Err(kube::Error::Api(status)) if status.is_not_found()) {
        apply::namespace(client, namespace).await?;
        applied = api.patch(name, &parameters, &Patch::Apply(map)).await;
    }
    answered(applied, &format!("apply ConfigMap {namespace}/{name}"))?;
    Ok(())
}

fn told(global: &Global, provider: &Provider, version: &Version) {
    println!(
        "{provider} {version} is kept in ConfigMap {}/{}",
        global.namespace,
        provider.config_map(version)
    );
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    #[tokio::test]
    async fn a_release_is_kept_where_no_provider_is_yet() {
        let server = kapi::Server::in_memory(&[]).await.unwrap();
        let client = Client::new(server.router(), "default");
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "core-cluster-api-v1.13.4", "namespace": "capi-system"}, "data": {"metadata": "m"},
        });
        // Once more in one that is there.
        for _ in 0..2 {
            keep(&client, "capi-system", &map).await.unwrap();
        }
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "capi-system");
        assert!(maps.get("core-cluster-api-v1.13.4").await.is_ok());
        let namespaces = Api::<Namespace>::all(client);
        assert!(namespaces.get("capi-system").await.is_ok());
    }
}
