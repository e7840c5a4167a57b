//! `windlass providers explain`: where what a provider is installed as comes from. It reads only, and prints no value of a Secret.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use api::provider::{ObjectReference, key};
use clusterctl::Version;
use envsubst::Template;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt};
use providers::{
    explain::{self, Change},
    inputs::Changes,
    names::FETCHED_FROM,
    render::Material,
    stand::Stand,
    target,
};
use serde_json::Value;

use super::stand;
use crate::{
    cli::{ExplainProviders, Global},
    client::answered,
    terminal,
};

/// How much of a value is shown.
const SHOWN: usize = 120;

pub(crate) async fn explain(global: &Global, options: &ExplainProviders) -> anyhow::Result<()> {
    let client = global.client().await?;
    let stands = stand::all(&client).await?;
    let labels: Vec<_> = stands.iter().filter_map(Stand::label).collect();
    ensure!(
        !stands.is_empty(),
        "there are no providers; make a CoreProvider first"
    );
    for named in &options.provider {
        ensure!(
            labels.contains(named),
            "{named} is no provider that is there; there are {}",
            labels.join(", ")
        );
    }
    let is_wanted = |stand: &&Stand| {
        let label = stand.label();
        options.provider.is_empty() || label.is_some_and(|label| options.provider.contains(&label))
    };
    for stand in stands.iter().filter(is_wanted) {
        for line in of_stand(&client, stand).await? {
            println!("{}", terminal::text(&line));
        }
    }
    Ok(())
}

async fn of_stand(client: &Client, stand: &Stand) -> anyhow::Result<Vec<String>> {
    let mut lines = vec![stand.title()];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<11}{text}"));
    let (version, by) = match (&stand.wanted, stand.installed_version()) {
        (wanted, _) if !wanted.is_empty() => (wanted.clone(), "by spec.version"),
        (_, Some(installed)) => (installed.to_owned(), "as it is installed"),
        _ => (String::new(), ""),
    };
    line("version", format!("{version}, {by}"));
    let parsed: Option<Version> = version.parse().ok();
    let held = parsed.as_ref().and_then(|version| stand.held(version));
    let (Some(provider), Some(version), Some(held)) = (&stand.provider, parsed, held) else {
        line(
            "release",
            "no ConfigMap keeps it, so no more can be said".to_owned(),
        );
        return Ok(lines);
    };
    let mut maps = stand.maps.iter();
    let map = maps.find(|map| map.name_any() == held.config_map);
    let from = map.and_then(|map| map.annotations().get(FETCHED_FROM));
    let from = from.map_or_else(
        || "which somebody loaded".to_owned(),
        |from| format!("brought from {from}"),
    );
    line("release", format!("ConfigMap {}, {from}", held.config_map));
    line(
        "digest",
        format!("sha256:{} of its components", held.components_digest()),
    );
    line("contract", held.contract.clone());
    let place = match &stand.target {
        Some(secret) => format!("of the cluster of Secret {secret}"),
        None => "of this cluster".to_owned(),
    };
    line("namespace", format!("{} {place}", stand.namespace));
    let given = given(client, stand).await?;
    for (variable, default) in variables(&held.components)? {
        line("variable", of_variable(&variable, default, given.as_ref()));
    }
    let there = target::client(client, &stand.namespace, stand.target.as_deref()).await?;
    let material = Material {
        provider: provider.clone(),
        version,
        namespace: stand.namespace.clone(),
        is_here: stand.target.is_none(),
        components: held.components,
        additional: additional(client, stand).await?,
        variables: BTreeMap::new(),
        variables_mark: None,
        changes: Changes::of(&stand.spec),
        lingers: answered(
            target::lingers(&there).await,
            "ask for the version of the API",
        )?,
    };
    let explained = explain::explain(&material);
    let (changes, notices) = explained.with_context(|| format!("{provider}"))?;
    for change in changes {
        line("changed", of_change(&change));
    }
    for notice in notices {
        line("no effect", notice);
    }
    if let Some(additional) = &stand.spec.additional_manifests {
        line(
            "beside it",
            format!(
                "the objects of ConfigMap {}, by spec.additionalManifests",
                additional.name
            ),
        );
    }
    Ok(lines)
}

/// The namespace of what a spec names: that of the provider, where none is given.
fn namespace_of<'a>(reference: &'a ObjectReference, stand: &'a Stand) -> &'a str {
    let given = reference.namespace.as_deref();
    given
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or(&stand.namespace)
}

/// The objects beside those of the release.
async fn additional(client: &Client, stand: &Stand) -> anyhow::Result<Option<String>> {
    let Some(reference) = &stand.spec.additional_manifests else {
        return Ok(None);
    };
    let namespace = namespace_of(reference, stand);
    let title = format!("ConfigMap {namespace}/{}", reference.name);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let map = answered(
        maps.get_opt(&reference.name).await,
        &format!("read {title}"),
    )?;
    Ok(map.and_then(|map| map.data?.remove(key::MANIFESTS)))
}

/// The keys of the Secret with variables, which is not shown. None: the spec names none.
async fn given(
    client: &Client,
    stand: &Stand,
) -> anyhow::Result<Option<(String, BTreeSet<String>)>> {
    let Some(reference) = &stand.spec.config_secret else {
        return Ok(None);
    };
    let namespace = namespace_of(reference, stand);
    let title = format!("Secret {namespace}/{}", reference.name);
    let secret = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = answered(
        secret.get_opt(&reference.name).await,
        &format!("read {title}"),
    )?;
    let keys = secret.and_then(|secret| secret.data).unwrap_or_default();
    Ok(Some((title, keys.into_keys().collect())))
}

/// The variables of a release, and what each is where nobody says anything.
fn variables(components: &str) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let template = Template::parse(components).context("read the variables of the release")?;
    let variables = template.variables().into_iter();
    Ok(variables
        .map(|(name, default)| (name.to_owned(), default))
        .collect())
}

fn of_variable(
    name: &str,
    default: Option<String>,
    given: Option<&(String, BTreeSet<String>)>,
) -> String {
    match (given, default) {
        (Some((title, keys)), _) if keys.contains(name) => format!("{name}, by {title}"),
        (_, Some(default)) => format!("{name} is {:?}, by the release", cut(&default)),
        (Some((title, _)), None) => format!("{name} has no value: write it into {title}"),
        (None, None) => {
            format!(
                "{name} has no value: write it into a Secret, and name that in spec.configSecret"
            )
        }
    }
}

fn of_change(change: &Change) -> String {
    let Change {
        by,
        object,
        path,
        before,
        after,
    } = change;
    let what = match (before, after) {
        (Some(before), Some(after)) => format!("{} instead of {}", shown(after), shown(before)),
        (None, Some(after)) => shown(after),
        (Some(before), None) => format!("gone, it was {}", shown(before)),
        (None, None) => String::new(),
    };
    format!("{object} {path}: {what}, by {by}")
}

fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

fn cut(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    let begins: String = text.chars().take(SHOWN).collect();
    format!("{begins}…")
}
