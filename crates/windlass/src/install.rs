//! `windlass install`: this program in another place, such as a volume that a pod's containers share.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::Context;

use crate::cli::Install;

/// Copies the program into a directory, all of it or nothing.
pub(crate) fn install(options: &Install) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let target = options.directory.join("windlass");
    let temporary = options.directory.join(".windlass.new");
    std::fs::copy(&program, &temporary)
        .with_context(|| format!("failed to write {}", temporary.display()))?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755))
        .context("failed to make it executable")?;
    std::fs::rename(&temporary, &target)
        .with_context(|| format!("failed to write {}", target.display()))
}
