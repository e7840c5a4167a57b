//! `cargo xtask bench`: how fast and how big, as a markdown table.
//!
//! Figures of one machine say little about another, so wherever there is a peer both are measured in the same run, one
//! after the other, and the ratio is what counts. Nothing here fails because a figure is bad: a timed test on a shared
//! machine is a flaky test.

use std::{fmt::Write as _, path::PathBuf, process::Command};

use clap::{Args, ValueEnum};
use e2e::{Kubespray, Options, Stage};
use lab::progress::Terminal;

use crate::tools;

mod api;
mod creates;
mod explain;
mod fleet;
mod living;
mod magnum;
mod management;
mod openstack;
mod operator;
mod plans;
mod plays;
mod probe;
mod process;
mod providers;
mod radar;
mod sliced;
mod snapshot;
mod upgrades;

/// Options of `bench`.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// What to measure; default: everything
    #[arg(value_enum)]
    names: Vec<Name>,
    /// How many pairs of runs `sliced`, `snapshot`, `living` and `upgrades` measure
    #[arg(long, default_value_t = 3)]
    runs: u8,
    /// How many Clusters of 10 nodes `operator` and `built` keep, and clusters `magnum`
    #[arg(long, default_value_t = 1000)]
    clusters: u32,
    /// Measure this windlass instead of building one for release
    #[arg(long)]
    windlass: Option<PathBuf>,
}

/// What there is to measure, in the order in which everything is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Name {
    /// Plans for 2,000 hosts
    Plans,
    /// 200 addresses of which 20 are dead
    Probe,
    /// One look of the drift radar at 50 hosts against plain logins
    Radar,
    /// `windlass explain failure` of a run of 500 hosts
    Explain,
    /// `windlass providers generate` against `clusterctl generate provider`
    Providers,
    /// Four providers in a real cluster, upgraded under calls, and the same by clusterctl
    Management,
    /// An operator with four providers at rest, and the Cluster API operator with the same
    Resting,
    /// A fleet of 10,000 clusters
    Fleet,
    /// The Magnum API against a real Magnum 23
    Magnum,
    /// A cloud from nothing to an image against the same services by hand, an upgrade of its Keystone, and passes over ten services at rest
    Openstack,
    /// The embedded API against etcd and kube-apiserver
    Api,
    /// An operator at rest
    Operator,
    /// An operator while 20 Clusters of 500 hosts are created
    Creates,
    /// An operator with 1,000 built Clusters at rest
    Built,
    /// A run through Windlass against plain ansible-playbook
    Sliced,
    /// A snapshot of an etcd of 100 MiB against `etcdctl snapshot save`
    Snapshot,
    /// A worker that joins, a dead host, an operator that is started again
    Living,
    /// A minor upgrade of three nodes against plain ansible-playbook
    Upgrades,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// What is measured.
    what: String,
    /// Windlass' figure.
    ours: String,
    /// The figure that it is held against; empty: there is none.
    peer: String,
    /// Ours to the peer's; empty: there is none.
    ratio: String,
    /// What is wanted; empty: nothing in particular.
    wanted: String,
}

impl Row {
    fn new(what: &str, ours: impl Into<String>) -> Self {
        Self {
            what: what.to_owned(),
            ours: ours.into(),
            peer: String::new(),
            ratio: String::new(),
            wanted: String::new(),
        }
    }

    fn peer(mut self, name: &str, ratio: f64) -> Self {
        name.clone_into(&mut self.peer);
        self.ratio = format!("{ratio:.3}");
        self
    }

    fn wanted(mut self, wanted: &str) -> Self {
        wanted.clone_into(&mut self.wanted);
        self
    }
}

