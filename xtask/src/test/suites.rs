//! The suites, run by nextest.

use std::{
    env,
    io::{BufRead as _, BufReader, IsTerminal as _, stderr},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, ensure};
use lab::{Extent, command::output};

use super::{Test, report::Report, supplies::Ready};
use crate::{image, tools};

/// Suites that need something of kubespray, etcd, Cluster API or openstack-helm, which this repository does not hold. They are ignored tests in modules of a name.
struct Outside {
    module: &'static str,
    variable: &'static str,
    names: &'static str,
}

const OUTSIDE: [Outside; 4] = [
    Outside {
        module: "kubespray_checkout",
        variable: "WINDLASS_KUBESPRAY",
        names: "a checkout of a kubespray release",
    },
    Outside {
        module: "kubespray_clone",
        variable: "WINDLASS_KUBESPRAY_GIT",
        names: "a clone of kubespray with its tags",
    },
    Outside {
        module: "cluster_api_definitions",
        variable: "WINDLASS_CLUSTER_API_DEFINITIONS",
        names: "directories with the definitions of Cluster API and its OpenStack provider",
    },
    Outside {
        module: "openstack_helm_checkout",
        variable: "WINDLASS_OPENSTACK_HELM",
        names: "a checkout of openstack-helm",
    },
];

impl Outside {
    fn is_given(&self) -> bool {
        env::var_os(self.variable).is_some_and(|value| !value.is_empty())
    }

    fn filter(&self) -> String {
        format!("test(/(^|::){}::/)", self.module)
    }
}

/// What only the suites on real hosts and real API servers bring along: `--quick` is without them.
const HOSTS: &str = "package(conformance) | package(differential) | package(e2e) | package(lab) | \
    (package(kapi) & binary(kubectl)) | (package(helm) & binary(releases)) | (package(openstack) & binary(/^(kolla|merge|schema)$/))";

/// Stories that only `--full` tells.
const FULL: &str = "(package(e2e) & test(/^(adopt|planes|recover|replace|component|patched|self_managing|magnum::compared|magnum::driver|magnum::suites|magnum_hosts|management|management_machines|fleet|upgrade)::/)) | \
    (package(e2e) & test(/^(openstack::(a_backup_|kolla::|layers::|writes::)|providers::existing::)/)) | \
    (package(magnum) & test(/::migration::real::/)) | \
    (package(lab) & binary(managers))";

/// Compiles the tests.
pub(super) fn build(options: &Test) -> Result<()> {
    let mut command = nextest("run")?;
    let command = command.args(["-E", &chosen(options)]);
    tools::run(command.args(["--no-run", "--cargo-quiet"]))
}

/// How the suites ended.
#[must_use]
pub(super) struct Run {
    status: ExitStatus,
    /// nextest's summary, and all that it says after that.
    last_words: String,
    /// Suites and tests, the slowest first.
    pub(super) slowest: String,
    /// What was left out and why, a line each.
    pub(super) left_out: String,
}

impl Run {
    /// Lets nextest have the last word.
    pub(super) fn conclude(self) -> Result<()> {
        eprint!("{}", self.last_words);
        ensure!(self.status.success(), "nextest ended with {}", self.status);
        Ok(())
    }
}

/// Runs the suites. What nextest says in the end is held back.
pub(super) fn run(options: &Test, ready: Option<&(Ready, PathBuf)>) -> Result<Run> {
    let report = image::target().join("nextest/default/junit.xml");
    // That of an earlier run would say nothing of this one.
    let _ = std::fs::remove_file(&report);
    let mut command = nextest("run")?;
    command.args(["-E", &chosen(options)]);
    command.env(Extent::VARIABLE, options.extent().name());
    if OUTSIDE.iter().any(Outside::is_given) {
        command.args(["--run-ignored", "all"]);
    }
    if let Some((ready, images)) = ready {
        command.env("WINDLASS_KUBECTL", &ready.kubectls);
        command.env("WINDLASS_IMAGES", images);
    }
    let (status, last_words) = follow(&mut command)?;
    Ok(Run {
        slowest: slowest(&report, status)?,
        left_out: left_out(options)?,
        status,
        last_words,
    })
}

