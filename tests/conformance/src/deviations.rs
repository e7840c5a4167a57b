//! Where the embedded API differs from a real one, and why.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

/// The steps that may differ, with the reason; `docs/reference/embedded-api.md` shows the same file.
///
/// # Errors
///
/// The file is broken.
pub fn deviations() -> Result<BTreeMap<String, String>> {
    // Those of random requests are rules, which their own suite checks.
    let elsewhere = ["random: ", KUBECTL];
    let steps = all()?
        .into_iter()
        .filter(|(step, _)| !elsewhere.iter().any(|suite| step.starts_with(suite)));
    Ok(steps.collect())
}

/// The steps that the embedded API answers as the oldest version does, and the newest one otherwise. Without the oldest one at
/// hand they may differ.
///
/// # Errors
///
/// The file is broken.
pub fn answered_as_by_the_oldest() -> Result<BTreeSet<String>> {
    serde_json::from_str(include_str!("../scenarios/oldest.json")).context("read oldest.json")
}

/// The commands of kubectl whose output may differ.
///
/// # Errors
///
/// The file is broken.
pub fn commands() -> Result<BTreeSet<String>> {
    let commands = all()?
        .into_keys()
        .filter_map(|step| step.strip_prefix(KUBECTL).map(str::to_owned));
    Ok(commands.collect())
}

fn all() -> Result<BTreeMap<String, String>> {
    serde_json::from_str(include_str!(
        "../../../crates/kapi/tests/conformance/deviations.json"
    ))
    .context("read deviations.json")
}

const KUBECTL: &str = "kubectl: ";
