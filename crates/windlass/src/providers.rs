//! `windlass providers`: providers of Cluster API by hand, and what they are installed as.

use std::{collections::BTreeMap, env, io::Write as _, path::Path};

use anyhow::{Context, bail, ensure};
use clusterctl::{
    Components, Contract, ImageOverrides, NonCanonical, Provider, ProviderType, Release, Scopes,
    Substitution, Version, side_by_side,
    source::{Directory, Files},
};
use serde_json::Value;

use crate::cli::{Generate, Global, ProviderChoice, Providers};

mod apply;
mod delete;
mod explain;
mod follow;
mod plan;
mod preload;
mod publish;
mod release;
mod rights;
mod set;
mod stand;
mod status;
mod upgrade;

pub(crate) async fn providers(global: &Global, command: &Providers) -> anyhow::Result<()> {
    match command {
        Providers::Generate(options) => generate(options),
        Providers::Status => status::status(global).await,
        Providers::Plan(options) => plan::plan(global, options).await,
        Providers::Explain(options) => explain::explain(global, options).await,
        Providers::Apply(options) => apply::apply(global, options).await,
        Providers::Approve(options) => set::approve(global, options).await,
        Providers::Upgrade(options) => upgrade::upgrade(global, options).await,
        Providers::Delete(options) => delete::delete(global, options).await,
        Providers::Release(options) => release::release(global, options).await,
        Providers::Preload(options) => preload::preload(global, options).await,
        Providers::Publish(options) => publish::publish(options).await,
        Providers::Rights(options) => rights::rights(global, options).await,
    }
}

fn generate(options: &Generate) -> anyhow::Result<()> {
    let (provider, version, files) = options.provider.release(&options.from)?;
    let metadata = files.metadata()?;
    let contract = metadata.contract(&version)?;
    let known: Contract = CONTRACT.parse()?;
    ensure!(
        known.is_compatible(contract),
        "{provider} {version} keeps contract {contract}, and {CONTRACT} and v1beta1 are known; choose a version that keeps one of them"
    );
    let configuration = Configuration::read(options.config.as_deref())?;
    let value = |name: &str| configuration.variables.get(name).map(String::as_str);
    let substitution = if options.raw || options.describe {
        Substitution::Raw
    } else {
        Substitution::With(&value)
    };
    let components = Components::render(
        &Release {
            provider: &provider,
            version: &version,
            components: &files.components,
            additional: None,
            target_namespace: options.target_namespace.as_deref(),
            images: &configuration.images,
            non_canonical: NonCanonical::Refuse,
            scopes: &Scopes::default(),
        },
        &substitution,
    )
    .with_context(|| format!("{provider} {version}"))?;
    let text = if options.describe {
        describe(&components, contract)
    } else {
        documents(&components)?
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")
}

fn documents(components: &Components) -> anyhow::Result<String> {
    let documents = side_by_side(components.objects(), serde_saphyr::to_string);
    let documents: Result<Vec<_>, _> = documents.into_iter().collect();
    Ok(documents.context("failed to print")?.join("---\n"))
}

fn describe(components: &Components, contract: &Contract) -> String {
    let mut text = String::new();
    for (name, value) in [
        ("provider", components.provider().to_string()),
        ("version", components.version().to_string()),
        ("contract", contract.to_string()),
        ("namespace", components.target_namespace().to_owned()),
        ("objects", components.objects().len().to_string()),
    ] {
        text += &format!("{name:11}{value}\n");
    }
    for (name, entries) in [
        ("variables", components.variables()),
        ("images", components.images()),
    ] {
        text += &format!("{name:11}{}\n", entries.len());
        for entry in entries {
            text += &format!("  {entry}\n");
        }
    }
    text
}

impl ProviderChoice {
    /// The release in a directory that is given.
    fn release(&self, from: &Path) -> anyhow::Result<(Provider, Version, Files)> {
        let (provider, version) = self.read()?;
        let directory = Directory::new(from);
        let version = match version {
            Some(version) => version,
            None => directory.newest(&provider)?,
        };
        let files = directory.files(&provider, &version)?;
        Ok((provider, version, files))
    }

    /// The one that is given.
    fn read(&self) -> anyhow::Result<(Provider, Option<Version>)> {
        let given = [
            (ProviderType::Core, &self.core),
            (ProviderType::Bootstrap, &self.bootstrap),
            (ProviderType::ControlPlane, &self.control_plane),
            (ProviderType::Infrastructure, &self.infrastructure),
            (ProviderType::Ipam, &self.ipam),
            (ProviderType::RuntimeExtension, &self.runtime_extension),
            (ProviderType::Addon, &self.addon),
        ];
        for (provider_type, text) in given {
            let Some(text) = text else { continue };
            let (name, version) = match text.split_once(':') {
                Some((name, version)) => (name, Some(version.parse()?)),
                None => (text.as_str(), None),
            };
            return Ok((Provider::new(provider_type, name)?, version));
        }
        bail!("no provider is given; see --help")
    }
}

/// What a file of clusterctl says, below the environment.
#[derive(Debug, Default)]
struct Configuration {
    variables: BTreeMap<String, String>,
    images: ImageOverrides,
}

impl Configuration {
    fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let mut configuration = match path {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("failed to read {}", path.display()))?;
                Self::parse(&text).with_context(|| format!("in {}", path.display()))?
            }
            None => Self::default(),
        };
        // One that is empty counts as unset, as with clusterctl. One that is no text cannot be put into a file.
        let set = env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            (!value.is_empty()).then_some((name, value))
        });
        configuration.variables.extend(set);
        Ok(configuration)
    }

    /// Lists and mappings are clusterctl's own settings, of which `images` counts here.
    fn parse(text: &str) -> anyhow::Result<Self> {
        // What the parser says quotes the file, in which credentials stand.
        let options = serde_saphyr::options! { with_snippet: false };
        let file: BTreeMap<String, Value> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| {
                let line = error.location().map_or(0, |location| location.line());
                anyhow::anyhow!(
                    "it is no mapping in YAML, at line {line}; write NAME: value on each line"
                )
            })?;
        let mut configuration = Self::default();
        for (name, value) in file {
            let value = match value {
                Value::String(text) => text,
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                Value::Object(_) if name == "images" => {
                    configuration.images = serde_json::from_value(value).map_err(|error| {
                        anyhow::anyhow!("images: {error}; each has repository, name or tag")
                    })?;
                    continue;
                }
                Value::Null | Value::Array(_) | Value::Object(_) => continue,
            };
            configuration.variables.insert(name, value);
        }
        Ok(configuration)
    }
}

/// The contract of the core providers that Windlass knows; those that go with it are known too.
const CONTRACT: &str = "v1beta2";