/// Measures and prints the table.
pub(crate) fn bench(options: &Bench) -> anyhow::Result<()> {
    let names = if options.names.is_empty() {
        Name::value_variants()
    } else {
        &options.names
    };
    let mut rows = Vec::new();
    for name in names {
        rows.extend(match name {
            Name::Sliced => sliced::measure(options.runs, windlass(options)?)?,
            Name::Probe => probe::measure()?,
            Name::Radar => radar::measure()?,
            Name::Snapshot => snapshot::measure(options.runs, windlass(options)?)?,
            Name::Explain => explain::measure(&windlass(options)?)?,
            Name::Api => api::measure()?,
            Name::Operator => operator::measure(options.clusters, &windlass(options)?)?,
            Name::Creates => creates::measure()?,
            Name::Built => creates::built(options.clusters)?,
            Name::Plans => plans::measure()?,
            Name::Living => living::measure(options.runs, windlass(options)?)?,
            Name::Providers => providers::measure(&windlass(options)?)?,
            Name::Management => management::measure(&windlass(options)?)?,
            Name::Resting => management::resting(&windlass(options)?)?,
            Name::Fleet => fleet::measure()?,
            Name::Magnum => magnum::measure(options.clusters, &windlass(options)?)?,
            Name::Openstack => openstack::measure(&windlass(options)?)?,
            Name::Upgrades => upgrades::measure(options.runs, &windlass(options)?)?,
        });
    }
    println!("{}", table(&rows));
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "| what | Windlass | peer | ratio | wanted |\n|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let Row {
            what,
            ours,
            peer,
            ratio,
            wanted,
        } = row;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {ours} | {peer} | {ratio} | {wanted} |");
    }
    text
}

/// Builds an example and gives its path.
fn example(package: &str, name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
    let mut arguments = vec!["build", "--quiet", "--package", package, "--example", name];
    if profile == Profile::Release {
        eprintln!("{name}: a release build, about five minutes the first time");
        arguments.push("--release");
    }
    tools::run(&mut tools::cargo(&arguments))?;
    Ok(profile.directory().join("examples").join(name))
}

/// The `windlass` to measure, built for release where none is named.
fn windlass(options: &Bench) -> anyhow::Result<PathBuf> {
    if let Some(program) = &options.windlass {
        return Ok(std::path::absolute(program)?);
    }
    eprintln!("windlass: a release build, about ten minutes the first time");
    tools::run(&mut tools::cargo(&[
        "build",
        "--quiet",
        "--release",
        "--package",
        "windlass",
    ]))?;
    Ok(Profile::Release.directory().join("windlass"))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Profile {
    Debug,
    Release,
}

impl Profile {
    fn directory(self) -> PathBuf {
        tools::root().join("target").join(match self {
            Self::Debug => "debug",
            Self::Release => "release",
        })
    }
}

/// The checkout that the environment names, for what is measured by playbooks; none: the bundle.
fn kubespray() -> anyhow::Result<Option<Kubespray>> {
    let kubespray = Kubespray::from_environment(tools::root().join("target/debug/mirror"))?;
    if kubespray.is_some() {
        tools::run(&mut tools::cargo(&[
            "build",
            "--quiet",
            "--package",
            "e2e",
            "--bin",
            "mirror",
        ]))?;
    }
    Ok(kubespray)
}

/// How a stage of so many hosts is set, with the bundle.
fn on_hosts(hosts: u8, windlass: PathBuf) -> Options {
    Options {
        hosts,
        dead: 0,
        windlass,
        directory: tools::root(),
        playbooks: tools::root().join("bundle"),
    }
}

/// Such a stage with `windlass up`, on which what is measured raises a cluster next.
fn stage(measured: &str, hosts: u8, windlass: PathBuf) -> anyhow::Result<Stage> {
    let options = on_hosts(hosts, windlass);
    let mut stage = Stage::set_with(options, kubespray()?, &Terminal::default())?;
    stage.up()?;
    eprintln!("{measured}: raising the cluster");
    Ok(stage)
}

/// The middle of the figures; the upper one of two.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs a command to its end and gives what it printed; what it complains of is shown.
fn output(command: &mut Command) -> anyhow::Result<String> {
    use anyhow::Context;
    let shown = tools::shown(command);
    let shown: String = shown.chars().take(200).collect();
    let output = command
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("failed to start {shown}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{shown} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_names_each_bench() {
        let guide = std::fs::read_to_string(tools::root().join("docs/benchmarks.md")).unwrap();
        for name in Name::value_variants() {
            let name = name.to_possible_value().unwrap();
            let command = format!("\ncargo xtask bench {} ", name.get_name());
            assert!(guide.contains(&command), "no line begins with {command:?}");
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        for (figures, middle) in [
            (&[3.0, 1.0, 2.0][..], 2.0),
            (&[2.0, 1.0], 2.0),
            (&[5.0], 5.0),
        ] {
            assert!((median(figures) - middle).abs() < f64::EPSILON);
        }
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_row_is_a_line_of_markdown() {
        let row = Row::new("start", "1.2 s")
            .peer("1.0 s", 1.2)
            .wanted("<= 1.5 s");
        assert!(table(&[row]).ends_with("\n| start | 1.2 s | 1.0 s | 1.200 | <= 1.5 s |\n"));
    }
}
