//! Helm, built from its Go modules, to install the chart as people do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{BuildCache, go, go_build, minimum, required};
use crate::{Progress, cache};

/// The `helm` program of version 3, built where the cache does not have it.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn helm(progress: &dyn Progress) -> Result<PathBuf> {
    build(3, progress)
}

/// The same of version 4.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn helm_4(progress: &dyn Progress) -> Result<PathBuf> {
    build(4, progress)
}

fn build(major: u8, progress: &dyn Progress) -> Result<PathBuf> {
    let package = format!("helm.sh/helm/v{major}");
    let directory = match major {
        3 => "helm".to_owned(),
        major => format!("helm-{major}"),
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(&directory);
    let read =
        |name| fs::read_to_string(sources.join(name)).with_context(|| format!("read {name}"));
    let module = read("go.mod")?;
    let mut flags = format!(
        "-s -w -X {package}/internal/version.version=v{}",
        required(&module, &package)?,
    );
    // Version 4 finds it out by itself.
    if major == 3 {
        flags.push(' ');
        flags.push_str(&kubernetes(&module)?);
    }
    let key = cache::key([
        module.as_bytes(),
        read("go.sum")?.as_bytes(),
        flags.as_bytes(),
    ]);
    let built = cache::ensure(&directory, &key, |target| {
        progress.begin(
            &format!("Helm {major}"),
            "built from source, about 2 minutes on 2 cores, 60 MB",
        );
        let go = go(&minimum(&module)?, progress)?;
        let scratch = BuildCache::choose(&go)?;
        let program = format!("{package}/cmd/helm");
        go_build(&go, &sources, &[program], &flags, target, &scratch)?;
        progress.end();
        Ok(())
    })?;
    Ok(built.join("helm"))
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
