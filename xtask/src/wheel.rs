//! `cargo xtask wheel`: the driver of Magnum as a Python wheel.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use lab::{programs::magnum, progress::Terminal};

/// Puts the wheel into `target/wheels`, and says where it is.
pub(crate) fn wheel() -> Result<()> {
    let built = magnum::driver(&Terminal::default())?.join("wheel");
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wheels");
    fs::create_dir_all(&target).context("make target/wheels")?;
    for entry in fs::read_dir(&built).context("find the wheel")? {
        let name = entry.context("find the wheel")?.file_name();
        fs::copy(built.join(&name), target.join(&name)).context("copy the wheel")?;
        println!("target/wheels/{}", name.to_string_lossy());
    }
    Ok(())
}
