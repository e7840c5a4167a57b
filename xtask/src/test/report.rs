//! Where the time of the tests went, by the report that nextest writes for machines.

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::{Context, Result};

/// A test that was run.
#[derive(Debug, Clone, PartialEq)]
struct Case {
    /// The package, and the executable where it has several: `kapi::server`.
    suite: String,
    name: String,
    time: Duration,
}

/// All tests of a run.
#[derive(Debug)]
pub(super) struct Report(Vec<Case>);

impl Report {
    /// Reads a report in JUnit's format.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("read the report of the tests, {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("read {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let document = roxmltree::Document::parse(text).context("it is no XML")?;
        let cases = document
            .descendants()
            .filter(|node| node.has_tag_name("testcase"));
        let case = |node: roxmltree::Node<'_, '_>| {
            let field = |name| {
                node.attribute(name)
                    .with_context(|| format!("a test without its {name}"))
            };
            let seconds: f64 = field("time")?.parse().context("a time is no number")?;
            Ok(Case {
                suite: field("classname")?.to_owned(),
                name: field("name")?.to_owned(),
                time: Duration::try_from_secs_f64(seconds).context("a time is out of range")?,
            })
        };
        cases.map(case).collect::<Result<_>>().map(Self)
    }

    /// Suites and tests, the slowest first. Tests that run side by side count each for itself.
    pub(super) fn slowest(&self) -> String {
        let mut text = String::new();
        for (suite, time, tests) in self.suites().into_iter().take(SUITES) {
            let _ = writeln!(text, "{} {suite}  ({tests} tests)", seconds(time));
        }
        text.push_str("slowest tests:\n");
        let mut cases: Vec<_> = self.0.iter().collect();
        cases.sort_by_key(|case| std::cmp::Reverse(case.time));
        for Case { suite, name, time } in cases.into_iter().take(TESTS) {
            let _ = writeln!(text, "{} {suite} {name}", seconds(*time));
        }
        text
    }

    fn suites(&self) -> Vec<(&str, Duration, usize)> {
        let mut suites = std::collections::BTreeMap::new();
        for case in &self.0 {
            let (time, tests) = suites
                .entry(case.suite.as_str())
                .or_insert((Duration::ZERO, 0));
            *time += case.time;
            *tests += 1;
        }
        let mut suites: Vec<_> = suites
            .into_iter()
            .map(|(suite, (time, tests))| (suite, time, tests))
            .collect();
        suites.sort_by_key(|(_, time, _)| std::cmp::Reverse(*time));
        suites
    }
}

/// A time as a column.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:7.1} s", time.as_secs_f64())
}

/// Those that take most of the time; the rest is in the report.
const SUITES: usize = 20;
const TESTS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="0" time="12.5">
  <testsuite name="lab::hosts" tests="2" disabled="0" errors="0" failures="1">
    <testcase name="two_hosts" classname="lab::hosts" time="3.250"><failure>x &lt; y</failure></testcase>
    <testcase name="one_host" classname="lab::hosts" time="1.500"/>
  </testsuite>
  <testsuite name="kapi" tests="1" disabled="0" errors="0" failures="0">
    <testcase name="store::kept" classname="kapi" time="4.000"/>
  </testsuite>
</testsuites>"#;

    #[test]
    fn the_slowest_suites_and_tests_come_first() {
        let report = Report::parse(TEXT).unwrap();
        let expected = "\
\x20   4.8 s lab::hosts  (2 tests)
    4.0 s kapi  (1 tests)
slowest tests:
    4.0 s kapi store::kept
    3.2 s lab::hosts two_hosts
    1.5 s lab::hosts one_host
";
        assert_eq!(report.slowest(), expected);
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        for text in [
            "",
            "<a>",
            r#"<testcase name="a" classname="b" time="soon"/>"#,
        ] {
            assert!(Report::parse(text).is_err(), "{text}");
        }
    }
}
