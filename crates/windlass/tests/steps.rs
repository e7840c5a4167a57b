//! `windlass steps`: every step can be had as a playbook of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn write_steps(directory: &Path) -> Output {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundle");
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["steps", "--output", "json", "--write"])
        .arg(directory)
        .arg(bundle)
        .output()
        .unwrap()
}

#[test]
fn every_step_is_written_as_a_playbook() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("steps");
    let output = write_steps(&directory);
    assert!(output.status.success(), "{output:?}");
    let steps: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let etcd = steps
        .iter()
        .find(|step| step["id"] == "etcd/install")
        .unwrap();
    let file = PathBuf::from(etcd["file"].as_str().unwrap());
    assert!(file.starts_with(&directory), "{}", file.display());
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("import_playbook"), "{text}");
    for beside in ["roles", "ansible.cfg"] {
        assert!(directory.join(beside).exists(), "{beside}");
    }
}

#[test]
fn a_directory_in_use_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), "").unwrap();
    let output = write_steps(directory.path());
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("is not empty"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
