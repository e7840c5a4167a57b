//! `windlass providers publish`: releases in registries, as the existing operator takes them from there.

use std::env;

use anyhow::{Context, bail};
use clusterctl::source::{Artefact, SIGNATURE};
use providers::fetch::login_of;
use registry::publish::{File, Target};

use crate::cli::Publish;

pub(crate) async fn publish(options: &Publish) -> anyhow::Result<()> {
    let given = &options.artefact;
    let artefact = Artefact::parse(given).with_context(|| format!("failed to publish {given}"))?;
    if artefact.digest.is_some() {
        bail!(
            "{given} has a digest, which comes of what is published; write a tag, or nothing for the version"
        );
    }
    let (provider, version, files) = options.provider.release(&options.from)?;
    // What nobody could install is not published either.
    files.metadata()?.contract(&version)?;
    let [_, metadata] = provider.metadata_files(&version);
    let [_, components, _] = provider.components_files(&version);
    let tag = artefact.tag.unwrap_or_else(|| version.to_string());
    let target = Target {
        registry: artefact.registry,
        repository: artefact.repository,
        tag,
        clear: artefact.clear,
        login: login_of(|name| env::var(name).ok()),
    };
    let signature = files.signature.map(|signature| File {
        name: format!("{components}{SIGNATURE}"),
        content: signature.into_bytes(),
    });
    let files = [
        File {
            name: metadata,
            content: files.metadata.into_bytes(),
        },
        File {
            name: components,
            content: files.components.into_bytes(),
        },
    ];
    let files: Vec<_> = files.into_iter().chain(signature).collect();
    let digest = registry::publish::publish(&target, files).await;
    let digest = digest.with_context(|| format!("failed to publish {given}"))?;
    let (scheme, registry) = (if target.clear { "http://" } else { "" }, &target.registry);
    println!(
        "{provider} {version} is published as {scheme}{registry}/{}:{}@{digest}",
        target.repository, target.tag
    );
    Ok(())
}
