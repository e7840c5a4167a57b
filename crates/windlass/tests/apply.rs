//! `windlass apply` and its neighbours against the API of `windlass up`: what is done whoever reads, and how a refusal reads.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// `windlass up`, until the test ends.
struct Up(Child);

impl Up {
    fn start(place: &Path) -> Self {
        let mut child = windlass(place, &["up"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("kubeconfig")));
        // Nobody reads on, which ends nothing.
        Self(child)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn windlass(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .arg("--data-dir")
        .arg(place.join("data"))
        .args(arguments)
        .current_dir(place)
        .env("HOME", place)
        .env_remove("XDG_CONFIG_HOME")
        .stdin(Stdio::null());
    command
}

fn says(place: &Path, arguments: &[&str]) -> (bool, String) {
    let output = windlass(place, arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.success(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

fn settings(value: &str) -> String {
    let of = |name| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: {value}}}\n"
        )
    };
    ["one", "two", "three"].map(of).join("---\n")
}

const CLUSTER: &str = "apiVersion: kubespray.k8s.io/v1\nkind: Cluster\nmetadata: {name: first}\n\
     spec: {kubespray: {version: 2.30.0}}\n";

#[test]
fn what_is_asked_for_is_done_whoever_reads_and_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let _up = Up::start(place);
    fs::write(place.join("all.yaml"), settings("a")).unwrap();
    let apply = ["apply", "-f", "all.yaml"];

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = windlass(place, &apply)
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .status();
    assert!(status.unwrap().success());
    let (_, held) = says(place, &["get", "configmaps"]);
    for name in ["one", "two", "three"] {
        assert!(held.contains(name), "{held}");
    }

    fs::write(place.join("cluster.yaml"), CLUSTER).unwrap();
    let (applied, said) = says(place, &["apply", "-f", "cluster.yaml"]);
    assert!(applied, "{said}");

    let kubeconfig = ["kubeconfig", "--user", "system:masters"];
    let (made, said) = says(place, &kubeconfig);
    assert!(!made && said.contains("Kubernetes' own"), "{said}");
    let (made, said) = says(place, &["kubeconfig", "first"]);
    assert!(!made && said.contains("has no kubeconfig yet"), "{said}");
    assert!(!said.contains("ApiError"), "{said}");
}
