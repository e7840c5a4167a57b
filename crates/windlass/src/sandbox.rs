//! `windlass sandbox`: the Python environment of a kubespray release.

use std::path::Path;

use ansible::{
    catalogue::{self, Release},
    sandbox::{self, Packages, Request, Sandbox as Made},
};
use anyhow::Context;
use api::{KubernetesVersion, KubesprayVersion};
use kubespray::Layout;
use serde::Deserialize;
use serde_json::json;

use crate::{
    cli::{Global, Output, Sandbox},
    terminal,
};

/// Makes or checks the environment of a checkout; without one, lists the releases that Windlass knows.
pub(crate) async fn sandbox(global: &Global, options: Sandbox) -> anyhow::Result<()> {
    let Some(checkout) = &options.checkout else {
        return releases(options.output);
    };
    let made = ensure(global, checkout).await?;
    let document =
        json!({"path": made.path, "digest": made.digest, "ansibleCore": made.core.to_string()});
    match options.output {
        Output::Text => println!("ansible-core {} in {}", made.core, made.path.display()),
        Output::Json => println!("{}", terminal::json(&document)?),
        Output::Yaml => println!("{}", terminal::yaml(&document)?),
    }
    Ok(())
}

/// Makes the environment of a checkout, unless it is there.
pub(crate) async fn ensure(global: &Global, checkout: &Path) -> anyhow::Result<Made> {
    let release = catalogue::release(version(checkout)?)?;
    made(global, release, checkout)
        .await
        .with_context(|| format!("failed to make the environment of {}", checkout.display()))
}

/// Makes the environment of a release and its checkout, unless it is there.
pub(crate) async fn of_release(
    global: &Global,
    version: KubesprayVersion,
    checkout: &Path,
) -> anyhow::Result<Made> {
    let release = catalogue::release(version)?;
    made(global, release, checkout)
        .await
        .with_context(|| format!("failed to make the environment of kubespray {version}"))
}

/// Makes an environment with the ansible-core of a release and nothing more, unless it is there.
pub(crate) async fn core_alone(global: &Global, version: KubesprayVersion) -> anyhow::Result<Made> {
    let release = catalogue::release(version)?;
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let requirements = format!("ansible-core{}\nnetaddr\n", release.ansible_core);
    std::fs::write(directory.path().join("requirements.txt"), requirements)
        .context("failed to write requirements")?;
    made(global, release, directory.path())
        .await
        .with_context(|| format!("failed to make an environment for kubespray {version}"))
}

async fn made(global: &Global, release: &Release, checkout: &Path) -> anyhow::Result<Made> {
    let layout = Layout::new(global.private_data_directory()?);
    let request = Request {
        checkout: checkout.to_owned(),
        python: release.python,
        core: release.ansible_core,
        packages: Packages::OfTheIndex,
    };
    let made = sandbox::ensure(&request, &layout.sandboxes(), &|doing| eprintln!("{doing}")).await;
    Ok(made?)
}

/// The release that a checkout is: as its `galaxy.yml` says, where that can be relied on, else the one whose default it installs.
///
/// # Source
/// The tags of github.com/kubernetes-sigs/kubespray: v2.20.0 and v2.21.0 have no `galaxy.yml`, and those of v2.22.0 to v2.23.3 name
/// older releases. The default of Kubernetes tells releases apart, but for a few that need the same environment.
pub(crate) fn version(checkout: &Path) -> anyhow::Result<KubesprayVersion> {
    #[derive(Deserialize)]
    struct Galaxy {
        version: KubesprayVersion,
    }
    let named = match std::fs::read_to_string(checkout.join("galaxy.yml")) {
        Ok(text) => {
            let galaxy: Galaxy = serde_saphyr::from_str(&text).map_err(|error| {
                anyhow::anyhow!("{}/galaxy.yml is not valid: {error}", checkout.display())
            })?;
            Some(galaxy.version)
        }
        Err(_) => None,
    };
    if let Some(named) = named.filter(|named| *named >= RELIABLE) {
        return Ok(named);
    }
    let by_default = default_version(checkout).and_then(|default| {
        let mut releases = catalogue::releases().iter().rev();
        let old = |release: &&Release| release.version < RELIABLE;
        releases.find(|release| old(release) && release.kubernetes_default == default)
    });
    by_default.map(|release| release.version).or(named).with_context(|| {
        format!(
            "{} does not say which release it is: it has no galaxy.yml, as kubespray has from 2.22 on, and its default of Kubernetes \
             (kube_version in {DEFAULTS}) is that of no older release; check out a tag, such as v2.21.0",
            checkout.display()
        )
    })
}

