//! `windlass providers rights`: what an operator in a cluster must be allowed for providers, to be reviewed and applied by a person.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, bail, ensure};
use api::{provider::label, text::plain};
use clusterctl::{
    Object, Version, parse_manifest,
    rights::{Rights, Rule},
};
use providers::{
    rights::{of_release, watching_variables},
    source,
    stand::Stand,
};
use serde_json::json;

use super::stand;
use crate::cli::{Global, RightsOfProviders};

pub(crate) async fn rights(global: &Global, options: &RightsOfProviders) -> anyhow::Result<()> {
    let rights = if options.filename.is_empty() {
        let stands = stand::all(&global.client().await?).await?;
        of_stands(&stands, &options.provider)?
    } else {
        of_files(options)?
    };
    ensure!(
        !rights.is_empty(),
        "there are no providers; make a CoreProvider first, or name files with --filename"
    );
    for (label, rights) in rights {
        print!("{}", documents(&label, &rights)?);
    }
    Ok(())
}

/// By the label that each object has.
fn of_files(options: &RightsOfProviders) -> anyhow::Result<BTreeMap<String, Rights>> {
    let mut objects: BTreeMap<String, Vec<Object>> = BTreeMap::new();
    for file in &options.filename {
        let text = fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let found = parse_manifest(&text).with_context(|| format!("in {}", file.display()))?;
        for object in found {
            let Some(label) = object.label(label::PROVIDER) else {
                bail!(
                    "{}: {} has no label {}; each object of a provider has one; print them with `windlass providers generate`",
                    file.display(),
                    plain(&object.title(), 300),
                    label::PROVIDER
                );
            };
            objects.entry(label.to_owned()).or_default().push(object);
        }
    }
    let rights = objects.into_iter().map(|(label, objects)| {
        let rights = of_release(&label, objects);
        (label, rights)
    });
    Ok(rights.collect())
}

fn of_stands(stands: &[Stand], named: &[String]) -> anyhow::Result<BTreeMap<String, Rights>> {
    let mut wanted = Vec::new();
    for text in named {
        let (label, version) = match text.split_once('=') {
            Some((label, version)) => {
                let version = version.parse::<Version>();
                (label, Some(version.with_context(|| text.clone())?))
            }
            None => (text.as_str(), None),
        };
        let mut found = stands
            .iter()
            .filter(|stand| stand.label().as_deref() == Some(label))
            .peekable();
        if found.peek().is_none() {
            let there: Vec<_> = stands.iter().filter_map(Stand::label).collect();
            bail!(
                "{label} is no provider that is there; there are {}",
                there.join(", ")
            );
        }
        wanted.extend(found.map(|stand| (stand, version.clone())));
    }
    if named.is_empty() {
        wanted.extend(stands.iter().map(|stand| (stand, None)));
    }
    let mut all: BTreeMap<String, Rights> = BTreeMap::new();
    for (stand, version) in wanted {
        let label = stand
            .label()
            .with_context(|| format!("{} is no provider by its name", stand.title()))?;
        let rights = of_stand(stand, &label, version)?;
        let known = all.entry(label).or_default();
        known.by_hand.extend(rights.by_hand);
        let rules = std::mem::take(&mut known.rules).into_iter();
        known.rules = Rule::merged(rules.chain(rights.rules));
    }
    Ok(all)
}

/// For the version that is to be installed, and for the one that is, of which something may have to go.
fn of_stand(stand: &Stand, label: &str, version: Option<Version>) -> anyhow::Result<Rights> {
    let newest = || {
        let overlay = stand.overlay.clone().unwrap_or_default();
        let kept = source::choose(&stand.maps, None, &overlay);
        kept.ok().map(|held| held.version)
    };
    let version = version
        .or_else(|| stand.wanted.parse().ok())
        .or_else(newest);
    let release = match &version {
        Some(version) => stand
            .objects(version)
            .with_context(|| format!("{label} {version}"))?,
        None => None,
    };
    let release = release.with_context(|| {
        format!(
            "no ConfigMap of namespace {} keeps {label}{}; keep it there with `windlass -n {} providers preload`",
            stand.namespace,
            version.map(|version| format!(" {version}")).unwrap_or_default(),
            stand.namespace
        )
    })?;
    let mut rights = of_release(label, release);
    if let Some(installed) = stand.installed()
        && let Some(objects) = stand
            .objects(&installed.version)
            .with_context(|| format!("{label} {}", installed.version))?
    {
        let rules = rights.rules.into_iter();
        rights.rules = Rule::merged(rules.chain(of_release(label, objects).rules));
    }
    if let Some(variables) = &stand.spec.config_secret {
        let watched = watching_variables(&variables.name);
        rights.rules = Rule::merged(rights.rules.into_iter().chain([watched]));
    }
    Ok(rights)
}

/// What a person applies.
fn documents(label: &str, rights: &Rights) -> anyhow::Result<String> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("windlass-provider-{label}"), "labels": {label::AGGREGATE: "true"}},
        "rules": rights.rules,
    });
    let label = plain(label, 100);
    let mut text = format!(
        "---\n# What the operator does to install, upgrade and remove {label}, and what {label} itself may do, which nobody gives who has it not.\n{}",
        serde_saphyr::to_string(&role).context("failed to print")?
    );
    for one in &rights.by_hand {
        let title = plain(&one.object.title(), 300);
        ensure!(
            one.object.label(label::AGGREGATE).is_none(),
            "{title} of the release has the label {}, by which its rules would become the operator's; use a release without it",
            label::AGGREGATE
        );
        text += &format!(
            "---\n# Of the release itself, for you to apply, and left as it is then: {}.\n{}",
            plain(&one.why, 500),
            serde_saphyr::to_string(&one.object).context("failed to print")?
        );
    }
    Ok(text)
}
