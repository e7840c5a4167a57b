//! Helm, built from its Go module, to install the chart as people do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{BuildCache, go, go_build, minimum, required};
use crate::{Progress, cache};

/// The `helm` program, built where the cache does not have this version.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn helm(progress: &dyn Progress) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("helm");
    let read =
        |name| fs::read_to_string(sources.join(name)).with_context(|| format!("read {name}"));
    let module = read("go.mod")?;
    let flags = format!(
        "-s -w -X helm.sh/helm/v3/internal/version.version=v{} {}",
        required(&module, "helm.sh/helm/v3")?,
        kubernetes(&module)?
    );
    let key = cache::key([
        module.as_bytes(),
        read("go.sum")?.as_bytes(),
        flags.as_bytes(),
    ]);
    let directory = cache::ensure("helm", &key, |target| {
        progress.begin(
            "Helm",
            "built from source, about 2 minutes on 2 cores, 60 MB",
        );
        let go = go(&minimum(&module)?, progress)?;
        let scratch = BuildCache::choose(&go)?;
        go_build(
            &go,
            &sources,
            &[PACKAGE.to_owned()],
            &flags,
            target,
            &scratch,
        )?;
        progress.end();
        Ok(())
    })?;
    Ok(directory.join("helm"))
}

/// Without a cluster to ask, Helm says that it is one of the Kubernetes that it was built with, which it must be told.
fn kubernetes(module: &str) -> Result<String> {
    let version = required(module, "k8s.io/client-go")?;
    // k8s.io/client-go 0.34.4 is of Kubernetes 1.34.4.
    let mut parts = version.split('.').skip(1);
    let minor = parts.next().context("a version of client-go has a minor")?;
    let flags = ["chartutil", "lint/rules"].map(|package| {
        let package = format!("helm.sh/helm/v3/pkg/{package}");
        format!("-X {package}.k8sVersionMajor=1 -X {package}.k8sVersionMinor={minor}")
    });
    Ok(flags.join(" "))
}

const PACKAGE: &str = "helm.sh/helm/v3/cmd/helm";
