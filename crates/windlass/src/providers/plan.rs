//! `windlass providers plan`: what an upgrade would do, before anything moves. It reads only.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use clusterctl::{
    Installed, Object, Version,
    difference::Difference,
    upgrade::{self, Upgrade, UpgradePlan},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use providers::{
    lent,
    names::RELEASE_SERIES,
    stand::{Stand, releases},
    target,
};

use super::{set, stand};
use crate::{
    cli::{Global, PlanProviders},
    client::answered,
    terminal::{self, say},
};

pub(crate) async fn plan(global: &Global, options: &PlanProviders) -> anyhow::Result<()> {
    let client = global.client().await?;
    for planned in planned(&client, &options.wanted()?).await? {
        show(&client, &planned).await?;
    }
    for line in set::all(&client).await?.iter().flat_map(set::lines) {
        println!("{}", terminal::text(&line));
    }
    Ok(())
}

/// What would be done in one place.
#[derive(Debug)]
pub(super) struct Planned {
    place: target::Place,
    stands: Vec<Stand>,
    /// One for each contract.
    pub(super) plans: Vec<UpgradePlan>,
}

/// What would be done, for each place where providers are installed.
pub(super) async fn planned(
    client: &Client,
    wanted: &[(String, Version)],
) -> anyhow::Result<Vec<Planned>> {
    let stands = stand::all(client).await?;
    ensure!(
        !stands.is_empty(),
        "there are no providers; make a CoreProvider first"
    );
    for stand in &stands {
        if let Err(invalid) = &stand.overlay {
            bail!(
                "{} metadata.annotations[{RELEASE_SERIES}]: {invalid}; write for example 1.15=v1beta2,1.16=v1beta2, or remove the annotation",
                stand.title()
            );
        }
    }
    for (label, _) in wanted {
        let is_there = |stand: &Stand| stand.label().as_ref() == Some(label);
        if !stands.iter().any(is_there) {
            let there: Vec<_> = stands.iter().filter_map(Stand::label).collect();
            bail!(
                "--to names {label}, and there is no such provider; there are {}",
                there.join(", ")
            );
        }
    }
    let mut places: BTreeMap<_, Vec<Stand>> = BTreeMap::new();
    for stand in stands {
        places.entry(stand.place.clone()).or_default().push(stand);
    }
    let planned = places.into_iter().map(|(place, stands)| {
        Ok(Planned {
            place,
            plans: plans_of(&stands, wanted)?,
            stands,
        })
    });
    planned.collect()
}

impl PlanProviders {
    /// The versions that are named, by label.
    pub(super) fn wanted(&self) -> anyhow::Result<Vec<(String, Version)>> {
        let wanted = self.to.iter().map(|text| {
            let (label, version) = text.split_once('=').with_context(|| {
                format!("--to is {text:?}; write LABEL=VERSION, as cluster-api=v1.14.2")
            })?;
            let version = version
                .parse()
                .with_context(|| format!("--to is {text:?}"))?;
            Ok((label.to_owned(), version))
        });
        wanted.collect()
    }
}

/// Shows what would be done in a place. Gives the labels of providers whose objects lose something.
pub(super) async fn show(client: &Client, planned: &Planned) -> anyhow::Result<Vec<String>> {
    if let Some((namespace, secret)) = &planned.place {
        say!("cluster of Secret {namespace}/{secret}");
    }
    let stands = &planned.stands;
    for stand in stands.iter().filter(|stand| stand.installed().is_none()) {
        say!(
            "{} is not installed yet, and no part of the plan",
            stand.title()
        );
    }
    for stand in stands {
        let not_lent = lent::not_lent(client, &stand.spec, &stand.namespace).await;
        // Who plans need not have the right to look there.
        let lines = not_lent.unwrap_or_else(|error| {
            vec![format!(
                "whether what it is made of is lent to it cannot be seen: {error}"
            )]
        });
        for line in lines {
            say!("!  {}: {}", stand.title(), terminal::text(&line));
        }
    }
    let mut losing = Vec::new();
    for plan in &planned.plans {
        losing.extend(print(client, stands, plan).await?);
    }
    Ok(losing)
}

fn plans_of(stands: &[Stand], wanted: &[(String, Version)]) -> anyhow::Result<Vec<UpgradePlan>> {
    let installed: Vec<_> = stands.iter().filter_map(Stand::installed).collect();
    if installed.is_empty() {
        return Ok(Vec::new());
    }
    let releases = releases(stands);
    Ok(if wanted.is_empty() {
        upgrade::plans(&installed, &releases)?
    } else {
        let of = |label: &str| {
            let found = installed
                .iter()
                .find(|one| one.provider.manifest_label() == label);
            found.map(|one| one.provider.clone())
        };
        let wanted = wanted
            .iter()
            .filter_map(|(label, version)| Some((of(label)?, version.clone())))
            .collect();
        vec![upgrade::plan_for(&installed, &wanted, &releases)?]
    })
}

