//! Where a suite finds what it tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The `windlass` program that was built beside the test that asks: `cargo nextest run --workspace` builds it.
///
/// # Errors
///
/// It was not built.
pub fn windlass() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe().context("a process without a program")?;
    let profile = test.ancestors().nth(2).context("a test in no directory")?;
    let program = profile.join("windlass");
    ensure!(
        program.exists(),
        "{} is missing: run `cargo build -p windlass`",
        program.display()
    );
    Ok(program)
}
