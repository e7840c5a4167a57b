//! Releases of Cluster API providers that run: their components as they are released, and the images of their managers, all from Go
//! modules. The infrastructure is that of the project's own tests, whose machines may be in memory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cluster_api::{self, ClusterApi};
use super::{BuildCache, go, go_build, minimum};
use crate::{Progress, cache, images};

/// What runs of Cluster API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managers {
    /// clusterctl, and releases as they are in the sources.
    pub cluster_api: ClusterApi,
    /// A local repository in clusterctl's layout, whose components name the images.
    pub repository: PathBuf,
    images: PathBuf,
}

impl Managers {
    /// The images of a version, as tars to be imported.
    ///
    /// # Errors
    ///
    /// There is no such version.
    pub fn images(&self, version: &str) -> Result<Vec<PathBuf>> {
        let directory = self.images.join(version);
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("list {}", directory.display()))?
            .collect::<Result<Vec<_>, _>>()?;
        Ok(entries.into_iter().map(|entry| entry.path()).collect())
    }
}

/// What there is, built where the cache does not have it.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn managers(progress: &dyn Progress) -> Result<Managers> {
    let cluster_api = cluster_api::cluster_api(progress)?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster-api/managers");
    let released = cluster_api.repository.as_os_str().as_encoded_bytes();
    let mut parts = vec![released.to_vec(), RECIPE.as_bytes().to_vec()];
    for version in ClusterApi::VERSIONS {
        for name in ["go.mod", "go.sum"] {
            let path = sources.join(version).join(name);
            let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            parts.push(text);
        }
    }
    let key = cache::key(parts.iter().map(Vec::as_slice));
    let directory = cache::ensure("cluster-api-managers", &key, |target| {
        progress.begin(
            "Cluster API managers",
            "built from source, about 7 minutes on 2 cores, 0.6 GB",
        );
        for version in ClusterApi::VERSIONS {
            progress.step(version);
            build(version, &sources.join(version), target, progress)?;
            release(version, &cluster_api.repository, &target.join("repository"))?;
        }
        progress.end();
        Ok(())
    })?;
    Ok(Managers {
        cluster_api,
        repository: directory.join("repository"),
        images: directory.join("images"),
    })
}

fn build(version: &str, sources: &Path, target: &Path, progress: &dyn Progress) -> Result<()> {
    let module = fs::read_to_string(sources.join("go.mod")).context("read go.mod")?;
    let go = go(&minimum(&module)?, progress)?;
    let scratch = BuildCache::choose(&go)?;
    let images = target.join("images").join(version);
    fs::create_dir_all(&images).context("make a directory for images")?;
    // One after the other, for their programs have names that say little, and the last one is large.
    for manager in &MANAGERS {
        let programs = target.join("programs");
        fs::create_dir_all(&programs).context("make a directory for programs")?;
        let package = match manager.package {
            "" => core(version).to_owned(),
            package => format!("{MODULE}/{package}"),
        };
        go_build(&go, sources, &[package], "-s -w", &programs, &scratch)?;
        let built = fs::read_dir(&programs)?
            .next()
            .context("nothing was built")??;
        let program = programs.join("manager");
        fs::rename(built.path(), &program).context("name the program")?;
        let name = format!("cluster-api/{}:{version}", manager.image);
        images::of_program(&images, &name, &program)?;
        cache::remove(&programs)?;
    }
    Ok(())
}

/// Where core's program is, which moved.
fn core(version: &str) -> &'static str {
    if version.starts_with("v1.13.") {
        MODULE
    } else {
        "sigs.k8s.io/cluster-api/core"
    }
}

/// Components name the images of the release, as the project's own releases do: in the sources they are of the main branch.
fn release(version: &str, from: &Path, to: &Path) -> Result<()> {
    for provided in ClusterApi::PROVIDERS {
        let (from, to) = (
            from.join(provided.label).join(version),
            to.join(provided.label).join(version),
        );
        fs::create_dir_all(&to).context("make a directory for a release")?;
        let components = fs::read_to_string(from.join(provided.file)).context("read components")?;
        let mut released =
            components.replace("imagePullPolicy: Always", "imagePullPolicy: IfNotPresent");
        for Manager { image, .. } in &MANAGERS {
            released = released.replace(
                &format!("gcr.io/k8s-staging-cluster-api/{image}:main"),
                &format!("registry.k8s.io/cluster-api/{image}:{version}"),
            );
        }
        fs::write(to.join(provided.file), released).context("write components")?;
        fs::copy(from.join("metadata.yaml"), to.join("metadata.yaml")).context("copy metadata")?;
    }
    Ok(())
}

#[derive(Debug)]
struct Manager {
    /// The name of its image.
    image: &'static str,
    /// Its package in the module; empty for core.
    package: &'static str,
}

const MODULE: &str = "sigs.k8s.io/cluster-api";

const MANAGERS: [Manager; 4] = [
    Manager {
        image: "cluster-api-controller",
        package: "",
    },
    Manager {
        image: "kubeadm-bootstrap-controller",
        package: "bootstrap/kubeadm",
    },
    Manager {
        image: "kubeadm-control-plane-controller",
        package: "controlplane/kubeadm",
    },
    Manager {
        image: "capd-manager",
        package: "test/infrastructure/docker",
    },
];

/// This file: a changed recipe makes new images.
const RECIPE: &str = include_str!("managers.rs");
