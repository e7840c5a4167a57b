//! `windlass providers upgrade`: carries out what `windlass providers plan` shows, core first and all others together then.

use anyhow::{bail, ensure};
use clusterctl::{ProviderType, upgrade::Upgrade};
use kube::{Client, ResourceExt};
use providers::stand::write_version;

use super::{
    follow::{self, Awaited},
    plan::{self, Planned},
    set,
};
use crate::{
    cli::{Global, UpgradeProviders},
    client::answered,
    terminal::say,
};

pub(crate) async fn upgrade(global: &Global, options: &UpgradeProviders) -> anyhow::Result<()> {
    let client = global.client().await?;
    let wanted = options.plan.wanted()?;
    let mut upgrades = Vec::new();
    let mut losing = Vec::new();
    for planned in plan::planned(&client, &wanted).await? {
        losing.extend(plan::show(&client, &planned).await?);
        upgrades.extend(chosen(planned)?);
    }
    if upgrades.is_empty() {
        say!("there is nothing to upgrade");
        return Ok(());
    }
    let sets = set::all(&client).await?;
    if let Some(set) = sets.iter().find(|set| set::is_at_work(set, &upgrades)) {
        bail!(
            "nothing was done, for ProviderSet {}/{} upgrades these: wait for it (`windlass providers plan` shows how far it is), or delete it",
            set.namespace().unwrap_or_default(),
            set.name_any()
        );
    }
    losing.retain(|label| !options.confirm.contains(label));
    let again = global.confirmed_too(&losing).carried_out();
    ensure!(
        losing.is_empty(),
        "nothing was done: objects lose fields or versions of their kind, as is shown above; if that is wanted: {again}"
    );
    ensure!(options.yes, "nothing was done; to carry it out: {again}");
    // All others keep to what core keeps to.
    let (first, others): (Vec<_>, Vec<_>) = upgrades
        .into_iter()
        .partition(|one| one.provider == api::provider::ProviderType::Core);
    for awaited in [first, others] {
        if awaited.is_empty() {
            continue;
        }
        for one in &awaited {
            write(&client, one).await?;
        }
        follow::follow(&client, &awaited).await?;
    }
    Ok(())
}

/// The one plan of a place that does something.
fn chosen(planned: Planned) -> anyhow::Result<Vec<Awaited>> {
    let mut plans = planned.plans;
    plans.retain(|plan| !plan.upgrades.is_empty());
    if plans.len() > 1 {
        bail!(
            "nothing was done: there are plans for several contracts; name the versions of one by --to"
        );
    }
    let upgrades = plans.into_iter().flat_map(|plan| plan.upgrades);
    Ok(upgrades.map(|one| awaited(&one)).collect())
}

fn awaited(one: &Upgrade) -> Awaited {
    let provider = &one.from.provider;
    Awaited {
        provider: kind(provider.provider_type()),
        namespace: one.from.namespace.clone(),
        name: provider.name().to_owned(),
        version: Some(one.to.to_string()),
        before: None,
    }
}

/// As objects have it.
pub(super) fn kind(provider: ProviderType) -> api::provider::ProviderType {
    use api::provider::ProviderType as Kind;
    match provider {
        ProviderType::Core => Kind::Core,
        ProviderType::Bootstrap => Kind::Bootstrap,
        ProviderType::ControlPlane => Kind::ControlPlane,
        ProviderType::Infrastructure => Kind::Infrastructure,
        ProviderType::Ipam => Kind::Ipam,
        ProviderType::RuntimeExtension => Kind::RuntimeExtension,
        ProviderType::Addon => Kind::Addon,
    }
}

async fn write(client: &Client, one: &Awaited) -> anyhow::Result<()> {
    let Some(version) = &one.version else {
        return Ok(());
    };
    let written = write_version(client, one.provider, (&one.namespace, &one.name), version);
    answered(written.await, &format!("write the version of {}", one.name))?;
    Ok(())
}