/// Shows what nextest says up to its summary, and gives the rest.
fn follow(command: &mut Command) -> Result<(ExitStatus, String)> {
    if stderr().is_terminal() {
        command.args(["--color", "always"]);
    }
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .context("start nextest")?;
    let said = child.stderr.take().context("nextest has no output")?;
    let mut last_words = String::new();
    for line in BufReader::new(said).split(b'\n') {
        let line = line.context("read what nextest says")?;
        let line = String::from_utf8_lossy(&line);
        if last_words.is_empty() && !line.contains(SUMMARY) {
            eprintln!("{line}");
        } else {
            last_words.push_str(&line);
            last_words.push('\n');
        }
    }
    Ok((child.wait().context("wait for nextest")?, last_words))
}

/// Without a report there is nothing to tell where no test was begun.
fn slowest(report: &Path, status: ExitStatus) -> Result<String> {
    if !status.success() && !report.exists() {
        return Ok(String::new());
    }
    Report::read(report).map(|report| report.slowest())
}

fn left_out(options: &Test) -> Result<String> {
    let mut lines = String::new();
    for outside in OUTSIDE.iter().filter(|outside| !outside.is_given()) {
        let mut list = nextest("list")?;
        list.args(["--cargo-quiet", "--run-ignored", "only"]);
        list.args(["--message-format", "oneline", "-E", &outside.filter()]);
        let Outside {
            variable, names, ..
        } = outside;
        for test in output(&mut list)?.lines() {
            lines += &format!("not run: {test}: {variable} names no {names}\n");
        }
    }
    if options.quick {
        lines += "not run, for --quick: what needs real hosts, a real API server or kubectl\n";
    } else if !options.full {
        for added in Extent::ADDED {
            lines += &format!("not run, but with --full: {added}\n");
        }
    }
    Ok(lines)
}

/// The tests that these options choose, and that have what they need.
fn chosen(options: &Test) -> String {
    let mut filter = "all()".to_owned();
    for outside in OUTSIDE.iter().filter(|outside| !outside.is_given()) {
        filter += &format!(" & not {}", outside.filter());
    }
    if !options.full {
        filter += &format!(" & not ({FULL})");
    }
    if options.quick {
        filter += &format!(" & not ({HOSTS})");
    }
    filter
}

/// nextest over the whole workspace.
fn nextest(command: &str) -> Result<Command> {
    let mut nextest = Command::new(tools::ensure()?.join("cargo-nextest"));
    nextest
        .current_dir(tools::root())
        .args(["nextest", command, "--workspace"]);
    Ok(nextest)
}

/// How the line begins by which nextest says how all went.
const SUMMARY: &str = "Summary [";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_and_what_follows_is_held_back() {
        let mut runner = Command::new("sh");
        let said = "printf 'PASS\\n     Summary [ 1.0s] 2 tests run\\nFAIL one\\n' >&2; exit 100";
        // On a terminal it is also asked for colours, which are arguments of the script then.
        runner.args(["-c", said]);
        let (status, last_words) = follow(&mut runner).unwrap();
        assert_eq!(status.code(), Some(100));
        assert_eq!(last_words, "     Summary [ 1.0s] 2 tests run\nFAIL one\n");
    }

    #[test]
    fn what_needs_kubespray_is_not_chosen_without_it() {
        let usual = Test {
            quick: false,
            full: false,
        };
        let filter = chosen(&usual);
        for outside in &OUTSIDE {
            let left_out = filter.contains(&format!("not {}", outside.filter()));
            assert_eq!(left_out, !outside.is_given(), "{filter}");
        }
        assert!(!filter.contains(HOSTS), "{filter}");
        let quick = Test {
            quick: true,
            ..usual
        };
        assert!(chosen(&quick).ends_with(&format!(" & not ({HOSTS})")));
    }
}
