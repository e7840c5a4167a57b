//! A provider among the others, and against what is installed.

use api::provider::{Kind, Provider, ProviderType, Reason};
use clusterctl::Version;
use kube::ResourceExt;

use super::{Finding, Findings, given};
use crate::target::{self, Place};

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
    /// Whether it is ready.
    pub is_ready: bool,
}

/// What a provider waits for, which comes by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waiting {
    /// There is no core provider that is ready.
    ForCore,
}

impl Waiting {
    /// Why, as a condition has it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::ForCore => Reason::WaitingForCoreProviderReady,
        }
    }

    /// For people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::ForCore => {
                "waits until a CoreProvider is ready: `kubectl get coreproviders -A` shows how it stands"
            }
        }
    }
}

/// What is wrong with a provider among `others` of the same place, or what it waits for. An upgrade need not wait for the core: it was there when
/// the provider was installed, and may be what keeps the core from being ready.
///
/// # Errors
///
/// Those that a person must change.
pub fn among<K: Kind>(
    provider: &Provider<K>,
    others: &[Other],
) -> Result<Option<Waiting>, Vec<Finding>> {
    let mut findings = Findings::new(K::TYPE);
    let installed = provider
        .status
        .as_ref()
        .and_then(|status| given(status.installed_version.as_deref()));
    if let Some(installed) = installed {
        downgrade(
            given(provider.spec.version.as_deref()),
            installed,
            &mut findings,
        );
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
    if let Some(other) = others.iter().filter(is_beside).find(is_same) {
        findings.add(
            Reason::MoreThanOneExists,
            "metadata.name",
            &name,
            format!(
                "{} {} of namespace {} is the same provider, and what both install belongs to the whole cluster",
                other.provider, other.name, other.namespace
            ),
            "delete one of the two",
        );
    }
    if !findings.found.is_empty() {
        return Err(findings.found);
    }
    let is_ready =
        |other: &Other| is_beside(&other) && other.provider == ProviderType::Core && other.is_ready;
    let waits =
        K::TYPE != ProviderType::Core && installed.is_none() && !others.iter().any(is_ready);
    Ok(waits.then_some(Waiting::ForCore))
}

/// Back within a minor version is allowed, as the existing operator has it: contracts and storage versions do not change in one.
fn downgrade(wanted: Option<&str>, installed: &str, findings: &mut Findings) {
    let read = |text: &str| text.parse::<Version>().ok();
    let (Some(wanted), Some(installed)) = (wanted.and_then(read), read(installed)) else {
        return;
    };
    if (wanted.major(), wanted.minor()) < (installed.major(), installed.minor()) {
        findings.add(
            Reason::UnsupportedDowngrade,
            "spec.version",
            &wanted,
            format!("{installed} is installed, and Cluster API knows no way back to an older minor version"),
            format!("write {installed} or a newer one"),
        );
    }
}
