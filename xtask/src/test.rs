//! `cargo xtask test`: every check that CI runs, in the order in which a failure costs least.

use std::{process::Command, time::Instant};

use anyhow::Context;
use clap::Args;

use crate::{generate, image, tools};

/// Options of `test`.
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Leave out the suites on real hosts: the quick loop while writing code
    #[arg(long)]
    quick: bool,
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
    ("tests", |options| nextest(options)),
];

/// Runs every check; the last thing printed is the test runner's own summary.
pub(crate) fn test(options: &Test) -> anyhow::Result<()> {
    lab::packages::ensure(PACKAGES, &lab::progress::Terminal::default())?;
    for (name, check) in CHECKS {
        let started = Instant::now();
        eprintln!("== {name}");
        check(options).with_context(|| format!("the check {name:?} failed"))?;
        eprintln!("== {name}: {} s", started.elapsed().as_secs());
    }
    Ok(())
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

fn nextest(options: &Test) -> anyhow::Result<()> {
    let mut command = Command::new(tools::ensure()?.join("cargo-nextest"));
    command
        .current_dir(tools::root())
        .args(["nextest", "run", "--workspace"]);
    if options.quick {
        command.args([
            "--exclude",
            "differential",
            "--exclude",
            "conformance",
            "--exclude",
            "e2e",
            "--exclude",
            "lab",
        ]);
    } else {
        // What the suites on real hosts need, made before the clock of any test runs.
        let progress = lab::progress::Terminal::default();
        let programs = lab::programs::ensure(&progress)?;
        lab::Kubernetes::Oldest.servers(&progress)?;
        lab::foreign(&progress)?;
        lab::helm(&progress)?;
        lab::images::ensure(&programs, &progress)?;
        lab::base::ensure(lab::base::Base::default(), &progress)?;
        let mut kubectls = lab::kubectl::ensure(&progress)?;
        kubectls.push(programs.dir.join("kubectl"));
        command.env("WINDLASS_KUBECTL", std::env::join_paths(kubectls)?);
        let images = image::target().join("images-debug");
        image::image(&image::Image::for_tests(&images))?;
        command.env("WINDLASS_IMAGES", images);
    }
    tools::run(&mut command)
}
