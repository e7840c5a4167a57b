//! Which versions of providers may follow those that are installed.
//!
//! A management cluster keeps one contract, that of its core provider, and all of its providers keep that one or one that goes
//! with it. So a plan is of the whole set: [`plans`] gives the newest set for each contract that core can have from now on, and
//! [`plan_for`] checks a set that somebody wants. Both say every reason at once.
//!
//! The rules are clusterctl's, with three differences: a release that its provider's `metadata.yaml` forgot is left out and told
//! instead of failing everything; an older minor is refused; a core of contract `v1beta1` may still be planned for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

mod policy;

pub use policy::{available, by_itself};

use crate::{Contract, Installed, Metadata, MetadataError, Provider, ProviderType, Version};

/// What is known of a provider's releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The metadata of the newest one, with what somebody laid over it.
    pub metadata: Metadata,
    /// Their versions, in any order.
    pub versions: Vec<Version>,
}

/// The upgrades of a set of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradePlan {
    /// The contract that core keeps afterwards.
    pub contract: Contract,
    /// What is upgraded, in this order.
    pub upgrades: Vec<Upgrade>,
    /// What stays as it is.
    pub unchanged: Vec<Installed>,
    /// Releases that were left out, for the metadata of their provider has no series for them.
    pub left_out: Vec<(Provider, Version)>,
}

/// The upgrade of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The provider as it is.
    pub from: Installed,
    /// The version that it gets.
    pub to: Version,
}

/// Why there is no plan: every reason, in the order of the providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals(pub Vec<Refusal>);

/// A reason why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// None or several core providers.
    #[error(
        "there are {0} core providers; a management cluster has one, whose contract all others keep: install or remove what is too many"
    )]
    Cores(usize),
    /// Several of one provider.
    #[error("{provider} is installed in the namespaces {}; one is the most: remove the others", .namespaces.join(", "))]
    Twice {
        /// The provider.
        provider: Provider,
        /// Where it is.
        namespaces: Vec<String>,
    },
    /// A provider whose releases are not known.
    #[error("no releases of {0} are known; say where they are")]
    NoReleases(Provider),
    /// A provider that is to be upgraded and is not there.
    #[error("{0} is to be upgraded and is not installed; install it, or leave it out")]
    NotInstalled(Provider),
    /// A version that is not among the releases.
    #[error("{provider} has no release {version}; the newest that it has is {newest}")]
    NoRelease {
        /// The provider.
        provider: Provider,
        /// The version.
        version: Version,
        /// The newest version, or `none`.
        newest: String,
    },
    /// A version whose series is not listed.
    #[error("{provider}: {source}")]
    Series {
        /// The provider.
        provider: Provider,
        /// What is missing.
        source: MetadataError,
    },
    /// A contract that no core has that is known here.
    #[error("core {version} keeps contract {contract}, which is unknown; {} are known", .known.join(" and "))]
    UnknownContract {
        /// The version of core.
        version: Version,
        /// Its contract.
        contract: Contract,
        /// Those that are known.
        known: Vec<String>,
    },
    /// A provider whose wanted version keeps a contract that does not go with core's.
    #[error(
        "{provider} {version} keeps contract {contract}, which does not go with {core} of core; choose a version that keeps {core}"
    )]
    Contract {
        /// The provider.
        provider: Provider,
        /// The version that it would get.
        version: Version,
        /// Its contract.
        contract: Contract,
        /// That of core.
        core: Contract,
    },
    /// A provider that would stay behind.
    #[error(
        "{provider} stays at {version}, which keeps contract {contract} and does not go with {core} of core; upgrade it too, to a version \
         that keeps {core}"
    )]
    Behind {
        /// The provider.
        provider: Provider,
        /// The version that it has.
        version: Version,
        /// Its contract.
        contract: Contract,
        /// That of core.
        core: Contract,
    },
    /// More minors at once than are supported.
    #[error("{provider} would go from {from} to {to} and skip more than three minors; go by way of v{}.{}", .from.major(), .from.minor() + 3)]
    Skip {
        /// The provider.
        provider: Provider,
        /// The version that it has.
        from: Version,
        /// The version that it would get.
        to: Version,
    },
    /// An older minor.
    #[error(
        "{provider} would go back from {from} to {to}; objects may be stored in a version that {to} does not know: restore a backup instead"
    )]
    Downgrade {
        /// The provider.
        provider: Provider,
        /// The version that it has.
        from: Version,
        /// The version that it would get.
        to: Version,
    },
}