/// The Kubernetes version that a checkout installs unless told otherwise.
fn default_version(checkout: &Path) -> Option<KubernetesVersion> {
    let text = std::fs::read_to_string(checkout.join(DEFAULTS)).ok()?;
    let mut lines = text.lines();
    let default = lines.find_map(|line| line.strip_prefix("kube_version:"))?;
    default.trim().trim_matches(['"', '\'']).parse().ok()
}

/// The first release whose `galaxy.yml` names it.
const RELIABLE: KubesprayVersion = KubesprayVersion::new(2, 24, 0);
/// Where releases before that have their defaults.
const DEFAULTS: &str = "roles/kubespray-defaults/defaults/main.yaml";

fn releases(output: Output) -> anyhow::Result<()> {
    let all: Vec<_> = catalogue::releases()
        .iter()
        .map(|release| {
            json!({
                "version": release.version, "ansible": release.ansible,
                "ansibleCore": format!("{} to before {}", release.ansible_core.from, release.ansible_core.before),
                "python": format!("{} to {}", release.python.oldest, release.python.newest),
                "kubernetesDefault": release.kubernetes_default, "kubernetesMinimum": release.kubernetes_minimum,
            })
        })
        .collect();
    match output {
        Output::Json => println!("{}", terminal::json(&all)?),
        Output::Yaml => println!("{}", terminal::yaml(&all)?),
        Output::Text => {
            let header = [
                "KUBESPRAY",
                "ANSIBLE",
                "ANSIBLE-CORE",
                "PYTHON",
                "KUBERNETES",
                "MINIMUM",
            ];
            let rows = all.iter().map(|release| {
                let cells = [
                    "version",
                    "ansible",
                    "ansibleCore",
                    "python",
                    "kubernetesDefault",
                    "kubernetesMinimum",
                ];
                cells.map(|cell| release[cell].as_str().unwrap_or_default().to_owned())
            });
            println!("{}", terminal::table(header, rows));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_is_known_by_its_checkout() {
        for (galaxy, default, expected) in [
            (None, "v1.24.6", Ok("2.20.0")),
            (None, "v1.25.6", Ok("2.21.0")),
            (Some("2.21.0"), "v1.26.13", Ok("2.22.2")),
            (Some("2.22.1"), "v1.27.5", Ok("2.23.0")),
            // Somebody's own default.
            (Some("2.22.1"), "v1.27.1", Ok("2.22.1")),
            (Some("2.31.0"), "", Ok("2.31.0")),
            (None, "v1.24.1", Err("check out a tag")),
            (None, "", Err("no galaxy.yml")),
        ] {
            let checkout = tempfile::tempdir().unwrap();
            let defaults = checkout.path().join(DEFAULTS);
            std::fs::create_dir_all(defaults.parent().unwrap()).unwrap();
            std::fs::write(defaults, format!("---\nkube_version: {default}\n")).unwrap();
            if let Some(version) = galaxy {
                let text = format!("namespace: kubernetes_sigs\nversion: {version}\n");
                std::fs::write(checkout.path().join("galaxy.yml"), text).unwrap();
            }
            match (version(checkout.path()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, expected) => panic!("{found:?} is not {expected:?}"),
            }
        }
    }
}
