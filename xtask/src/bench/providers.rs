//! `windlass providers generate` against `clusterctl generate provider`, by turns: four providers of two versions, each a process.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lab::{
    programs::cluster_api::{ClusterApi, cluster_api},
    progress::Terminal,
};
use serde_json::{Value, json};

use super::{Row, median, output};

/// What the oracle of the pipeline takes for equal is equal here.
#[path = "../../../crates/clusterctl/tests/render/normal.rs"]
mod normal;

const TIMES: u32 = 5;

/// The providers in the repository's order: the option of either program, and the name and kind in clusterctl's configuration.
const PROVIDERS: [(&str, &str, &str); 4] = [
    ("--core", "cluster-api", "CoreProvider"),
    ("--bootstrap", "kubeadm", "BootstrapProvider"),
    ("--control-plane", "kubeadm", "ControlPlaneProvider"),
    ("--infrastructure", "docker", "InfrastructureProvider"),
];

pub(crate) fn measure(windlass: &Path) -> anyhow::Result<Vec<Row>> {
    let program = cluster_api(&Terminal::default())?;
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let configuration = configured(&program, scratch.path())?;
    let ours = |option: &str, choice: &str| {
        let mut command = Command::new(windlass);
        command.args(["providers", "generate", option, choice, "--from"]);
        command.arg(&program.repository);
        command
    };
    let theirs = |option: &str, choice: &str| {
        let mut command = Command::new(&program.clusterctl);
        command
            .args(["generate", "provider", option, choice, "--config"])
            .arg(&configuration)
            // Nothing of this machine's configuration, and no network.
            .env("HOME", scratch.path())
            .env("XDG_CONFIG_HOME", scratch.path())
            .env("GOPROXY", "off")
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command
    };
    let versions = ClusterApi::VERSIONS.into_iter();
    let choices: Vec<_> = versions
        .flat_map(|version| {
            PROVIDERS.map(|(option, name, _)| (option, format!("{name}:{version}")))
        })
        .collect();
    let mut objects = 0;
    for (option, choice) in &choices {
        let own = read(&output(&mut ours(option, choice))?)?;
        let peers = read(&output(&mut theirs(option, choice))?)?;
        ensure!(
            own == peers && !own.is_empty(),
            "{option} {choice}: the objects differ, {} and {} of them",
            own.len(),
            peers.len()
        );
        objects += own.len();
    }
    let (mut own, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let (mut our_turn, mut their_turn) = (Duration::ZERO, Duration::ZERO);
        for (option, choice) in &choices {
            their_turn += timed(&mut theirs(option, choice))?;
            our_turn += timed(&mut ours(option, choice))?;
        }
        own.push(our_turn.as_secs_f64());
        peers.push(their_turn.as_secs_f64());
    }
    let (own, peers) = (median(&own), median(&peers));
    Ok(vec![
        Row::new(
            &format!(
                "windlass providers generate of {} releases, the same {objects} objects, median of {TIMES}",
                choices.len()
            ),
            format!("{:.0} ms", own * 1e3),
        )
        .peer(
            &format!("clusterctl generate provider {:.0} ms", peers * 1e3),
            own / peers,
        )
        .wanted("<= 0.1"),
    ])
}

/// A configuration of clusterctl that has these releases, and no others.
fn configured(program: &ClusterApi, home: &Path) -> anyhow::Result<PathBuf> {
    let [_, newest] = ClusterApi::VERSIONS;
    let releases = ClusterApi::PROVIDERS.iter().zip(PROVIDERS);
    let releases: Vec<_> = releases
        .map(|(provided, (_, name, kind))| {
            let repository = program.repository.join(provided.label);
            let file = repository.join(newest).join(provided.file);
            json!({"name": name, "type": kind, "url": format!("file://{}", file.display())})
        })
        .collect();
    let path = home.join("clusterctl.yaml");
    let overrides = home.join("overrides");
    let text = json!({"providers": releases, "overridesFolder": overrides}).to_string();
    std::fs::write(&path, text).context("failed to configure clusterctl")?;
    Ok(path)
}

/// Objects as they are compared: as YAML 1.1 has its numbers, for that is what Go reads.
fn read(printed: &str) -> anyhow::Result<Vec<Value>> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! { max_depth: 200 },
    };
    let objects: Vec<Value> =
        serde_saphyr::from_multiple_with_options(printed, options).context("it printed no YAML")?;
    Ok(normal::normal(objects))
}

fn timed(command: &mut Command) -> anyhow::Result<Duration> {
    let began = Instant::now();
    output(command)?;
    Ok(began.elapsed())
}
