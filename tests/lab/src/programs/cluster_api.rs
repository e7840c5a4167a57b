//! clusterctl, and releases of Cluster API providers for it to read, all from Go modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{BuildCache, go, go_build, minimum};
use crate::{Progress, cache, command};

/// What there is of Cluster API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterApi {
    /// The `clusterctl` program, of the newest release.
    pub clusterctl: PathBuf,
    /// A program that fills in templates as `clusterctl` does; see its source.
    pub substitute: PathBuf,
    /// A local repository in clusterctl's layout: `LABEL/VERSION/FILE`, with the providers and versions below.
    pub repository: PathBuf,
}

/// A provider in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provided {
    /// The directory of its releases, as in `bootstrap-kubeadm`.
    pub label: &'static str,
    /// The file of components in each.
    pub file: &'static str,
}

impl ClusterApi {
    /// The releases, oldest first.
    pub const VERSIONS: [&str; 2] = [SOURCES[0].version, SOURCES[1].version];

    /// The providers that each of them has.
    pub const PROVIDERS: [Provided; 4] = [
        Provided {
            label: "cluster-api",
            file: "core-components.yaml",
        },
        Provided {
            label: "bootstrap-kubeadm",
            file: "bootstrap-components.yaml",
        },
        Provided {
            label: "control-plane-kubeadm",
            file: "control-plane-components.yaml",
        },
        Provided {
            label: "infrastructure-docker",
            file: "infrastructure-components.yaml",
        },
    ];
}

/// What there is, built where the cache does not have it.
///
/// # Errors
///
/// A module cannot be had, is not the one that it was, or does not build.
pub fn cluster_api(progress: &dyn Progress) -> Result<ClusterApi> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster-api");
    let read =
        |name| fs::read_to_string(sources.join(name)).with_context(|| format!("read {name}"));
    let module = read("go.mod")?;
    let pins = format!("{SOURCES:?}");
    let key = cache::key([
        module.as_bytes(),
        read("go.sum")?.as_bytes(),
        read("substitute/main.go")?.as_bytes(),
        pins.as_bytes(),
    ]);
    let directory = cache::ensure("cluster-api", &key, |target| {
        progress.begin(
            "clusterctl",
            "built from source, about 2 minutes on 2 cores, 80 MB",
        );
        let go = go(&minimum(&module)?, progress)?;
        let scratch = BuildCache::choose(&go)?;
        let packages = PACKAGES.map(str::to_owned);
        go_build(&go, &sources, &packages, "-s -w", target, &scratch)?;
        progress.step("components of its providers");
        for source in &SOURCES {
            let core = source.download(CORE, source.core_sum, &go, &sources)?;
            let docker = source.download(DOCKER, source.docker_sum, &go, &sources)?;
            source.render(&core, &docker, target)?;
        }
        progress.end();
        Ok(())
    })?;
    Ok(ClusterApi {
        clusterctl: directory.join("clusterctl"),
        substitute: directory.join("substitute"),
        repository: directory.join("repository"),
    })
}

/// The modules of a release, which hold what its components are made of. Nothing in them is built.
#[derive(Debug)]
struct Source {
    version: &'static str,
    core_sum: &'static str,
    docker_sum: &'static str,
    /// Where core's configuration is, which moved.
    core_config: &'static str,
}

impl Source {
    /// The directory of a module, whose content is what it was.
    fn download(&self, module: &str, sum: &str, go: &Path, sources: &Path) -> Result<PathBuf> {
        let name = format!("{module}@{}", self.version);
        let told = command::output(
            Command::new(go)
                .args(["mod", "download", "-json", &name])
                .current_dir(sources)
                .env("GOTOOLCHAIN", "local")
                .env("GOWORK", "off"),
        )?;
        let told: serde_json::Value = serde_json::from_str(&told).context("read what go says")?;
        let of = |field: &str| told[field].as_str().unwrap_or_default();
        ensure!(of("Sum") == sum, "{name} is {}, not {sum}", of("Sum"));
        Ok(PathBuf::from(of("Dir")))
    }

    fn render(&self, core: &Path, docker: &Path, target: &Path) -> Result<()> {
        let metadata = core.join("metadata.yaml");
        let configurations = [
            core.join(self.core_config),
            core.join("bootstrap/kubeadm/config/default"),
            core.join("controlplane/kubeadm/config/default"),
            docker.join("infrastructure/docker/config/default"),
        ];
        for (provided, configuration) in ClusterApi::PROVIDERS.iter().zip(configurations) {
            let release = target
                .join("repository")
                .join(provided.label)
                .join(self.version);
            fs::create_dir_all(&release).with_context(|| format!("make {}", release.display()))?;
            let components = command::output(
                Command::new(target.join("kustomize"))
                    .args(["build", "--load-restrictor", "LoadRestrictionsNone"])
                    .arg(configuration),
            )?;
            fs::write(release.join(provided.file), components).context("write components")?;
            // Files of modules may not be written to, and copies of them neither.
            let text = fs::read(&metadata).context("read metadata.yaml")?;
            fs::write(release.join("metadata.yaml"), text).context("write metadata.yaml")?;
        }
        Ok(())
    }
}

const CORE: &str = "sigs.k8s.io/cluster-api";
const DOCKER: &str = "sigs.k8s.io/cluster-api/test";

/// The sums are those that go.sum would have.
const SOURCES: [Source; 2] = [
    Source {
        version: "v1.13.4",
        core_sum: "h1:27PPEKSqESKeUIf475Ga6hSW1+gKxd5V5sCmMDgeBDo=",
        docker_sum: "h1:xc4RvGAS2dm+gRP2WekobBYVmRCVXNLA2R0s+tg9SJk=",
        core_config: "config/default",
    },
    Source {
        version: "v1.14.2",
        core_sum: "h1:o3GFNaeNFAOEEMpDPfhCK+2CjmV6gtQ8yLEcUwCg7bA=",
        docker_sum: "h1:nZ/Ql57cR7Huwqd7o3X+2AFSg5kcAmSTUZovLwzIhIs=",
        core_config: "core/config/default",
    },
];

const PACKAGES: [&str; 3] = [
    "sigs.k8s.io/cluster-api/cmd/clusterctl",
    "sigs.k8s.io/kustomize/kustomize/v5",
    "./substitute",
];
