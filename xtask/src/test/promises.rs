//! `docs/security.md` names a test for each promise, and `docs/magnum.md` for each feature that was asked for: each of them is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What a table of promises names that is not there.
fn missing(root: &Path, text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let tests = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit_once(" | "));
    tests
        .flat_map(|(_, tests)| tests.split(';'))
        .flat_map(|tests| missing_of(root, tests))
        .collect()
}

/// Of names in backquotes: crates or Python packages, then files of theirs, each with tests in it.
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

fn directory(root: &Path, name: &str) -> Option<PathBuf> {
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

fn has(file: &Path, test: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    ["fn", "def"]
        .iter()
        .any(|word| text.contains(&format!("{word} {test}(")))
}

#[test]
fn each_promise_has_the_test_that_it_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/security.md")).unwrap();
    assert_eq!(missing(&root, &text), [""; 0]);
    let dead = "| a promise | `xtask` `test/promises.rs`: `nobody_wrote_this`; `xtask` `gone.rs` |";
    assert_eq!(missing(&root, dead).len(), 2);
}

#[test]
fn each_feature_of_magnum_s_proposal_has_the_test_that_it_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/magnum.md")).unwrap();
    let table = text.split("<!-- proposal -->").nth(1).unwrap();
    // The heads of the columns, and fourteen features.
    assert_eq!(table.trim().lines().count(), 2 + 14);
    assert!(
        table
            .lines()
            .skip(3)
            .all(|row| row.is_empty() || row.contains(".rs`: `"))
    );
    assert_eq!(missing(&root, table), [""; 0]);
}
