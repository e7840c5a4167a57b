//! `cargo xtask test`: every check that CI runs, in the order in which a failure costs least.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use lab::{Extent, progress::Terminal};

use crate::{generate, image, tools};

#[cfg(test)]
mod promises;
mod report;
mod suites;
mod supplies;

use supplies::Supplies;

/// Options of `test`.
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Leave out the suites on real hosts: the quick loop while writing code
    #[arg(long)]
    quick: bool,
    /// The whole matrix: all that runs without this, every version of Kubernetes and kubectl, and more random cases
    #[arg(long, conflicts_with = "quick")]
    full: bool,
}

impl Test {
    fn extent(&self) -> Extent {
        if self.full {
            Extent::Full
        } else {
            Extent::Usual
        }
    }
}

/// The Debian packages that tests start programs of.
const PACKAGES: &[(&str, &str)] = &[
    ("openssh-server", "/usr/sbin/sshd"),
    ("openssh-client", "ssh"),
    ("git", "git"),
    ("python3", "python3"),
    ("sudo", "sudo"),
];

/// One check: its name and what it does.
type Check = (&'static str, fn(&Test) -> anyhow::Result<()>);

const CHECKS: [Check; 7] = [
    ("format", |_| {
        tools::run(&mut tools::cargo(&["fmt", "--all", "--check"]))
    }),
    ("lints", |_| {
        let arguments = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "--deny",
            "warnings",
        ];
        tools::run(&mut tools::cargo(&arguments))
    }),
    ("generated files", |_| generate::check()),
    ("licences, bans, sources", |_| deny()),
    ("documentation", |_| {
        let mut command = tools::cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
        tools::run(command.env("RUSTDOCFLAGS", "--deny warnings"))
    }),
    ("doc tests", |_| {
        tools::run(&mut tools::cargo(&[
            "test",
            "--workspace",
            "--doc",
            "--quiet",
        ]))
    }),
    ("executables of the tests", suites::build),
];

/// Runs every check; the last thing printed is the test runner's own summary.
pub(crate) fn test(options: &Test) -> anyhow::Result<()> {
    let mut stages = Stages::default();
    stages.run("Debian packages", || packages(options))?;
    // Made beside the checks, with the processor that those leave: they come first, for they fail the sooner.
    let supplies = (!options.quick).then(|| Supplies::gather(options.extent()));
    for (name, check) in CHECKS {
        stages.run(name, || check(options))?;
    }
    let ready = match supplies {
        None => None,
        Some(supplies) => {
            let images = image::target().join("images-debug");
            stages.run("images", || {
                image::image(&image::Image::for_tests(options.extent(), &images))
            })?;
            let ready = stages.run("waiting for Kubernetes' programs", || supplies.wait())?;
            Some((ready, images))
        }
    };
    let started = Instant::now();
    eprintln!("== tests");
    let run = suites::run(options, ready.as_ref())?;
    stages.0.push(("tests", started.elapsed()));
    eprint!("\n== where the time went\n{}", stages.table());
    if let Some((supplies, _)) = &ready {
        eprint!("made beside these:\n{}", supplies.times);
    }
    eprint!("slowest suites:\n{}{}", run.slowest, run.left_out);
    run.conclude()
}

/// What was done, in its order, and how long it took.
#[derive(Debug, Default)]
struct Stages(Vec<(&'static str, Duration)>);

impl Stages {
    fn run<T>(
        &mut self,
        name: &'static str,
        stage: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let started = Instant::now();
        eprintln!("== {name}");
        let done = stage().with_context(|| format!("the check {name:?} failed"))?;
        eprintln!("== {name}: {} s", started.elapsed().as_secs());
        self.0.push((name, started.elapsed()));
        Ok(done)
    }

    fn table(&self) -> String {
        let total: Duration = self.0.iter().map(|(_, time)| *time).sum();
        let mut sorted = self.0.clone();
        sorted.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        sorted.push(("in all", total));
        let line = |(name, time): (&str, Duration)| format!("{} {name}\n", report::seconds(time));
        sorted.into_iter().map(line).collect()
    }
}

/// All at once and first: what works beside the checks installs none.
fn packages(options: &Test) -> anyhow::Result<()> {
    let mut wanted = PACKAGES.to_vec();
    if !options.quick {
        wanted.extend(lab::packages::HOSTS);
        wanted.extend(lab::packages::BASE);
        wanted.extend(lab::packages::HIERA);
        wanted.extend(image::PACKAGES);
    }
    lab::packages::ensure(&wanted, &Terminal::default())
}

fn deny() -> anyhow::Result<()> {
    let mut command = Command::new(tools::ensure()?.join("cargo-deny"));
    command.current_dir(tools::root()).args([
        "--log-level",
        "error",
        "check",
        "licenses",
        "bans",
        "sources",
    ]);
    tools::run(&mut command)
}