async fn print(
    client: &Client,
    stands: &[Stand],
    plan: &UpgradePlan,
) -> anyhow::Result<Vec<String>> {
    let mut losing = Vec::new();
    say!("contract {}", plan.contract);
    if plan.upgrades.is_empty() {
        say!("  nothing is newer");
    }
    for (number, one) in (1..).zip(&plan.upgrades) {
        let Installed {
            provider,
            namespace,
            version,
        } = &one.from;
        say!(
            "{number}. {provider} in {namespace}: {version} to {}",
            one.to
        );
        let stand = stands
            .iter()
            .find(|stand| stand.provider.as_ref() == Some(provider));
        let stand = stand.context("a plan is of providers that are there")?;
        let Changes { lines, loses } = changes(client, stand, one).await?;
        for line in lines {
            say!("   {}", terminal::text(&line));
        }
        losing.extend(loses.then(|| provider.manifest_label()));
    }
    for one in &plan.unchanged {
        say!(
            "-  {} in {} stays at {}",
            one.provider,
            one.namespace,
            one.version
        );
    }
    for (provider, version) in &plan.left_out {
        say!("!  {provider} {version} is left out: the newest metadata.yaml has no series for it");
    }
    Ok(losing)
}

/// What an upgrade changes.
struct Changes {
    lines: Vec<String>,
    /// Whether objects of people lose fields or versions of their kind.
    loses: bool,
}

async fn changes(client: &Client, stand: &Stand, one: &Upgrade) -> anyhow::Result<Changes> {
    let new = stand
        .objects(&one.to)
        .with_context(|| format!("{} {}", one.from.provider, one.to))?
        .context("a plan is of releases that are kept")?;
    let mut lines = Vec::new();
    let mut loses = false;
    let difference = stand
        .difference(one)
        .with_context(|| format!("{}", one.from.provider))?;
    match difference {
        Some(difference) => {
            loses = difference.loses();
            told(&difference, &mut lines);
        }
        None => lines.push(format!(
            "what changes is not known: no ConfigMap keeps {}",
            one.from.version
        )),
    }
    migrations(client, stand, &new, &mut lines).await?;
    Ok(Changes { lines, loses })
}

fn told(difference: &Difference, lines: &mut Vec<String>) {
    for object in &difference.added {
        lines.push(format!("adds      {object}"));
    }
    for object in &difference.removed {
        let stays = object.starts_with("CustomResourceDefinition ");
        let stays = if stays {
            " (it stays; delete it by hand)"
        } else {
            ""
        };
        lines.push(format!("removes   {object}{stays}"));
    }
    for (workload, before, after) in &difference.images {
        lines.push(format!(
            "image     {workload}: {} to {}",
            before.join(", "),
            after.join(", ")
        ));
    }
    for definition in &difference.definitions {
        let name = &definition.name;
        for version in &definition.served {
            lines.push(format!("serves    {name} {version}"));
        }
        for version in &definition.gone {
            lines.push(format!(
                "no more   {name} {version}: move objects and clients off it first"
            ));
        }
        if let Some((before, after)) = &definition.storage {
            lines.push(format!("stores    {name} in {after} instead of {before}"));
        }
        for field in &definition.fields {
            lines.push(format!("field     {name} loses {field}"));
        }
    }
    for rights in &difference.rights {
        for (word, list) in [("gains", &rights.gained), ("loses", &rights.lost)] {
            if !list.is_empty() {
                lines.push(format!(
                    "rights    {} {word} {}",
                    rights.role,
                    list.join("; ")
                ));
            }
        }
    }
}

/// Definitions with objects that may be stored in a version that is not the one of then.
async fn migrations(
    client: &Client,
    stand: &Stand,
    new: &[Object],
    lines: &mut Vec<String>,
) -> anyhow::Result<()> {
    let there = target::client(client, &stand.namespace, stand.target.as_deref()).await?;
    let api = Api::<CustomResourceDefinition>::all(there);
    for object in new
        .iter()
        .filter(|one| one.kind() == "CustomResourceDefinition")
    {
        let versions = object.value().pointer("/spec/versions");
        let versions = versions
            .and_then(|versions| versions.as_array())
            .into_iter()
            .flatten();
        let mut stored = versions.filter(|version| version["storage"] == true);
        let storage = stored
            .next()
            .and_then(|version| version["name"].as_str())
            .unwrap_or_default();
        let found = answered(
            api.get_opt(object.name()).await,
            &format!("read {}", object.title()),
        )?;
        let status = found.and_then(|found| found.status);
        let mut stored = status
            .and_then(|status| status.stored_versions)
            .unwrap_or_default();
        stored.retain(|version| version != storage);
        if !stored.is_empty() {
            lines.push(format!(
                "migrate   {} from {} to {storage}",
                object.name(),
                stored.join(", ")
            ));
        }
    }
    Ok(())
}
