//! Go modules that are read and not built: what other projects publish of their interfaces.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{go, numbers};
use crate::{Progress, command};

/// The directory of a module, in Go's own cache of modules; it is fetched where it is not there.
///
/// # Errors
///
/// It cannot be had.
pub fn module(name: &str, version: &str, progress: &dyn Progress) -> Result<PathBuf> {
    let go = go(&numbers(OLDEST_GO), progress)?;
    let of_version = format!("{name}@{version}");
    // Outside of any module: what is asked for is only looked at.
    let said = command::output(
        Command::new(go)
            .current_dir("/")
            .args(["mod", "download", "-json", &of_version])
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off"),
    )
    .with_context(|| format!("fetch {of_version}"))?;
    let said: serde_json::Value = serde_json::from_str(&said).context("read what go says")?;
    let directory = said["Dir"].as_str();
    directory
        .map(PathBuf::from)
        .with_context(|| format!("go names no directory of {of_version}"))
}

/// Any that fetches modules.
const OLDEST_GO: &str = "1.24";
