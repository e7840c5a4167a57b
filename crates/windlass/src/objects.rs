//! Objects written as files for people, into a new directory.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::Context;
use serde_json::Value;

/// Refuses a directory in which there is anything.
pub(crate) fn refuse_used(directory: &Path) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(directory).into_iter().flatten();
    anyhow::ensure!(
        entries.next().is_none(),
        "{} is not empty: name a directory that is not there yet",
        directory.display()
    );
    Ok(())
}

/// Writes a file that is not there yet.
pub(crate) fn create(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .with_context(|| format!("failed to create {}", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("failed to write {}", path.display()))
}

/// Objects as the documents of one file.
pub(crate) fn yaml(documents: &[Value]) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for document in documents {
        all.push(serde_saphyr::to_string(document).context("failed to print")?);
    }
    Ok(all.join("---\n"))
}