/// The newest set for each contract that core can have from now on, in the order of contracts.
///
/// A contract that some provider has no release for is left out, unless core keeps it already.
///
/// # Errors
///
/// What makes a plan impossible, whatever the contract.
pub fn plans(
    installed: &[Installed],
    releases: &BTreeMap<Provider, Releases>,
) -> Result<Vec<UpgradePlan>, Refusals> {
    let (core, mut refusals) = check_set(installed, releases);
    for one in installed {
        if let Some(known) = releases.get(&one.provider)
            && let Err(source) = known.metadata.contract(&one.version)
        {
            let provider = one.provider.clone();
            refusals.push(Refusal::Series { provider, source });
        }
    }
    let (Some(core), true) = (core, refusals.is_empty()) else {
        return Err(Refusals(refusals));
    };
    let Some(of_core) = releases.get(&core.provider) else {
        return Err(Refusals(vec![Refusal::NoReleases(core.provider.clone())]));
    };
    let now = of_core.metadata.contract(&core.version).ok().cloned();
    let from = (core.version.major(), core.version.minor());
    let contracts: BTreeSet<&Contract> = of_core
        .metadata
        .series()
        .filter(|(series, _)| (series.major, series.minor) >= from)
        .map(|(_, contract)| contract)
        .collect();
    let mut plans = Vec::new();
    for contract in contracts {
        let plan = newest(installed, releases, contract);
        let mut stay = plan.unchanged.iter();
        if stay.all(|one| one.provider.is_cert_manager()) || now.as_ref() == Some(contract) {
            plans.push(plan);
        }
    }
    Ok(plans)
}

/// A plan for versions that somebody wants. Providers that have theirs already stay as they are.
///
/// # Errors
///
/// Every reason against it.
pub fn plan_for(
    installed: &[Installed],
    wanted: &BTreeMap<Provider, Version>,
    releases: &BTreeMap<Provider, Releases>,
) -> Result<UpgradePlan, Refusals> {
    let (core, mut refusals) = check_set(installed, releases);
    let absent = wanted
        .keys()
        .filter(|provider| installed.iter().all(|one| one.provider != **provider));
    refusals.extend(absent.cloned().map(Refusal::NotInstalled));
    let Some(core) = core else {
        return Err(Refusals(refusals));
    };
    let target = wanted.get(&core.provider).unwrap_or(&core.version);
    let contract = match contract_of(&core.provider, target, releases) {
        Ok(contract) => contract,
        Err(more) => {
            refusals.extend(more);
            return Err(Refusals(refusals));
        }
    };
    if !contract.is_known() {
        refusals.push(Refusal::UnknownContract {
            version: target.clone(),
            contract: contract.clone(),
            known: Contract::KNOWN.map(str::to_owned).to_vec(),
        });
    }
    let mut plan = UpgradePlan {
        contract: contract.clone(),
        upgrades: Vec::new(),
        unchanged: Vec::new(),
        left_out: Vec::new(),
    };
    for one in installed {
        let to = wanted.get(&one.provider).unwrap_or(&one.version);
        refusals.extend(check_step(one, to, &contract, releases));
        if *to == one.version {
            plan.unchanged.push(one.clone());
        } else {
            plan.upgrades.push(Upgrade {
                from: one.clone(),
                to: to.clone(),
            });
        }
    }
    if refusals.is_empty() {
        plan.sort();
        Ok(plan)
    } else {
        Err(Refusals(refusals))
    }
}

/// What must be true of the set, whatever is planned, and its core.
fn check_set<'a>(
    installed: &'a [Installed],
    releases: &BTreeMap<Provider, Releases>,
) -> (Option<&'a Installed>, Vec<Refusal>) {
    let mut refusals = Vec::new();
    let cores: Vec<_> = installed
        .iter()
        .filter(|one| one.provider.provider_type() == ProviderType::Core)
        .collect();
    if cores.len() != 1 {
        refusals.push(Refusal::Cores(cores.len()));
    }
    let mut places: BTreeMap<&Provider, Vec<String>> = BTreeMap::new();
    for one in installed {
        let of = places.entry(&one.provider).or_default();
        of.push(one.namespace.clone());
    }
    for (provider, namespaces) in places {
        let is_core = provider.provider_type() == ProviderType::Core;
        if namespaces.len() > 1 && !is_core {
            refusals.push(Refusal::Twice {
                provider: provider.clone(),
                namespaces,
            });
        }
        if !releases.contains_key(provider) {
            refusals.push(Refusal::NoReleases(provider.clone()));
        }
    }
    let core = (cores.len() == 1).then(|| cores.first().copied());
    (core.flatten(), refusals)
}

