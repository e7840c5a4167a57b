//! The Debian packages that the machine itself needs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Progress, command};

/// What running a lab takes.
pub const HOSTS: &[(&str, &str)] = &[
    ("systemd-container", "systemd-nspawn"),
    ("iproute2", "ip"),
    ("util-linux", "nsenter"),
    ("procps", "pgrep"),
    ("openssh-client", "ssh-keygen"),
];

/// What making the Debian root takes.
pub const BASE: &[(&str, &str)] = &[("debootstrap", "debootstrap")];

/// What asking Hiera takes.
pub const HIERA: &[(&str, &str)] = &[("puppet-agent", "puppet")];

/// Installs those packages whose program is missing; does nothing where all are there.
///
/// Each entry is the package and the program that shows its presence.
///
/// # Errors
///
/// `apt-get` is missing or fails.
pub fn ensure(wanted: &[(&str, &str)], progress: &dyn Progress) -> Result<()> {
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(_, program)| !on_path(program))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    progress.begin(
        "Debian packages",
        &format!("{}; about 25 s", missing.join(", ")),
    );
    progress.step("apt-get update");
    apt(&["update"])?;
    progress.step("apt-get install");
    apt(&[
        &["install", "-y", "--no-install-recommends"],
        missing.as_slice(),
    ]
    .concat())?;
    progress.end();
    Ok(())
}

fn apt(arguments: &[&str]) -> Result<()> {
    command::output(
        Command::new("apt-get")
            .arg("-q")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
    .with_context(|| format!("apt-get {}", arguments.join(" ")))?;
    Ok(())
}

fn on_path(program: &str) -> bool {
    // The directories for root's programs belong to it even where the caller's PATH lacks them.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| Path::new(&directory).join(program).is_file())
}
