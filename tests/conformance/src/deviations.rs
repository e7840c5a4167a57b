//! Where the embedded API differs from a real one, and why.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The steps that may differ, with the reason; `docs/reference/embedded-api.md` shows the same file.
///
/// # Errors
///
/// The file is broken.
pub fn deviations() -> Result<BTreeMap<String, String>> {
    let all: BTreeMap<String, String> = serde_json::from_str(include_str!(
        "../../../crates/kapi/tests/conformance/deviations.json"
    ))
    .context("read deviations.json")?;
    // Those of random requests are rules, which their own suite checks.
    let steps = all
        .into_iter()
        .filter(|(step, _)| !step.starts_with("random: "));
    Ok(steps.collect())
}
