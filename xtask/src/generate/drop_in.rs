//! `docs/reference/cluster-api-operator.md`: what the Cluster API operator has and does, row by row, and what Windlass makes of it.
//!
//! The rows are data, beside tests that they name, and are held against the code: no field, condition or reason is without a row, no row is of
//! one that is not there, and each names tests that are there. What is shown of a field has to stand in one of them: a test that never
//! writes or reads the field shows nothing of it.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::Context;
use api::provider::{Reason, condition, provider_definitions};
use serde::Deserialize;
use serde_json::Value;

use crate::{named, tools};

/// The page.
pub(super) const PAGE: &str = "docs/reference/cluster-api-operator.md";

/// The rows.
const ROWS: &str = "crates/providers/tests/cluster-api-operator.yaml";

/// Rows of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    title: String,
    rows: Vec<Row>,
}

/// Something that the operator has or does. Exactly one of the first four says what.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    field: Option<String>,
    condition: Option<String>,
    reason: Option<String>,
    what: Option<String>,
    /// Whether the fields below the field are meant too.
    #[serde(default)]
    whole: bool,
    there: String,
    #[serde(default = "the_same")]
    here: String,
    /// `CRATE FILE TEST...`, and `;` between several of these.
    shown: String,
}

fn the_same() -> String {
    "the same".to_owned()
}

/// The page.
///
/// # Errors
///
/// The rows are not what the code is; everything that is wrong with them is named.
pub(super) fn page() -> anyhow::Result<String> {
    let sections = sections()?;
    let problems = problems(&tools::root(), &sections)?;
    anyhow::ensure!(
        problems.is_empty(),
        "{ROWS} is not what the code is: {}",
        problems.join("; ")
    );
    Ok(print(&sections))
}

fn sections() -> anyhow::Result<Vec<Section>> {
    let text = fs::read_to_string(tools::root().join(ROWS));
    let text = text.with_context(|| format!("failed to read {ROWS}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("failed to read {ROWS}"))
}

fn problems(root: &Path, sections: &[Section]) -> anyhow::Result<Vec<String>> {
    let rows: Vec<_> = sections.iter().flat_map(|section| &section.rows).collect();
    let mut problems = fields(&rows)?;
    let named = |of: fn(&Row) -> &Option<String>| -> Vec<&str> {
        rows.iter().filter_map(|row| of(row).as_deref()).collect()
    };
    let conditions = condition::ALL.into_iter().chain(["Ready"]).collect();
    let given = named(|row| &row.condition);
    problems.extend(compared("condition", &conditions, &given));
    let reasons = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    problems.extend(compared("reason", &reasons, &named(|row| &row.reason)));
    problems.extend(rows.iter().flat_map(|row| unshown(root, row)));
    Ok(problems)
}

/// Fields without a row, with two, and rows without a field.
fn fields(rows: &[&Row]) -> anyhow::Result<Vec<String>> {
    let known = known()?;
    let rows: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.field.as_deref()?, row.whole)))
        .collect();
    let count = |field: &str| {
        let covers = |(row, whole): &&(&str, bool)| {
            let below = field.strip_prefix(row);
            below.is_some_and(|rest| rest.is_empty() || *whole && rest.starts_with(['.', '[', '{']))
        };
        rows.iter().filter(covers).count()
    };
    let wrong = known.iter().filter(|field| count(field) != 1);
    let wrong = wrong.map(|field| format!("field {field} has {} rows", count(field)));
    let stale = rows.iter().filter(|(row, _)| !known.contains(*row));
    let stale = stale.map(|(row, _)| format!("there is no field {row}"));
    Ok(wrong.chain(stale).collect())
}

/// Every field of spec and status of the seven kinds. What a list or a map holds is below `[]` or `{}`.
fn known() -> anyhow::Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    for definition in provider_definitions() {
        let definition = serde_json::to_value(definition).context("failed to serialise a CRD")?;
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            below(part, &schema["properties"][part], &mut known);
        }
    }
    Ok(known)
}

fn below(path: &str, schema: &Value, known: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        below(&path, property, known);
        known.insert(path);
    }
    for (mark, each) in [("[]", "items"), ("{}", "additionalProperties")] {
        if schema[each].is_object() {
            below(&format!("{path}{mark}"), &schema[each], known);
        }
    }
}

/// Words of the code without exactly one row, and rows without a word.
fn compared(what: &str, known: &BTreeSet<&str>, rows: &[&str]) -> Vec<String> {
    let count = |word: &str| rows.iter().filter(|row| **row == word).count();
    let wrong = known.iter().filter(|word| count(word) != 1);
    let wrong = wrong.map(|word| format!("{what} {word} has {} rows", count(word)));
    let stale = rows.iter().filter(|row| !known.contains(*row));
    let stale = stale.map(|row| format!("there is no {what} {row}"));
    wrong.chain(stale).collect()
}

/// What a row names that is not there, or shows nothing of it.
fn unshown(root: &Path, row: &Row) -> Vec<String> {
    let subject = row.subject();
    let words = row.words();
    let (mut problems, mut shows) = (Vec::new(), words.is_empty());
    for (package, file, tests) in row.tests() {
        if tests.is_empty() {
            problems.push(format!("{subject} names no test of {package} {file}"));
        }
        for test in tests {
            match named::test(root, package, file, test) {
                Some(text) => shows |= words.iter().any(|word| text.contains(word)),
                None => problems.push(format!("{subject}: {package} {file} has no test {test}")),
            }
        }
    }
    if problems.is_empty() && !shows {
        problems.push(format!("{subject}: {} has nothing of it", row.shown));
    }
    problems
}

