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
};
use serde_json::{Value, json};

use crate::{
    cli::{Global, Preload},
    client::answered,
};

const FIELD_MANAGER: &str = "windlass-preload";
/// How much of an address is repeated.
const SHOWN: usize = 256;

pub(crate) async fn preload(global: &Global, options: &Preload) -> anyhow::Result<()> {
    let address = address(options)?;
    let (provider, version, files) = match (&options.from, &address) {
        (Some(from), _) => options.provider.release(from)?,
        (None, Some(address)) => fetched(options, address).await?,
        (None, None) => bail!("no place of the release is given; see --help"),
    };
    // One that cannot be installed is not kept either.
    files.metadata()?.contract(&version)?;
    let mut map = config_map(&provider, &version, &global.namespace, &files)?
        .value()
        .clone();
    if let Some(address) = address {
        map["metadata"]["annotations"][FETCHED_FROM] = json!(address.text);
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

/// The release that a server or a registry has.
async fn fetched(
    options: &Preload,
    address: &Address,
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
