//! Encrypted files, damaged: what is opened all the same is what was encrypted, and nothing else happens.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::Path, process::Command};

use sops::Keys;

const TEXT: &str = "# about it\nkind: Secret\nstringData:\n  a: hidden\n  b: [1, 2.5, true, null, 2026-11-25, {c: ''}]\n---\nd_unencrypted: open\n";

/// Runs one of the real programs in a directory.
fn run(directory: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let programs = lab::sops_programs(&lab::progress::Silent).unwrap();
    let mut command = Command::new(programs.join(program));
    let output = command.args(arguments).current_dir(directory).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// A directory with a key and that text in a file, and the public key.
fn place() -> (tempfile::TempDir, Keys, String) {
    let directory = tempfile::tempdir().unwrap();
    run(directory.path(), "age-keygen", &["-o", "key"]);
    let public = String::from_utf8(run(directory.path(), "age-keygen", &["-y", "key"])).unwrap();
    fs::write(directory.path().join("a.yaml"), TEXT).unwrap();
    let keys = Keys::find(Some(&directory.path().join("key")), |_| None).unwrap();
    (directory, keys, public.trim().to_owned())
}

#[test]
fn documents_of_sops_survive_fuzzing() {
    let (directory, keys, public) = place();
    let sealed = run(
        directory.path(),
        "sops",
        &["encrypt", "--age", &public, "a.yaml"],
    );
    let secrets = |text: &str| {
        let opened = sops::open(text, &keys).ok()?;
        let secrets = opened.secrets.iter();
        Some(
            secrets
                .map(|secret| secret.text.clone())
                .collect::<String>(),
        )
    };
    let whole = secrets(str::from_utf8(&sealed).unwrap()).unwrap();
    fuzz::bytes("document of SOPS", &[&sealed], |bytes| {
        let Ok(text) = str::from_utf8(bytes) else {
            return;
        };
        let is_sops = sops::is_sops(text);
        if let Some(secrets) = secrets(text) {
            assert!(is_sops && secrets == whole);
        }
    });
}

#[test]
fn files_of_age_survive_fuzzing() {
    let (directory, keys, public) = place();
    let (binary, armored) = (
        run(directory.path(), "age", &["-r", &public, "a.yaml"]),
        run(directory.path(), "age", &["-a", "-r", &public, "a.yaml"]),
    );
    fuzz::bytes("file of age", &[&binary, &armored], |bytes| {
        if let Ok(text) = sops::unseal(bytes, &keys) {
            assert_eq!(text.as_str(), TEXT);
        }
    });
}