fn check_step(
    one: &Installed,
    to: &Version,
    core: &Contract,
    releases: &BTreeMap<Provider, Releases>,
) -> Vec<Refusal> {
    let (provider, from) = (one.provider.clone(), one.version.clone());
    let contract = match contract_of(&one.provider, to, releases) {
        Ok(contract) => contract,
        Err(refusals) => return refusals,
    };
    let mut refusals = Vec::new();
    let is_behind = *to == one.version;
    if !goes_with(&one.provider, core, &contract)
        && one.provider.provider_type() != ProviderType::Core
    {
        let core = core.clone();
        let (provider, version) = (provider.clone(), to.clone());
        refusals.push(if is_behind {
            Refusal::Behind {
                provider,
                version,
                contract,
                core,
            }
        } else {
            Refusal::Contract {
                provider,
                version,
                contract,
                core,
            }
        });
    }
    let minor = |version: &Version| (version.major(), version.minor());
    if minor(to) < minor(&from) {
        refusals.push(Refusal::Downgrade {
            provider,
            from,
            to: to.clone(),
        });
    } else if skips(&one.provider, &one.version, to) {
        refusals.push(Refusal::Skip {
            provider,
            from,
            to: to.clone(),
        });
    }
    if !is_behind
        && let Some(known) = releases.get(&one.provider)
        && !known.versions.contains(to)
    {
        refusals.push(Refusal::NoRelease {
            provider: one.provider.clone(),
            version: to.clone(),
            newest: known
                .versions
                .iter()
                .max()
                .map_or("none".to_owned(), ToString::to_string),
        });
    }
    refusals
}

/// That of a version. A provider without releases has been told of already, which is no reason twice.
fn contract_of(
    provider: &Provider,
    version: &Version,
    releases: &BTreeMap<Provider, Releases>,
) -> Result<Contract, Vec<Refusal>> {
    let known = releases.get(provider).ok_or_else(Vec::new)?;
    known.metadata.contract(version).cloned().map_err(|source| {
        let provider = provider.clone();
        vec![Refusal::Series { provider, source }]
    })
}

fn newest(
    installed: &[Installed],
    releases: &BTreeMap<Provider, Releases>,
    contract: &Contract,
) -> UpgradePlan {
    let mut plan = UpgradePlan {
        contract: contract.clone(),
        upgrades: Vec::new(),
        unchanged: Vec::new(),
        left_out: Vec::new(),
    };
    for one in installed {
        let known = releases.get(&one.provider);
        let newer = known.into_iter().flat_map(|known| {
            let versions = known.versions.iter();
            versions
                .filter(|version| **version > one.version)
                .map(move |version| (known, version))
        });
        let mut best: Option<&Version> = None;
        for (known, version) in newer {
            match known.metadata.contract(version) {
                Err(_) => plan.left_out.push((one.provider.clone(), version.clone())),
                Ok(its)
                    if goes_with(&one.provider, contract, its)
                        && !version.is_prerelease()
                        && !skips(&one.provider, &one.version, version) =>
                {
                    best = best.max(Some(version));
                }
                Ok(_) => {}
            }
        }
        match best {
            Some(to) => plan.upgrades.push(Upgrade {
                from: one.clone(),
                to: to.clone(),
            }),
            None => plan.unchanged.push(one.clone()),
        }
    }
    plan.sort();
    plan
}

/// Whether a provider that keeps a contract goes with a core that keeps another one.
fn goes_with(provider: &Provider, core: &Contract, its: &Contract) -> bool {
    provider.is_cert_manager() || core.is_compatible(its)
}

/// Whether a version is further away than may be gone at once: more than three minors, of core and the providers of kubeadm.
pub fn skips(provider: &Provider, from: &Version, to: &Version) -> bool {
    provider.is_of_cluster_api()
        && *from >= SKIPS_COUNT_FROM
        && to.minor() > from.minor().saturating_add(3)
}

impl UpgradePlan {
    /// Core first, add-ons last: what comes later uses what came before.
    fn sort(&mut self) {
        self.upgrades
            .sort_by(|one, other| one.from.cmp(&other.from));
        self.unchanged.sort();
        self.left_out.sort();
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Refusals {}

/// Cluster API counts skipped minors from this version on.
const SKIPS_COUNT_FROM: Version = Version::new(1, 10, 0);
