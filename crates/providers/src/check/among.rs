//! A provider among the others, and against what is installed.

use api::provider::{Kind, Provider, ProviderType, Reason};
use clusterctl::{Contract, Version, upgrade};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{Finding, Findings, contract, given};
use crate::{
    fetch, inputs,
    source::Held,
    target::{self, Place},
};

/// Another provider of the same API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Other {
    /// Its type.
    pub provider: ProviderType,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where it is installed.
    pub place: Place,
    /// When its object was made.
    pub created: Option<Time>,
    /// Whether it is ready.
    pub is_ready: bool,
    /// The version that is installed.
    pub installed: Option<Version>,
    /// The contract that this one keeps.
    pub contract: Option<Contract>,
    /// Whether its spec asks for another version than the installed one.
    pub is_moving: bool,
}

/// What a provider waits for, which comes by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waiting {
    /// There is no core provider that is ready.
    ForCore,
    /// The core provider is on its way to another version, which may keep the contract that is needed.
    ForCoreUpgrade,
    /// cert-manager is installed by an object too, and is not ready.
    ForCertManager,
}

impl Other {
    /// Whether it is cert-manager, which needs no core.
    pub fn is_cert_manager(&self) -> bool {
        is_cert_manager(self.provider, &self.name)
    }
}

fn is_cert_manager(provider: ProviderType, name: &str) -> bool {
    inputs::provider(provider, name).is_ok_and(|provider| provider.is_cert_manager())
}

impl Waiting {
    /// Why, as a condition has it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::ForCore | Self::ForCoreUpgrade => Reason::WaitingForCoreProviderReady,
            Self::ForCertManager => Reason::WaitingForCertManager,
        }
    }

    /// For people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::ForCore => {
                "waits until a CoreProvider is ready: `kubectl get coreproviders -A` shows how it stands"
            }
            Self::ForCoreUpgrade => {
                "waits until the CoreProvider is upgraded, for its release keeps a newer contract than the installed core: `kubectl get coreproviders -A` shows how it stands"
            }
            Self::ForCertManager => {
                "waits until cert-manager is ready, which makes its certificates: `kubectl get addonproviders -A` shows how it stands"
            }
        }
    }
}

/// What is wrong with a provider among `others` of the same place, or what it waits for, with the release that is held of it. An upgrade within a
/// contract need not wait for the core: it was there when the provider was installed, and may be what keeps the core from being ready.
///
/// # Errors
///
/// Those that a person must change.
pub fn among<K: Kind>(
    provider: &Provider<K>,
    others: &[Other],
    held: Option<&Held>,
) -> Result<Option<Waiting>, Vec<Finding>> {
    let mut findings = Findings::new(K::TYPE);
    let installed = provider
        .status
        .as_ref()
        .and_then(|status| given(status.installed_version.as_deref()));
    if let Some(installed) = installed {
        let wanted = held.map(|held| held.version.clone());
        let wanted = wanted.or_else(|| fetch::version(provider));
        step(provider, wanted, installed, &mut findings);
    }
    let (namespace, name) = (
        provider.namespace().unwrap_or_default(),
        provider.name_any(),
    );
    let is_self = |other: &Other| {
        other.provider == K::TYPE && other.namespace == namespace && other.name == name
    };
    let place = target::place(provider);
    let is_beside = |other: &&Other| other.place == place;
    let is_same = |other: &&Other| {
        other.provider == K::TYPE
            && (K::TYPE == ProviderType::Core || other.name == name)
            && !is_self(other)
    };
    // Whoever may make an object somewhere does not hold up what is at work: the one that is installed goes on, or else the elder.
    let rank = |is_installed: bool, created: Option<Time>, namespace: &str, name: &str| {
        let created = created.map(|created| created.0);
        (
            !is_installed,
            created.is_none(),
            created,
            namespace.to_owned(),
            name.to_owned(),
        )
    };
    let own = rank(
        installed.is_some(),
        provider.creation_timestamp(),
        &namespace,
        &name,
    );
    let goes_first = |other: &&Other| {
        let (namespace, name) = (&other.namespace, &other.name);
        rank(
            other.installed.is_some(),
            other.created.clone(),
            namespace,
            name,
        ) < own
    };
    let mut same = others.iter().filter(is_beside).filter(is_same);
    if let Some(other) = same.find(goes_first) {
        findings.add(
            Reason::MoreThanOneExists,
            "metadata.name",
            &name,
            format!(
                "{} {} of namespace {} is the same provider, and what both install belongs to the whole cluster: that one goes on, for it is installed or the elder",
                other.provider, other.name, other.namespace
            ),
            "delete one of the two",
        );
    }
    let beside: Vec<_> = others
        .iter()
        .filter(is_beside)
        .filter(|other| !is_self(other))
        .collect();
    let (cert_manager, beside): (Vec<_>, Vec<_>) = beside
        .into_iter()
        .partition(|other| other.is_cert_manager());
    let is_cert_manager = is_cert_manager(K::TYPE, &name);
    let waiting = held
        .filter(|_| !is_cert_manager)
        .and_then(|held| contract::check(provider, held, &beside, &mut findings));
    if !findings.found.is_empty() {
        return Err(findings.found);
    }
    // It is there before all others, and works without them.
    if is_cert_manager {
        return Ok(None);
    }
    if installed.is_none() && cert_manager.iter().any(|other| !other.is_ready) {
        return Ok(Some(Waiting::ForCertManager));
    }
    let is_ready = |other: &&Other| other.provider == ProviderType::Core && other.is_ready;
    let waits =
        K::TYPE != ProviderType::Core && installed.is_none() && !beside.iter().any(is_ready);
    Ok(waits.then_some(Waiting::ForCore).or(waiting))
}

/// Back within a minor version is allowed, as the existing operator has it: contracts and storage versions do not change in one.
/// Forward goes what clusterctl lets go.
fn step<K: Kind>(
    provider: &Provider<K>,
    wanted: Option<Version>,
    installed: &str,
    findings: &mut Findings,
) {
    let (Some(wanted), Ok(installed)) = (wanted, installed.parse::<Version>()) else {
        return;
    };
    let written = given(provider.spec.version.as_deref()).unwrap_or_default();
    let identity = inputs::provider(K::TYPE, &provider.name_any());
    if (wanted.major(), wanted.minor()) < (installed.major(), installed.minor()) {
        findings.add(
            Reason::UnsupportedDowngrade,
            "spec.version",
            written,
            format!("{wanted} would follow {installed}, which is installed, and Cluster API knows no way back to an older minor version"),
            format!("write {installed} or a newer one"),
        );
    } else if identity.is_ok_and(|identity| upgrade::skips(&identity, &installed, &wanted)) {
        let farthest = installed.minor().saturating_add(3);
        findings.add(
            Reason::ContractIncompatible,
            "spec.version",
            written,
            format!("{wanted} would follow {installed}, which is installed, and Cluster API supports no upgrade that skips more than three minor versions"),
            format!("go by way of v{}.{farthest}", installed.major()),
        );
    }
}
