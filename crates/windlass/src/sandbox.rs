//! `windlass sandbox`: the Python environment of a kubespray release.

use std::path::Path;

use ansible::{
    catalogue::{self, Release},
    sandbox::{self, Packages, Request, Sandbox as Made},
};
use anyhow::Context;
use api::KubesprayVersion;
use comfy_table::{Table, presets};
use kubespray::Layout;
use serde::Deserialize;
use serde_json::json;

use crate::cli::{Global, Output, Sandbox};

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
        Output::Json => println!("{}", serde_json::to_string_pretty(&document)?),
        Output::Yaml => println!("{}", serde_saphyr::to_string(&document)?),
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
    let layout = Layout::new(global.data_directory()?);
    let request = Request {
        checkout: checkout.to_owned(),
        python: release.python,
        core: release.ansible_core,
        packages: Packages::OfTheIndex,
    };
    let made = sandbox::ensure(&request, &layout.sandboxes(), &|doing| eprintln!("{doing}")).await;
    Ok(made?)
}

/// The release that a checkout says it is, in its `galaxy.yml`.
pub(crate) fn version(checkout: &Path) -> anyhow::Result<KubesprayVersion> {
    #[derive(Deserialize)]
    struct Galaxy {
        version: KubesprayVersion,
    }
    let file = checkout.join("galaxy.yml");
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!(
            "{} is no kubespray checkout: it has no galaxy.yml",
            checkout.display()
        )
    })?;
    let galaxy: Galaxy = serde_saphyr::from_str(&text)
        .map_err(|error| anyhow::anyhow!("{} is not valid: {error}", file.display()))?;
    Ok(galaxy.version)
}

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
        Output::Json => println!("{}", serde_json::to_string_pretty(&all)?),
        Output::Yaml => println!("{}", serde_saphyr::to_string(&all)?),
        Output::Text => {
            let mut table = Table::new();
            table.load_style(presets::NOTHING);
            table.set_header([
                "KUBESPRAY",
                "ANSIBLE",
                "ANSIBLE-CORE",
                "PYTHON",
                "KUBERNETES",
                "MINIMUM",
            ]);
            for release in &all {
                let cells = [
                    "version",
                    "ansible",
                    "ansibleCore",
                    "python",
                    "kubernetesDefault",
                    "kubernetesMinimum",
                ];
                table.add_row(
                    cells.map(|cell| release[cell].as_str().unwrap_or_default().to_owned()),
                );
            }
            println!("{table}");
        }
    }
    Ok(())
}
