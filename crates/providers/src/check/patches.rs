//! Patches of manifests, as far as they can be judged without the manifests.

use api::provider::{ProviderSpec, Reason};
use clusterctl::patch::{ManifestPatch, Patch, PatchError};

use super::Findings;
use crate::render;

/// The form of every patch.
pub(super) fn check(spec: &ProviderSpec, findings: &mut Findings) {
    if spec.manifest_patches.is_some() && spec.patches.is_some() {
        findings.add(
            Reason::ComponentsPatchError,
            "spec.patches",
            "",
            "patches and manifestPatches do not go together",
            "move the patches of manifestPatches into patches, each with its target",
        );
    }
    for (at, text) in spec.manifest_patches.iter().flatten().enumerate() {
        if let Err(error) = ManifestPatch::parse(text) {
            refuse(
                &format!("spec.manifestPatches[{at}]"),
                text,
                &error,
                findings,
            );
        }
    }
    for (at, patch) in spec.patches.iter().flatten().enumerate() {
        let text = patch.patch.as_deref().unwrap_or_default();
        let target = patch.target.clone().unwrap_or_default();
        let selector = target.label_selector.clone().unwrap_or_default();
        let field = format!("spec.patches[{at}]");
        match Patch::parse(text, &render::target(target)) {
            Ok(_) => {}
            Err(error @ PatchError::Selector(_)) => {
                refuse(
                    &format!("{field}.target.labelSelector"),
                    &selector,
                    &error,
                    findings,
                );
            }
            Err(error) => refuse(&format!("{field}.patch"), text, &error, findings),
        }
    }
}

fn refuse(field: &str, text: &str, error: &PatchError, findings: &mut Findings) {
    findings.add(
        Reason::ComponentsPatchError,
        field,
        text,
        controller::chain(error),
        "mend it: a mapping is a merge patch (RFC 7396), a list a JSON patch (RFC 6902)",
    );
}
