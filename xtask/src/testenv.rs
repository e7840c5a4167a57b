//! `cargo xtask testenv`: fill the cache before anything needs it.

use anyhow::Result;
use lab::base::{self, Base};
use lab::progress::Terminal;
use lab::{images, programs};

/// Builds what is missing and prints the directories.
pub(crate) fn run() -> Result<()> {
    let progress = Terminal::default();
    let programs = programs::ensure(&progress)?;
    let root = base::ensure(Base::Containerd, &progress)?;
    let images = images::ensure(&programs, &progress)?;
    println!(
        "programs  {}  (Kubernetes {})",
        programs.dir.display(),
        programs.version
    );
    println!("root      {}", root.display());
    println!("images    {}", images.display());
    Ok(())
}
