//! `windlass up`: what it writes is its user's alone, whatever they have set for the files of others.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything below a directory, with its permissions.
fn modes(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        // SQLite removes files while it works.
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            all.extend(modes(&path));
        }
        all.push((path, metadata.permissions().mode() & 0o777));
    }
    all
}

#[test]
fn no_file_of_the_data_directory_is_readable_by_others_whatever_the_umask() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let child = Command::new("sh")
        .args(["-c", "umask 000; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_windlass"))
        .arg("--data-dir")
        .arg(&data)
        .arg("up")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = Up(child);
    let mut lines = BufReader::new(up.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("kubeconfig")));
    let modes = modes(&data);
    assert!(modes.iter().any(|(path, _)| path.ends_with("state.db")));
    let wide: Vec<_> = modes.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}
