//! The tests that tables in the documentation name: each of them is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What the last column of a table names that is not there.
#[cfg(test)]
pub(crate) fn missing(root: &Path, text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let tests = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit_once(" | "));
    tests
        .flat_map(|(_, tests)| tests.split(';'))
        .flat_map(|tests| missing_of(root, tests))
        .collect()
}

/// Of names in backquotes: crates or Python packages, then files of theirs, each with tests in it.
#[cfg(test)]
fn missing_of(root: &Path, tests: &str) -> Vec<String> {
    let (mut crates, mut files): (Vec<PathBuf>, Vec<PathBuf>) = Default::default();
    let mut missing = Vec::new();
    for name in tests.split('`').skip(1).step_by(2) {
        let is_file = Path::new(name)
            .extension()
            .is_some_and(|end| end == "rs" || end == "py");
        if is_file {
            files = crates.iter().map(|of| file(of, name)).collect();
            let absent = files.iter().filter(|file| !file.is_file());
            missing.extend(absent.map(|file| file.display().to_string()));
        } else if let Some(directory) = directory(root, name) {
            crates.push(directory);
        } else if !files.iter().any(|file| has(file, name)) {
            missing.push(format!("{name} in {files:?}"));
        }
    }
    missing
}

/// The directory of a crate or Python package.
pub(crate) fn directory(root: &Path, name: &str) -> Option<PathBuf> {
    let places = ["crates", "tests", "."].map(|place| root.join(place).join(name));
    places
        .into_iter()
        .find(|place| MANIFESTS.iter().any(|name| place.join(name).is_file()))
}

const MANIFESTS: [&str; 2] = ["Cargo.toml", "pyproject.toml"];

fn file(of: &Path, name: &str) -> PathBuf {
    if name.starts_with("tests/") {
        of.join(name)
    } else {
        of.join("src").join(name)
    }
}

#[cfg(test)]
fn has(file: &Path, test: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    ["fn", "def"]
        .iter()
        .any(|word| text.contains(&format!("{word} {test}(")))
}

/// A test in Rust, from its name to its end.
pub(crate) fn test(root: &Path, package: &str, name: &str, test: &str) -> Option<String> {
    let text = fs::read_to_string(file(&directory(root, package)?, name)).ok()?;
    let begins = format!("fn {test}(");
    let mut lines = text.lines().skip_while(|line| !line.contains(&begins));
    let first = lines.next()?;
    let indent: String = first.chars().take_while(|it| *it == ' ').collect();
    let end = format!("{indent}}}");
    let body = lines.take_while(|line| *line != end);
    Some(
        [first]
            .into_iter()
            .chain(body)
            .collect::<Vec<_>>()
            .join("\n"),
    )
}
