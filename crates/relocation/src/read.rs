//! Reads a side: which domains have objects there, and what belongs together.

use std::collections::BTreeSet;

use kube::{ResourceExt as _, api::ListParams};

use crate::{
    domain::{Domain, Domains, Reference},
    error::{Error, Result},
    graph::{Graph, Item},
    kind::Kind,
    side::Side,
};

/// The domains that have something to move, or have moved it; where none has, all, for what lacks is then said of each.
///
/// Only of these must the kinds be served on both sides and the rights be there: an API need not know of operators of which
/// the namespace has nothing.
pub(crate) async fn present<'a>(
    domains: &'a [Domain],
    source: &Side,
    target: Option<&Side>,
) -> Result<Domains<'a>> {
    for side in [Some(source), target].into_iter().flatten() {
        let mut present = Vec::new();
        for domain in domains {
            if has_roots(side, domain).await? {
                present.push(domain);
            }
        }
        if !present.is_empty() {
            return Ok(Domains::new(present));
        }
    }
    Ok(Domains::new(domains.iter().collect()))
}

async fn has_roots(side: &Side, domain: &Domain) -> Result<bool> {
    for kind in domain.kinds.iter().filter(|kind| kind.is_root()) {
        if has(side, kind).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn has(side: &Side, kind: &Kind) -> Result<bool> {
    let one = ListParams::default().limit(1);
    match side.api(kind).list(&one).await {
        Ok(listed) => Ok(!listed.items.is_empty()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        // That one may not look is said with the other rights.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(true),
        Err(source) => Err(Error::api(side.failed("list", kind, ""), source)),
    }
}

/// The objects of the domains, with the Secrets and ConfigMaps that they own or name or that have their labels.
pub(crate) async fn read(side: &Side, domains: &Domains<'_>) -> Result<Graph> {
    let mut acted_on = Vec::new();
    for kind in domains.acted_on() {
        acted_on.push(side.list(kind).await?);
    }
    let items = acted_on.concat();
    let uids: BTreeSet<String> = items.iter().filter_map(|item| item.object.uid()).collect();
    let named: BTreeSet<Reference> = domains.references(&items).into_iter().collect();
    let mut all = Vec::new();
    for (config, kind) in domains.configs() {
        let belongs = |item: &Item| {
            let owners = item.object.owner_references();
            let reference = Reference {
                kind: *config,
                name: item.name(),
            };
            owners.iter().any(|owner| uids.contains(&owner.uid))
                || named.contains(&reference)
                || domains.selects(*config, item)
        };
        let listed = side.list(kind).await?.into_iter();
        all.push(listed.filter(belongs).collect());
    }
    all.extend(acted_on);
    Graph::new(&side.namespace, all)
}
