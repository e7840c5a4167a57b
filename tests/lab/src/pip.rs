//! pip in an environment of its own, which goes again: what it fetched is kept, its scripts are not, for they would name a
//! path that is renamed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cache, command};

/// Runs pip once with what `configure` adds; its environment is in `target` until then.
pub(crate) fn run(target: &Path, configure: impl FnOnce(&mut Command)) -> Result<()> {
    let environment = target.join("pip");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&environment);
    command::output(&mut venv).context("make a Python environment (Debian: python3-venv)")?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip"]);
    configure(&mut pip);
    command::output(&mut pip)?;
    cache::remove(&environment)
}