impl Row {
    /// A word of the definitions that it is about.
    fn code(&self) -> Option<&str> {
        let code = [&self.field, &self.condition, &self.reason];
        code.into_iter().flatten().next().map(String::as_str)
    }

    /// What it is about, as the page has it.
    fn subject(&self) -> String {
        match self.code() {
            Some(code) if self.whole => format!("`{code}` and all below it"),
            Some(code) => format!("`{code}`"),
            None => self.what.clone().unwrap_or_default(),
        }
    }

    /// What a test writes of which one shows it: the word as YAML or Rust has it. None: whatever it writes.
    fn words(&self) -> Vec<String> {
        let Some(code) = self.code() else {
            return Vec::new();
        };
        let word = code.rsplit('.').next().unwrap_or(code);
        let snake = snake(word);
        let mut words = vec![word.to_owned(), snake.to_uppercase(), snake];
        let reason = Reason::ALL.iter().find(|reason| reason.as_str() == word);
        words.extend(reason.map(|reason| format!("{reason:?}")));
        words
    }

    /// Crate, file and tests.
    fn tests(&self) -> impl Iterator<Item = (&str, &str, Vec<&str>)> {
        self.shown.split(';').map(|one| {
            let mut words = one.split_whitespace();
            let (package, file) = (words.next(), words.next());
            (
                package.unwrap_or_default(),
                file.unwrap_or_default(),
                words.collect(),
            )
        })
    }

    fn print(&self) -> String {
        let tests = self.tests().map(|(package, file, tests)| {
            let tests: Vec<_> = tests.iter().map(|test| format!("`{test}`")).collect();
            format!("`{package}` `{file}`: {}", tests.join(", "))
        });
        let tests: Vec<_> = tests.collect();
        let (subject, tests) = (self.subject(), tests.join("; "));
        format!("| {subject} | {} | {} | {tests} |\n", self.there, self.here)
    }
}

/// `syncPeriod` as `sync_period`.
fn snake(word: &str) -> String {
    let mut snake = String::new();
    for character in word.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

fn print(sections: &[Section]) -> String {
    let mut page = BEGINNING.to_owned();
    for Section { title, rows } in sections {
        page.push_str(&format!(
            "\n## {title}\n\n| | Cluster API operator | Windlass | shown by |\n|---|---|---|---|\n"
        ));
        page.extend(rows.iter().map(Row::print));
    }
    page
}

const BEGINNING: &str = "\
# The Cluster API operator and Windlass

What cluster-api-operator has and does, what Windlass makes of it, and the tests that show it. [Providers of Cluster API as
objects](../provider-objects.md) is the guide, and [custom resources](custom-resources.md) says what each field means. Fields are those of all
seven kinds, which have one spec and one status. Numbers with `#` are issues of kubernetes-sigs/cluster-api-operator.

Generated by `cargo xtask generate` from `crates/providers/tests/cluster-api-operator.yaml`. It fails where a field, condition or reason of the
definitions has no row, or a row none of them, and where a test that is named is not there, or has not the word that the row is about.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(change: impl FnOnce(&mut Vec<Row>)) -> Vec<String> {
        let mut sections = sections().unwrap();
        change(&mut sections[0].rows);
        problems(&tools::root(), &sections).unwrap()
    }

    fn version(rows: &mut [Row]) -> &mut Row {
        let mut rows = rows.iter_mut();
        rows.find(|row| row.field.as_deref() == Some("spec.version"))
            .unwrap()
    }

    #[test]
    fn each_field_condition_and_reason_has_a_row_with_tests_that_are_there() {
        assert_eq!(found(|_| ()), [""; 0]);
    }

    #[test]
    fn what_is_missing_stale_or_shown_by_nothing_is_named() {
        let lost = |rows: &mut Vec<Row>| rows.retain(|row| row.code() != Some("spec.version"));
        assert_eq!(found(lost), ["field spec.version has 0 rows"]);
        let renamed = found(|rows| version(rows).field = Some("spec.versions".to_owned()));
        assert!(
            renamed.contains(&"there is no field spec.versions".to_owned()),
            "{renamed:?}"
        );
        let shown = |by: &'static str| found(move |rows| version(rows).shown = by.to_owned());
        for by in [
            "providers check/tests.rs nobody_wrote_this",
            "providers gone.rs each_field_is_judged",
            "nowhere check/tests.rs each_field_is_judged",
        ] {
            let said = format!(
                "`spec.version`: {}",
                by.replacen(".rs", ".rs has no test", 1)
            );
            assert_eq!(shown(by), [said]);
        }
        let other = "clusterctl tests/patches.rs a_list_is_a_json_patch";
        let said = format!("`spec.version`: {other} has nothing of it");
        assert_eq!(shown(other), [said]);
        let none = shown("providers check/tests.rs");
        assert_eq!(
            none,
            ["`spec.version` names no test of providers check/tests.rs"]
        );
    }

    #[test]
    fn fields_below_lists_and_maps_are_known() {
        let known = known().unwrap();
        for field in [
            "spec.deployment.containers[].env[].valueFrom.secretKeyRef.name",
            "spec.additionalDeployments{}.manager.syncPeriod",
            "status.conditions[].reason",
        ] {
            assert!(known.contains(field), "{field}");
        }
    }
}
