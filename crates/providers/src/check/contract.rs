//! The contract of a release against that of the core, before the release is installed.
//!
//! The rules are clusterctl's, which has them in its plan of a whole set. Here each provider comes by itself, so core goes first: the
//! others go with the contract that it has, and wait while it is on its way to a newer one.

use api::provider::{Kind, Provider, ProviderType, Reason};
use clusterctl::Contract;

use super::{Findings, Other, Waiting, given};
use crate::source::Held;

/// What is wrong with the contract of a release among what is `beside` its provider, or what it waits for. What is installed already is
/// not judged once more: nothing would move, and its settings can still be changed.
pub(super) fn check<K: Kind>(
    provider: &Provider<K>,
    held: &Held,
    beside: &[&Other],
    findings: &mut Findings,
) -> Option<Waiting> {
    let is_installed = provider.status.as_ref().is_some_and(|status| {
        status.installed_version.as_deref() == Some(held.version.to_string().as_str())
            && status.contract.as_deref() == Some(held.contract.as_str())
    });
    if is_installed {
        return None;
    }
    // It was read as one when it was held.
    let contract: Contract = held.contract.parse().ok()?;
    let written = given(provider.spec.version.as_deref()).unwrap_or_default();
    if K::TYPE == ProviderType::Core {
        of_core(written, held, &contract, beside, findings);
        return None;
    }
    let core = beside
        .iter()
        // One that was never installed keeps none.
        .find(|other| other.provider == ProviderType::Core && other.contract.is_some())?;
    let kept = core.contract.as_ref()?;
    if kept.is_compatible(&contract) {
        return None;
    }
    let is_newer = contract.is_compatible(kept);
    if is_newer && core.is_moving {
        return Some(Waiting::ForCoreUpgrade);
    }
    let version = core.installed.as_ref().map(ToString::to_string);
    let rule = format!(
        "{} keeps contract {contract}, which does not go with {kept} of CoreProvider {}/{} {}",
        held.version,
        core.namespace,
        core.name,
        version.unwrap_or_default()
    );
    let keeping = format!("write a version that keeps {kept}");
    let remedy = if is_newer {
        format!("upgrade the CoreProvider first, to a version that keeps {contract}, or {keeping}")
    } else {
        keeping
    };
    findings.add(
        Reason::ContractIncompatible,
        "spec.version",
        written,
        rule,
        remedy,
    );
    None
}

fn of_core(
    written: &str,
    held: &Held,
    contract: &Contract,
    beside: &[&Other],
    findings: &mut Findings,
) {
    let version = &held.version;
    if !contract.is_known() {
        let known = Contract::KNOWN.join(" and ");
        findings.add(
            Reason::ContractIncompatible,
            "spec.version",
            written,
            format!("{version} keeps contract {contract}, and {known} are known"),
            "write a version that keeps one of them, or use a Windlass that knows it",
        );
        return;
    }
    let behind: Vec<_> = beside
        .iter()
        .filter_map(|other| {
            let its = other.contract.as_ref()?;
            let Other {
                provider,
                namespace,
                name,
                ..
            } = other;
            (!contract.is_compatible(its)).then(|| format!("{provider} {namespace}/{name} ({its})"))
        })
        .collect();
    if !behind.is_empty() {
        findings.add(
            Reason::ContractIncompatible,
            "spec.version",
            written,
            format!(
                "{version} keeps contract {contract}, which does not go with what is installed beside it: {}",
                behind.join(", ")
            ),
            "take these to versions that keep it first, delete them, or write a version that keeps their contract",
        );
    }
}
