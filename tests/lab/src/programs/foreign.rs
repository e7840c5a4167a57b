//! Clients of Kubernetes as other people write them, built from a Go module of ours.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{BuildCache, go, go_build, minimum};
use crate::{Progress, cache};

/// The `foreign` program, built where the cache does not have these sources.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn foreign(progress: &dyn Progress) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign");
    let words = (
        "foreign clients",
        "built from source, about 2 minutes on 2 cores, 40 MB",
    );
    let directory = module_of_ours("foreign", &sources, &["."], words, progress)?;
    Ok(directory.join("foreign"))
}

/// The directory of the programs of a Go module of ours, built where the cache does not have these sources. `words` are what is built, and
/// what that takes.
pub(super) fn module_of_ours(
    name: &str,
    sources: &Path,
    packages: &[&str],
    words: (&str, &str),
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let mut parts = Vec::new();
    let mut files: Vec<_> = fs::read_dir(sources)
        .with_context(|| format!("list {}", sources.display()))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    for file in &files {
        parts.push(fs::read(file).with_context(|| format!("read {}", file.display()))?);
    }
    let key = cache::key(parts.iter().map(Vec::as_slice));
    cache::ensure(name, &key, |target| {
        progress.begin(words.0, words.1);
        let module = fs::read_to_string(sources.join("go.mod")).context("read go.mod")?;
        let go = go(&minimum(&module)?, progress)?;
        let scratch = BuildCache::choose(&go)?;
        let packages: Vec<_> = packages.iter().map(ToString::to_string).collect();
        go_build(&go, sources, &packages, "-s -w", target, &scratch)?;
        progress.end();
        Ok(())
    })
}
