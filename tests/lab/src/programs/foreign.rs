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
    let mut parts = Vec::new();
    let mut files: Vec<_> = fs::read_dir(&sources)
        .with_context(|| format!("list {}", sources.display()))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    for file in &files {
        parts.push(fs::read(file).with_context(|| format!("read {}", file.display()))?);
    }
    let key = cache::key(parts.iter().map(Vec::as_slice));
    let directory = cache::ensure("foreign", &key, |target| {
        progress.begin(
            "foreign clients",
            "built from source, about 2 minutes on 2 cores, 40 MB",
        );
        let module = fs::read_to_string(sources.join("go.mod")).context("read go.mod")?;
        let go = go(&minimum(&module)?, progress)?;
        let scratch = BuildCache::choose(&go)?;
        let package = [".".to_owned()];
        go_build(&go, &sources, &package, "-s -w", target, &scratch)?;
        progress.end();
        Ok(())
    })?;
    Ok(directory.join("foreign"))
}
