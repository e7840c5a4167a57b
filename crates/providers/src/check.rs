//! What is wrong with a provider, before anything is done about it. Pure.
//!
//! [`object`] judges one by itself, at the door and in plans; [`among`] judges it among the others and against what is installed.
//! The definitions accept what those of the existing operator do, whose webhooks accept everything: what it found out halfway
//! through an installation, or never, is refused here before the first step.

mod among;
mod contract;
mod deployment;
mod manager;
mod names;
mod patches;
mod source;

use std::fmt;

use api::provider::{CORE_NAME, Kind, Provider, ProviderType, Reason};
use clusterctl::Version;
use controller::Problem;
use kube::ResourceExt;

use crate::{
    fetch, inputs,
    names::{COMPONENTS_DIGEST, COMPONENTS_KEY, RELEASE_SERIES},
    signature::InvalidKey,
};

pub use among::{Other, Waiting, among};
pub use source::without_user;

/// Something that is wrong, and the reason under which it is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The reason of the condition.
    pub reason: Reason,
    /// Field, value, rule and remedy.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

/// What is wrong with a provider by itself, in the order of its fields.
pub fn object<K: Kind>(provider: &Provider<K>) -> Vec<Finding> {
    let mut findings = Findings::new(K::TYPE);
    let name = provider.name_any();
    let spec = &provider.spec;
    own_name(&name, &mut findings);
    if let Some(version) = given(spec.version.as_deref())
        && let Err(error) = version.parse::<Version>()
    {
        findings.add(
            Reason::IncorrectVersionFormat,
            "spec.version",
            version,
            format!("{error}"),
            "write the version as the provider's releases are called",
        );
    }
    let known = inputs::provider(K::TYPE, &name).ok();
    let known = known.filter(|known| known.is_cert_manager() || clusterctl::entry(known).is_some());
    // A core of another name is told so, and no more.
    let is_known = known.is_some() || K::TYPE == ProviderType::Core;
    source::check(spec, is_known, &mut findings);
    names::reference(
        "spec.configSecret",
        spec.config_secret.as_ref(),
        &mut findings,
    );
    names::reference(
        "spec.additionalManifests",
        spec.additional_manifests.as_ref(),
        &mut findings,
    );
    if let Some(manager) = &spec.manager {
        manager::check("spec.manager", manager, &mut findings);
    }
    if let Some(deployment) = &spec.deployment {
        deployment::check("spec.deployment", deployment, &mut findings);
    }
    for (name, additional) in spec.additional_deployments.iter().flatten() {
        let field = format!("spec.additionalDeployments[{name}]");
        names::object_name(&field, name, &mut findings);
        if let Some(manager) = &additional.manager {
            manager::check(&format!("{field}.manager"), manager, &mut findings);
        }
        if let Some(deployment) = &additional.deployment {
            deployment::check(&format!("{field}.deployment"), deployment, &mut findings);
        }
    }
    patches::check(spec, &mut findings);
    if let Some(Err(said)) = fetch::pin(provider) {
        findings.invalid(
            &format!("metadata.annotations[{COMPONENTS_DIGEST}]"),
            said,
            "a digest is sha256: and 64 lower-case hexadecimal digits",
            "write what sha256sum says of the file of components, or remove the annotation",
        );
    }
    if let Some(Err(said)) = fetch::key(provider) {
        findings.invalid(
            &format!("metadata.annotations[{COMPONENTS_KEY}]"),
            said,
            InvalidKey.to_string(),
            "write what cosign generate-key-pair puts into cosign.pub, or remove the annotation",
        );
    }
    if let Err(invalid) = crate::source::overlay(provider) {
        let series = provider.annotations().get(RELEASE_SERIES);
        findings.invalid(
            &format!("metadata.annotations[{RELEASE_SERIES}]"),
            series.map_or("", String::as_str),
            invalid.to_string(),
            "write for example 1.15=v1beta2,1.16=v1beta2, or remove the annotation",
        );
    }
    findings.found
}

fn own_name(name: &str, findings: &mut Findings) {
    let provider = findings.provider;
    if provider == ProviderType::Core && name != CORE_NAME {
        findings.add(
            Reason::IncorrectCoreProviderName,
            "metadata.name",
            name,
            format!("the core provider is called {CORE_NAME}"),
            format!("make one with the name {CORE_NAME} and delete this"),
        );
        return;
    }
    let label = provider.manifest_label(name);
    if !names::is_label(&label) {
        findings.add(
            Reason::InvalidSpec,
            "metadata.name",
            name,
            format!("{label:?} labels every object of the provider, so the name has lower-case letters, digits and '-', and both have at most 63 characters"),
            "make one with the provider's name, as clusterctl knows it",
        );
    }
}

/// What is found of one provider.
pub(crate) struct Findings {
    provider: ProviderType,
    found: Vec<Finding>,
}

impl Findings {
    fn new(provider: ProviderType) -> Self {
        Self {
            provider,
            found: Vec::new(),
        }
    }

    fn add(
        &mut self,
        reason: Reason,
        field: &str,
        value: impl fmt::Display,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let field = format!("{} {field}", self.provider);
        // What is long is a patch or the like: its beginning tells which.
        let value = api::text::plain(&value.to_string(), LONGEST_VALUE);
        let problem = Problem::new(field, value, rule, remedy);
        self.found.push(Finding { reason, problem });
    }

    fn invalid(
        &mut self,
        field: &str,
        value: impl fmt::Display,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Reason::InvalidSpec, field, value, rule, remedy);
    }
}

/// An empty text says nothing: the existing operator cannot tell it from one that is not there.
pub(crate) fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

const LONGEST_VALUE: usize = 128;

#[cfg(test)]
mod tests;
