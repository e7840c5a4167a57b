//! Go modules that are read and not built: what other projects publish of their interfaces.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{go, numbers};
use crate::{Progress, command};

/// The directory of a module, in Go's own cache of modules; it is fetched where it is not there.
///
/// # Errors
///
/// It cannot be had.
pub fn module(name: &str, version: &str, progress: &dyn Progress) -> Result<PathBuf> {
    Ok(fetched(name, version, "", progress)?.directory)
}

/// The same of one that is held against this sum, as go.sum has them, alone: the database of all modules is not asked for it.
///
/// # Errors
///
/// It cannot be had, or is another.
pub fn module_of_sum(
    name: &str,
    version: &str,
    sum: &str,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let module = fetched(name, version, name, progress)?;
    ensure!(
        module.sum == sum,
        "{name}@{version} is {}, not {sum}",
        module.sum
    );
    Ok(module.directory)
}

struct Fetched {
    directory: PathBuf,
    sum: String,
}

fn fetched(name: &str, version: &str, unasked: &str, progress: &dyn Progress) -> Result<Fetched> {
    let go = go(&numbers(OLDEST_GO), progress)?;
    let of_version = format!("{name}@{version}");
    // Outside of any module: what is asked for is only looked at.
    let mut download = Command::new(go);
    download
        .current_dir("/")
        .args(["mod", "download", "-json", &of_version])
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    if !unasked.is_empty() {
        download.env("GONOSUMDB", unasked);
    }
    let said = command::output(&mut download).with_context(|| format!("fetch {of_version}"))?;
    let said: serde_json::Value = serde_json::from_str(&said).context("read what go says")?;
    let directory = said["Dir"].as_str();
    let directory = directory.with_context(|| format!("go names no directory of {of_version}"))?;
    Ok(Fetched {
        directory: directory.into(),
        sum: said["Sum"].as_str().unwrap_or_default().to_owned(),
    })
}

/// Any that fetches modules.
const OLDEST_GO: &str = "1.24";
