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

/// Tests that go together, as nextest and a test of ours find them.
enum Suite {
    /// All of a package.
    Package(&'static str),
    /// An executable of a package's tests, by its file.
    Binary(&'static str, &'static str),
    /// A module of a package, or a test, by its path.
    Tests(&'static str, &'static str),
}

use Suite::{Binary, Package, Tests};

impl Suite {
    fn filter(&self) -> String {
        match self {
            Package(package) => format!("package({package})"),
            Binary(package, binary) => format!("(package({package}) & binary({binary}))"),
            Tests(package, path) => format!("(package({package}) & test(/^{path}(::|$)/))"),
        }
    }
}

/// What only the suites on real hosts and real API servers bring along: `--quick` is without them.
const HOSTS: [Suite; 10] = [
    Package("conformance"),
    Package("differential"),
    Package("e2e"),
    Package("lab"),
    Binary("kapi", "kubectl"),
    Binary("helm", "releases"),
    Tests("magnum", "service::tests::addons"),
    Binary("openstack", "kolla"),
    Binary("openstack", "merge"),
    Binary("openstack", "schema"),
];

/// Stories that only `--full` tells.
const FULL: [Suite; 24] = [
    Tests("e2e", "adopt"),
    Tests("e2e", "planes"),
    Tests("e2e", "recover"),
    Tests("e2e", "replace"),
    Tests("e2e", "component"),
    Tests("e2e", "patched"),
    Tests("e2e", "self_managing"),
    Tests("e2e", "magnum::compared"),
    Tests("e2e", "magnum::driver"),
    Tests("e2e", "magnum::suites"),
    Tests("e2e", "magnum_hosts"),
    Tests("e2e", "magnum_machines"),
    Tests("e2e", "management"),
    Tests("e2e", "management_machines"),
    Tests("e2e", "fleet"),
    Tests("e2e", "upgrade"),
    Tests("e2e", "openstack::a_backup_brings_back_what_was_there"),
    Tests("e2e", "openstack::kolla"),
    Tests("e2e", "openstack::layers"),
    Tests("e2e", "openstack::messages"),
    Tests("e2e", "openstack::writes"),
    Tests("e2e", "providers::existing"),
    Tests("magnum", "service::tests::migration::real"),
    Binary("lab", "managers"),
];

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
    command.args(["-E", &chosen(options), "--test-threads", &at_once()]);
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

/// One test more than there are processors: two are mostly stories, and a story mostly waits.
fn at_once() -> String {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    (processors + 1).to_string()
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
        filter += &without(&FULL);
    }
    if options.quick {
        filter += &without(&HOSTS);
    }
    filter
}

fn without(suites: &[Suite]) -> String {
    let filters: Vec<_> = suites.iter().map(Suite::filter).collect();
    format!(" & not ({})", filters.join(" | "))
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
    use crate::named;

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
        assert!(!filter.contains(&without(&HOSTS)), "{filter}");
        let quick = Test {
            quick: true,
            ..usual
        };
        assert!(chosen(&quick).ends_with(&without(&HOSTS)));
    }

    /// nextest says nothing of a name that no test has, and the suite is then run where it should not be.
    #[test]
    fn each_suite_is_there() {
        let root = tools::root();
        for suite in HOSTS.iter().chain(&FULL) {
            assert!(is_there(&root, suite), "{}", suite.filter());
        }
        for gone in [
            Package("gone"),
            Binary("helm", "gone"),
            Tests("e2e", "gone"),
            Tests("e2e", "openstack::gone"),
            Tests("e2e", "gone::kolla"),
        ] {
            assert!(!is_there(&root, &gone), "{}", gone.filter());
        }
    }

    #[test]
    fn each_story_that_nextest_is_told_of_is_there() {
        let root = tools::root();
        let told = std::fs::read_to_string(root.join(".config/nextest.toml")).unwrap();
        let lists = told.split("package(e2e) & test(/^(").skip(1);
        let lists: Vec<_> = lists
            .map(|rest| rest.split_once(")::/)").unwrap().0)
            .collect();
        assert!(!lists.is_empty());
        for story in lists.iter().flat_map(|list| list.split('|')) {
            assert!(is_module(&root.join(STORIES), story), "{story}");
        }
    }

    const STORIES: &str = "tests/e2e/tests/stories/main.rs";

    fn is_there(root: &Path, suite: &Suite) -> bool {
        let directory = |package| named::directory(root, package);
        match *suite {
            Package(package) => directory(package).is_some(),
            Binary(package, binary) => {
                directory(package).is_some_and(|of| of.join(format!("tests/{binary}.rs")).is_file())
            }
            Tests("e2e", path) => is_module(&root.join(STORIES), path),
            Tests(package, path) => {
                directory(package).is_some_and(|of| is_module(&of.join("src/lib.rs"), path))
            }
        }
    }

    /// Whether a file declares the module or test of such a path, by the files between.
    fn is_module(file: &Path, path: &str) -> bool {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let (name, rest) = path.split_once("::").unwrap_or((path, ""));
        let has = |begins: String| text.lines().any(|line| line.starts_with(&begins));
        let is_declared = has(format!("mod {name};")) || has(format!("pub mod {name};"));
        if rest.is_empty() {
            return is_declared || has(format!("fn {name}("));
        }
        let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("main" | "lib") => file.with_file_name(""),
            _ => file.with_extension(""),
        };
        is_declared && is_module(&folder.join(format!("{name}.rs")), rest)
    }
}
