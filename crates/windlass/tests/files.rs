//! `windlass up`: what it writes is its user's alone, whatever they have set for the files of others; and what it tells a monitoring
//! system.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
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

fn up(data: &Path, metrics: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("--data-dir").arg(data);
    command.args(["up", "--metrics", metrics]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

#[test]
fn metrics_are_served_on_a_loopback_address() {
    let place = tempfile::tempdir().unwrap();
    let mut up = Up(up(place.path(), "127.0.0.1:0").spawn().unwrap());
    let lines = BufReader::new(up.0.stdout.take().unwrap()).lines();
    let mut told = lines.map(Result::unwrap);
    let address = told.find_map(|line| Some(line.split_once("metrics     http://")?.1.to_owned()));
    let address = address.unwrap();
    let mut stream = TcpStream::connect(address.strip_suffix("/metrics").unwrap()).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    for line in [
        "# TYPE windlass_clusters gauge\n",
        "# TYPE windlass_nodes_drift gauge\n",
        "# TYPE windlass_runs gauge\n",
        "windlass_leader 1\n",
    ] {
        assert!(answer.contains(line), "{line}: {answer}");
    }
}

#[test]
fn an_address_for_metrics_that_is_not_to_be_had_is_named() {
    let place = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, words) in [
        (
            "0.0.0.0:9464",
            "write a loopback address, for example 127.0.0.1:9464",
        ),
        ("localhost", "write an address and a port"),
        (&taken, &*format!("failed to listen on {taken}")),
    ] {
        let ended = up(place.path(), address).output().unwrap();
        assert!(!ended.status.success(), "{address}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(words), "{address}: {said}");
    }
}
